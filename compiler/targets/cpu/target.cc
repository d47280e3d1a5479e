#include "compiler/targets/cpu/target.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <unordered_map>

#include "compiler/jit/jit.h"
#include "compiler/loop_ir/domain.h"
#include "compiler/loop_ir/fused.h"
#include "compiler/targets/cpu/print/print.h"
#include "framework/base/cpu.h"
#include "framework/base/hash.h"
#include "framework/base/mutex.h"

namespace weft::internal {

void (*fault_for_test)(loop_ir::Lowered&) = nullptr;

namespace {

// Functions this process has, by kernel_key. Generated code is never unloaded.
struct LoadedFunctions {
  Mutex mutex;
  std::unordered_map<std::string, loop_ir::KernelFunction> fns WEFT_GUARDED_BY(mutex);
};
LoadedFunctions& loaded() {
  static LoadedFunctions* l = new LoadedFunctions;
  return *l;
}

void warn_once(const std::string& note) {
  struct Warned {
    Mutex mutex;
    std::set<std::string> notes WEFT_GUARDED_BY(mutex);
  };
  static auto* warned = new Warned;
  MutexLock lock(warned->mutex);
  if (warned->notes.insert(note).second) warn(note);
}

std::shared_ptr<FusedKernel> made(const Ref<Graph>& body, loop_ir::Lowered lowered, std::span<const StridedView> views,
                                  FusedDot dot) {
  if (fault_for_test) fault_for_test(lowered);
  return std::make_shared<FusedKernel>(body, std::move(lowered), views, std::move(dot));
}

// A product, with the operands that are computed while they are packed.
std::shared_ptr<FusedKernel> product_kernel(const Ref<Graph>& body, loop_ir::DotParts parts,
                                            std::span<const loop_ir::ValueLayout> in,
                                            std::span<const loop_ir::ValueLayout> out,
                                            std::span<const StridedView> views, const loop_ir::LowerOptions& options) {
  FusedDot dot;
  dot.main = parts.main;
  std::vector<loop_ir::ValueLayout> main_in(in.begin(), in.end());
  std::vector<std::string> rounds;
  std::vector<int32_t> filling;
  for (int k = 0; k < 2; ++k) {
    loop_ir::Prologue& p = parts.operand[k];
    if (!p.body) continue;
    main_in.push_back({p.type, contiguous_strides(p.type.shape)});
    std::vector<loop_ir::ValueLayout> own;
    std::vector<StridedView> own_views;
    for (int32_t i : p.inputs) {
      own.push_back(in[i]);
      own_views.push_back(views[i]);
      filling.push_back(i);
    }
    loop_ir::Lowered low = loop_ir::lower_prologue(p, own, options);
    rounds.insert(rounds.end(), low.rounds_less.begin(), low.rounds_less.end());
    dot.kernel[k] = std::make_shared<FusedKernel>(p.body, std::move(low), own_views);
    dot.prologue[k] = std::move(p);
  }
  loop_ir::Lowered low = loop_ir::lower_group(*dot.main, main_in, out, options);
  low.rounds_less.insert(low.rounds_less.begin(), rounds.begin(), rounds.end());
  // A task may still pack elements that another task's tile would overwrite.
  std::erase_if(low.overwrites, [&](const auto& pair) {
    return std::find(filling.begin(), filling.end(), pair.first) != filling.end();
  });
  low.flops = loop_ir::body_cost(*body).flops;
  low.bytes = 0;
  for (const auto& list : {in, out})
    for (const loop_ir::ValueLayout& l : list) low.bytes += static_cast<double>(l.type.nbytes());
  return made(body, std::move(low), views, std::move(dot));
}

}  // namespace

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
  for (const loop_ir::KernelSegment& s : k.segments) {
    small(s.loop);
    small(s.instrs.size());
    for (int i : s.instrs) small(i);
  }
  return key;
}

std::shared_ptr<FusedKernel> make_fused_kernel(const Ref<Graph>& body, std::span<const StridedView> in_views,
                                               std::span<const StridedView> out_views,
                                               const loop_ir::LowerOptions& options) {
  std::vector<loop_ir::ValueLayout> in, out;
  for (size_t i = 0; i < in_views.size(); ++i) in.push_back({body->type(body->inputs[i]), in_views[i].strides});
  for (size_t i = 0; i < out_views.size(); ++i) out.push_back({body->type(body->outputs[i]), out_views[i].strides});
  try {
    std::optional<loop_ir::DotParts> parts = loop_ir::take_apart(*body);
    if (!parts) return made(body, loop_ir::lower_group(*body, in, out, options), in_views, {});
    return product_kernel(body, std::move(*parts), in, out, in_views, options);
  } catch (const Error& e) {
    throw CannotLower{body, e.what()};
  } catch (const loop_ir::Unfusable& u) {
    throw CannotLower{body, u.why};
  }
}

std::shared_ptr<Operation> CpuTarget::prepare(Device device, const OpDef& op, const Attrs& attrs,
                                              std::span<const StridedView> in, std::span<const StridedView> out,
                                              int alignment, const PrepareOptions& options) {
  if (!op.is(kGroup)) return HostTarget::prepare(device, op, attrs, in, out, alignment, options);
  return make_fused_kernel(attrs.get<Ref<Graph>>("body"), in, out, {.round_like_eager = options.round_like_eager});
}

LoadReport CpuTarget::compile(Device, std::span<const std::shared_ptr<Operation>> operations,
                              const LoadOptions& options) {
  return load_kernels(fused_kernels(operations), options);
}

Agreement CpuTarget::agreement(const Operation& operation, const Node& n, const PrepareOptions&) const {
  // The kernel has its own order of sums and its own exponential.
  if (n.op->is(kAttention) && n.outputs.back().dtype == kFloat32) return {Agreement::kBounds, 0, true};
  const bool exact = operation.rounds_less().empty();
  // No bounds are known for a carry that is rounded less often in each iteration.
  if (!operation.operations().empty()) return {exact ? Agreement::kBits : Agreement::kNone};
  if (!fused_kernel(&operation)) return {};
  return {exact ? Agreement::kBits : Agreement::kBounds};
}

CpuTarget& cpu_target() {
  static auto* t = new CpuTarget;
  return *t;
}

LoadReport load_kernels(std::span<const FusedKernel* const> kernels, const LoadOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  LoadReport report;
  std::unordered_map<std::string, std::vector<const FusedKernel*>> wanted;
  std::vector<const std::string*> missing;  // keys, in an order that does not depend on addresses
  auto want = [&](const FusedKernel* k) {
    auto [at, fresh] = wanted.try_emplace(kernel_key(k->lowered().kernel));
    at->second.push_back(k);
    if (fresh) missing.push_back(&at->first);
  };
  for (const FusedKernel* k : kernels) want(k);
  report.kernels = static_cast<int64_t>(missing.size());
  {
    MutexLock lock(loaded().mutex);
    std::erase_if(missing, [&](const std::string* key) {
      auto at = loaded().fns.find(*key);
      if (at == loaded().fns.end()) return false;
      for (const FusedKernel* k : wanted.at(*key)) k->bind(at->second);
      return true;
    });
  }
  if (missing.empty()) return report;

  const codegen::PrintTarget& target = codegen::cpu();
  jit::KernelRequest request{codegen::prelude(target), {}, selected_isa()};
  for (const std::string* key : missing) {
    const loop_ir::Kernel& k = wanted.at(*key)[0]->lowered().kernel;
    k.verify();
    request.kernels.push_back({"kernel", codegen::print(k, target)});
  }
  const jit::Loaded got = jit::load(request, {.cache = options.cache, .faults_are_errors = options.faults_are_errors});
  report.notes = got.notes;
  // A user who names a folder must learn that it is not used.
  for (const std::string& note : got.notes)
    if (!options.cache.empty() && note.starts_with("kernel cache: ")) warn_once(note);
  if (!got.unavailable.empty()) {
    report.notes.push_back(str_cat("kernels are interpreted: ", got.unavailable));
    warn_once(report.notes.back());
  }
  report.compiled = got.compiled;
  report.from_disk = got.from_disk;
  MutexLock lock(loaded().mutex);
  for (size_t i = 0; i < missing.size(); ++i) {
    if (!got.functions[i]) continue;
    const auto fn = reinterpret_cast<loop_ir::KernelFunction>(got.functions[i]);
    loaded().fns.emplace(*missing[i], fn);
    for (const FusedKernel* k : wanted.at(*missing[i])) k->bind(fn);
  }
  report.ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace weft::internal
