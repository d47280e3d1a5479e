// CUDA graphs: work captured from a stream once and replayed with one call. Not weft::Graph: this is its launches.
#pragma once
#include <functional>
#include <vector>

#include "framework/cuda/module.h"

namespace weft::cuda {

/// True while GraphReplay captures on this thread: the driver then refuses whatever may wait for the device (to take or
/// return memory, to synchronise, to ask for an event), and the capture is lost.
bool thread_is_capturing();

/// A captured piece of work, ready to be replayed. The memory it names must stay where it is until the last replay is
/// over, or be renamed with set_parameters or recapture.
class GraphReplay {
 public:
  /// Runs `work` with `stream` capturing: nothing runs, all it queues is recorded. `work` may use other streams that
  /// wait for this one and are waited for again; it must not synchronise or take new device memory from the driver.
  static GraphReplay capture(Stream& stream, const std::function<void()>& work);
  GraphReplay(GraphReplay&& other) noexcept;
  GraphReplay& operator=(GraphReplay&& other) noexcept;
  ~GraphReplay();

  /// Queues a replay of everything.
  void launch(Stream& stream);
  /// Moves what the first replay would prepare to now.
  void upload(Stream& stream);
  /// Number of captured operations: kernels, copies, fills.
  size_t size() const;

  /// The kernels launched by Function::launch during capture, in that order.
  int kernels() const { return static_cast<int>(kernels_.size()); }
  const std::string& kernel_name(int kernel) const { return kernels_[kernel].function.name(); }
  /// The parameters of kernel `kernel` in later replays; as many bytes as were captured.
  void set_parameters(int kernel, std::span<const std::byte> parameters);

  /// Gives kernels [kernel, kernel + count) the parameters that `work` launches kernels with: nothing runs. False if
  /// those are not the kernels, grids and blocks of the capture; then some parameters may have changed: capture again.
  bool rename(int kernel, int count, const std::function<void()>& work);

  /// How far the capture that this thread is in the middle of has come on `stream`.
  struct Position {
    int kernels = 0;
    size_t operations = 0;
  };
  static Position position(Stream& stream);

  /// Captures again and takes over the new addresses, sizes and parameters; where the shape of the work changed, all is
  /// made anew. Returns true if the old one could be kept.
  bool recapture(Stream& stream, const std::function<void()>& work);

 private:
  friend class Function;
  struct Kernel {
    Function function;
    Launch launch;
    CUgraphNode node = nullptr;
  };
  explicit GraphReplay(Gpu& gpu) : gpu_(&gpu) {}
  void record(Stream& stream, const std::function<void()>& work);
  void instantiate();
  void release();
  static void note(const Function& function, const Launch& launch, Stream& stream);
  /// True if the launch only renames a captured kernel; it was taken.
  static bool take_renamed(const Function& function, const Launch& launch);

  Gpu* gpu_ = nullptr;
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
  std::vector<Kernel> kernels_;
};

}  // namespace weft::cuda
