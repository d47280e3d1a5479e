// GpuLaunches: the launches of a plan on a GPU. Equal ones are prepared once; all are compiled together.
#pragma once
#include <unordered_map>

#include "compiler/exec/launch_maker.h"
#include "compiler/targets/cuda/run/operation.h"

namespace weft::internal {

class GpuLaunches final : public LaunchMaker {
 public:
  /// For plans of this GPU, which is not touched before load().
  GpuLaunches(Device device, cuda::PrepareOptions options);
  ~GpuLaunches() override;

  int64_t alignment() const override { return 256; }
  int64_t least_alignment() const override { return 16; }
  Tensor aligned(const Tensor& t) override;
  int64_t prepare(Launch& l, const Graph& g, std::span<const StridedView> in,
                  std::span<const StridedView> out) override;
  bool may_overwrite(const Launch& l, int32_t in, int32_t out) const override;
  bool may_spread(const Node& n) const override;
  void set_name(Device device, const void* p, const std::string& name) override;
  LoadReport load(const LoadOptions& options) override;
  std::unique_ptr<DeviceCalls> calls(Device device, std::vector<DeviceCall> calls, bool replayed,
                                     std::vector<Ref<Cell>> writes) override;

 private:
  struct Made {
    const OpDef* op;
    Attrs attrs;  // of a fused node: none, its body decides
    Ref<Graph> body;
    std::vector<StridedView> views;
    int alignment;
    std::shared_ptr<cuda::Operation> operation;
  };
  uint64_t hash_of(const Ref<Graph>& body);

  const Device device_;
  const cuda::PrepareOptions options_;
  const cuda::GpuProperties gpu_;
  std::unordered_multimap<uint64_t, Made> made_;
  std::unordered_map<const Graph*, uint64_t> hashes_;
  std::vector<Ref<Graph>> hashed_;  // kept alive while their addresses are keys
};

/// Tests put other operations in the place of cuda::prepare's; null else.
extern decltype(&cuda::prepare) prepare_for_test;

}  // namespace weft::internal
