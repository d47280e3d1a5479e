#include "compiler/cuda/exec/index_flags.h"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

#include "framework/base/error.h"
#include "framework/cuda/copy.h"
#include "framework/cuda/device_allocator.h"
#include "framework/cuda/driver_error.h"
#include "framework/cuda/pinned_pool.h"

namespace weft::cuda {

struct IndexFlags::OfGpu {
  explicit OfGpu(Gpu& g) : gpu(g), flags(static_cast<int32_t*>(g.allocator().allocate(kMost * 4))) { clear(); }
  ~OfGpu() { gpu.allocator().deallocate(flags, kMost * 4); }
  void clear() {
    gpu.make_current();
    check(driver().cuMemsetD32Async(reinterpret_cast<CUdeviceptr>(flags), 0, kMost, gpu.stream().handle()),
          "clearing flags of indices");
  }

  Gpu& gpu;
  int32_t* flags;
  bool asked = false;  // since the last look
  std::vector<std::shared_ptr<const std::vector<Ref<Cell>>>> writes;  // of work queued since the last look
  struct Name {
    std::string text;
    bool divides = false;  // integers, by what may be zero
  };
  std::vector<Name> names;
  std::map<std::tuple<const char*, const char*, uint32_t>, int> places;
};

IndexFlags::IndexFlags() = default;
IndexFlags::~IndexFlags() = default;

int32_t* IndexFlags::of(Gpu& gpu, const char* op, SourceLine line) {
  MutexLock lock(mutex_);
  auto& g = gpus_[gpu.index()];
  if (!g) g = std::make_unique<OfGpu>(gpu);
  g->asked = true;
  auto [at, fresh] = g->places.try_emplace({op, line.file, line.line}, static_cast<int>(g->names.size()));
  if (fresh && static_cast<int>(g->names.size()) < kMost) {
    const std::string where = line.to_string();
    const std::string_view name = op;
    g->names.push_back({cat(op, where.empty() ? "" : " at ", where), name == "remainder" || name == "floor_divide"});
  } else if (fresh) {
    at->second = kMost - 1;
    g->names.back() = {"one of many ops"};
  }
  return g->flags + at->second;
}

void IndexFlags::queued(Gpu& gpu, std::shared_ptr<const std::vector<Ref<Cell>>> writes) {
  MutexLock lock(mutex_);
  const auto it = gpus_.find(gpu.index());
  if (it == gpus_.end()) return;
  it->second->asked = true;
  auto& all = it->second->writes;
  if (writes && std::find(all.begin(), all.end(), writes) == all.end()) all.push_back(std::move(writes));
}

void IndexFlags::look(Gpu& gpu) {
  MutexLock lock(mutex_);
  const auto it = gpus_.find(gpu.index());
  if (it == gpus_.end() || !it->second->asked) return;
  OfGpu& g = *it->second;
  g.asked = false;
  const Writes writes = std::exchange(g.writes, {});
  const int64_t n = static_cast<int64_t>(g.names.size());
  std::vector<int32_t> raised(n);
  copy_to_host({g.flags, kInt32, {n}, {1}}, {raised.data(), kInt32, {n}, {1}}, gpu.stream());
  judge(g, raised.data(), n, writes);
}

void IndexFlags::judge(OfGpu& g, const int32_t* raised, int64_t n, const Writes& writes) {
  for (int64_t i = 0; i < n; ++i) {
    if (!raised[i]) continue;
    g.clear();
    for (const auto& cells : writes)
      for (const Ref<Cell>& c : *cells) c->torn = true;
    const auto& [name, divides] = g.names[i];
    WEFT_CHECK(!divides, name, ": integer division by zero on ", g.gpu.device());
    WEFT_CHECK_AS(kOutOfRange, false, name, ": an index is out of range on ", g.gpu.device(),
                  "; the same call on the CPU says which");
  }
}

// Flags of the moment it was queued, in pinned memory.
class IndexFlags::Queued final : public QueuedLook {
 public:
  Queued(IndexFlags& all, Gpu& gpu, int32_t* raised, int64_t n, Writes writes)
      : all_(all), gpu_(gpu), raised_(raised), n_(n), writes_(std::move(writes)) {}
  ~Queued() override {
    if (!raised_) return;
    {
      MutexLock lock(all_.mutex_);
      if (const auto it = all_.gpus_.find(gpu_.index()); it != all_.gpus_.end()) {
        OfGpu& g = *it->second;
        g.asked = true;
        g.writes.insert(g.writes.end(), writes_.begin(), writes_.end());
      }
    }
    try {
      gpu_.pinned().give_back(raised_, gpu_.stream());
    } catch (...) {
      // The device is lost: so is the block.
    }
  }
  void judge() override {
    const std::vector<int32_t> raised(raised_, raised_ + n_);
    gpu_.pinned().give_back(std::exchange(raised_, nullptr));
    MutexLock lock(all_.mutex_);
    if (const auto it = all_.gpus_.find(gpu_.index()); it != all_.gpus_.end())
      all_.judge(*it->second, raised.data(), n_, writes_);
  }

 private:
  IndexFlags& all_;
  Gpu& gpu_;
  int32_t* raised_;
  const int64_t n_;
  const Writes writes_;
};

std::unique_ptr<QueuedLook> IndexFlags::queue_look(Gpu& gpu) {
  MutexLock lock(mutex_);
  const auto it = gpus_.find(gpu.index());
  if (it == gpus_.end() || !it->second->asked) return {};
  OfGpu& g = *it->second;
  const int64_t n = static_cast<int64_t>(g.names.size());
  auto* raised = static_cast<int32_t*>(gpu.pinned().take(n * 4));
  gpu.make_current();
  const CUresult r = driver().cuMemcpyDtoHAsync_v2(raised, reinterpret_cast<CUdeviceptr>(g.flags), n * 4, gpu.stream().handle());
  if (r != CUDA_SUCCESS) gpu.pinned().give_back(raised);
  check(r, "copying flags of indices from ", gpu.device());
  g.asked = false;
  return std::make_unique<Queued>(*this, gpu, raised, n, std::exchange(g.writes, {}));
}

void IndexFlags::forget() {
  MutexLock lock(mutex_);
  gpus_.clear();
}

IndexFlags& index_flags() {
  static auto* f = new IndexFlags;
  // At the first use of a GPU's flag, so before that GPU: what goes last was registered first.
  [[maybe_unused]] static const bool registered = (internal::at_driver_change([] { f->forget(); }), true);
  return *f;
}

}  // namespace weft::cuda
