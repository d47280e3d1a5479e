#include "compiler/targets/cuda/run/fused_operation.h"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "compiler/loop_ir/domain.h"
#include "framework/base/error.h"
#include "framework/base/hash.h"
#include "framework/ir/rewrite.h"

namespace weft::cuda::internal {
namespace {

// A readable name and the text's hash: equal texts have equal symbols, different texts different ones.
std::string symbol_of(const std::string& name, const std::string& text) {
  static const char digits[] = "0123456789abcdef";
  std::string s;
  for (char c : name.substr(0, 64)) s += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  if (s.empty() || std::isdigit(static_cast<unsigned char>(s[0]))) s = "k" + s;
  s += '_';
  const uint64_t h = hash_text(text);
  for (int i = 60; i >= 0; i -= 4) s += digits[h >> i & 15];
  return s;
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

constexpr char kPlaceholder[] = "weft_kernel_";

class GroupOperation final : public DeviceOperation {
 public:
  GroupOperation(const char* name, const loop_ir::Lowered& low, std::span<const loop_ir::ValueLayout> out,
                 const GpuProperties& gpu, int alignment, bool approximate)
      : name_(name), overwrites_(low.overwrites), launches_(low, out, gpu, alignment, approximate, &kernels_) {}

  std::span<const Kernel> kernels() const override { return kernels_; }
  void bind(std::span<const Function> functions) override { launches_.bind(functions); }
  int64_t workspace_bytes() const override { return launches_.scratch_bytes(); }
  bool checks_indices() const override { return launches_.checks_indices(); }
  bool may_overwrite(int in, int out) const override {
    return std::find(overwrites_.begin(), overwrites_.end(), std::pair{in, out}) != overwrites_.end();
  }
  void enqueue(const Addresses& at, Stream& stream, SourceLine line) const override {
    launches_.enqueue(places(at), stream, name_, line);
  }
  std::vector<LaunchSize> launch_sizes() const override { return launches_.sizes(); }
  void write_parameters(size_t launch, const Addresses& at, char* parameters) const override {
    launches_.write_parameters(launch, places(at), parameters);
  }

 private:
  static GroupLaunches::GroupAddresses places(const Addresses& at) {
    return {at.in, at.out, nullptr, static_cast<char*>(at.workspace), at.bad};
  }

  const char* name_;
  std::vector<std::pair<int32_t, int32_t>> overwrites_;
  std::vector<Kernel> kernels_;
  GroupLaunches launches_;
};

}  // namespace

GroupLaunches::GroupLaunches(const loop_ir::Lowered& low, std::span<const loop_ir::ValueLayout> out,
                             const GpuProperties& gpu, int alignment, bool approximate, std::vector<Kernel>* kernels) {
  DeviceLimits limits;
  limits.multiprocessors = gpu.multiprocessors;
  limits.max_shared_bytes = gpu.shared_per_block_optin;
  limits.max_grid_x = gpu.grid_x;
  KernelTextOptions options;
  options.alignment = alignment;
  options.notes = false;
  options.approximate = approximate;
  options.symbol = kPlaceholder;
  CudaLaunches p = plan(low, out, limits, options);
  for (CudaLaunch& l : p.launches)
    if (!l.empty()) add(low, std::move(l), kernels);
  scratch_bytes_ = p.scratch_bytes;
  checks_ = p.reads_bad;
  find_sources(low);
}

GroupLaunches::GroupLaunches(const loop_ir::Lowered& low, CudaLaunch fused, std::vector<Kernel>* kernels)
    : checks_(true) {
  if (!fused.empty()) add(low, std::move(fused), kernels);
  find_sources(low);
}

const char* GroupLaunches::symbol() { return kPlaceholder; }

void GroupLaunches::add(const loop_ir::Lowered& low, CudaLaunch l, std::vector<Kernel>* kernels) {
  const std::string symbol = symbol_of(low.kernel.name, l.key);
  replace_all(l.kernel.text, l.kernel.symbol, symbol);
  l.kernel.symbol = symbol;
  launches_.push_back({kernels->size(),
                       l.grid,
                       l.kernel.threads,
                       l.kernel.shared_bytes,
                       std::move(l.params),
                       std::move(l.pointers),
                       {}});
  kernels->push_back(std::move(l.kernel));
}

void GroupLaunches::find_sources(const loop_ir::Lowered& low) {
  for (size_t i = 0; i < low.bound.size(); ++i) {
    const loop_ir::BoundOperand& b = low.bound[i];
    const bool tile = static_cast<int32_t>(i) == low.tile;
    sources_.push_back({b.output, tile ? -1 : b.index, b.offset * itemsize(low.kernel.operands[i].dtype)});
  }
}

void GroupLaunches::bind(std::span<const Function> functions) {
  for (One& l : launches_) l.function.assign(1, functions[l.kernel]);
}

std::vector<LaunchSize> GroupLaunches::sizes() const {
  std::vector<LaunchSize> all;
  for (const One& l : launches_) all.push_back({l.kernel, l.grid, l.params.size()});
  return all;
}

void GroupLaunches::write_parameters(size_t launch, const GroupAddresses& at, char* params) const {
  const One& l = launches_[launch];
  std::memcpy(params, l.params.data(), l.params.size());
  for (const Pointer& p : l.pointers) {
    char* address = nullptr;
    switch (p.kind) {
      case Pointer::kOperand: {
        const size_t index = p.index;
        if (index >= sources_.size()) {
          address = static_cast<char*>(const_cast<void*>(at.product[index - sources_.size()]));
          break;
        }
        const OperandSource& s = sources_[index];
        address = static_cast<char*>(s.index < 0 ? at.tile : s.output ? at.out[s.index] : at.in[s.index]) + s.offset;
        break;
      }
      case Pointer::kResult:
        address = static_cast<char*>(at.out[p.index]);
        break;
      case Pointer::kScratch:
        address = at.scratch + p.offset;
        break;
      case Pointer::kBad:
        address = reinterpret_cast<char*>(at.bad);
        break;
    }
    std::memcpy(params + p.at, &address, sizeof address);
  }
}

void GroupLaunches::enqueue(const GroupAddresses& at, Stream& stream, const char* op, SourceLine line) const {
  alignas(16) char params[4096];
  for (size_t i = 0; i < launches_.size(); ++i) {
    const One& l = launches_[i];
    write_parameters(i, at, params);
    l.function.at(0).launch(
        stream, {l.grid.x, l.grid.y, l.grid.z, l.threads, l.shared_bytes, params, l.params.size(), op, line});
  }
}

loop_ir::ValueLayout layout_of(const StridedView& v) { return {{v.dtype, Device::cpu(), v.shape}, v.strides}; }

Ref<Graph> body_of_one(const OpDef& op, const Attrs& attrs, std::span<const StridedView> in,
                       std::span<const StridedView> out) {
  Node n;
  n.op = &op;
  n.attrs = attrs;
  for (const StridedView& v : out) n.outputs.push_back(layout_of(v).type);
  std::vector<TensorType> types;
  for (const StridedView& v : in) types.push_back(layout_of(v).type);
  return graph_of_one(std::move(n), types);
}

std::unique_ptr<DeviceOperation> group_operation(const char* name, const Graph& body, std::span<const StridedView> in,
                                                 std::span<const StridedView> out, const GpuProperties& gpu,
                                                 int alignment, const loop_ir::LowerOptions& options,
                                                 bool approximate) {
  std::vector<loop_ir::ValueLayout> in_layouts, out_layouts;
  for (const StridedView& v : in) in_layouts.push_back(layout_of(v));
  for (const StridedView& v : out) out_layouts.push_back(layout_of(v));
  const loop_ir::Lowered low = loop_ir::lower_group(body, in_layouts, out_layouts, options);
  WEFT_BUG_IF(low.dot >= 0, "cuda: ", name, ": a group without products has a product");
  return std::make_unique<GroupOperation>(name, low, out_layouts, gpu, alignment, approximate);
}

}  // namespace weft::cuda::internal
