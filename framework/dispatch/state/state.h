// State of the current thread: open capture, gradient recording, random step scope. It is thread-local because ops are
// ordinary functions: a user's call has no argument for it. (framework/base/origin.h has the line and the names.)
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "framework/base/origin.h"
#include "framework/ir/graph.h"

namespace weft {

class Capture;

namespace internal {

/// Numbers the random ops of one step: an op's id is its ordinal in program order within the step scope.
struct StepScope {
  int64_t ordinal = 0;
  std::vector<Device> used_on;  // devices whose generators keyed random ops
  bool used() const { return !used_on.empty(); }
  Tensor ok;  // see commit_if
};

class NumberScope;
class SeedScope;

struct ThreadState {
  Capture* capture = nullptr;
  StepScope* step = nullptr;
  bool grad_enabled = true;
  bool backward = false;             // nodes captured now are marked as made by reverse mode
  const SeedScope* seeds = nullptr;  // generator.h
  NumberScope* numbers = nullptr;    // ops/core/number.h
  std::optional<DType> autocast;     // see Autocast
};
extern thread_local constinit ThreadState thread_state;

/// During its lifetime, captured nodes are marked as made by reverse mode (or not, if `on` is false).
class BackwardScope {
 public:
  explicit BackwardScope(bool on) : saved_(thread_state.backward) { thread_state.backward = on; }
  ~BackwardScope() { thread_state.backward = saved_; }
  BackwardScope(const BackwardScope&) = delete;

 private:
  bool saved_;
};

/// An operand of a contraction, or its dtype, under Autocast: in Autocast's dtype if it is floating-point and not f64.
/// Without Autocast `t`. For functions that choose by the dtypes of their operands; dispatch() does the same.
Tensor autocast(const Tensor& t);
DType autocast(DType t);
/// An operand of a function that gives f32 under Autocast (as ops with kWantsF32), or its dtype: f32 there for 16-bit
/// floats, otherwise `t`.
Tensor autocast_f32(const Tensor& t);
DType autocast_f32(DType t);

// Defined in ops/core: where(condition, a, b).
Tensor select(const Tensor& condition, const Tensor& a, const Tensor& b);
}  // namespace internal

/// From here to the end of the current step (one call of a compiled function), cells are written only if `ok` is true.
/// `ok` is a 0-d bool that the step computes: a step with a non-finite loss changes nothing. Throws outside a step.
void commit_if(const Tensor& ok, std::source_location loc = std::source_location::current());

/// During its lifetime, ops on this thread are not recorded for grad().
class NoGrad {
 public:
  NoGrad() : saved_(internal::thread_state.grad_enabled) { internal::thread_state.grad_enabled = false; }
  ~NoGrad() { internal::thread_state.grad_enabled = saved_; }
  NoGrad(const NoGrad&) = delete;

 private:
  bool saved_;
};
// PyTorch's names in C++.
using NoGradGuard = NoGrad;
using InferenceMode = NoGrad;

/// During its lifetime, ops on this thread are recorded for grad(), also inside NoGrad.
class EnableGrad {
 public:
  explicit EnableGrad(bool on = true) : saved_(internal::thread_state.grad_enabled) {
    internal::thread_state.grad_enabled = on;
  }
  ~EnableGrad() { internal::thread_state.grad_enabled = saved_; }
  EnableGrad(const EnableGrad&) = delete;

 private:
  bool saved_;
};
using AutoGradMode = EnableGrad;

/// During its lifetime, ops that this thread calls have the dtypes of torch.autocast: operands of contractions
/// (kContraction) become `dtype`, bf16 or f16, and 16-bit operands of ops with kWantsF32 become f32. Ops with an f64
/// operand keep their dtypes; gradients are computed in the dtypes of the forward ops. nullopt: no op is changed, as
/// without an enclosing Autocast. Throws for another dtype. docs/precision.md lists the functions.
class Autocast {
 public:
  explicit Autocast(std::optional<DType> dtype, std::source_location loc = std::source_location::current());
  ~Autocast() { internal::thread_state.autocast = saved_; }
  Autocast(const Autocast&) = delete;

 private:
  const std::optional<DType> saved_;
};

/// True while ops on this thread are recorded.
inline bool grad_enabled() { return internal::thread_state.grad_enabled; }
/// True while this thread captures a function into a graph.
inline bool is_capturing() { return internal::thread_state.capture != nullptr; }

/// During its lifetime, names the captured nodes: "outer/inner". Graph text, reports, kernels and errors show the
/// names. A registered layer's path replaces the names around it.
class NameScope {
 public:
  explicit NameScope(std::string_view name) : name_(name), origin_(name_, /*path=*/false) {}
  NameScope(const NameScope&) = delete;

 private:
  const std::string name_;
  const internal::OriginName origin_;
};

}  // namespace weft
