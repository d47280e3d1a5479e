#include "ops/attention/masks/call_mask.h"

#include <algorithm>
#include <cstring>
#include <list>

#include "framework/base/mutex.h"

namespace weft::internal {
namespace {

/// A cached mask with copies of its tables, so that later changes of the tables do not affect it.
struct CachedMask {
  Ref<Graph> graph;
  CallSizes sizes;
  bool lists = false;
  std::vector<Tensor> tables;
  int64_t bytes = 0;  // bytes of the tables and the lists
  std::shared_ptr<const CallMask> mask;
};

/// Recently made masks, most recent first: the layers of a step and its backward use the same mask.
struct MaskCache {
  static constexpr size_t kMost = 256;  // masks; every rank of a process has its own
  // Limit on the bytes of all masks; a mask that needs more than half of it is not kept.
  static constexpr int64_t kMostBytes = int64_t{64} << 20;
  Mutex mutex;
  std::list<std::shared_ptr<const CachedMask>> all WEFT_GUARDED_BY(mutex);
  int64_t bytes WEFT_GUARDED_BY(mutex) = 0;
};

// Does not use the device's allocator: memory kept for later calls does not belong to the step that makes it.
Tensor copy_of(const Tensor& t) {
  const auto bytes = static_cast<size_t>(t.numel() * itemsize(t.dtype()));
  auto* data = new char[std::max<size_t>(bytes, 1)];
  if (bytes) std::memcpy(data, t.view_for_kernel().data, bytes);
  return Tensor::from_blob(data, t.shape(), t.dtype(), [](void* p) { delete[] static_cast<char*>(p); });
}

/// Compares every byte of the tables: changed contents make another mask.
bool same(const CachedMask& k, const Ref<Graph>& graph, std::span<const StridedView> tables, const CallSizes& sizes,
          bool lists) {
  if (!(k.sizes == sizes) || k.lists != lists || k.tables.size() != tables.size()) return false;
  for (size_t i = 0; i < tables.size(); ++i)
    if (k.tables[i].dtype() != tables[i].dtype || k.tables[i].shape() != tables[i].shape) return false;
  if (k.graph != graph && !structurally_equal(*k.graph, *graph)) return false;
  for (size_t i = 0; i < tables.size(); ++i)
    if (std::memcmp(k.tables[i].view_for_kernel().data, tables[i].data, static_cast<size_t>(tables[i].nbytes())))
      return false;
  return true;
}

std::shared_ptr<const CallMask> make(const Ref<Graph>& graph, std::span<const Tensor> tables, const CallSizes& sizes,
                                     bool lists) {
  const MaskProgram program(Body{graph, {tables.begin(), tables.end()}});
  auto m = std::make_shared<CallMask>(program.narrowed(sizes.batch, sizes.heads, sizes.q_len, sizes.kv_len));
  if (lists) {
    m->lists =
        build_block_lists(program, m->program,
                          {.batch = sizes.batch, .heads = sizes.heads, .q_len = sizes.q_len, .kv_len = sizes.kv_len});
    m->view = m->lists.view();
  }
  return m;
}

}  // namespace

VisibleScores CallMask::scores(const CallSizes& sizes) const {
  MutexLock lock(mutex_);
  if (!counted_) counted_ = visible_scores(view);
  return {counted_->count * static_cast<double>(sizes.batch / view.batch * (sizes.heads / view.heads)),
          counted_->at_most};
}

std::shared_ptr<const CallMask> mask_of_call(const Ref<Graph>& graph, std::span<const StridedView> tables,
                                             const CallSizes& sizes, bool lists) {
  static MaskCache* cache = new MaskCache;
  std::vector<std::shared_ptr<const CachedMask>> kept;
  {
    MutexLock lock(cache->mutex);
    kept.assign(cache->all.begin(), cache->all.end());
  }
  for (const auto& k : kept)
    if (same(*k, graph, tables, sizes, lists)) {
      MutexLock lock(cache->mutex);
      const auto at = std::find(cache->all.begin(), cache->all.end(), k);
      if (at != cache->all.end()) cache->all.splice(cache->all.begin(), cache->all, at);
      return k->mask;
    }
  auto made = std::make_shared<CachedMask>(CachedMask{graph, sizes, lists, {}, 0, nullptr});
  for (const StridedView& t : tables) {
    made->tables.push_back(Tensor::from_blob(t.data, t.shape, t.dtype));
    made->bytes += t.nbytes();
  }
  // A mask without a list is cheap to make again: copying its tables does not pay off.
  bool keep = made->bytes <= MaskCache::kMostBytes / 2 && (lists || tables.empty());
  if (keep)
    for (Tensor& t : made->tables) t = copy_of(t);
  made->mask = make(graph, made->tables, sizes, lists);
  made->bytes += made->mask->lists.bytes();
  keep = keep && made->bytes <= MaskCache::kMostBytes / 2;
  if (!keep) return made->mask;
  MutexLock lock(cache->mutex);
  cache->all.push_front(made);
  cache->bytes += made->bytes;
  while (cache->all.size() > MaskCache::kMost || cache->bytes > MaskCache::kMostBytes) {
    cache->bytes -= cache->all.back()->bytes;
    cache->all.pop_back();
  }
  return made->mask;
}

}  // namespace weft::internal
