// Kernels' CUDA text run on the CPU, to test what it means where there is no GPU: compiled by the host's compiler with
// the words of compiler/targets/cuda/intrinsics as functions, a block's threads as fibers. Every access to shared
// memory is checked: bytes without a value, copies that have not landed, races between barriers; so are divergence and
// deadlock. Every access to global memory, plain ones too (the compiler tells of them, as it does for its detector of
// data races), must be aligned, inside of what was handed over, and in an order with others to the same bytes: blocks
// of a launch have none, threads of a block get one from barriers. Writes of equal values race as others do.
//
// Stricter than a device: lanes of a warp meet in the same line; a thread that has ended never counts at a barrier;
// shuffles and votes order no memory, __syncwarp does. Copies land as late as they may. Not seen: registers of A that
// change under a wgmma.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compiler/targets/cuda/intrinsics/kernel.h"

namespace weft::cuda {

class Block;
struct Range;

struct EmulatedOptions {
  uint64_t seed = 1;  // of the order in which threads run
  bool races = true;  // looked for; a few times faster without
};

class Emulated {
 public:
  /// Compiles all kernels (found again in the cache of compiler/jit). Their symbols differ. Throws weft::Error if one
  /// does not compile, or (kUnavailable) where there is no host compiler.
  explicit Emulated(std::span<const Kernel> kernels, const EmulatedOptions& options = {});
  ~Emulated();
  Emulated(Emulated&&) noexcept;

  /// Runs a kernel on all blocks of the grid, one after another. `params`: the bytes of its parameter struct.
  /// Throws weft::Error with one sentence, naming kernel, block, thread and line, for the first thing found wrong; what
  /// the kernel wrote so far stays.
  void launch(const std::string& symbol, Grid grid, std::span<const std::byte> params);
  template <class P>
  void launch(const std::string& symbol, Grid grid, const P& params) {
    launch(symbol, grid, std::span<const std::byte>(reinterpret_cast<const std::byte*>(&params), sizeof(P)));
  }

  /// Bytes of a kernel's parameter struct, as its text has it.
  size_t parameter_bytes(const std::string& symbol) const;

  /// From now on kernels may touch only ranges of global memory given so; a name for messages.
  void allow(const std::string& name, const void* begin, size_t bytes, bool writable = true);
  void forget_ranges();

  void set_seed(uint64_t seed) { options_.seed = seed; }
  /// Times a thread went on after a wait, over all launches.
  int64_t steps() const;
  /// Cycles beyond one that each ldmatrix tile took because its rows share banks, over all launches.
  int64_t bank_conflicts() const;

  /// The words as text for the host's compiler.
  static const std::string& words();

 private:
  struct Loaded {
    Kernel kernel;
    void* entry;
  };
  EmulatedOptions options_;
  std::map<std::string, Loaded> kernels_;
  std::vector<Range> ranges_;
  std::unique_ptr<Block> block_;
};

}  // namespace weft::cuda
