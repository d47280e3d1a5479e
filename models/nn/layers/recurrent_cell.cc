#include "models/nn/layers/recurrent_cell.h"

#include <cmath>

#include "ops/composite/precision.h"
#include "ops/core/core.h"

namespace weft::nn {

RecurrentCell::RecurrentCell(Kind kind, int64_t input_size, int64_t hidden_size, bool bias, std::source_location loc)
    : kind_(kind), input_(input_size), hidden_(hidden_size) {
  internal::LineScope line(loc);
  WEFT_CHECK(input_size > 0 && hidden_size > 0, recurrent::name_of(kind), "Cell: need positive sizes; got input ",
             input_size, ", hidden ", hidden_size);
  const int64_t gates = recurrent::gates_of(kind) * hidden_size;
  const double bound = 1 / ::std::sqrt(static_cast<double>(hidden_size));
  weight_ih_ = uniform_parameter({gates, input_size}, bound);
  weight_hh_ = uniform_parameter({gates, hidden_size}, bound);
  register_parameter("weight_ih", weight_ih_);
  register_parameter("weight_hh", weight_hh_);
  if (!bias) return;
  bias_ih_ = uniform_parameter({gates}, bound);
  bias_hh_ = uniform_parameter({gates}, bound);
  register_parameter("bias_ih", bias_ih_);
  register_parameter("bias_hh", bias_hh_);
}

RecurrentCell::State RecurrentCell::run(const Arg& arg, const State& before) const {
  CallScope call(*this, arg.line());
  const std::string name = str_cat(recurrent::name_of(kind_), "Cell");
  const Tensor x = internal::autocast(internal::floating_of(arg, name.c_str()));
  WEFT_CHECK((x.dim() == 1 || x.dim() == 2) && x.size(-1) == input_, name, ": x is ", x.type(), "; need [batch, ",
             input_, "] or [", input_, "]");
  Shape states = x.shape();
  states[states.size() - 1] = hidden_;
  const auto state = [&](const Tensor& given, const char* what) {
    if (!given.defined()) return zeros(states, {.dtype = x.dtype(), .device = x.device()});
    WEFT_CHECK(given.shape() == states, name, ": ", what, " ", given.type(), "; need ", states);
    return given.to(internal::dtype_with(given, x, name.c_str(), what));
  };
  const auto own = [&](const Parameter& p) {
    return p.defined() ? p.value().to(internal::dtype_with(p.value(), x, name.c_str())) : Tensor();
  };
  return call.result(
      recurrent::next_state(kind_, linear(x, own(weight_ih_), own(bias_ih_)), own(weight_hh_), own(bias_hh_),
                            {state(before.h, "h is"), kind_ == recurrent::kLstm ? state(before.c, "c is") : Tensor()}));
}

}  // namespace weft::nn
