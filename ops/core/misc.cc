// Records and functions of ops with effects.
#include "ops/core/misc.h"

#include <cstdio>

#include "framework/dispatch/dispatch.h"
#include "ops/core/creation.h"
#include "ops/core/record_parts.h"
#include "ops/kernels/kernels.h"

namespace weft {

static void run_debug_print(const KernelCall& c) {
  const StridedView& out = c.out[0];
  kernels::cast_copy(c.in[0], out);
  const Tensor shown = Tensor::from_blob(out.data, out.shape, out.dtype);
  const std::string& label = c.attrs.get<std::string>("label");
  const std::string text = weft::str_cat(label, label.empty() ? "" : " = ", shown.to_string(), "\n");
  std::fputs(text.c_str(), stderr);  // one call: lines of several threads do not mix
}

const OpDef debug_print_op = {
    .name = "debug_print",
    .doc = "The operand, printed to stderr with its {label} when computed.",
    .traits = kSideEffect,
    .flops_per_point = 0,
    .infer = internal::infer_same,
    .vjp = internal::vjp_same,
    .dims = internal::dims_pointwise,
    .kernel = run_debug_print,
    .samples =
        [] {
          return std::vector<internal::Sample>{{{{Shape{3, 5}}}, {{"label", std::string("x")}}},
                                               {{{Shape{}}}, {{"label", std::string()}}}};
        },
    .vjp_reads_in = 0,
    .vjp_reads_out = 0,
};

std::span<const OpDef* const> misc_ops() {
  static const OpDef* const all[] = {&debug_print_op};
  return all;
}

Tensor debug_print(const Arg& t, const std::string& label) {
  return dispatch(debug_print_op, {&internal::tensor_of(t, "debug_print")}, {{"label", label}}, t.line());
}

}  // namespace weft
