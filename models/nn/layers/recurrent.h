// Recurrent layers with PyTorch's arguments, parameter names and initialisation. A call is a loop over time
// (ops/core/functions/loop.h), so the graph of a step does not grow with the number of positions.
#pragma once
#include <concepts>
#include <vector>

#include "framework/dispatch/arg.h"
#include "models/nn/module.h"

namespace weft::nn {

struct RecurrentOptions {
  int64_t num_layers = 1;
  bool bias = true;
  bool batch_first = false;  // operands are [batch, time, features] instead of [time, batch, features]
  double dropout = 0;        // applied to the results of all layers but the last, in train()
  bool bidirectional = false;
};

namespace recurrent {
enum RecurrentKind { kTanh, kRelu, kGru, kLstm };
const char* name_of(RecurrentKind kind);
/// The number of gates: weights have gates * hidden rows.
int64_t gates_of(RecurrentKind kind);
struct RecurrentState {
  Tensor h, c;  // c: kLstm
};
/// The state after one position. `from_input` is the input's part of the gates, [..., gates * hidden].
RecurrentState next_state(RecurrentKind kind, const Tensor& from_input, const Tensor& w_hh, const Tensor& b_hh,
                          const RecurrentState& before);
}  // namespace recurrent

/// The base of RNN, GRU and LSTM, with the parameters weight_ih_l0 [gates * hidden, input], weight_hh_l0 [gates *
/// hidden, hidden], bias_ih_l0 and bias_hh_l0 [gates * hidden] of layer 0, and so on; "_reverse" for the second
/// direction.
class Recurrent : public Module {
 public:
  using Module::Module;
  int64_t input_size() const { return input_; }
  int64_t hidden_size() const { return hidden_; }

 protected:
  using Kind = recurrent::RecurrentKind;
  Recurrent(Kind kind, int64_t input_size, int64_t hidden_size, const RecurrentOptions& options,
            std::source_location loc);
  struct Result {
    Tensor output, h, c;
  };
  Result run(const Arg& x, const Tensor& h0, const Tensor& c0) const;

 private:
  const char* name() const { return recurrent::name_of(kind_); }

  Kind kind_ = {};
  int64_t input_, hidden_;
  RecurrentOptions options_;
  std::vector<Parameter> parameters_;  // for each layer and direction: weight_ih, weight_hh and, with bias, two biases
};

/// A recurrent layer whose state is h alone.
class SimpleRecurrent : public Recurrent {
 public:
  struct Output {
    Tensor output;  // the last layer's h of each position: [time, batch, directions * hidden]
    Tensor h;       // after the last position: [layers * directions, batch, hidden]
  };
  /// x [time, batch, input], or [time, input]. h0 has the shape of Output::h, or is undefined for zeros.
  Output operator()(const Arg& x, const Tensor& h0 = {}) const {
    CallScope call(*this, x.line());
    const Result r = run(x, h0, {});
    return call.result(Output{r.output, r.h});
  }

 protected:
  using Recurrent::Recurrent;
};

/// h = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu (Elman 1990).
class RNN : public SimpleRecurrent {
 public:
  using SimpleRecurrent::SimpleRecurrent;
  RNN(int64_t input_size, int64_t hidden_size, const RecurrentOptions& options = {}, bool relu = false,
      std::source_location loc = std::source_location::current())
      : SimpleRecurrent(relu ? recurrent::kRelu : recurrent::kTanh, input_size, hidden_size, options, loc) {}
  /// PyTorch's third argument: RNN(4, 8, 2).
  template <std::integral L>
  RNN(int64_t input_size, int64_t hidden_size, L num_layers, std::source_location loc = std::source_location::current())
      : RNN(input_size, hidden_size, RecurrentOptions{.num_layers = static_cast<int64_t>(num_layers)}, false, loc) {}
};

/// Gated recurrent unit: reset and update gates, new value, in PyTorch's form (Cho et al. 2014, arXiv:1406.1078).
class GRU : public SimpleRecurrent {
 public:
  using SimpleRecurrent::SimpleRecurrent;
  GRU(int64_t input_size, int64_t hidden_size, const RecurrentOptions& options = {},
      std::source_location loc = std::source_location::current())
      : SimpleRecurrent(recurrent::kGru, input_size, hidden_size, options, loc) {}
  template <std::integral L>
  GRU(int64_t input_size, int64_t hidden_size, L num_layers, std::source_location loc = std::source_location::current())
      : GRU(input_size, hidden_size, RecurrentOptions{.num_layers = static_cast<int64_t>(num_layers)}, loc) {}
};

/// Long short-term memory: input, forget, cell and output gates (Hochreiter and Schmidhuber 1997).
class LSTM : public Recurrent {
 public:
  using Recurrent::Recurrent;
  LSTM(int64_t input_size, int64_t hidden_size, const RecurrentOptions& options = {},
       std::source_location loc = std::source_location::current())
      : Recurrent(recurrent::kLstm, input_size, hidden_size, options, loc) {}
  template <std::integral L>
  LSTM(int64_t input_size, int64_t hidden_size, L num_layers,
       std::source_location loc = std::source_location::current())
      : LSTM(input_size, hidden_size, RecurrentOptions{.num_layers = static_cast<int64_t>(num_layers)}, loc) {}
  struct State {
    Tensor h, c;  // [layers * directions, batch, hidden]; undefined for zeros
  };
  struct Output {
    Tensor output;  // the last layer's h of each position: [time, batch, directions * hidden]
    State state;    // after the last position
  };
  Output operator()(const Arg& x, const State& state = {}) const {
    CallScope call(*this, x.line());
    const Result r = run(x, state.h, state.c);
    return call.result(Output{r.output, {r.h, r.c}});
  }
};

}  // namespace weft::nn
