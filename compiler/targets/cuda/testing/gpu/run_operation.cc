#include "compiler/targets/cuda/testing/gpu/run_operation.h"

#include <gtest/gtest.h>

#include "compiler/loop_ir/fused.h"
#include "framework/cuda/device_allocator.h"
#include "framework/cuda/libraries/driver_error.h"
#include "framework/cuda/transfer/copy.h"
#include "framework/dispatch/capture.h"

namespace weft::cuda::testing {

OperationRun run_operation(const OpDef& op, const Attrs& attrs, const std::vector<Tensor>& in,
                           const std::vector<TensorType>& out, OperationOptions options) {
  Gpu& gpu = Gpu::get(0);
  options.gpu = &gpu;
  std::vector<Tensor> there, results;
  std::vector<StridedView> in_views, out_views;
  std::vector<void*> from, to;
  for (const Tensor& t : in) {
    there.push_back(t.to(Device::cuda()));
    in_views.push_back(there.back().view_for_kernel());
    from.push_back(in_views.back().data);
  }
  auto poison = [&](void* p, int64_t bytes) {
    if (bytes > 0)
      check(driver().cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(p), 0xff, bytes, gpu.stream().handle()),
            "poisoning");
  };
  for (TensorType t : out) {
    t.device = Device::cuda();
    results.push_back(Tensor::empty(t));
    out_views.push_back(results.back().view_for_kernel());
    to.push_back(out_views.back().data);
    poison(to.back(), t.nbytes());
  }
  std::unique_ptr<DeviceOperation> operation = prepare(op, attrs, in_views, out_views, gpu.properties(), 16, options);
  DeviceOperation* one[] = {operation.get()};
  load(gpu, one);
  OperationRun r;
  r.workspace = operation->workspace_bytes();
  r.kernels = static_cast<int>(operation->kernels().size());
  Tensor workspace = Tensor::empty({kUInt8, Device::cuda(), {r.workspace + 1}});
  poison(workspace.view_for_kernel().data, r.workspace);
  Tensor bad = Tensor::empty({kInt32, Device::cuda(), {sizeof(BadIndex) / 4}});
  check(driver().cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(bad.view_for_kernel().data), 0, sizeof(BadIndex),
                                 gpu.stream().handle()),
        "clearing");
  operation->enqueue({from, to, workspace.view_for_kernel().data, bad.view_for_kernel().as<int32_t>()}, gpu.stream(),
                     {});
  for (const Tensor& t : results) r.out.push_back(t.to(Device::cpu()));
  r.bad = bad.to_vector<int32_t>()[0] != 0;
  EXPECT_TRUE(!r.bad || operation->checks_indices());
  return r;
}

FusedRun run_fused(const std::function<std::vector<Tensor>(std::span<const Tensor>)>& fn, const std::vector<Tensor>& in,
                   OperationOptions options) {
  FusedRun r;
  r.want = fn(in);
  std::vector<TensorType> types, out;
  for (const Tensor& t : in) types.push_back(t.type());
  for (const Tensor& t : r.want) out.push_back(t.type());
  const Ref<Graph> body = capture_graph(fn, types);
  r.run = run_operation(loop_ir::fused_op, Attrs{{"body", body}}, in, out, options);
  return r;
}

}  // namespace weft::cuda::testing
