// DimMap: the iteration space of one op call. Sharding propagation and costs read it.
// Written as an einops-like string: "b m k, b k n -> b m n".
//   k      a name is a factor; a factor absent from every result is reduced by sum
//   (h d)  one tensor dim made of several factors, major first
//   1      a dim of extent 1 (broadcast)
//   k^     reduced by max
//   k_     reduced by min
//   k*     reduced by product
//   k?     the op needs the whole dim (sort, argmax, cumsum), also if the result keeps it
//   r~     a ragged dim: rows are split by run-time offsets
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/tensor/shape.h"

namespace weft {

struct TensorType;

enum class FactorKind : uint8_t {
  kPass,  // kept: may be split freely
  kSum,   // reduced by sum: a split gives partial sums
  kMax,
  kMin,
  kProd,
  kWhole,   // must not be split
  kRagged,  // split by run-time offsets
};

struct Factor {
  std::string name;
  FactorKind kind = FactorKind::kPass;
  int64_t size = 1;
  friend bool operator==(const Factor&, const Factor&) = default;
};

/// The factors of one tensor: for each dim the indices of its factors, major first (empty: extent 1 or broadcast).
using DimFactors = std::vector<std::vector<int>>;

struct DimMap {
  std::vector<Factor> factors;
  std::vector<DimFactors> in, out;
  bool linear = true;  // false: this call adds a constant (pad), so it is not linear although its record says so

  /// Parses the notation above and takes the factors' sizes from the types; throws on text that does not fit them. In a
  /// group such as "(h d)", at most one size may be unknown; `sizes` gives further sizes by name.
  static DimMap parse(std::string_view text, std::span<const TensorType> in, std::span<const TensorType> out,
                      std::span<const std::pair<std::string, int64_t>> sizes = {});
  /// For pointwise ops: the dims of each operand and result are aligned from the right with the first result's dims.
  /// 0-d operands have no dims.
  static DimMap pointwise(std::span<const TensorType> in, std::span<const TensorType> out);
  /// Points of the iteration space: the product of all factor sizes.
  double points() const;
  /// The notation above.
  std::string to_string() const;
};

}  // namespace weft
