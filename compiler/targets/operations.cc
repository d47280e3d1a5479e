#include "compiler/targets/operations.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <list>

#include "framework/base/hash.h"
#include "framework/base/mutex.h"

namespace weft::internal {
namespace {

// Compares numbers and lines of nodes too: errors of a group name the user's lines, and a plan that is written out
// names nodes by number.
bool same_nodes(const Graph& a, const Graph& b) {
  if (&a == &b) return true;
  if (a.size() != b.size() || a.inputs != b.inputs || a.outputs != b.outputs) return false;
  for (int32_t id = 0; id < a.size(); ++id) {
    const Node &x = a.node(id), &y = b.node(id);
    if (x.op != y.op || x.line.line != y.line.line || std::strcmp(x.line.file, y.line.file) != 0 ||
        !std::equal(x.inputs.begin(), x.inputs.end(), y.inputs.begin(), y.inputs.end()) ||
        !std::equal(x.outputs.begin(), x.outputs.end(), y.outputs.begin(), y.outputs.end()) || !(x.attrs == y.attrs))
      return false;
  }
  return true;
}

// The key of a prepared operation.
struct OperationKey {
  Target* target = nullptr;
  Device device;
  const OpDef* op = nullptr;
  Attrs attrs;                     // attributes; none for a fused group
  Ref<Graph> body;                 // body of a fused group
  std::vector<StridedView> views;  // operands, then results; no addresses
  size_t operands = 0;
  int alignment = 1;
  PrepareOptions options;

  uint64_t hash(uint64_t body_hash) const {
    uint64_t h = hash_combine(reinterpret_cast<uintptr_t>(op), body ? body_hash : attrs.hash());
    h = hash_combine(h, operands * 64 + static_cast<uint64_t>(alignment));
    for (const StridedView& v : views) {
      h = hash_combine(h, static_cast<uint64_t>(v.dtype) * 64 + v.shape.size());
      for (int d = 0; d < v.shape.size(); ++d) h = hash_combine(hash_combine(h, v.shape[d]), v.strides[d]);
    }
    return h;
  }
  friend bool operator==(const OperationKey& a, const OperationKey& b) {
    if (a.target != b.target || !(a.device == b.device) || a.op != b.op || a.operands != b.operands ||
        a.alignment != b.alignment || !(a.options == b.options) || a.views.size() != b.views.size() ||
        !a.body != !b.body)
      return false;
    for (size_t i = 0; i < a.views.size(); ++i)
      if (a.views[i].dtype != b.views[i].dtype || a.views[i].shape != b.views[i].shape ||
          a.views[i].strides != b.views[i].strides)
        return false;
    return a.body ? same_nodes(*a.body, *b.body) : a.attrs == b.attrs;
  }
};

class OperationCache {
 public:
  std::shared_ptr<Operation> find(const OperationKey& key, uint64_t hash) {
    MutexLock lock(mutex_);
    for (auto [at, end] = index_.equal_range(hash); at != end; ++at) {
      const auto entry = at->second;
      if (!(entry->key == key)) continue;
      all_.splice(all_.begin(), all_, entry);
      ++counts_.found;
      return entry->operation;
    }
    return nullptr;
  }
  void add(OperationKey key, uint64_t hash, std::shared_ptr<Operation> operation) {
    std::list<CachedOperation> dropped;
    MutexLock lock(mutex_);
    ++counts_.prepared;
    groups_ += key.body ? 1 : 0;
    all_.push_front({std::move(key), hash, std::move(operation)});
    index_.emplace(hash, all_.begin());
    shrink(dropped);
    if (groups_ >= next_look_) drop_idle(dropped);
  }
  void forget(DeviceType type) {
    std::list<CachedOperation> dropped;
    MutexLock lock(mutex_);
    for (auto at = all_.begin(); at != all_.end();) {
      const auto next = std::next(at);
      if (at->key.device.type == type) drop(at, dropped);
      at = next;
    }
  }
  void set_capacity(int64_t n) {
    std::list<CachedOperation> dropped;
    MutexLock lock(mutex_);
    capacity_ = n;
    shrink(dropped);
  }
  OperationCounts counts() {
    MutexLock lock(mutex_);
    counts_.kept = static_cast<int64_t>(all_.size());
    return counts_;
  }

 private:
  struct CachedOperation {
    OperationKey key;
    uint64_t hash;
    std::shared_ptr<Operation> operation;
  };
  // The caller destroys dropped operations, once the lock is released.
  void drop(std::list<CachedOperation>::iterator which, std::list<CachedOperation>& dropped) WEFT_REQUIRES(mutex_) {
    for (auto [at, end] = index_.equal_range(which->hash); at != end; ++at)
      if (at->second == which) {
        index_.erase(at);
        break;
      }
    groups_ -= which->key.body ? 1 : 0;
    dropped.splice(dropped.end(), all_, which);
  }
  // Drops groups that no step uses any more, but the last used: each has its graph and its kernel as data.
  void drop_idle(std::list<CachedOperation>& dropped) WEFT_REQUIRES(mutex_) {
    size_t idle = 0;
    for (auto at = all_.begin(); at != all_.end();) {
      const auto next = std::next(at);
      if (at->key.body && at->operation.use_count() == 1 && ++idle > kIdleGroups) drop(at, dropped);
      at = next;
    }
    next_look_ = groups_ + kIdleGroups / 8;
  }
  void shrink(std::list<CachedOperation>& dropped) WEFT_REQUIRES(mutex_) {
    while (static_cast<int64_t>(all_.size()) > capacity_) drop(std::prev(all_.end()), dropped);
  }

  Mutex mutex_;
  std::list<CachedOperation> all_ WEFT_GUARDED_BY(mutex_);  // the last used first
  std::unordered_multimap<uint64_t, std::list<CachedOperation>::iterator> index_ WEFT_GUARDED_BY(mutex_);
  static constexpr size_t kIdleGroups = 512;
  size_t groups_ WEFT_GUARDED_BY(mutex_) = 0, next_look_ WEFT_GUARDED_BY(mutex_) = kIdleGroups;
  int64_t capacity_ WEFT_GUARDED_BY(mutex_) = 4096;
  OperationCounts counts_ WEFT_GUARDED_BY(mutex_);
};

OperationCache& cache() {
  static auto* c = new OperationCache;
  return *c;
}

}  // namespace

OperationCounts operation_counts() { return cache().counts(); }
void set_operation_capacity(int64_t operations) { cache().set_capacity(operations); }
void forget_operations(DeviceType type) { cache().forget(type); }

uint64_t Operations::hash_of(const Ref<Graph>& body) {
  auto [at, fresh] = hashes_.try_emplace(body.get(), 0);
  if (fresh) {
    hashed_.push_back(body);
    at->second = structural_hash(*body);
  }
  return at->second;
}

std::shared_ptr<Operation> Operations::get(const OpDef& op, const Attrs& attrs, std::span<const StridedView> in,
                                           std::span<const StridedView> out, uint64_t address_bits) {
  const int alignment = 1 << std::countr_zero(address_bits | static_cast<uint64_t>(target_.limits().address_alignment));
  if (target_.prepares_at_once(op)) return target_.prepare(device_, op, attrs, in, out, alignment, options_);
  OperationKey key{&target_, device_, &op, {}, {}, {}, in.size(), alignment, options_};
  if (op.is(kGroup)) {
    key.body = attrs.get<Ref<Graph>>("body");
  } else {
    key.attrs = attrs;
  }
  key.views.reserve(in.size() + out.size());
  for (auto views : {in, out})
    for (StridedView v : views) {
      v.data = nullptr;
      key.views.push_back(v);
    }
  const uint64_t hash = key.hash(key.body ? hash_of(key.body) : 0);
  if (auto found = cache().find(key, hash)) return found;
  // Not under the lock: other threads continue. Two threads that prepare the same operation at once both succeed.
  const std::span<const StridedView> views = key.views;
  auto made =
      target_.prepare(device_, op, attrs, views.first(in.size()), views.subspan(in.size()), alignment, options_);
  cache().add(std::move(key), hash, made);
  return made;
}

}  // namespace weft::internal
