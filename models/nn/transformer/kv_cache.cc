#include "models/nn/transformer/kv_cache.h"

#include "models/nn/module.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/index.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"

namespace weft::nn {

KvCache::KvCache(const KvCacheShape& s, std::source_location loc)
    : position(zeros_buffer({}, kInt64)), capacity(s.capacity) {
  internal::LineScope line(loc);
  WEFT_CHECK(s.batch > 0 && s.layers > 0 && s.kv_heads > 0 && s.capacity > 0 && s.head_dim > 0,
             "KvCache: need positive sizes; got batch ", s.batch, ", layers ", s.layers, ", kv_heads ", s.kv_heads,
             ", capacity ", s.capacity, ", head_dim ", s.head_dim);
  constexpr int64_t kMostLayers = 1 << 16;
  WEFT_CHECK(s.layers <= kMostLayers, "KvCache: layers is ", s.layers, "; need at most ", kMostLayers);
  position.set_name("cache.position");
  const Shape shape{s.batch, s.kv_heads, s.capacity, s.head_dim};
  for (int64_t i = 0; i < s.layers; ++i) {
    layers.push_back({zeros_buffer(shape, s.dtype), zeros_buffer(shape, s.dtype)});
    layers.back().keys.set_name(str_cat("cache.", i, ".keys"));
    layers.back().values.set_name(str_cat("cache.", i, ".values"));
    layers.back().keys.convert(s.device);
    layers.back().values.convert(s.device);
  }
  position.convert(s.device);
}

void KvCache::reset() const { position.set(zeros({}, {.dtype = kInt64, .device = position.type().device})); }

KvCache KvCache::grown(int64_t larger_capacity) const {
  WEFT_CHECK(larger_capacity >= capacity, "KvCache: cannot grow from capacity ", capacity, " to ", larger_capacity,
             "; need a larger capacity");
  NoGrad guard;
  const TensorType type = layers.front().keys.type();
  KvCache larger({.batch = type.shape[0],
                  .layers = static_cast<int64_t>(layers.size()),
                  .kv_heads = type.shape[1],
                  .capacity = larger_capacity,
                  .head_dim = type.shape[3],
                  .dtype = type.dtype,
                  .device = type.device});
  const Tensor first = zeros({}, {.dtype = kInt64, .device = type.device});
  const auto copy = [&](const Buffer& from, const Buffer& to) {
    to.set(dynamic_update_slice(to, from, {first, first, first, first}));
  };
  for (size_t i = 0; i < layers.size(); ++i) {
    copy(layers[i].keys, larger.layers[i].keys);
    copy(layers[i].values, larger.layers[i].values);
  }
  larger.position.set(position.value());
  return larger;
}

Tensor KvCache::next_positions(int64_t count) const {
  return position.value() + arange(count, {.dtype = kInt64, .device = position.type().device});
}

KvCache::All KvCache::append(int64_t layer, const Tensor& keys, const Tensor& values) const {
  WEFT_CHECK_AS(kOutOfRange, layer >= 0 && layer < static_cast<int64_t>(layers.size()), "KvCache: layer ", layer,
                " of ", layers.size(), "; need 0 to ", static_cast<int64_t>(layers.size()) - 1);
  const Layer& l = layers[layer];
  const Tensor at = position.value();
  All all{dynamic_update_slice(l.keys, keys.to(l.keys.dtype()), {0, 0, at, 0}),
          dynamic_update_slice(l.values, values.to(l.values.dtype()), {0, 0, at, 0})};
  l.keys.set(all.keys);
  l.values.set(all.values);
  ++*appended;
  return all;
}

void KvCache::advance(int64_t count) const {
  WEFT_CHECK(count >= 0, "KvCache: advance by ", count, "; need 0 or more");
  position.set(position.value() + count);
}

void KvCache::advance(const Tensor& count) const { position.set(position.value() + count); }

}  // namespace weft::nn
