// One position of a recurrent layer, for a program's own loops, with PyTorch's arguments and parameter names.
#pragma once
#include "framework/dispatch/arg.h"
#include "models/nn/layers/recurrent.h"

namespace weft::nn {

/// The parameters weight_ih [gates * hidden, input], weight_hh [gates * hidden, hidden] and, with bias, bias_ih and
/// bias_hh [gates * hidden].
class RecurrentCell : public Module {
 protected:
  using Kind = recurrent::RecurrentKind;
  using State = recurrent::RecurrentState;
  RecurrentCell(Kind kind, int64_t input_size, int64_t hidden_size, bool bias, std::source_location loc);
  /// x [batch, input] or [input]; states [batch, hidden] or [hidden], or undefined for zeros.
  State run(const Arg& x, const State& before) const;

 private:
  Kind kind_;
  int64_t input_, hidden_;
  Parameter weight_ih_, weight_hh_, bias_ih_, bias_hh_;
};

/// h = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu.
class RNNCell : public RecurrentCell {
 public:
  RNNCell(int64_t input_size, int64_t hidden_size, bool bias = true, bool relu = false,
          std::source_location loc = std::source_location::current())
      : RecurrentCell(relu ? recurrent::kRelu : recurrent::kTanh, input_size, hidden_size, bias, loc) {}
  Tensor operator()(const Arg& x, const Tensor& h = {}) const { return run(x, {h, {}}).h; }
};

/// One step of GRU: x [batch, input] or [input] and h [batch, hidden] or [hidden] give the next h. Throws on other
/// shapes.
class GRUCell : public RecurrentCell {
 public:
  GRUCell(int64_t input_size, int64_t hidden_size, bool bias = true,
          std::source_location loc = std::source_location::current())
      : RecurrentCell(recurrent::kGru, input_size, hidden_size, bias, loc) {}
  Tensor operator()(const Arg& x, const Tensor& h = {}) const { return run(x, {h, {}}).h; }
};

/// One step of LSTM: x and the state (h, c), of the shapes above, give the next state. Throws on other shapes.
class LSTMCell : public RecurrentCell {
 public:
  using State = recurrent::RecurrentState;
  LSTMCell(int64_t input_size, int64_t hidden_size, bool bias = true,
           std::source_location loc = std::source_location::current())
      : RecurrentCell(recurrent::kLstm, input_size, hidden_size, bias, loc) {}
  State operator()(const Arg& x, const State& state = {}) const { return run(x, state); }
};

}  // namespace weft::nn
