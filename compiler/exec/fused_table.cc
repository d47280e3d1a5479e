#include "compiler/exec/fused_table.h"

#include <chrono>
#include <cstdio>

#include "compiler/codegen/print.h"
#include "compiler/kir/fused.h"
#include "framework/base/cpu.h"
#include "framework/base/hash.h"
#include "framework/base/mutex.h"

namespace weft::internal {
namespace {

// Functions this process has, by kernel_key. Generated code is never unloaded.
struct Loaded {
  Mutex mutex;
  std::unordered_map<std::string, kir::Fn> fns WEFT_GUARDED_BY(mutex);
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

void (*fault_for_test)(kir::Lowered&) = nullptr;

std::string kernel_key(const kir::Kernel& k) {
  std::string key;
  auto put = [&](const auto& v) { key.append(reinterpret_cast<const char*>(&v), sizeof v); };
  auto small = [&](auto v) { put(static_cast<int16_t>(v)); };
  small(k.mode);
  small(k.axes);
  for (int n : {k.params, k.kept, k.columns, k.partials}) small(n);
  small(k.operands.size());
  for (const kir::Operand& o : k.operands) {
    small(o.dtype);
    small(o.output);
    for (kir::StrideKind s : o.strides) small(s);
  }
  small(k.instrs.size());
  for (const kir::Instr& i : k.instrs) {
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
  for (const kir::Segment& s : k.segments) {
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

  std::vector<kir::Layout> layouts_in, layouts_out;
  for (size_t i = 0; i < in.size(); ++i) layouts_in.push_back({body->type(body->inputs[i]), in[i].strides});
  for (size_t i = 0; i < out.size(); ++i) layouts_out.push_back({n.outputs[static_cast<int>(i)], out[i].strides});
  std::shared_ptr<FusedKernel> kernel;
  try {
    kir::Lowered lowered = kir::lower_group(*body, layouts_in, layouts_out, options_);
    if (fault_for_test) fault_for_test(lowered);
    kernel = std::make_shared<FusedKernel>(body, std::move(lowered), in);
  } catch (const Error& e) {
    throw CannotLower{body, e.what()};
  }
  made_.push_back(kernel.get());
  kernels_.emplace(hash, Entry{std::move(strides), kernel});
  return kernel;
}

LoadReport FusedTable::load(const jit::Options& options) {
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
    const kir::Kernel& k = wanted.at(*key)[0]->lowered().kernel;
    k.verify();
    request.kernels.push_back({"kernel", codegen::print(k, target)});
  }
  const jit::Loaded got = jit::load(request, options);
  report.notes = got.notes;
  if (!got.unavailable.empty()) {
    report.notes.push_back(cat("kernels are interpreted: ", got.unavailable));
    say_once(report.notes.back());
  }
  report.compiled = got.compiled;
  report.from_disk = got.from_disk;
  MutexLock lock(loaded().mutex);
  for (size_t i = 0; i < missing.size(); ++i) {
    if (!got.functions[i]) continue;
    const auto fn = reinterpret_cast<kir::Fn>(got.functions[i]);
    loaded().fns.emplace(*missing[i], fn);
    for (FusedKernel* k : wanted.at(*missing[i])) k->bind(fn);
  }
  report.ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace weft::internal
