#include "compiler/exec/fused_table.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "compiler/loop_ir/domain.h"
#include "compiler/loop_ir/fused.h"
#include "compiler/targets/cpu/print/print.h"
#include "framework/base/cpu.h"
#include "framework/base/hash.h"
#include "framework/base/mutex.h"

namespace weft::internal {
namespace {

// Functions this process has, by kernel_key. Generated code is never unloaded.
struct Loaded {
  Mutex mutex;
  std::unordered_map<std::string, loop_ir::Fn> fns WEFT_GUARDED_BY(mutex);
};
Loaded& loaded() {
  static Loaded* l = new Loaded;
  return *l;
}

void say_once(const std::string& note) {
  static const bool said = std::fprintf(stderr, "weft: %s\n", note.c_str()) > 0;
  static_cast<void>(said);
}

}  // namespace

void (*fault_for_test)(loop_ir::Lowered&) = nullptr;

std::string kernel_key(const loop_ir::Kernel& k) {
  std::string key;
  auto put = [&](const auto& v) { key.append(reinterpret_cast<const char*>(&v), sizeof v); };
  auto small = [&](auto v) { put(static_cast<int16_t>(v)); };
  small(k.mode);
  small(k.axes);
  for (int n : {k.params, k.kept, k.columns, k.partials}) small(n);
  small(k.operands.size());
  for (const loop_ir::Operand& o : k.operands) {
    small(o.dtype);
    small(o.output);
    small(o.indexed);
    for (loop_ir::StrideKind s : o.strides) small(s);
  }
  small(k.instrs.size());
  for (const loop_ir::Instr& i : k.instrs) {
    small(i.op);
    small(i.type);
    small(i.level);
    small(i.a);
    small(i.b);
    small(i.c);
    small(i.slot);
    put(i.value);
    small(i.pw);
    small(i.rd);
    small(i.dtype);
  }
  for (const loop_ir::Segment& s : k.segments) {
    small(s.loop);
    small(s.instrs.size());
    for (int i : s.instrs) small(i);
  }
  return key;
}

uint64_t FusedTable::hash_of(const Ref<Graph>& body) {
  auto [at, fresh] = hashes_.try_emplace(body.get(), 0);
  if (fresh) {
    hashed_.push_back(body);
    at->second = structural_hash(*body);
  }
  return at->second;
}

std::shared_ptr<FusedKernel> FusedTable::get(const Node& n, std::span<const StridedView> in,
                                             std::span<const StridedView> out) {
  const Ref<Graph>& body = n.attrs.get<Ref<Graph>>("body");
  const uint64_t hash = hash_of(body);
  std::vector<Shape> strides;
  for (const auto& list : {in, out})
    for (const StridedView& v : list) strides.push_back(v.strides);
  auto [begin, end] = kernels_.equal_range(hash);
  for (auto e = begin; e != end; ++e)
    if (e->second.strides == strides && structurally_equal(e->second.kernel->body(), *body)) return e->second.kernel;

  std::vector<loop_ir::Layout> layouts_in, layouts_out;
  for (size_t i = 0; i < in.size(); ++i) layouts_in.push_back({body->type(body->inputs[i]), in[i].strides});
  for (size_t i = 0; i < out.size(); ++i) layouts_out.push_back({n.outputs[static_cast<int>(i)], out[i].strides});
  std::shared_ptr<FusedKernel> kernel;
  try {
    kernel = make(body, layouts_in, layouts_out, in);
  } catch (const Error& e) {
    throw CannotLower{body, e.what()};
  } catch (const loop_ir::Unfusable& u) {
    throw CannotLower{body, u.why};
  }
  kernels_.emplace(hash, Entry{std::move(strides), kernel});
  return kernel;
}

std::shared_ptr<FusedKernel> FusedTable::make(const Ref<Graph>& body, std::span<const loop_ir::Layout> in,
                                              std::span<const loop_ir::Layout> out,
                                              std::span<const StridedView> views) {
  auto done = [&](loop_ir::Lowered lowered, FusedDot dot) {
    if (fault_for_test) fault_for_test(lowered);
    for (const auto& k : dot.kernel)  // not before: what throws on the way takes them along
      if (k) made_.push_back(k.get());
    auto kernel = std::make_shared<FusedKernel>(body, std::move(lowered), views, std::move(dot));
    made_.push_back(kernel.get());
    return kernel;
  };
  std::optional<loop_ir::DotParts> parts = loop_ir::take_apart(*body);
  if (!parts) return done(loop_ir::lower_group(*body, in, out, options_), {});

  FusedDot dot;
  dot.main = parts->main;
  std::vector<loop_ir::Layout> main_in(in.begin(), in.end());
  std::vector<std::string> rounds;
  std::vector<int32_t> filling;
  for (int k = 0; k < 2; ++k) {
    loop_ir::Prologue& p = parts->operand[k];
    if (!p.body) continue;
    main_in.push_back({p.type, contiguous_strides(p.type.shape)});
    std::vector<loop_ir::Layout> own;
    std::vector<StridedView> own_views;
    for (int32_t i : p.inputs) {
      own.push_back(in[i]);
      own_views.push_back(views[i]);
      filling.push_back(i);
    }
    loop_ir::Lowered low = loop_ir::lower_prologue(p, own, options_);
    rounds.insert(rounds.end(), low.rounds_less.begin(), low.rounds_less.end());
    dot.kernel[k] = std::make_shared<FusedKernel>(p.body, std::move(low), own_views);
    dot.prologue[k] = std::move(p);
  }
  loop_ir::Lowered low = loop_ir::lower_group(*dot.main, main_in, out, options_);
  low.rounds_less.insert(low.rounds_less.begin(), rounds.begin(), rounds.end());
  // A task may still pack what another's tile would overwrite.
  std::erase_if(low.overwrites, [&](const auto& pair) {
    return std::find(filling.begin(), filling.end(), pair.first) != filling.end();
  });
  low.flops = loop_ir::body_flops(*body);
  low.bytes = 0;
  for (const auto& list : {in, out})
    for (const loop_ir::Layout& l : list) low.bytes += static_cast<double>(l.type.nbytes());
  return done(std::move(low), std::move(dot));
}

int64_t FusedTable::prepare(Launch& l, const Graph& g, std::span<const StridedView> in,
                            std::span<const StridedView> out) {
  const Node& n = g.node(l.node);
  if (!l.copy && n.op == &loop_ir::fused_op) {
    l.fused = get(n, in, out);
    return l.fused->workspace_bytes();
  }
  WEFT_BUG_IF(!l.op->kernel, "plan: ", l.op->name, " has neither kernel nor view");
  return l.op->workspace ? l.op->workspace(n.attrs, in, out) : 0;
}

bool FusedTable::may_overwrite(const Launch& l, int32_t in, int32_t out) const {
  return l.fused->lowered().may_overwrite(in, out);
}

LoadReport FusedTable::load(const LoadOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  LoadReport report;
  std::unordered_map<std::string, std::vector<FusedKernel*>> wanted;
  std::vector<const std::string*> missing;  // keys, in an order that does not depend on addresses
  for (FusedKernel* k : made_) {
    auto [at, fresh] = wanted.try_emplace(kernel_key(k->lowered().kernel));
    at->second.push_back(k);
    if (fresh) missing.push_back(&at->first);
  }
  report.kernels = static_cast<int64_t>(missing.size());
  {
    MutexLock lock(loaded().mutex);
    std::erase_if(missing, [&](const std::string* key) {
      auto at = loaded().fns.find(*key);
      if (at == loaded().fns.end()) return false;
      for (FusedKernel* k : wanted.at(*key)) k->bind(at->second);
      return true;
    });
  }
  if (missing.empty()) return report;

  const codegen::Target& target = codegen::cpu();
  jit::Request request{codegen::prelude(target), {}, selected_isa()};
  for (const std::string* key : missing) {
    const loop_ir::Kernel& k = wanted.at(*key)[0]->lowered().kernel;
    k.verify();
    request.kernels.push_back({"kernel", codegen::print(k, target)});
  }
  const jit::Loaded got = jit::load(request, {.cache = options.cache, .faults_are_errors = options.faults_are_errors});
  report.notes = got.notes;
  if (!got.unavailable.empty()) {
    report.notes.push_back(str_cat("kernels are interpreted: ", got.unavailable));
    say_once(report.notes.back());
  }
  report.compiled = got.compiled;
  report.from_disk = got.from_disk;
  MutexLock lock(loaded().mutex);
  for (size_t i = 0; i < missing.size(); ++i) {
    if (!got.functions[i]) continue;
    const auto fn = reinterpret_cast<loop_ir::Fn>(got.functions[i]);
    loaded().fns.emplace(*missing[i], fn);
    for (FusedKernel* k : wanted.at(*missing[i])) k->bind(fn);
  }
  report.ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace weft::internal
