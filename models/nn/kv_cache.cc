#include "models/nn/kv_cache.h"

#include "models/nn/module.h"
#include "ops/core/creation.h"
#include "ops/core/index.h"
#include "ops/core/pointwise.h"
#include "ops/core/view.h"

namespace weft::nn {

KvCache::KvCache(const KvCacheShape& s) : position(zeros_buffer({}, kInt64)), capacity(s.capacity) {
  WEFT_CHECK(s.batch > 0 && s.layers > 0 && s.kv_heads > 0 && s.capacity > 0 && s.head_dim > 0,
             "KvCache: need positive sizes; got batch ", s.batch, ", layers ", s.layers, ", kv_heads ", s.kv_heads,
             ", capacity ", s.capacity, ", head_dim ", s.head_dim);
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

Tensor KvCache::next_positions(int64_t count) const {
  return position.value() + arange(count, {.dtype = kInt64, .device = position.type().device});
}

KvCache::All KvCache::append(int64_t layer, const Tensor& keys, const Tensor& values) const {
  const Layer& l = layers[layer];
  const Tensor at = position.value();
  All all{dynamic_update_slice(l.keys, keys.to(l.keys.dtype()), {0, 0, at, 0}),
          dynamic_update_slice(l.values, values.to(l.values.dtype()), {0, 0, at, 0})};
  l.keys.set(all.keys);
  l.values.set(all.values);
  return all;
}

void KvCache::advance(int64_t count) const { position.set(position.value() + count); }

}  // namespace weft::nn
