// Ops of the program's own, with a kernel in C++.
#pragma once
#include <initializer_list>

#include "framework/dispatch/arg.h"
#include "framework/ir/op_def.h"

namespace weft {

/// A primitive op from the program's own record (framework/ir/op_def.h):
///   const CustomOp row_max{{
///       .name = "my.row_max",
///       .infer =
///           [](const InferCall& c) {
///             const TensorType& x = c.in[0];
///             WEFT_CHECK(x.dtype == kFloat32 && x.shape.size() == 2, c.op.name, ": got ", x, "; need f32 [b, m]");
///             return Types{{x.dtype, x.device, Shape{x.shape[0]}}};
///           },
///       .vjp = [](const VjpCall& c) { return Grads{c.grad[0].unsqueeze(1) * (c.in[0] == c.out[0].unsqueeze(1))}; },
///       .dims = [](const Attrs&, auto in, auto out) { return DimMap::parse("b m^ -> b", in, out); },
///       .kernel = [](const KernelCall& c) { ... c.in[0].as<float>() ... },
///   }};
///   Tensor y = row_max({x});
/// The kernel gets operands and results in row-major memory. as<T>() does not convert, so `infer` throws on operands
/// that the kernel does not accept. Without `vjp` a gradient through the op is an error; the trait kNotDifferentiable
/// makes it zero. Without `dims` a mesh does not split it. Without `decompose`, the same function in other ops, it runs
/// on the CPU only. Compiled steps call the kernel as eager calls do. vmap() calls the op for all examples at once, if
/// `dims`, `infer` and the kernel accept one more dim in front; else it uses `decompose` and its derivative.
class CustomOp {
 public:
  /// Throws InvalidArgument if the record has no name, no `infer`, or neither a kernel nor `decompose`, or if there is
  /// another op of this name. A record lives until the program ends, because graphs refer to it; the same record again
  /// is the same op.
  explicit CustomOp(const OpDef& record, std::source_location loc = std::source_location::current());

  /// The result for these tensors; numbers belong in the attributes.
  Tensor operator()(std::initializer_list<Arg> operands, const Attrs& attrs = {},
                    std::source_location loc = std::source_location::current()) const;
  /// All results.
  std::vector<Tensor> all(std::initializer_list<Arg> operands, const Attrs& attrs = {},
                          std::source_location loc = std::source_location::current()) const;
  std::vector<Tensor> all(std::span<const Tensor> operands, const Attrs& attrs = {},
                          std::source_location loc = std::source_location::current()) const;
  const OpDef& record() const { return *record_; }

 private:
  const OpDef* record_;
};

}  // namespace weft
