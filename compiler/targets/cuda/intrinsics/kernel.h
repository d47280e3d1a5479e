// What a generated CUDA kernel is: one __global__ function as text that stands after the device words (intrinsics.h),
// and what it needs of a device. The same text is compiled by NVRTC for a GPU and by the host's compiler for the
// emulation.
#pragma once
#include <cstdint>
#include <string>

namespace weft::cuda {

/// `extern "C" __global__ void symbol(const __grid_constant__ P p)`: its one parameter is a struct by value, at most
/// 4096 bytes, whose bytes the launch hands over.
struct Kernel {
  std::string symbol;
  std::string text;         // the parameter struct, helpers, the function
  int threads = 256;        // of a block, as __launch_bounds__ says
  int min_blocks = 1;       // on one multiprocessor, likewise
  int shared_bytes = 0;     // dynamic; all shared memory there is
  int least_sm = 80;        // compute capability it needs, times 10
  bool only_sm90a = false;  // WGMMA, TMA multicast, setmaxnreg: for sm_90a alone
  int max_registers = 255;  // what it may take when compiled; more is a defect of its generator
  int max_spill_bytes = 0;
};

/// What the word tell_bad_index leaves where an index is out of range; zeros before.
struct BadIndex {
  int32_t raised = 0, lock = 0;  // the lock is the kernels'
  int64_t position = 0, value = 0, limit = 0;
  int64_t told = 0;  // 0: of the other fields nothing is known; else 1 + what the op has to say besides
};

struct Grid {
  uint32_t x = 1, y = 1, z = 1;  // blocks; y and z at most 65535
};

}  // namespace weft::cuda
