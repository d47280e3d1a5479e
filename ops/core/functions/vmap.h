// vmap(): a function of one example, applied to all examples of a batch at once. kernel(): a tensor from a formula for
// one element.
#pragma once
#include <functional>
#include <optional>

#include "framework/dispatch/arg.h"
#include "framework/dispatch/capture.h"

namespace weft {

/// An index of one element: a traced 0-d i64 tensor. Arithmetic and comparison work as on any tensor; `table[index]`
/// and `table(i, j)` read a tensor from outside. An `if` on it does not compile: use where(condition, a, b).
class Index : public Tensor {
 public:
  explicit Index(const Tensor& t) : Tensor(t) {}
};

struct VmapOptions {
  // For each argument, the dim of its tensors that counts the examples, or std::nullopt: all examples share the
  // argument. Empty: dim 0 of every argument.
  std::vector<std::optional<int64_t>> in_dims = {};
  int64_t out_dim = 0;  // the dim that counts the examples in the results
};

struct KernelOptions {
  Device device = Device::cpu();  // device of the result and of the tensors that the function reads
};

namespace internal {

/// The results of `fn`, a function of one example, for all examples along in_dims[i] of in[i]. If `positions` is set,
/// in[0] is 0, 1, 2, ...
std::vector<Tensor> run_vmap(const TensorFn& fn, std::span<const Tensor> in,
                             std::span<const std::optional<int64_t>> in_dims, int64_t out_dim, SourceLine line,
                             bool positions = false);
Tensor run_kernel(const std::function<Tensor(std::span<const Index>)>& fn, const Shape& extents,
                  const KernelOptions& options, SourceLine line);

template <class Fn, size_t... I>
constexpr bool takes_indices(std::index_sequence<I...>) {
  return std::is_invocable_v<Fn&, decltype((static_cast<void>(I), std::declval<Index>()))...>;
}

/// Calls fn with N indices, if it accepts N.
template <size_t N, class Fn>
std::optional<Tensor> call_with_indices(Fn& fn, std::span<const Index> i) {
  if constexpr (takes_indices<Fn>(std::make_index_sequence<N>())) {
    if (i.size() == N) return [&]<size_t... K>(std::index_sequence<K...>) {
        return std::optional<Tensor>(Tensor(fn(i[K]...)));
      }
    (std::make_index_sequence<N>());
  }
  return {};
}

}  // namespace internal

/// `fn` for all examples: vmap(fn)(x, y) computes fn(x[i], y[i]) for every i and stacks the results, as torch.vmap.
/// `fn` takes and returns Tensors, or tuples, vectors or structs of Tensors; it is traced once, and its ops run once on
/// all examples. The examples are along options.out_dim of the results. `fn` may take gradients: vmap of a function
/// that returns grad(loss, {w}) gives a gradient for each example. The ops of a scan() inside are repeated for each
/// slice. Throws InvalidArgument if the numbers of examples differ, if `fn` draws random numbers, and for an op that
/// cannot be applied to a batch; FailedPrecondition if `fn` reads values on the host or sets a cell.
template <class Fn>
auto vmap(Fn fn, VmapOptions options = {}, std::source_location loc = std::source_location::current()) {
  return [fn = std::move(fn), options = std::move(options), loc](const auto&... args) {
    const internal::LineScope here(loc);
    std::vector<Tensor> in;
    std::vector<std::optional<int64_t>> dims;
    WEFT_CHECK(options.in_dims.empty() || options.in_dims.size() == sizeof...(args), "vmap: got ",
               options.in_dims.size(), " in_dims for ", sizeof...(args), " arguments; need one for each, or none");
    size_t at = 0;
    const auto take = [&](const auto& arg) {
      flatten(arg, in);
      dims.resize(in.size(), options.in_dims.empty() ? std::optional<int64_t>(0) : options.in_dims[at]);
      ++at;
    };
    (take(args), ...);
    using Result = std::remove_cvref_t<std::invoke_result_t<const Fn&, const decltype(args)&...>>;
    std::optional<Result> like;
    const std::vector<Tensor> out = internal::run_vmap(
        [&](std::span<const Tensor> example) {
          size_t next = 0;
          const std::tuple<std::remove_cvref_t<decltype(args)>...> own{unflatten(args, example, next)...};
          like = std::apply(fn, own);
          std::vector<Tensor> flat;
          flatten(*like, flat);
          return flat;
        },
        in, dims, options.out_dim, loc);
    size_t next = 0;
    return unflatten(*like, out, next);
  };
}

/// The tensor of these extents whose element (i, j, ...) is fn(i, j, ...), a number computed from the indices and from
/// elements of other tensors:
///   Tensor y = kernel([&](Index i, Index j) { return a(i, j) * b(j) + sin(a(j, i)); }, {n, m});
/// `fn` is traced once into ordinary ops on whole tensors: it has gradients, runs on every device and mesh, and is
/// fused with its neighbours in a compiled step. Throws OutOfRange if it reads outside a tensor. Both values of a
/// where() are computed: where(i > 0, x(i - 1), 0.0) reads x(-1); write x(maximum(i - 1, 0)).
template <class Fn>
Tensor kernel(Fn&& fn, const Shape& extents, const KernelOptions& options = {},
              std::source_location loc = std::source_location::current()) {
  return internal::run_kernel(
      [&](std::span<const Index> i) {
        std::optional<Tensor> y;
        [&]<size_t... N>(std::index_sequence<N...>) { ((y = y ? y : internal::call_with_indices<N + 1>(fn, i)), ...); }
        (std::make_index_sequence<kMaxDims>());
        WEFT_CHECK(y, "kernel: the function does not take ", i.size(), " indices; need one for each extent of ",
                   extents);
        return *y;
      },
      extents, options, loc);
}

}  // namespace weft
