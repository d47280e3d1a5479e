// compile(fn): the function runs once with traced tensors; forward, backward and optimiser become one graph, planned
// once and replayed. One plan per combination of argument types, host flags and cell types, least recently used first
// out.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/exec/record/record.h"
#include "compiler/options.h"
#include "framework/base/function_ref.h"
#include "framework/dispatch/state/state.h"
#include "framework/dispatch/tree.h"
#include "framework/ir/graph.h"
#include "ops/core/number.h"

namespace weft {

namespace dist {
class PlanReport;
class World;
}  // namespace dist

/// Counts of compile() so far. Figures of memory and launches describe the plan used last.
struct CompileStats {
  int64_t captures = 0;  // times that fn was traced
  int64_t plans = 0;     // plans made
  int64_t plans_kept = 0;
  int64_t compilations = 0;  // kernels compiled
  int64_t calls = 0;
  double compile_seconds = 0;      // capture, passes and planning, in total
  int64_t nodes = 0;               // nodes of the scheduled graph
  int64_t kernels = 0;             // launches per step
  int64_t copies = 0;              // launches that only copy a value to a cell or an output
  int64_t planned_peak_bytes = 0;  // compiler/exec/plan/plan.h lists its parts
  int64_t measured_peak_bytes = 0;
  int64_t arena_bytes = 0;
  int64_t cells = 0;            // read or written by a step
  int64_t in_place_writes = 0;  // in the last call
  int64_t fresh_writes = 0;     // in the last call: cells that got new storage, because a handle held the old one
  std::string to_string() const;
};

namespace internal {

class CompiledCore;

/// One call of a compiled function. A second call at the same time is an error.
class CompiledCall {
 public:
  explicit CompiledCall(const std::shared_ptr<CompiledCore>& core);
  ~CompiledCall();
  CompiledCall(const CompiledCall&) = delete;

  /// Traces the function: appends its results to `out` and returns a value of their structure.
  using TraceFunction = FunctionRef<std::shared_ptr<const void>(std::span<const Tensor> in, std::vector<Tensor>& out)>;
  struct CallResult {
    std::vector<Tensor> out;
    std::shared_ptr<const void> like;
  };

  /// True inside a capture or a step, and if not enabled: the function itself is called.
  bool direct() const { return direct_; }
  /// Opens the step of a direct call that is not inside another one, and ends it.
  void begin_direct();
  void end_direct();
  CallResult run(std::span<const Tensor> args, std::span<const int32_t> structure, TraceFunction fn);
  /// Captures and plans only.
  void prepare(std::span<const Tensor> args, std::span<const int32_t> structure, TraceFunction fn);
  std::string first_nonfinite(std::span<const Tensor> args, std::span<const int32_t> structure, TraceFunction fn);

 private:
  std::shared_ptr<CompiledCore> core_;
  const NumberScope numbers_;
  struct Step;
  std::unique_ptr<Step> step_;
  bool direct_ = false;
  std::optional<Autocast> autocast_;
};

std::shared_ptr<CompiledCore> make_core(CompileOptions options, SourceLine line = {});
CompileStats core_stats(const CompiledCore& core);
std::string core_report(const CompiledCore& core);
StepRecord core_record(const CompiledCore& core, int rank);
void core_count_work(CompiledCore& core);
const Graph& core_graph(const CompiledCore& core, const std::string& stage);
std::string core_why(const CompiledCore& core, const std::string& a, const std::string& b);

/// Appends the lengths of the vectors inside `v`. Together with the number of tensors they define its structure.
template <class T>
void structure_of(const T& v, std::vector<int32_t>& out) {
  if constexpr (std::is_convertible_v<const T&, Tensor>) {
  } else if constexpr (is_vector<T> || is_array<T>) {
    if constexpr (is_vector<T>) out.push_back(static_cast<int32_t>(v.size()));
    for (const auto& x : v) structure_of(x, out);
  } else if constexpr (is_tuple<T>) {
    std::apply([&](const auto&... x) { (structure_of(x, out), ...); }, v);
  } else {
    with_fields(v, [&](const auto&... x) { (structure_of(x, out), ...); });
  }
}

/// A host number as an argument of a call: a 0-d value of f64. The function gets its number_of().
struct Number {
  Tensor wide;
  operator Tensor() const { return wide; }
};
/// A host number as an argument: a 0-d value of f64, i64 or bool.
Number as_value(double number, Device device);
Tensor as_value(int64_t number, Device device);
Tensor as_value(bool number, Device device);

template <class T>
inline constexpr bool is_number = std::is_arithmetic_v<std::decay_t<T>>;

/// An argument of a call: a number becomes a value.
template <class T>
decltype(auto) as_argument(const T& v, [[maybe_unused]] Device device) {
  if constexpr (!is_number<T>) {
    return (v);
  } else if constexpr (std::is_same_v<T, bool>) {
    return as_value(v, device);
  } else {
    return as_value(static_cast<std::conditional_t<std::is_floating_point_v<T>, double, int64_t>>(v), device);
  }
}

/// The device of the arguments that are not numbers; the CPU if there are none.
template <class... A>
Device device_of_arguments(const A&... args) {
  std::vector<Tensor> in;
  const auto add = [&](const auto& v) {
    if constexpr (!is_number<decltype(v)>) flatten(v, in);
  };
  (add(args), ...);
  return in.empty() || !in[0].defined() ? Device::cpu() : in[0].device();
}

/// The type of an argument or result inside the compiled function: a cell and a number become tensors.
template <class T>
using Carried =
    std::conditional_t<std::is_convertible_v<const std::decay_t<T>&, Tensor> || is_number<T>, Tensor, std::decay_t<T>>;

template <class T>
Carried<T> carry(const T& v) {
  return v;
}

/// The value that the function gets for an argument of type T.
template <class T>
Carried<T> received(const Carried<T>& v) {
  if constexpr (std::is_same_v<T, Number>) {
    return number_of(v);
  } else {
    return v;
  }
}

template <class T>
constexpr bool has_tensors() {
  using V = std::decay_t<T>;
  if constexpr (std::is_convertible_v<const V&, Tensor>) {
    return true;
  } else if constexpr (is_vector<V> || is_array<V>) {
    return has_tensors<typename V::value_type>();
  } else if constexpr (is_tuple<V>) {
    return []<class... E>(std::type_identity<std::tuple<E...>>) {
      return (has_tensors<E>() && ...);
    }(std::type_identity<decltype(std::tuple_cat(std::declval<V>()))>());
  } else {
    return std::is_class_v<V> && std::is_aggregate_v<V>;
  }
}

/// Whether fn(args...) is a call that can be captured.
template <class Fn, class... A>
inline constexpr bool is_capturable =
    ((has_tensors<A>() || is_number<A>)&&...) && std::is_invocable_v<Fn&, Carried<A>...>;
/// Whether fn declares a host number as a parameter to which the call passes one.
template <class Fn, class... A>
inline constexpr bool declares_number = (is_number<A> || ...) &&
                                        !is_capturable<Fn, A...> && std::is_invocable_v<Fn&, const A&...>;

/// Whether the result of fn(args...), if it can be captured, is nothing or has tensors.
template <class Fn, class... A>
constexpr bool returns_tensors() {
  if constexpr (is_capturable<Fn, A...>) {
    using R = std::invoke_result_t<Fn&, Carried<A>...>;
    if constexpr (!std::is_void_v<R>) return has_tensors<R>();
  }
  return true;
}

/// One error in one sentence for a call that cannot be captured.
template <class Fn, class... A>
constexpr bool check_call() {
  static_assert(!declares_number<Fn, A...>,
                "compile: the function declares a host number as a parameter, and capture would fix its value: declare "
                "it as Tensor (a call may still pass a number), or let the lambda capture it if it never changes");
  static_assert(declares_number<Fn, A...> || is_capturable<Fn, A...>,
                "compile: the function cannot be called with these arguments: need one for each parameter, and each "
                "parameter a Tensor, or a tuple, array, vector or struct of Tensors");
  static_assert(
      returns_tensors<Fn, A...>(),
      "compile: the function returns a host value: need nothing, a Tensor, or a tuple, array, vector or struct "
      "of Tensors, which the caller can read after the call");
  return is_capturable<Fn, A...> && returns_tensors<Fn, A...>();
}

}  // namespace internal

/// A compiled function, called like fn. Copies share their captures and plans.
template <class Fn>
class Compiled {
 public:
  Compiled(Fn fn, CompileOptions options, SourceLine line = {})
      : fn_(std::make_shared<Fn>(std::move(fn))), core_(internal::make_core(std::move(options), line)) {}

  /// Numbers may be passed where fn takes a Tensor. Another value then needs no new capture.
  template <class... A>
  auto operator()(const A&... args) const {
    if constexpr (!internal::check_call<Fn, A...>()) {
      return internal::AnyField();  // so that the error is the only one
    } else if constexpr ((internal::is_number<A> || ...)) {
      return with_values([this](const auto&... values) { return (*this)(values...); }, args...);
    } else {
      using R = decltype((*fn_)(std::declval<internal::Carried<A>>()...));
      internal::CompiledCall call(core_);
      if (call.direct()) {
        call.begin_direct();
        if constexpr (std::is_void_v<R>) {
          (*fn_)(internal::received<A>(internal::carry(args))...);
          call.end_direct();
          return;
        } else {
          internal::Carried<R> r = (*fn_)(internal::received<A>(internal::carry(args))...);
          call.end_direct();
          return r;
        }
      } else {
        auto result =
            call_with(args...)([&](auto in, auto structure, auto trace) { return call.run(in, structure, trace); });
        if constexpr (!std::is_void_v<R>) {
          size_t at = 0;
          return unflatten(*static_cast<const internal::Carried<R>*>(result.like.get()),
                           std::span<const Tensor>(result.out), at);
        }
      }
    }
  }

  /// Captures and plans for these arguments without running. Arguments and cells may be on meta.
  template <class... A>
  void prepare(const A&... args) const {
    if constexpr (!internal::check_call<Fn, A...>()) {
    } else if constexpr ((internal::is_number<A> || ...)) {
      with_values([this](const auto&... values) { prepare(values...); }, args...);
    } else {
      internal::CompiledCall call(core_);
      call_with(args...)([&](auto in, auto structure, auto trace) { return call.prepare(in, structure, trace); });
    }
  }
  /// Runs the step in the interpreter and writes no cell. Names the first op whose result has a NaN or an infinity
  /// although its operands are finite, with its line and scope; or says that there is none.
  template <class... A>
  std::string first_nonfinite(const A&... args) const {
    if constexpr (!internal::check_call<Fn, A...>()) {
      return {};
    } else if constexpr ((internal::is_number<A> || ...)) {
      return with_values([this](const auto&... values) { return first_nonfinite(values...); }, args...);
    } else {
      internal::CompiledCall call(core_);
      return call_with(args...)(
          [&](auto in, auto structure, auto trace) { return call.first_nonfinite(in, structure, trace); });
    }
  }

  /// The placement on the mesh of the last call or prepare(), with times predicted for `machine`: "cpu", "h100-sxm",
  /// "a100". One device is one rank. Needs distributed/launch/compile.h, as world() does.
  dist::PlanReport plan(const std::string& machine = "cpu") const;
  /// The ranks that run the step, for their statistics. Throws FailedPrecondition before the first call and for one
  /// rank.
  dist::World& world() const;

  /// For code that works on plans (compiler/aot).
  const std::shared_ptr<internal::CompiledCore>& core() const { return core_; }
  CompileStats stats() const { return internal::core_stats(*core_); }
  /// Text: host constants, passes, launches, memory, and optimisations that were not possible, with the reason.
  std::string report() const { return internal::core_report(*core_); }
  /// The step as data: its launches, memory and rates (compiler/exec/record/record.h); on a mesh, the part of rank
  /// `rank`. Throws FailedPrecondition before the first call or prepare(), OutOfRange if there is no such rank.
  StepRecord record(int rank = 0) const { return internal::core_record(*core_, rank); }
  /// The next call counts the work that depends on values (masks, lengths of a cache, rows of experts), for record()
  /// (LaunchRecord::done). That call is slower, and its times are not measured. On a mesh it throws Unimplemented.
  void count_work() const { internal::core_count_work(*core_); }
  /// The plan used last at stage "captured", "joint", "partitioned" (over a mesh: rank 0's), "fused" or "scheduled";
  /// valid until the next call.
  const Graph& graph(const std::string& stage) const { return internal::core_graph(*core_, stage); }
  /// Whether two ops, written "mul", "model.cc:43" or "mul at model.cc:43", are in one kernel; if not, the rule that
  /// prevents it and the extra bytes.
  std::string why(const std::string& a, const std::string& b) const { return internal::core_why(*core_, a, b); }

 private:
  /// then(args...), with each number as a value on the device of the other arguments.
  template <class Then, class... A>
  static auto with_values(const Then& then, const A&... args) {
    const Device device = internal::device_of_arguments(args...);
    return then(internal::as_argument(args, device)...);
  }

  template <class... A>
  auto call_with(const A&... args) const {
    return [this, &args...](auto&& then) {
      using R = decltype((*fn_)(std::declval<internal::Carried<A>>()...));
      std::vector<Tensor> in;
      std::vector<int32_t> structure;
      [[maybe_unused]] const auto add = [&]<class T>(const T& v) {
        if constexpr (std::is_same_v<T, internal::Number>) structure.push_back(-1 - static_cast<int32_t>(in.size()));
        flatten(v, in);
      };
      (add(args), ...);
      (internal::structure_of(args, structure), ...);
      auto trace = [&]([[maybe_unused]] std::span<const Tensor> traced,
                       std::vector<Tensor>& out) -> std::shared_ptr<const void> {
        [[maybe_unused]] size_t at = 0;
        std::tuple<internal::Carried<A>...> values{
            internal::received<A>(unflatten(internal::carry(args), traced, at))...};
        if constexpr (std::is_void_v<R>) {
          std::apply(*fn_, std::move(values));
          return {};
        } else {
          auto result = std::make_shared<internal::Carried<R>>(std::apply(*fn_, std::move(values)));
          flatten(*result, out);
          return result;
        }
      };
      return then(std::span<const Tensor>(in), std::span<const int32_t>(structure),
                  internal::CompiledCall::TraceFunction(trace));
    };
  }

  std::shared_ptr<Fn> fn_;
  std::shared_ptr<internal::CompiledCore> core_;
};

/// Compiles `fn`: the first call with new argument types captures it, later calls replay. fn returns nothing, a Tensor,
/// or a tuple, array, vector or aggregate of them; it may read and write cells. Everything else that it uses is a
/// constant of the capture, except HostFlags and arguments: host values, and tensors that it closes over or makes from
/// host values. A variable that gets another tensor after the capture changes nothing: pass the tensor as an argument,
/// or keep it in a Buffer. report() lists host values; CompileOptions::check_capture finds values and tensors that
/// change. Inside a capture the call is inlined. Call compile() once, not in a loop: each compiled function captures
/// anew.
template <class Fn>
Compiled<std::decay_t<Fn>> compile(Fn&& fn, CompileOptions options = {},
                                   std::source_location loc = std::source_location::current()) {
  return {std::forward<Fn>(fn), std::move(options), loc};
}

}  // namespace weft
