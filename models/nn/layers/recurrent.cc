#include "models/nn/layers/recurrent.h"

#include <cmath>

#include "ops/composite/precision.h"
#include "ops/composite/random/dropout.h"
#include "ops/core/core.h"
#include "ops/core/functions/loop.h"

namespace weft::nn {

using namespace recurrent;  // NOLINT(google-build-using-namespace)

const char* recurrent::name_of(RecurrentKind kind) { return kind == kLstm ? "LSTM" : kind == kGru ? "GRU" : "RNN"; }
int64_t recurrent::gates_of(RecurrentKind kind) { return kind == kLstm ? 4 : kind == kGru ? 3 : 1; }

RecurrentState recurrent::next_state(RecurrentKind kind, const Tensor& from_input, const Tensor& w_hh,
                                     const Tensor& b_hh, const RecurrentState& before) {
  const Tensor from_state = linear(before.h, w_hh, b_hh);
  if (kind == kTanh) return {tanh(from_input + from_state), {}};
  if (kind == kRelu) return {relu(from_input + from_state), {}};
  if (kind == kGru) {
    const std::vector<Tensor> x = chunk(from_input, 3, -1), h = chunk(from_state, 3, -1);
    const Tensor reset = sigmoid(x[0] + h[0]), update = sigmoid(x[1] + h[1]), fresh = tanh(x[2] + reset * h[2]);
    return {fresh + update * (before.h - fresh), {}};
  }
  const std::vector<Tensor> g = chunk(from_input + from_state, 4, -1);
  const Tensor c = sigmoid(g[1]) * before.c + sigmoid(g[0]) * tanh(g[2]);
  return {sigmoid(g[3]) * tanh(c), c};
}

Recurrent::Recurrent(Kind kind, int64_t input_size, int64_t hidden_size, const RecurrentOptions& options,
                     std::source_location loc)
    : kind_(kind), input_(input_size), hidden_(hidden_size), options_(options) {
  internal::LineScope line(loc);
  WEFT_CHECK(input_size > 0 && hidden_size > 0 && options.num_layers > 0, name(), ": need positive sizes; got input ",
             input_size, ", hidden ", hidden_size, ", ", options.num_layers, " layers");
  WEFT_CHECK(options.dropout >= 0 && options.dropout < 1, name(), ": dropout is ", options.dropout,
             "; need a probability below 1");
  const int64_t gates = gates_of(kind) * hidden_size;
  const int directions = options.bidirectional ? 2 : 1;
  const double bound = 1 / ::std::sqrt(static_cast<double>(hidden_size));
  std::vector<std::string> names;
  for (int64_t layer = 0; layer < options.num_layers; ++layer)
    for (int d = 0; d < directions; ++d) {
      const std::string end = str_cat("_l", layer, d ? "_reverse" : "");
      const int64_t in = layer == 0 ? input_size : hidden_size * directions;
      const auto add = [&](const char* what, const Shape& shape) {
        names.push_back(what + end);
        parameters_.push_back(uniform_parameter(shape, bound));
      };
      add("weight_ih", {gates, in});
      add("weight_hh", {gates, hidden_size});
      if (!options.bias) continue;
      add("bias_ih", {gates});
      add("bias_hh", {gates});
    }
  for (size_t i = 0; i < names.size(); ++i) register_parameter(names[i], parameters_[i]);
}

Recurrent::Result Recurrent::run(const Arg& arg, const Tensor& h0, const Tensor& c0) const {
  Tensor x = internal::autocast(internal::floating_of(arg, name()));
  const bool batched = x.dim() == 3;
  WEFT_CHECK(batched || x.dim() == 2, name(), ": x is ", x.type(), "; need ",
             options_.batch_first ? "[batch, time, " : "[time, batch, ", input_, "] or [time, ", input_, "]");
  WEFT_CHECK(x.size(-1) == input_, name(), ": x is ", x.type(), " with ", x.size(-1), " features; need ", input_);
  if (!batched) {
    x = unsqueeze(x, 1);
  } else if (options_.batch_first) {
    x = transpose(x, 0, 1);
  }
  const int64_t batch = x.size(1);
  WEFT_CHECK(x.size(0) > 0, name(), ": x is ", x.type(), " without positions; need 1 or more");
  const int directions = options_.bidirectional ? 2 : 1, each = options_.bias ? 4 : 2;
  const Shape states{options_.num_layers * directions, batch, hidden_};
  const auto start = [&](const Tensor& given, const char* what) {
    if (!given.defined()) return zeros(states, {.dtype = x.dtype(), .device = x.device()});
    const Tensor s = batched ? given : unsqueeze(given, 1);
    WEFT_CHECK(s.shape() == states, name(), ": ", what, " ", given.type(), "; need ", states,
               batched ? "" : " without the batch dim");
    return s.to(internal::dtype_with(given, x, name(), what));
  };
  const Tensor h_start = start(h0, "h0 is"), c_start = kind_ == kLstm ? start(c0, "c0 is") : Tensor();
  std::vector<Tensor> h_end, c_end;
  for (int64_t layer = 0; layer < options_.num_layers; ++layer) {
    std::vector<Tensor> outputs;
    for (int d = 0; d < directions; ++d) {
      const int64_t k = layer * directions + d;
      const Parameter* p = parameters_.data() + k * each;
      const auto weight = [&](int i) { return p[i].value().to(internal::dtype_with(p[i].value(), x, name())); };
      const Tensor w_hh = weight(1), b_hh = options_.bias ? weight(3) : Tensor();
      const Tensor from_input = linear(x, weight(0), options_.bias ? weight(2) : Tensor());  // all positions at once
      std::vector<Tensor> start{select(h_start, 0, k)};
      if (kind_ == kLstm) start.push_back(select(c_start, 0, k));
      // (h, c?, the input's part of the gates) -> (h, c?, h of this position).
      const auto position = [&](std::span<const Tensor> in) {
        const RecurrentState s = next_state(kind_, in.back(), w_hh, b_hh, {in[0], kind_ == kLstm ? in[1] : Tensor()});
        return internal::Iteration{kind_ == kLstm ? std::vector{s.h, s.c} : std::vector{s.h}, {s.h}};
      };
      const std::vector<Tensor> end =
          internal::run_loop(position, start, {from_input}, {.reverse = d == 1}, arg.line());
      h_end.push_back(end[0]);
      if (kind_ == kLstm) c_end.push_back(end[1]);
      outputs.push_back(end.back());
    }
    x = directions == 1 ? outputs[0] : cat(outputs, 2);
    if (options_.dropout > 0 && is_training() && layer + 1 < options_.num_layers) x = dropout(x, options_.dropout);
  }
  Result r{x, stack(h_end), kind_ == kLstm ? stack(c_end) : Tensor()};
  if (!batched) {
    r.output = squeeze(r.output, 1);
    r.h = squeeze(r.h, 1);
    if (r.c.defined()) r.c = squeeze(r.c, 1);
  } else if (options_.batch_first) {
    r.output = transpose(r.output, 0, 1);
  }
  return r;
}

}  // namespace weft::nn
