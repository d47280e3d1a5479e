#include "compiler/targets/cuda/run/target.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <filesystem>
#include <unordered_set>

#include "compiler/loop_ir/domain.h"
#include "compiler/loop_ir/fused.h"
#include "compiler/loop_ir/lower_group.h"
#include "compiler/targets/cuda/nvrtc/compile.h"
#include "compiler/targets/cuda/run/graph_step.h"
#include "compiler/targets/cuda/run/index_flags.h"
#include "compiler/targets/cuda/run/operation.h"
#include "compiler/targets/cuda/run/queued_writes.h"
#include "compiler/targets/operations.h"
#include "framework/base/origin.h"
#include "framework/cuda/device_allocator.h"
#include "framework/dispatch/tf32.h"
#include "framework/io/file.h"
#include "ops/core/indexing/index.h"
#include "ops/core/pointwise.h"

namespace weft::cuda {
namespace {

const DeviceOperation& operation_of(const StepCall& c) { return static_cast<const DeviceOperation&>(*c.operation); }

// The op of a group that reads by index.
const Node& indexing_node(const Node& n) {
  const Graph* const body = loop_ir::group_of(n);
  for (int32_t id = 0; body && id < body->size(); ++id)
    if (body->node(id).op->is(kPicks)) return body->node(id);
  return n;
}

// The beginning of an error of a node's indices.
const char* name_in_errors(const OpDef& op, const Attrs& attrs) {
  if (!attrs.has("what")) return op.name;
  const auto what = attrs.get<std::string>("what");
  return intern(weft::internal::is_whole_error(what) ? what : str_cat(what, ": ", op.name));
}

// "a compiled step of 34 operations, from gather at a.cc:3 to mul at b.cc:12".
std::string description_of(std::span<const StepCall> calls) {
  const auto end = [](const StepCall& c) {
    return str_cat(indexing_node(*c.node).op->name, c.node->line.line ? str_cat(" at ", c.node->line) : std::string());
  };
  return calls.empty() ? ""
                       : str_cat("a compiled step of ", calls.size(), " operations, from ", end(calls.front()), " to ",
                                 end(calls.back()));
}

std::vector<int32_t*> flags_of(Gpu& gpu, std::span<const StepCall> calls) {
  std::vector<int32_t*> flags;
  for (const StepCall& c : calls) {
    const Node& node = indexing_node(*c.node);
    flags.push_back(operation_of(c).checks_indices()
                        ? index_flags().flag(gpu, name_in_errors(*node.op, node.attrs), node.line, node.scope)
                        : nullptr);
  }
  return flags;
}

class CudaReplay final : public Replay {
 public:
  CudaReplay(Gpu& gpu, std::span<const StepCall> calls, ReplayOptions options)
      : gpu_(gpu),
        writes_(gpu, std::move(options.writes), description_of(calls)),
        checks_(std::any_of(calls.begin(), calls.end(),
                            [](const StepCall& c) { return operation_of(c).checks_indices(); })),
        step_(gpu, {calls.begin(), calls.end()}, flags_of(gpu, calls), options.captured) {
    WEFT_BUG_IF(options.commit_point >= 0, "cuda: a step of ranks needs the CPU");
  }

  void run(bool moved) override {
    writes_.queued();
    step_.run(moved);
    queued();
  }
  void run_by_one(const std::function<void(size_t)>& before) override {
    writes_.queued();
    step_.run_by_one(before);
    queued();
  }
  void run_timed(const std::function<void(size_t, double)>& after) override {
    std::deque<Event> marks;
    run_by_one([&](size_t) {
      marks.emplace_back(gpu_, true);
      marks.back().record(gpu_.stream());
    });
    for (size_t i = 0; i + 1 < marks.size(); ++i) after(i, marks[i + 1].ms_since(marks[i]) * 1e3);
  }
  size_t at() const override { return step_.at(); }
  bool wants_fixed_addresses() const override { return step_.graphs(); }
  std::string to_string() const override {
    const GraphCounts& c = step_.counts();
    return str_cat("CUDA graph: ", c.replays, " replays, ", c.captures, " captures, ", c.recaptures,
                   " recaptures after addresses changed, ", c.renamed, " kernels given new addresses; ", c.queued,
                   " runs without the graph");
  }

 private:
  void queued() {
    if (checks_) index_flags().queued(gpu_, writes_.cells());
  }

  Gpu& gpu_;
  QueuedWrites writes_;
  const bool checks_;
  GraphStep step_;
};

// A library sums these; loop_ir::is_product is true only for the products whose epilogue can be a kernel of Weft.
bool is_product(const Node& n) { return n.op->is(kProduct); }

}  // namespace

bool CudaTarget::may_spread(const Node& n) const {
  const Graph* const body = loop_ir::group_of(n);
  for (int32_t id = 0; body && id < body->size(); ++id)
    if (loop_ir::is_product(body->node(id))) return false;
  return body != nullptr;
}

std::shared_ptr<Operation> CudaTarget::prepare(Device device, const OpDef& op, const Attrs& attrs,
                                               std::span<const StridedView> in, std::span<const StridedView> out,
                                               int alignment, const weft::PrepareOptions& options) {
  // Operations hold functions of the driver. This callback is registered after the GPU's own and so runs before it.
  Gpu& gpu = Gpu::of(device);
  [[maybe_unused]] static const bool registered =
      (internal::at_driver_change([] { weft::internal::forget_operations(DeviceType::kCuda); }), true);
  const bool fused = op.is(kGroup);
  // A plan's copies are casts to the same type: a captured graph can give kernels new addresses, but not copies.
  if (&op == &loop_ir::copy_op)
    return prepare(device, cast_op, Attrs{{"dtype", out[0].dtype}}, in, out, alignment, options);
  auto unavailable = [&](const std::string& why) {
    if (fused) throw CannotLower{attrs.get<Ref<Graph>>("body"), why};
  };
  try {
    return cuda::prepare(op, attrs, in, out, gpu_properties(device.index), alignment,
                         {.round_like_eager = options.round_like_eager, .tf32 = options.tf32, .gpu = &gpu});
  } catch (const Error& e) {
    unavailable(e.what());
    throw;
  } catch (const loop_ir::Unfusable& u) {
    unavailable(u.why);
    throw Error(Code::kUnavailable, str_cat(op.name, ": CUDA has no kernel: ", u.why));
  }
}

LoadReport CudaTarget::compile(Device device, std::span<const std::shared_ptr<Operation>> operations,
                               const LoadOptions&) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<DeviceOperation*> missing;
  LoadReport report;
  std::unordered_set<std::string_view> distinct;
  for (const auto& o : operations) {
    auto* operation = static_cast<DeviceOperation*>(o.get());
    for (const Kernel& k : operation->kernels()) distinct.insert(k.text);
    if (!operation->compiled()) missing.push_back(operation);
  }
  report.kernels = static_cast<int64_t>(distinct.size());
  report.compiled = load(Gpu::of(device), missing);
  report.ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return report;
}

void CudaTarget::run_now(const KernelCall& call, Device device, SourceLine line) {
  Gpu& gpu = Gpu::of(device);
  uint64_t bits = 0;
  SmallVec<void*, 8> addresses;
  for (auto views : {call.in, call.out})
    for (const StridedView& v : views) {
      addresses.push_back(v.data);
      bits |= reinterpret_cast<uintptr_t>(v.data);
    }
  weft::internal::Operations operations(*this, gpu.device(), {.tf32 = tf32()});
  const std::shared_ptr<Operation> prepared = operations.get(call.op, call.attrs, call.in, call.out, bits);
  if (!prepared->compiled()) compile(device, {&prepared, 1}, {});
  const auto& operation = static_cast<const DeviceOperation&>(*prepared);
  const std::span<void* const> all(addresses.data(), addresses.size());
  Addresses at{all.first(call.in.size()), all.subspan(call.in.size())};
  if (operation.checks_indices())
    at.bad = index_flags().flag(gpu, name_in_errors(call.op, call.attrs), line, weft::internal::origin_path());
  const int64_t bytes = operation.workspace_bytes();
  if (bytes == 0) return operation.enqueue(at, gpu.stream(), line);
  // Released at once: the next owner's work is queued after this work.
  at.workspace = gpu.allocator().allocate(bytes);
  struct Release {
    Gpu& gpu;
    void* p;
    int64_t bytes;
    ~Release() { gpu.allocator().deallocate(p, bytes); }
  } release{gpu, at.workspace, bytes};
  operation.enqueue(at, gpu.stream(), line);
}

std::unique_ptr<Replay> CudaTarget::replay(Device device, std::span<const StepCall> calls, ReplayOptions options) {
  return std::make_unique<CudaReplay>(Gpu::of(device), calls, std::move(options));
}

// Our kernels sum in the CPU's order and give its bits. A library may sum a product in any order. Attention and
// linear + cross-entropy have their own order.
Agreement CudaTarget::agreement(const Operation&, const Node& n, const weft::PrepareOptions& options) const {
  if (n.op->is(kAttention) || n.op->is(kLinearLoss)) return {Agreement::kNone};
  if (n.op->is(kSideEffect) || n.op->is(kCollective)) return {Agreement::kNone};
  const double operand_error = options.tf32 ? 0x1p-10 : 0;
  if (!n.op->is(kGroup))
    return is_product(n) ? Agreement{Agreement::kBounds, operand_error} : Agreement{Agreement::kBits};
  const Graph& body = loop_ir::body_of(n);
  bool product = false;
  for (int32_t id = 0; id < body.size(); ++id) product |= is_product(body.node(id));
  const bool approximate = approximates(body, options.round_like_eager);
  if (product) return {Agreement::kBounds, operand_error, approximate};
  return {approximate ? Agreement::kBounds : Agreement::kBits, 0, approximate};
}

std::string CudaTarget::dump(const Operation& operation, const std::string& folder) const {
  std::string first;
  for (const Kernel& k : static_cast<const DeviceOperation&>(operation).kernels()) {
    const std::string name = k.symbol + ".cu";
    std::filesystem::create_directories(folder);
    io::write_file_atomic(str_cat(folder, "/", name), source_text(k));
    if (first.empty()) first = name;
  }
  return first;
}

void CudaTarget::look(Device device) { index_flags().look(Gpu::of(device)); }
std::unique_ptr<QueuedLook> CudaTarget::queue_look(Device device) { return index_flags().queue_look(Gpu::of(device)); }

CudaTarget& cuda_target() {
  static auto* t = new CudaTarget;
  return *t;
}

}  // namespace weft::cuda
