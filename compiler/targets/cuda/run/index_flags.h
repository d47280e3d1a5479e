// Where ops leave word which index was out of range, or that an integer was divided by zero: a BadIndex in device
// memory per op and line of the program, written by kernels and looked at when the host reads a value anyway. A flag
// that was never raised needs no clearing, so nothing waits and nothing runs out.
#pragma once
#include <map>
#include <memory>
#include <string>
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
  /// The flag of this op at this line (a BadIndex in device memory). Ops beyond kMost share one.
  int32_t* of(Gpu& gpu, const char* op, SourceLine line);
  /// Work that was given its flags before was queued again, and writes these cells: if the next look finds a flag
  /// raised, they are torn.
  void queued(Gpu& gpu, std::shared_ptr<const std::vector<Ref<Cell>>> writes);
  /// After a wait for the stream: throws OutOfRange (InvalidArgument of an integer division by zero) with the CPU's
  /// sentence and the line if a flag was raised since the last look, and lowers it. Costs nothing where no op has asked
  /// for a flag since.
  void look(Gpu& gpu);
  /// The look whose flags are copied to the host now and judged later; null where look() would cost nothing. What was
  /// raised before may be reported by every look queued until the first was judged.
  std::unique_ptr<QueuedLook> queue_look(Gpu& gpu);
  /// Before the driver goes.
  void forget();

  static constexpr int kMost = 4096;

 private:
  struct OfGpu;
  class Queued;
  using Writes = std::vector<std::shared_ptr<const std::vector<Ref<Cell>>>>;
  void judge(OfGpu& g, const BadIndex* found, int64_t n, const Writes& writes) WEFT_REQUIRES(mutex_);
  Mutex mutex_;
  std::map<int, std::unique_ptr<OfGpu>> gpus_ WEFT_GUARDED_BY(mutex_);
};

/// The flags of this process.
IndexFlags& index_flags();

}  // namespace weft::cuda
