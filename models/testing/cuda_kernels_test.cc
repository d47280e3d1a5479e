// The fused kernels of whole training steps, as CUDA. Emulated kernels of small models give the interpreter's bits, and
// kernels of the measured models compile for every architecture within their limits.
#include <gtest/gtest.h>

#include <set>

#include "compiler/exec/entry.h"
#include "compiler/targets/cpu/run/fused_kernel.h"
#include "compiler/targets/cuda/nvrtc/testing/compile_check.h"
#include "compiler/targets/cuda/print/testing/cuda_case.h"
#include "compiler/targets/cuda/print/testing/traffic.h"
#include "framework/base/str_cat.h"
#include "models/gpt/config.h"
#include "models/llama/config.h"
#include "models/moe/config.h"
#include "models/testing/fixture.h"
#include "weft.h"

namespace weft::testing {
namespace {

using cuda::CudaCase;

// The kernels of one training step, each text once.
std::vector<CudaCase> kernels_of_step(nn::LanguageModel& model, const Tensor& tokens, const Tensor& targets,
                                      DType dtype) {
  model.set_compute_dtype(dtype);
  optim::AdamW opt(model.parameters(), {.lr = 1e-2});
  auto step = compile([&](Tensor x, Tensor y) {
    const Tensor loss = model.loss(x, y).loss;
    opt.step(grad(loss, model.parameters()));
    return loss;
  });
  step(tokens, targets);
  std::vector<CudaCase> cases;
  std::set<std::string> seen;
  for (const internal::FusedKernel* k :
       internal::fused_kernels(operations_of(internal::current_entry(*step.core(), "test").plan))) {
    CudaCase c;
    c.low = k->lowered();
    c.name = str_cat(c.low.kernel.name, " ", cases.size());
    c.extremes = false;
    c.seed = static_cast<int>(cases.size()) + 1;
    for (const StridedView& v : k->in()) {
      c.in.push_back({{v.dtype, Device::cpu(), v.shape}, v.strides});
      c.in_below.push_back(v.dtype == kInt64 ? 8 : 0);
    }
    for (Value v : k->body().outputs) c.out.push_back({k->body().type(v), contiguous_strides(k->body().type(v).shape)});
    std::string key;
    for (const cuda::CudaLaunch& l : cuda::plan_of(c, "k").launches) key += l.key;
    if (seen.insert(key).second) cases.push_back(std::move(c));
  }
  return cases;
}

TEST(CudaKernels, OfSmallModelsGiveTheInterpretersBits) {
  for (const std::string& name : fixture_names())
    for (DType dtype : {kFloat32, kBFloat16}) {
      const Fixture f = load_fixture(name);
      const auto cases = kernels_of_step(*f.model, f.tokens, f.targets, dtype);
      EXPECT_GE(cases.size(), 10u);
      for (const std::string& s : cuda::differences(cases)) ADD_FAILURE() << name << ": " << s;
    }
}

TEST(CudaKernels, OfMeasuredStepsFillTheGpu) {
  const auto model = gpt::family().make(gpt::family().preset("gpt_base"));
  model->set_compute_dtype(kBFloat16);
  optim::AdamW opt(model->parameters(), {.lr = 1e-2});
  auto step = compile([&](Tensor x, Tensor y) {
    const Tensor loss = model->loss(x, y).loss;
    opt.step(grad(loss, model->parameters()));
    return loss;
  });
  const TensorType ids{kInt32, Device::cpu(), Shape{16, 256}};
  step.prepare(Tensor::empty(ids), Tensor::empty(ids));
  cuda::DeviceLimits device;
  device.max_shared_bytes = 227 * 1024;
  cuda::KernelTextOptions options;
  options.approximate = true;  // as in steps with fast numerics
  int kernels = 0;
  for (const internal::FusedKernel* k :
       internal::fused_kernels(operations_of(internal::current_entry(*step.core(), "test").plan))) {
    std::vector<loop_ir::ValueLayout> out;
    for (Value v : k->body().outputs) out.push_back({k->body().type(v), contiguous_strides(k->body().type(v).shape)});
    const cuda::CudaLaunches p = cuda::plan(k->lowered(), out, device, options);
    EXPECT_EQ(cuda::fault_of(cuda::traffic_of(k->lowered(), p.launches[0], device), device), "")
        << p.launches[0].kernel.text.substr(cuda::loop_intrinsics(true).size());
    ++kernels;
  }
  EXPECT_GE(kernels, 20);
}

TEST(CudaKernels, OfMeasuredModelsCompile) {
  const std::pair<const nn::ModelFamily*, const char*> models[] = {{&gpt::family(), "gpt_base"},
                                                                   {&moe::family(), "moe_small"}};
  std::vector<cuda::Kernel> kernels;
  std::set<std::string> seen;
  for (const auto& [family, preset] : models) {
    const auto model = family->make(family->preset(preset));
    const Tensor tokens = randint(0, 96, {2, 256});
    for (CudaCase& c : kernels_of_step(*model, tokens, tokens, kBFloat16)) {
      c.approximate = true;
      for (const cuda::CudaLaunch& l : cuda::plan_of(c, str_cat("k", kernels.size())).launches)
        if (seen.insert(l.key).second) kernels.push_back(l.kernel);
    }
  }
  if (std::getenv("WEFT_SHOW"))
    for (const cuda::Kernel& k : kernels) printf("%s\n", k.text.substr(cuda::loop_intrinsics(true).size()).c_str());
  EXPECT_GE(kernels.size(), 20u);
  WEFT_EXPECT_COMPILES(kernels);
}

}  // namespace
}  // namespace weft::testing
