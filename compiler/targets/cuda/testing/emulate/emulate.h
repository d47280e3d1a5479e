// Runs the CUDA text of kernels on the CPU, to test it without a GPU. The host's compiler compiles the text, with the
// intrinsics of compiler/targets/cuda/intrinsics as functions; the threads of a block are fibers. Every access to
// shared memory is checked for bytes without a value, incomplete copies and races between barriers. Divergence and
// deadlock are detected. Every access to global memory must be aligned, inside the memory that the launch may access,
// and ordered with other accesses to the same bytes. This includes plain accesses, which the compiler reports as it
// does for its detector of data races. Blocks of a launch are not ordered; barriers order the threads of a block.
// Writes of equal values race too.
//
// It is stricter than a device. Lanes of a warp must meet in the same line. A thread that has ended never counts at a
// barrier. Shuffles and votes do not order memory; __syncwarp does. Copies complete as late as possible. It does not
// detect changes of A's registers during a wgmma.
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
  uint64_t seed = 1;  // seed of the order in which threads run
  bool races = true;  // detect races; without, it is a few times faster
};

class Emulated {
 public:
  /// Compiles all kernels, or finds them in the cache of compiler/jit. Their symbols must differ. Throws weft::Error if
  /// one does not compile, or (kUnavailable) if there is no host compiler.
  explicit Emulated(std::span<const Kernel> kernels, const EmulatedOptions& options = {});
  ~Emulated();
  Emulated(Emulated&&) noexcept;

  /// Runs a kernel on all blocks of the grid in order. `params`: the bytes of its parameter struct. Throws weft::Error
  /// for the first error, in one sentence that names kernel, block, thread and line. The kernel's earlier writes stay.
  void launch(const std::string& symbol, Grid grid, std::span<const std::byte> params);
  template <class P>
  void launch(const std::string& symbol, Grid grid, const P& params) {
    launch(symbol, grid, std::span<const std::byte>(reinterpret_cast<const std::byte*>(&params), sizeof(P)));
  }

  /// The size in bytes of a kernel's parameter struct, from its text.
  size_t parameter_bytes(const std::string& symbol) const;

  /// From now on kernels may access only ranges of global memory that were allowed. The name is for messages.
  void allow(const std::string& name, const void* begin, size_t bytes, bool writable = true);
  void forget_ranges();

  void set_seed(uint64_t seed) { options_.seed = seed; }
  /// How often a thread continued after a wait, over all launches.
  int64_t steps() const;
  /// Extra cycles of ldmatrix tiles whose rows share banks, over all launches.
  int64_t bank_conflicts() const;

  /// The intrinsics as text for the host's compiler.
  static const std::string& intrinsics();

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
