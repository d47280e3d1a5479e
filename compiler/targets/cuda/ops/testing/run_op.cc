#include "compiler/targets/cuda/ops/testing/run_op.h"

#include <algorithm>
#include <cstring>

#include "compiler/targets/cuda/ops/ops.h"
#include "framework/base/error.h"
#include "framework/dispatch/dispatch.h"
#include "ops/core/misc.h"
#include "ops/core/products/conv.h"
#include "ops/core/products/dot.h"
#include "ops/core/products/linear_cross_entropy.h"
#include "ops/core/products/window.h"
#include "ops/core/reductions/softmax.h"
#include "ops/kernels/kernels.h"
#include "ops/linalg/record.h"

namespace weft::cuda {

std::string why_not(const OpDef& op) {
  if (op.is(kStructural) || op.is(kReadsTape)) return "only the graph gives it a meaning";
  if (op.is(kCollective)) return "distributed/comm runs it on all ranks together";
  if (op.is(kContraction) && (&op == &dot_op || &op == &grouped_dot_op)) return "a product: compiler/targets/cuda/gemm";
  if (std::string_view(op.name).starts_with("attention")) return "compiler/targets/cuda/attention";
  if (&op == &softmax_op || &op == &linear_cross_entropy_op || &op == &linear_cross_entropy_grad_op ||
      &op == &window_sum_op || &op == &conv_op)
    return "decompose replaces it by products and bodies of the loop IR";
  for (const OpDef* decomposition : linalg_ops())
    if (&op == decomposition) return "linear algebra runs on the CPU: move its operands with to(Device::cpu())";
  if (&op == &debug_print_op) return "the host prints it, after a copy of the value";
  return "";
}

std::string first_difference(const Tensor& got, const Tensor& want) {
  if (!(got.type() == want.type())) return str_cat("type ", got.type(), " for ", want.type());
  const StridedView a = got.view_for_kernel();
  StridedView b = want.view_for_kernel();
  const int64_t size = itemsize(a.dtype);
  std::vector<char> packed(static_cast<size_t>(want.type().nbytes()));
  kernels::cast_copy(b, {packed.data(), b.dtype, b.shape, contiguous_strides(b.shape)});
  for (int64_t i = 0; i < got.numel(); ++i)
    if (std::memcmp(static_cast<const char*>(a.data) + i * size, packed.data() + i * size, static_cast<size_t>(size)) !=
        0)
      return str_cat("element ", i, " of ", got.type(), "\ngot  ", got.to_string(), "\nwant ", want.to_string());
  return "";
}

bool OpRunner::prepare(const testing::Case& c, int alignment) {
  Call call;
  call.out = testing::infer(c, c.in);
  std::vector<StridedView> in, out;
  for (const Tensor& t : c.in) {
    in.push_back(t.view_for_kernel());
    in.back().data = nullptr;
  }
  for (const TensorType& t : call.out) out.push_back({nullptr, t.dtype, t.shape, contiguous_strides(t.shape)});
  call.op = make_op(*c.op, c.attrs, in, out, {}, alignment);
  if (!call.op) return false;
  for (const Kernel& k : call.op->kernels()) {
    const auto at =
        std::find_if(kernels_.begin(), kernels_.end(), [&](const Kernel& o) { return o.symbol == k.symbol; });
    if (at == kernels_.end()) {
      kernels_.push_back(k);
    } else {
      WEFT_CHECK(at->text == k.text, "two kernels are called ", k.symbol, ":\n", at->text, "\n", k.text);
    }
  }
  calls_.push_back(std::move(call));
  emulated_.reset();
  return true;
}

OpRunner::Result OpRunner::run(size_t i, const std::vector<Tensor>& in, bool in_place) {
  if (!emulated_) emulated_ = std::make_unique<Emulated>(kernels_);
  const Call& call = calls_[i];
  const auto& launches = dynamic_cast<const Launches&>(*call.op);
  Result r;
  std::vector<void*> from, to;
  for (const Tensor& t : in) from.push_back(t.view_for_kernel().data);
  for (const TensorType& t : call.out) {
    r.out.push_back(in_place && r.out.empty() ? in[0] : Tensor::empty(t));
    to.push_back(r.out.back().view_for_kernel().data);
    if (!(in_place && r.out.size() == 1) && t.nbytes() > 0)
      std::memset(to.back(), 0xcd, static_cast<size_t>(t.nbytes()));
  }
  std::vector<std::byte> memory(static_cast<size_t>(launches.workspace_bytes()) + 256, std::byte{0xcd});
  BadIndex bad;
  const Addresses at{from, to, reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(memory.data()) + 255) / 256 * 256),
                     &bad.raised};
  for (const KernelStep& s : launches.steps()) {
    if (s.left_out(at)) continue;
    std::vector<std::byte> bytes(s.parameters.size());
    s.write_parameters(at, bytes.data());
    emulated_->launch(s.kernel.symbol, s.grid, std::span<const std::byte>(bytes));
  }
  r.bad = bad.raised != 0;
  r.index = bad;
  return r;
}

}  // namespace weft::cuda
