// Error flags in device memory: kernels record the first index out of range, or an integer division by zero. There is
// one BadIndex for each op and line of the program. The host checks the flags when it reads a value, so they cost no
// extra wait. Only raised flags are cleared.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/targets/cuda/intrinsics/kernel.h"
#include "framework/base/mutex.h"
#include "framework/cuda/gpu.h"
#include "framework/cuda/memory_target.h"
#include "framework/ir/cell.h"
#include "framework/ir/graph.h"

namespace weft::cuda {

class IndexFlags {
 public:
  IndexFlags();
  ~IndexFlags();
  /// The flag of this op at this line and in this scope (a BadIndex in device memory). Ops beyond kMost share one.
  int32_t* flag(Gpu& gpu, const char* op, SourceLine line, std::string_view scope);
  /// Call after work that already has its flags was queued again. If the next look finds a raised flag, the cells in
  /// `writes` are torn.
  void queued(Gpu& gpu, std::shared_ptr<const std::vector<Ref<Cell>>> writes);
  /// Call after a wait for the stream. If a flag was raised since the last look, clears it and throws OutOfRange
  /// (InvalidArgument for an integer division by zero) with the CPU's text and the place. Free if no work with flags
  /// was queued since the last look.
  void look(Gpu& gpu);
  /// Queues a copy of the flags to the host, to be judged later; null where look() would be free. Until the first
  /// queued look is judged, each of them may report the same error.
  std::unique_ptr<QueuedLook> queue_look(Gpu& gpu);
  /// Call before the driver is unloaded.
  void forget();

  static constexpr int kMost = 4096;

 private:
  struct GpuFlags;
  class Queued;
  using Writes = std::vector<std::shared_ptr<const std::vector<Ref<Cell>>>>;
  void judge(GpuFlags& g, const BadIndex* found, int64_t n, const Writes& writes) WEFT_REQUIRES(mutex_);
  Mutex mutex_;
  std::map<int, std::unique_ptr<GpuFlags>> gpus_ WEFT_GUARDED_BY(mutex_);
};

/// The flags of this process.
IndexFlags& index_flags();

}  // namespace weft::cuda
