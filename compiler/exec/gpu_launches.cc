#include "compiler/exec/gpu_launches.h"

#include <bit>
#include <chrono>
#include <deque>

#include "compiler/loop_ir/domain.h"
#include "compiler/loop_ir/fused.h"
#include "compiler/loop_ir/lower_group.h"
#include "compiler/targets/cuda/run/graph_step.h"
#include "compiler/targets/cuda/run/index_flags.h"
#include "compiler/targets/cuda/run/queued_writes.h"
#include "framework/base/hash.h"
#include "framework/cuda/copy.h"
#include "framework/cuda/device_allocator.h"
#include "ops/core/index.h"
#include "ops/core/pointwise.h"

namespace weft::internal {
namespace {

// Bytes of which the addresses of all places are multiples, at most 16: buffers start on more.
int alignment_of(const Launch& l) {
  uint64_t bits = 16;
  for (const Place& p : l.in) bits |= static_cast<uint64_t>(p.offset);
  for (const Place& p : l.out) bits |= static_cast<uint64_t>(p.offset);
  return 1 << std::countr_zero(bits);
}

class GpuCalls final : public DeviceCalls {
 public:
  GpuCalls(cuda::Gpu& gpu, const std::vector<DeviceCall>& calls, bool replayed, std::vector<Ref<Cell>> writes)
      : gpu_(gpu), writes_(gpu, std::move(writes), what_of(calls)), step_(gpu, steps_of(gpu, calls), replayed) {
    for (const DeviceCall& c : calls) checks_ |= c.launch->operation->checks_indices();
  }

  void run(bool moved) override {
    writes_.queued();
    step_.run(moved);
    if (checks_) cuda::index_flags().queued(gpu_, writes_.cells());
  }
  size_t at() const override { return step_.at(); }
  bool wants_fixed_addresses() const override { return step_.graphs(); }
  void copy(void* to, const void* from, int64_t bytes) override {
    gpu_.make_current();
    cuda::copy_on_device(to, from, bytes, gpu_.stream());
  }

  void run_by_one(const std::function<void(size_t)>& before) override {
    writes_.queued();
    step_.run_by_one(before);
    if (checks_) cuda::index_flags().queued(gpu_, writes_.cells());
  }

  void run_timed(std::span<double> us) override {
    std::deque<cuda::Event> marks;
    run_by_one([&](size_t) {
      marks.emplace_back(gpu_, true);
      marks.back().record(gpu_.stream());
    });
    for (size_t i = 0; i < us.size(); ++i) us[i] = marks[i + 1].ms_since(marks[i]) * 1e3;
  }

  std::string to_string() const override {
    const cuda::GraphCounts& c = step_.counts();
    return str_cat("CUDA graph: ", c.replays, " replays, ", c.captures, " captures, ", c.recaptures,
                   " of them again for moved memory, ", c.renamed, " kernels given other addresses; ", c.queued,
                   " runs call by call");
  }

 private:
  static std::vector<cuda::StepCall> steps_of(cuda::Gpu& gpu, const std::vector<DeviceCall>& calls) {
    std::vector<cuda::StepCall> steps;
    steps.reserve(calls.size());
    for (const DeviceCall& c : calls) {
      const cuda::Operation& op = *c.launch->operation;
      const Node& looks = node_that_looks(c);
      int32_t* bad = op.checks_indices() ? cuda::index_flags().of(gpu, looks.op->name, looks.line) : nullptr;
      steps.push_back({&op, c.in, c.out, c.workspace, bad, c.node->line});
    }
    return steps;
  }

  // "a compiled step of 34 operations, from gather at a.cc:3 to mul at b.cc:12".
  static std::string what_of(const std::vector<DeviceCall>& calls) {
    const auto end = [](const DeviceCall& c) {
      return str_cat(node_that_looks(c).op->name, c.node->line.line ? str_cat(" at ", c.node->line) : std::string());
    };
    return calls.empty() ? ""
                         : str_cat("a compiled step of ", calls.size(), " operations, from ", end(calls.front()),
                                   " to ", end(calls.back()));
  }

  // Of a group, the op that looks something up.
  static const Node& node_that_looks(const DeviceCall& c) {
    if (c.launch->op != &loop_ir::fused_op) return *c.node;
    const Graph& body = loop_ir::body_of(*c.node);
    for (int32_t id = 0; id < body.size(); ++id)
      if (body.node(id).op == &gather_op || body.node(id).op == &index_select_op) return body.node(id);
    return *c.node;
  }

  cuda::Gpu& gpu_;
  cuda::QueuedWrites writes_;
  bool checks_ = false;
  cuda::GraphStep step_;
};

}  // namespace

decltype(&cuda::prepare) prepare_for_test = nullptr;

GpuLaunches::GpuLaunches(Device device, cuda::PrepareOptions options)
    : device_(device), options_(options), gpu_(cuda::gpu_properties(device.index)) {}
GpuLaunches::~GpuLaunches() = default;

Tensor GpuLaunches::aligned(const Tensor& t) {
  const TensorImpl& from = t.get();
  int64_t elements = from.type.shape.numel() > 0;
  for (int d = 0; d < from.strides.size(); ++d)
    if (elements > 0) elements += (from.type.shape[d] - 1) * from.strides[d];
  const Shape bytes{elements * itemsize(from.type.dtype)};
  auto* impl = new TensorImpl;
  const Tensor copy(impl);
  impl->type = from.type;
  impl->strides = from.strides;
  impl->storage = Storage::allocate(bytes[0], device_);
  cuda::copy_on_device({static_cast<char*>(from.storage->data()) + from.offset, kUInt8, bytes, {1}},
                       {impl->storage->data(), kUInt8, bytes, {1}}, cuda::Gpu::of(device_).stream());
  return copy;
}

uint64_t GpuLaunches::hash_of(const Ref<Graph>& body) {
  auto [at, fresh] = hashes_.try_emplace(body.get(), 0);
  if (fresh) {
    hashed_.push_back(body);
    at->second = structural_hash(*body);
  }
  return at->second;
}

int64_t GpuLaunches::prepare(Launch& l, const Graph& g, std::span<const StridedView> in,
                             std::span<const StridedView> out) {
  const Node& n = g.node(l.node);
  const bool fused = !l.copy && n.op == &loop_ir::fused_op;
  // Copies are casts to the same type: kernels, whose addresses can be renamed.
  const OpDef& op = l.copy ? cast_op : *l.op;
  Made m{.op = &op, .alignment = alignment_of(l)};
  if (l.copy) {
    m.attrs = Attrs{{"dtype", out[0].dtype}};
  } else if (fused) {
    m.body = n.attrs.get<Ref<Graph>>("body");
  } else {
    m.attrs = n.attrs;
  }
  for (const auto& list : {in, out}) m.views.insert(m.views.end(), list.begin(), list.end());
  uint64_t hash = hash_combine(reinterpret_cast<uintptr_t>(&op), fused ? hash_of(m.body) : m.attrs.hash());
  for (const StridedView& v : m.views)
    for (int d = 0; d < v.shape.size(); ++d) hash = hash_combine(hash_combine(hash, v.shape[d]), v.strides[d]);
  auto alike = [&](const StridedView& a, const StridedView& b) {
    return a.dtype == b.dtype && a.shape == b.shape && a.strides == b.strides;
  };
  for (auto [at, end] = made_.equal_range(hash); at != end; ++at) {
    const Made& have = at->second;
    if (have.op != m.op || have.alignment != m.alignment || !(have.attrs == m.attrs) ||
        !std::equal(have.views.begin(), have.views.end(), m.views.begin(), m.views.end(), alike))
      continue;
    if (fused && have.body.get() != m.body.get() && !structurally_equal(*have.body, *m.body)) continue;
    l.operation = have.operation;
    return l.operation->workspace_bytes();
  }
  try {
    m.operation = (prepare_for_test ? prepare_for_test : cuda::prepare)(op, l.copy ? m.attrs : n.attrs, in, out, gpu_,
                                                                        m.alignment, options_);
  } catch (const Error& e) {
    if (fused) throw CannotLower{m.body, e.what()};
    throw Error(e.code(), n.line.line ? str_cat(e.what(), "; at ", n.line) : std::string(e.what()));
  } catch (const loop_ir::Unfusable& u) {
    if (fused) throw CannotLower{m.body, u.why};
    throw Error(Code::kUnavailable, str_cat(op.name, ": CUDA has no kernel: ", u.why));
  }
  l.operation = m.operation;
  made_.emplace(hash, std::move(m));
  return l.operation->workspace_bytes();
}

bool GpuLaunches::may_overwrite(const Launch& l, int32_t in, int32_t out) const {
  return l.operation->may_overwrite(in, out);
}

bool GpuLaunches::may_spread(const Node& n) const {
  if (n.op != &loop_ir::fused_op) return false;
  const Graph& body = loop_ir::body_of(n);
  for (int32_t id = 0; id < body.size(); ++id)
    if (loop_ir::is_product(body.node(id))) return false;
  return true;
}

void GpuLaunches::set_name(Device device, const void* p, const std::string& name) {
  cuda::Gpu::of(device).allocator().set_name(p, name);
}

LoadReport GpuLaunches::load(const LoadOptions&) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<cuda::Operation*> all;
  LoadReport report;
  for (auto& [hash, m] : made_) {
    all.push_back(m.operation.get());
    report.kernels += static_cast<int64_t>(m.operation->kernels().size());
  }
  cuda::load(cuda::Gpu::of(device_), all);
  report.ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return report;
}

std::unique_ptr<DeviceCalls> GpuLaunches::calls(Device device, std::vector<DeviceCall> calls, bool replayed,
                                                std::vector<Ref<Cell>> writes) {
  return std::make_unique<GpuCalls>(cuda::Gpu::of(device), calls, replayed, std::move(writes));
}

}  // namespace weft::internal
