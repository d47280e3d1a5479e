#include "compiler/targets/cuda/run/eager.h"

#include <algorithm>
#include <bit>
#include <list>
#include <unordered_map>

#include "compiler/targets/cuda/run/index_flags.h"
#include "compiler/targets/cuda/run/operation.h"
#include "framework/base/error.h"
#include "framework/base/hash.h"
#include "framework/base/mutex.h"
#include "framework/cuda/backend.h"
#include "framework/cuda/device_allocator.h"
#include "framework/dispatch/tf32.h"

namespace weft::cuda {
namespace {

// What an operation is prepared for.
struct Key {
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<StridedView> views;  // operands, then results; no addresses
  int operands = 0, alignment = 16, gpu = 0;
  bool tf32 = false;

  uint64_t hash() const {
    uint64_t h = hash_combine(reinterpret_cast<uintptr_t>(op), attrs.hash());
    h = hash_combine(h, static_cast<uint64_t>(operands * 4096 + alignment * 64 + gpu) * 2 + tf32);
    for (const StridedView& v : views) {
      h = hash_combine(h, static_cast<uint64_t>(v.dtype) * 64 + v.shape.size());
      for (int d = 0; d < v.shape.size(); ++d) h = hash_combine(hash_combine(h, v.shape[d]), v.strides[d]);
    }
    return h;
  }
  friend bool operator==(const Key& a, const Key& b) {
    if (a.op != b.op || a.operands != b.operands || a.alignment != b.alignment || a.gpu != b.gpu || a.tf32 != b.tf32 ||
        a.views.size() != b.views.size())
      return false;
    for (size_t i = 0; i < a.views.size(); ++i)
      if (a.views[i].dtype != b.views[i].dtype || a.views[i].shape != b.views[i].shape ||
          a.views[i].strides != b.views[i].strides)
        return false;
    return a.attrs == b.attrs;
  }
};

class Runner final : public OpRunner {
 public:
  void run_op(const KernelCall& call, Device device, SourceLine line) override;
  void look(Device device) override { flags().look(Gpu::of(device)); }
  std::unique_ptr<QueuedLook> queue_look(Device device) override { return flags().queue_look(Gpu::of(device)); }

  void forget() {
    std::list<Entry> old;
    {
      MutexLock lock(mutex_);
      old.swap(all_);
      index_.clear();
    }
  }
  internal::EagerCounts counts() {
    MutexLock lock(mutex_);
    counts_.kept = static_cast<int64_t>(all_.size());
    return counts_;
  }
  void set_capacity(int64_t n) {
    MutexLock lock(mutex_);
    capacity_ = n;
    shrink();
  }

 private:
  struct Entry {
    Key key;
    uint64_t hash;
    std::shared_ptr<Operation> operation;
  };
  static IndexFlags& flags() { return index_flags(); }
  std::shared_ptr<Operation> operation_for(Key key, Gpu& gpu);
  std::shared_ptr<Operation> find(const Key& key, uint64_t hash) WEFT_REQUIRES(mutex_);
  void shrink() WEFT_REQUIRES(mutex_);

  Mutex mutex_;
  std::list<Entry> all_ WEFT_GUARDED_BY(mutex_);  // the last used first
  std::unordered_multimap<uint64_t, std::list<Entry>::iterator> index_ WEFT_GUARDED_BY(mutex_);
  int64_t capacity_ WEFT_GUARDED_BY(mutex_) = 4096;
  internal::EagerCounts counts_ WEFT_GUARDED_BY(mutex_);
};

Runner& runner() {
  static auto* r = new Runner;
  return *r;
}

// Bytes of which all addresses are multiples, at most 16.
int alignment_of(std::span<const StridedView> a, std::span<const StridedView> b) {
  uintptr_t bits = 16;
  for (auto views : {a, b})
    for (const StridedView& v : views) bits |= reinterpret_cast<uintptr_t>(v.data);
  return 1 << std::countr_zero(bits);
}

std::shared_ptr<Operation> Runner::find(const Key& key, uint64_t hash) {
  for (auto [at, end] = index_.equal_range(hash); at != end; ++at) {
    const auto entry = at->second;
    if (!(entry->key == key)) continue;
    all_.splice(all_.begin(), all_, entry);
    ++counts_.found;
    return entry->operation;
  }
  return nullptr;
}

void Runner::shrink() {
  while (static_cast<int64_t>(all_.size()) > capacity_) {
    const auto last = std::prev(all_.end());
    for (auto [at, end] = index_.equal_range(last->hash); at != end; ++at)
      if (at->second == last) {
        index_.erase(at);
        break;
      }
    all_.pop_back();
  }
}

std::shared_ptr<Operation> Runner::operation_for(Key key, Gpu& gpu) {
  [[maybe_unused]] static const bool registered = (internal::at_driver_change([] { runner().forget(); }), true);
  const uint64_t hash = key.hash();
  {
    MutexLock lock(mutex_);
    if (auto found = find(key, hash)) return found;
  }
  // Outside the lock: other threads go on. Two that prepare the same at once both succeed.
  const std::span<const StridedView> views = key.views;
  PrepareOptions options;
  options.gpu = &gpu;
  options.tf32 = key.tf32;
  std::shared_ptr<Operation> made = prepare(*key.op, key.attrs, views.first(key.operands), views.subspan(key.operands),
                                            gpu.properties(), key.alignment, options);
  Operation* one[] = {made.get()};
  load(gpu, one);
  MutexLock lock(mutex_);
  ++counts_.prepared;
  all_.push_front({std::move(key), hash, made});
  index_.emplace(hash, all_.begin());
  shrink();
  return made;
}

void Runner::run_op(const KernelCall& call, Device device, SourceLine line) {
  Gpu& gpu = Gpu::of(device);
  Key key;
  key.op = &call.op;
  key.attrs = call.attrs;
  key.operands = static_cast<int>(call.in.size());
  key.alignment = alignment_of(call.in, call.out);
  key.gpu = gpu.index();
  key.tf32 = tf32();
  SmallVec<void*, 8> addresses;
  for (auto views : {call.in, call.out})
    for (StridedView v : views) {
      addresses.push_back(v.data);
      v.data = nullptr;
      key.views.push_back(v);
    }
  const std::shared_ptr<Operation> operation = operation_for(std::move(key), gpu);
  const std::span<void* const> all(addresses.data(), addresses.size());
  Addresses at{all.first(call.in.size()), all.subspan(call.in.size())};
  if (operation->checks_indices()) at.bad = flags().of(gpu, call.op.name, line);
  const int64_t bytes = operation->workspace_bytes();
  if (bytes == 0) return operation->enqueue(at, gpu.stream(), line);
  // Given back at once: whoever gets it next queues behind.
  at.workspace = gpu.allocator().allocate(bytes);
  struct Release {
    Gpu& gpu;
    void* p;
    int64_t bytes;
    ~Release() { gpu.allocator().deallocate(p, bytes); }
  } release{gpu, at.workspace, bytes};
  operation->enqueue(at, gpu.stream(), line);
}

}  // namespace

void install_eager() { install_backend(&runner()); }

namespace internal {
EagerCounts eager_counts() { return runner().counts(); }
void set_eager_capacity(int64_t operations) { runner().set_capacity(operations); }
}  // namespace internal

}  // namespace weft::cuda
