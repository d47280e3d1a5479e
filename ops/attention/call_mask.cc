#include "ops/attention/call_mask.h"

#include <algorithm>
#include <list>

#include "framework/base/mutex.h"

namespace weft::internal {
namespace {

struct Kept {
  Ref<Graph> graph;
  CallSizes sizes;
  bool lists = false;
  std::shared_ptr<const CallMask> mask;
};

/// Masks without tables that were made lately, the last first.
struct Cache {
  static constexpr size_t kMost = 64;
  Mutex mutex;
  std::list<Kept> all WEFT_GUARDED_BY(mutex);
};

std::shared_ptr<const CallMask> make(const Ref<Graph>& graph, std::span<const StridedView> tables,
                                     const CallSizes& sizes, bool lists) {
  Body body{graph, {}};
  for (const StridedView& t : tables) body.lifted.push_back(Tensor::from_blob(t.data, t.shape, t.dtype));
  const MaskProgram program(body);
  auto m = std::make_shared<CallMask>(program.narrowed(sizes.batch, sizes.heads, sizes.q_len, sizes.kv_len));
  if (lists) {
    m->lists = build_block_lists(program, m->program, {.batch = sizes.batch,
                                              .heads = sizes.heads,
                                              .q_len = sizes.q_len,
                                              .kv_len = sizes.kv_len});
    m->view = m->lists.view();
  }
  return m;
}

}  // namespace

std::shared_ptr<const CallMask> mask_of_call(const Ref<Graph>& graph, std::span<const StridedView> tables,
                                             const CallSizes& sizes, bool lists) {
  if (!tables.empty()) return make(graph, tables, sizes, lists);
  static Cache* cache = new Cache;
  MutexLock lock(cache->mutex);
  auto& all = cache->all;
  auto at = std::find_if(all.begin(), all.end(), [&](const Kept& k) {
    return k.sizes == sizes && k.lists == lists && (k.graph == graph || structurally_equal(*k.graph, *graph));
  });
  if (at != all.end()) {
    all.splice(all.begin(), all, at);
  } else {
    all.push_front({graph, sizes, lists, make(graph, {}, sizes, lists)});
    if (all.size() > Cache::kMost) all.pop_back();
  }
  return all.front().mask;
}

}  // namespace weft::internal
