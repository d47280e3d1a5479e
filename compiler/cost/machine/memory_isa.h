// Passes over memory, per instruction set: how fast a kernel can read, write, copy and update it at best.
#pragma once
#include <cstdint>

namespace weft {

/// Passes over n bytes, a multiple of 1024, of memory aligned to 64.
struct MemoryFns {
  /// Returns the exclusive or of all words, so that nothing is left out.
  uint64_t (*read)(const char* from, int64_t n);
  void (*write)(char* to, int64_t n, uint64_t value);
  void (*copy)(char* to, const char* from, int64_t n);
  /// Adds 1 to each word.
  void (*update)(char* at, int64_t n);
};

namespace baseline {
const MemoryFns& memory_fns();
}
namespace avx2 {
const MemoryFns& memory_fns();
}
namespace avx512 {
const MemoryFns& memory_fns();
}

}  // namespace weft
