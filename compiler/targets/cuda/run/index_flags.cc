#include "compiler/targets/cuda/run/index_flags.h"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

#include "compiler/targets/cuda/run/operation.h"
#include "framework/base/error.h"
#include "framework/cuda/device_allocator.h"
#include "framework/cuda/libraries/driver_error.h"
#include "framework/cuda/transfer/copy.h"
#include "framework/cuda/transfer/pinned_pool.h"
#include "ops/core/indexing/index.h"

namespace weft::cuda {

struct IndexFlags::GpuFlags {
  static constexpr int64_t kBytes = kMost * sizeof(BadIndex);
  explicit GpuFlags(Gpu& g) : gpu(g), flags(static_cast<BadIndex*>(g.allocator().allocate(kBytes))) { clear(); }
  ~GpuFlags() { gpu.allocator().deallocate(flags, kBytes); }
  void clear() {
    gpu.make_current();
    check(driver().cuMemsetD32Async(reinterpret_cast<CUdeviceptr>(flags), 0, kBytes / 4, gpu.stream().handle()),
          "clearing index error flags");
  }

  Gpu& gpu;
  BadIndex* flags;
  bool asked = false;                                                 // work with flags was queued since the last look
  std::vector<std::shared_ptr<const std::vector<Ref<Cell>>>> writes;  // cells written since the last look
  struct FlagSite {
    std::string op, where;  // "; at model.cc:43, in blocks.3.attn"
  };
  std::vector<FlagSite> names;
  std::map<std::tuple<const char*, const char*, uint32_t, std::string>, int> places;
};

// The error text of the CPU's kernel.
static std::string sentence_of(const std::string& op, const BadIndex& b) {
  if (op == "remainder" || op == "floor_divide")
    return str_cat(op, ": integer division by zero; need divisors other than 0");
  if (weft::internal::is_whole_error(op)) return op;
  if (b.reported == 0) return str_cat(op, ": an index is out of range; run the same call on the CPU to see which");
  const int64_t last = b.limit - 1, detail = b.reported - 1;
  if (op == "expert_order")
    return str_cat(op, ": expert ", b.value, " of token ", b.position / detail, ", choice ", b.position % detail,
                   ", is out of range; need 0 to ", last);
  if (op == "dynamic_slice" || op == "dynamic_update_slice")
    return str_cat(op, ": start ", b.value, " of dim ", detail, " puts the block outside; need 0 to ", last);
  if (op.starts_with("linear_cross_entropy"))
    return str_cat("cross_entropy: a target is not a class: got ", b.value, " at position ", b.position, "; need 0 to ",
                   last);
  const std::string position = b.position < 0 ? "" : str_cat(" at position ", b.position);
  return str_cat(op, ": index ", b.value, position, " is out of range",
                 b.limit > 0 ? str_cat("; need 0 to ", last) : ": there is nothing to choose from");
}

IndexFlags::IndexFlags() = default;
IndexFlags::~IndexFlags() = default;

int32_t* IndexFlags::flag(Gpu& gpu, const char* op, SourceLine line, std::string_view scope) {
  MutexLock lock(mutex_);
  auto& g = gpus_[gpu.index()];
  if (!g) g = std::make_unique<GpuFlags>(gpu);
  g->asked = true;
  auto [at, fresh] =
      g->places.try_emplace({op, line.file, line.line, std::string(scope)}, static_cast<int>(g->names.size()));
  if (fresh && static_cast<int>(g->names.size()) < kMost) {
    g->names.push_back({op, weft::internal::origin_text(line, scope)});
  } else if (fresh) {
    at->second = kMost - 1;
    g->names.back() = {"one of many ops", ""};
  }
  return &g->flags[at->second].raised;
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
  GpuFlags& g = *it->second;
  g.asked = false;
  const Writes writes = std::exchange(g.writes, {});
  const int64_t n = static_cast<int64_t>(g.names.size());
  std::vector<BadIndex> found(n);
  const Shape words{n * static_cast<int64_t>(sizeof(BadIndex) / 4)};
  copy_to_host({g.flags, kInt32, words, {1}}, {found.data(), kInt32, words, {1}}, gpu.stream());
  judge(g, found.data(), n, writes);
}

void IndexFlags::judge(GpuFlags& g, const BadIndex* found, int64_t n, const Writes& writes) {
  for (int64_t i = 0; i < n; ++i) {
    if (!found[i].raised) continue;
    g.clear();
    // All cells are torn: later launches ran too, with the wrong result.
    for (const auto& cells : writes)
      for (const Ref<Cell>& c : *cells) c->torn = true;
    const auto& [op, where] = g.names[i];
    const std::string what = sentence_of(op, found[i]) + where;
    WEFT_CHECK(what.find("division by zero") == what.npos && !weft::internal::is_whole_error(op), what);
    WEFT_CHECK_AS(kOutOfRange, false, what);
  }
}

// A copy of the flags in pinned memory, and the cells that work before the copy writes.
class IndexFlags::Queued final : public QueuedLook {
 public:
  Queued(IndexFlags& all, Gpu& gpu, BadIndex* found, int64_t n, Writes writes)
      : all_(all), gpu_(gpu), found_(found), n_(n), writes_(std::move(writes)) {}
  ~Queued() override {
    if (!found_) return;
    {
      MutexLock lock(all_.mutex_);
      if (const auto it = all_.gpus_.find(gpu_.index()); it != all_.gpus_.end()) {
        GpuFlags& g = *it->second;
        g.asked = true;
        g.writes.insert(g.writes.end(), writes_.begin(), writes_.end());
      }
    }
    try {
      gpu_.pinned().give_back(found_, gpu_.stream());
    } catch (...) {
      // The device is lost, and this block with it.
    }
  }
  void judge() override {
    const std::vector<BadIndex> found(found_, found_ + n_);
    gpu_.pinned().give_back(std::exchange(found_, nullptr));
    MutexLock lock(all_.mutex_);
    if (const auto it = all_.gpus_.find(gpu_.index()); it != all_.gpus_.end())
      all_.judge(*it->second, found.data(), n_, writes_);
  }

 private:
  IndexFlags& all_;
  Gpu& gpu_;
  BadIndex* found_;
  const int64_t n_;
  const Writes writes_;
};

std::unique_ptr<QueuedLook> IndexFlags::queue_look(Gpu& gpu) {
  MutexLock lock(mutex_);
  const auto it = gpus_.find(gpu.index());
  if (it == gpus_.end() || !it->second->asked) return {};
  GpuFlags& g = *it->second;
  const int64_t n = static_cast<int64_t>(g.names.size());
  const int64_t bytes = n * static_cast<int64_t>(sizeof(BadIndex));
  auto* found = static_cast<BadIndex*>(gpu.pinned().take(bytes));
  gpu.make_current();
  const CUresult r =
      driver().cuMemcpyDtoHAsync_v2(found, reinterpret_cast<CUdeviceptr>(g.flags), bytes, gpu.stream().handle());
  if (r != CUDA_SUCCESS) gpu.pinned().give_back(found);
  check(r, "copying index error flags from ", gpu.device());
  g.asked = false;
  return std::make_unique<Queued>(*this, gpu, found, n, std::exchange(g.writes, {}));
}

void IndexFlags::forget() {
  MutexLock lock(mutex_);
  gpus_.clear();
}

IndexFlags& index_flags() {
  static auto* f = new IndexFlags;
  // Registered at the first use of a flag. Callbacks run in reverse order, so this one runs before the GPU's own.
  [[maybe_unused]] static const bool registered = (internal::at_driver_change([] { f->forget(); }), true);
  return *f;
}

}  // namespace weft::cuda
