// KvCache: the keys and values of the tokens seen so far. Its buffers have a fixed capacity, so a decoding step is
// captured once.
#pragma once
#include <memory>
#include <vector>

#include "framework/dispatch/parameter.h"

namespace weft::nn {

struct KvCacheShape {
  int64_t batch = 1, layers = 0, kv_heads = 0, capacity = 0, head_dim = 0;
  DType dtype = kFloat32;
  Device device = Device::cpu();
};

struct KvCache {
  struct Layer {
    Buffer keys, values;  // [batch, kv_heads, capacity, head_dim]
  };
  std::vector<Layer> layers;
  Buffer position;  // i64 0-d: number of tokens stored
  int64_t capacity = 0;
  std::shared_ptr<int64_t> appended =
      std::make_shared<int64_t>(0);  // number of calls of append, including traced calls

  explicit KvCache(const KvCacheShape& shape, std::source_location loc = std::source_location::current());
  /// Removes all tokens.
  void reset() const;
  /// A larger cache with the same tokens. It has new cells: compile functions that use it again.
  KvCache grown(int64_t larger_capacity) const;
  /// i64 [count]: the positions of the next `count` tokens.
  Tensor next_positions(int64_t count) const;
  /// Writes the keys and values [batch, kv_heads, count, head_dim] of the next tokens and returns the keys and values
  /// of all tokens, shaped as in Layer. Throws OutOfRange if the next tokens do not fit.
  struct All {
    Tensor keys, values;
  };
  All append(int64_t layer, const Tensor& keys, const Tensor& values) const;
  /// Advances the position by `count` tokens. Call it after all layers have appended.
  void advance(int64_t count) const;
  /// The same for a 0-d i64 `count`, which tokens that end with padding need.
  void advance(const Tensor& count) const;
};

}  // namespace weft::nn
