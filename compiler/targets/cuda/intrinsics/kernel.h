// A generated CUDA kernel: one __global__ function as text that follows the intrinsics (intrinsics.h), and its device
// requirements. NVRTC compiles the text for a GPU; the host's compiler compiles the same text for the emulation.
#pragma once
#include <cstdint>
#include <string>

namespace weft::cuda {

/// `extern "C" __global__ void symbol(const __grid_constant__ P p)`. Its one parameter is a struct by value of at most
/// 4096 bytes; the launch passes its bytes.
struct Kernel {
  std::string symbol;
  std::string text;         // the parameter struct, helpers, the function
  int threads = 256;        // per block, as in __launch_bounds__
  int min_blocks = 1;       // per multiprocessor, as in __launch_bounds__
  int shared_bytes = 0;     // dynamic; the kernel has no other shared memory
  int least_sm = 80;        // required compute capability, times 10
  bool only_sm90a = false;  // WGMMA, TMA multicast, setmaxnreg: for sm_90a only
  int max_registers = 255;  // limit for the compiled kernel; more is a defect of its generator
  int least_registers = 0;  // minimum; below it a block lacks registers for setmaxnreg.inc, which then waits for ever
  int max_spill_bytes = 0;  // expected by tests
};

/// The record that tell_bad_index writes when an index is out of range. All zeros before.
struct BadIndex {
  int32_t raised = 0, lock = 0;  // only kernels use the lock
  int64_t position = 0, value = 0, limit = 0;
  int64_t reported = 0;  // 0: the other fields are not set; otherwise 1 + a detail that the op defines
};

struct Grid {
  uint32_t x = 1, y = 1, z = 1;  // blocks; y and z at most 65535
};

}  // namespace weft::cuda
