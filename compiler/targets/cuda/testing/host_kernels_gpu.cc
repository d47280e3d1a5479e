#include "compiler/targets/cuda/testing/host_kernels_gpu.h"

#include <gtest/gtest.h>

#include <cstring>

#include "compiler/loop_ir/fused.h"
#include "compiler/targets/cpu/target.h"
#include "compiler/targets/cuda/run/operation.h"
#include "compiler/targets/cuda/run/target.h"
#include "compiler/targets/operations.h"
#include "framework/cuda/gpu.h"

namespace weft::internal {
namespace {

using cuda::testing::FakeKernel;
using cuda::testing::FakeLaunch;
using cuda::testing::FakeRange;

constexpr const char* kWork[] = {"cuLaunchKernel",          "cuLaunchKernelEx",
                                 "cuGraphLaunch",           "cuGraphExecKernelNodeSetParams_v2",
                                 "cuGraphExecUpdate_v2",    "cuGraphInstantiateWithFlags",
                                 "cuStreamBeginCapture_v2", "cuStreamSynchronize",
                                 "cuEventSynchronize",      "cuCtxSynchronize",
                                 "cuMemcpyDtoHAsync_v2",    "cuMemcpyHtoDAsync_v2",
                                 "cuMemcpyAsync",           "cuMemcpyDtoDAsync_v2",
                                 "cuMemsetD8Async",         "cuMemsetD32Async",
                                 "cuMemcpy2DAsync_v2",      "cuMemcpy3DAsync_v2",
                                 "cuMemAlloc_v2",           "cuEventRecord"};

}  // namespace

// Operations that are the CPU's kernels, and the functions that carry them.
struct HostKernels {
  struct Work {
    const OpDef* op;
    Attrs attrs;
    std::vector<StridedView> in, out;
    std::shared_ptr<FusedKernel> fused;

    int64_t workspace() const {
      return fused ? fused->workspace_bytes() : op->workspace ? op->workspace(attrs, in, out) : 0;
    }
    void run(void* const* at) const {
      std::vector<StridedView> i = in, o = out;
      for (StridedView& v : i) v.data = *at++;
      for (StridedView& v : o) v.data = *at++;
      if (!fused) return op->kernel({*op, attrs, i, o, *at});
      fused->run(i, o, *at);
    }
  };
  static std::vector<std::shared_ptr<const Work>>& all() {
    static auto* a = new std::vector<std::shared_ptr<const Work>>;
    return *a;
  }
  static std::map<size_t, cuda::Function>& functions() {
    static auto* f = new std::map<size_t, cuda::Function>;
    return *f;
  }
  static const cuda::Function& function_for(cuda::Gpu& gpu, size_t addresses) {
    auto at = functions().find(addresses);
    if (at == functions().end()) {
      const std::string image = "host kernels";
      const auto module = cuda::CudaModule::load(gpu, image, "host kernels");
      at = functions().emplace(addresses, module->function(str_cat("host_", addresses))).first;
    }
    return at->second;
  }

  class HostKernelOperation final : public cuda::DeviceOperation {
   public:
    explicit HostKernelOperation(size_t id) : id_(id) {}
    int64_t workspace_bytes() const override { return all()[id_]->workspace(); }
    bool may_overwrite(int in, int out) const override {
      const Work& w = *all()[id_];
      if (w.fused) return w.fused->lowered().may_overwrite(in, out);
      if (w.out.size() != 1 || !(w.in[in].shape == w.out[0].shape)) return false;
      return (w.op->is(kPointwise) && w.op->scalar >= 0) || (w.op->is(kInPlace) && in == 0);
    }
    void enqueue(const cuda::Addresses& at, cuda::Stream& stream, SourceLine line) const override {
      std::vector<void*> p{reinterpret_cast<void*>(id_)};
      p.insert(p.end(), at.in.begin(), at.in.end());
      p.insert(p.end(), at.out.begin(), at.out.end());
      p.push_back(at.workspace);
      function_for(stream.gpu(), p.size())
          .launch(stream, {.threads = 32,
                           .parameters = p.data(),
                           .parameter_bytes = p.size() * sizeof(void*),
                           .op = all()[id_]->op->name,
                           .line = line});
    }

   private:
    size_t id_;
  };

  // The target of the GPU, with these operations in place of its own.
  class Target final : public cuda::CudaTarget {
   public:
    std::shared_ptr<weft::Operation> prepare(Device, const OpDef& op, const Attrs& attrs,
                                             std::span<const StridedView> in, std::span<const StridedView> out, int,
                                             const PrepareOptions& options) override {
      auto w = std::make_shared<Work>(Work{&op, attrs, {in.begin(), in.end()}, {out.begin(), out.end()}, {}});
      if (&op == &loop_ir::fused_op)
        w->fused =
            make_fused_kernel(attrs.get<Ref<Graph>>("body"), in, out, {.round_like_eager = options.round_like_eager});
      all().push_back(std::move(w));
      return std::make_shared<HostKernelOperation>(all().size() - 1);
    }
  };
  static Target& target() {
    static auto* t = new Target;
    return *t;
  }

  static FakeKernel kernel(size_t addresses) {
    auto parts = [](const FakeLaunch& l) {
      void* const* p = reinterpret_cast<void* const*>(l.parameters.data());
      return std::pair(all().at(reinterpret_cast<size_t>(p[0])).get(), p + 1);
    };
    FakeKernel k;
    k.parameter_bytes = addresses * sizeof(void*);
    k.run = [parts](const FakeLaunch& l) {
      const auto [work, at] = parts(l);
      work->run(at);
    };
    k.touches = [parts](const FakeLaunch& l) {
      const auto [work, at] = parts(l);
      std::vector<FakeRange> ranges;
      void* const* p = at;
      for (const auto* list : {&work->in, &work->out})
        for (const StridedView& v : *list) {
          int64_t last = 0;
          for (int d = 0; d < v.shape.size(); ++d) last += (v.shape[d] - 1) * v.strides[d];
          if (v.numel() > 0)
            ranges.push_back(
                {reinterpret_cast<cuda::CUdeviceptr>(*p), static_cast<size_t>((last + 1) * itemsize(v.dtype))});
          ++p;
        }
      if (const int64_t bytes = work->workspace())
        ranges.push_back({reinterpret_cast<cuda::CUdeviceptr>(*p), static_cast<size_t>(bytes)});
      return ranges;
    };
    return k;
  }
};

HostKernelsGpu::HostKernelsGpu(cuda::testing::FakeGpu gpu, bool idle) : driver_(gpu) {
  driver_.set_resolver([](const void*, const std::string& symbol) -> std::optional<FakeKernel> {
    return HostKernels::kernel(std::stoul(symbol.substr(symbol.find('_') + 1)));
  });
  in_place_.emplace(idle ? driver_.idle_table() : driver_.table());
  register_target(DeviceType::kCuda, &HostKernels::target());
}

HostKernelsGpu::~HostKernelsGpu() {
  try {
    cuda::Gpu::get(0).synchronize();
  } catch (const Error&) {
    // An error that a test provoked sticks.
  }
  forget_operations(DeviceType::kCuda);  // they are numbers of the functions cleared here
  HostKernels::functions().clear();
  in_place_.reset();
  HostKernels::all().clear();
  for (const std::string& c : driver_.take_complaints()) ADD_FAILURE() << c;
  EXPECT_EQ(driver_.leaks(), "");
}

std::map<std::string, int> HostKernelsGpu::take_calls() {
  std::map<std::string, int> since;
  for (const char* name : kWork) {
    const int now = driver_.calls(name);
    if (now != seen_[name]) since[name] = now - seen_[name];
    seen_[name] = now;
  }
  return since;
}

}  // namespace weft::internal
