// CUDA graphs: work captured once from a stream and replayed with one call. A weft::Graph is a computation; a CUDA
// graph holds its launches.
#pragma once
#include <functional>
#include <vector>

#include "framework/cuda/module.h"

namespace weft::cuda {

/// True while GraphReplay captures on this thread. The driver then rejects every call that may wait for the device
/// (allocate or free memory, synchronise, query an event), and the capture is lost.
bool thread_is_capturing();

/// Captured work, ready for replay. The memory that it uses must stay in place until the last replay is done, or be
/// changed with set_parameters or recapture.
class GraphReplay {
 public:
  /// Runs `work` while `stream` captures: nothing executes, everything that it queues is recorded. `work` may use other
  /// streams that wait for this one and that this one waits for again. It must not synchronise or allocate device
  /// memory from the driver.
  static GraphReplay capture(Stream& stream, const std::function<void()>& work);
  GraphReplay(GraphReplay&& other) noexcept;
  GraphReplay& operator=(GraphReplay&& other) noexcept;
  ~GraphReplay();

  /// Queues a replay of everything.
  void launch(Stream& stream);
  /// Number of captured operations: kernels, copies, fills.
  size_t size() const;

  /// The kernels launched by Function::launch during capture, in that order.
  int kernels() const { return static_cast<int>(kernels_.size()); }
  /// Sets the parameters of kernel `kernel` in later replays. The number of bytes must equal the captured number.
  void set_parameters(int kernel, std::span<const std::byte> parameters);

  /// Gives kernels [kernel, kernel + count) the parameters of the launches in `work`; nothing executes. Returns false
  /// if the launches differ from the capture in kernel, grid or block; some parameters may then have changed: capture
  /// again.
  bool rename(int kernel, int count, const std::function<void()>& work);

  /// The position on `stream` of the capture in progress on this thread.
  struct Position {
    int kernels = 0;
    size_t operations = 0;
  };
  static Position position(Stream& stream);

  /// Captures again and takes over the new addresses, sizes and parameters. If the shape of the work changed, makes
  /// everything anew. Returns true if the executable graph could be kept.
  bool recapture(Stream& stream, const std::function<void()>& work);

 private:
  friend class Function;
  struct ReplayKernel {
    Function function;
    KernelLaunch launch;
    CUgraphNode node = nullptr;
  };
  explicit GraphReplay(Gpu& gpu) : gpu_(&gpu) {}
  void record(Stream& stream, const std::function<void()>& work);
  void instantiate();
  void release();
  static void note(const Function& function, const KernelLaunch& launch, Stream& stream);
  /// True if the launch only changes the parameters of a captured kernel; then it is done.
  static bool take_renamed(const Function& function, const KernelLaunch& launch);

  Gpu* gpu_ = nullptr;
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
  std::vector<ReplayKernel> kernels_;
};

}  // namespace weft::cuda
