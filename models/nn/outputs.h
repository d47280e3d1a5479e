// with_outputs: the results of modules inside a function as results of the function, instead of forward hooks.
#pragma once
#include <concepts>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "models/nn/module.h"

namespace weft::nn {

/// The result of a function, and for each path the tensors that the calls of its module returned, in order.
template <class R>
struct WithOutputs {
  R result;
  std::vector<std::vector<Tensor>> outputs;
};
template <>
struct WithOutputs<void> {
  std::vector<std::vector<Tensor>> outputs;
};

/// See with_outputs.
template <class Fn>
class OutputsOf {
 public:
  OutputsOf(std::vector<std::string> paths, Fn fn) : paths_(std::move(paths)), fn_(std::move(fn)) {}

  template <class... A>
  requires std::is_invocable_v<const Fn&, const A&...>
  auto operator()(const A&... args) const {
    using R = std::invoke_result_t<const Fn&, const A&...>;
    const internal::CallOutputs calls(paths_);
    if constexpr (std::is_void_v<R>) {
      fn_(args...);
      return WithOutputs<void>{calls.take()};
    } else {
      std::decay_t<R> r = fn_(args...);
      return WithOutputs<std::decay_t<R>>{std::move(r), calls.take()};
    }
  }

 private:
  std::vector<std::string> paths_;
  Fn fn_;
};

/// `fn` as a function that also returns the results of the modules of these paths in its call, as PyTorch's forward
/// hooks get them: auto [loss, outputs] = compile(nn::with_outputs({"blocks.3.attn"}, step))(x, y). The paths are as in
/// named_modules(). Works eagerly, compiled and on a mesh. Throws NotFound for a path that is not called, with the
/// nearest one.
template <class Fn>
OutputsOf<std::decay_t<Fn>> with_outputs(std::vector<std::string> paths, Fn&& fn) {
  return {std::move(paths), std::forward<Fn>(fn)};
}

}  // namespace weft::nn
