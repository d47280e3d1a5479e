// Reproductions build alone and run. They print "equal" for correct kernels, in every mode of the drivers.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>

#include "compiler/exec/testing/test_programs.h"
#include "compiler/targets/cpu/target.h"
#include "compiler/verify/reference.h"
#include "framework/base/cpu.h"
#include "framework/dispatch/capture.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"

namespace weft {
namespace {

using Args = std::span<const Tensor>;
using Tensors = std::vector<Tensor>;

// The exit status of the reproduction of fn's kernel; `damage`: of a kernel that computes something else.
int status_of(const TensorFn& fn, const Tensors& in, bool damage = false) {
  std::vector<TensorType> types;
  for (const Tensor& t : in) types.push_back(t.type());
  Ref<Graph> body = capture_graph(fn, types);
  std::vector<loop_ir::ValueLayout> layouts_in, layouts_out;
  std::vector<StridedView> views;
  for (const Tensor& t : in) {
    layouts_in.push_back({t.type(), t.strides()});
    views.push_back(t.view_for_kernel());
    views.back().data = nullptr;
  }
  for (Value v : body->outputs) layouts_out.push_back({body->type(v), contiguous_strides(body->type(v).shape)});
  const Tensors want = internal::evaluate(*body, in).outputs;
  loop_ir::Lowered low = loop_ir::lower_group(*body, layouts_in, layouts_out);
  if (damage)
    for (loop_ir::Instr& i : low.kernel.instrs)
      if (i.op == loop_ir::Op::kPw && i.pw == kernels::Pw::mul) i.pw = kernels::Pw::add;
  const internal::FusedKernel k(body, std::move(low), views);
  const std::string said = internal::cpu_target().write_reproduction(k, *body, in, want);
  const std::string path = said.substr(said.find(": ") + 2), out = path + ".out";
  constexpr const char* kMarch[] = {"x86-64-v2", "x86-64-v3", "x86-64-v4"};
  EXPECT_EQ(std::system(str_cat("g++ -std=c++20 -O1 -ffp-contract=off -fwrapv -w -mprefer-vector-width=512 -march=",
                                kMarch[static_cast<int>(selected_isa())], " ", path, " -o ", out)
                            .c_str()),
            0)
      << said;
  return WEXITSTATUS(std::system((out + " > /dev/null").c_str()));
}

TEST(Reproduction, RunsInEveryMode) {
  if (std::system("g++ --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "no g++";
  manual_seed(5);
  const Tensor x = randn({2100, 37}), y = randn({2100, 37}), w = randn({37, 20}), b = randn({20}), joined = randn(2048);
  const TensorFn rows = [](Args a) {
    const Tensor p = a[0] * a[1], e = exp(p - p.amax({1}, true));
    return Tensors{e / e.sum({1}, true)};
  };
  const TensorFn columns = [](Args a) { return Tensors{(a[0] * a[1]).sum({0}), a[0].amax({0})}; };
  const TensorFn split = [](Args a) { return Tensors{(a[0] * a[1]).sum()}; };
  const TensorFn product = [](Args a) { return Tensors{relu(matmul(a[0], a[1]) + a[2]) * a[2]}; };
  const Tensors two = {x.slice(0, 0, 50).contiguous(), y.slice(0, 0, 50).contiguous()};
  for (bool damage : {false, true}) {
    SCOPED_TRACE(damage);
    EXPECT_EQ(status_of(rows, two, damage), damage);
    EXPECT_EQ(status_of(columns, {x, y}, damage), damage);
    EXPECT_EQ(status_of(split, {x, y}, damage), damage);
    EXPECT_EQ(status_of(split, {joined.slice(0, 0, 20).view({20, 1}), joined.view({1, 2048})}, damage), damage);
    EXPECT_EQ(status_of(product, {two[0], w, b}, damage), damage);
  }
}

}  // namespace
}  // namespace weft
