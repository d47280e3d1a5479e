// The values of a training step that a number format loses.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "framework/ir/graph.h"

namespace weft::precision {

/// Elements of one or several tensors that a format cannot hold.
struct Losses {
  int64_t overflow = 0;   // beyond the greatest number: infinite, or saturated
  int64_t underflow = 0;  // below the least normal number, with fewer digits; includes values that become 0
  int64_t flushed = 0;    // nonzero values that become 0
};

/// Elements by magnitude.
struct Magnitudes {
  int64_t elements = 0, zeros = 0, nonfinite = 0;
  std::map<int, int64_t> by_exponent;  // nonzero finite elements with 2^e <= |x| < 2^(e + 1)
  std::map<std::string, Losses> by_format;
  void add(const Magnitudes& other);
};

/// The kinds of tensors of a step.
enum class TensorKind : uint8_t { kParameter, kValue, kGradient, kUpdate };
inline constexpr TensorKind kKinds[] = {TensorKind::kParameter, TensorKind::kValue, TensorKind::kGradient,
                                        TensorKind::kUpdate};
const char* kind_name(TensorKind kind);

struct TensorRange {
  TensorKind kind = TensorKind::kValue;
  std::string name;  // "blocks.0.attn: softmax at attention.cc:31" or a cell's name
  Magnitudes magnitudes;
};

/// The counted formats: floats without blocks, of at most 16 bits.
std::vector<std::string> counted_formats();

Magnitudes magnitudes_of(const Tensor& t);

/// The cells and the results of the nodes of a step's joint graph that are floats, without views and constants. The
/// step runs in the reference interpreter and writes no cell.
std::vector<TensorRange> tensor_ranges(const Graph& step, std::span<const Tensor> args);

}  // namespace weft::precision
