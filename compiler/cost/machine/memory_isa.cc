#include "compiler/cost/machine/memory_isa.h"

namespace weft::WEFT_ISA_NS {
namespace {

typedef uint64_t Line __attribute__((vector_size(64), may_alias));  // a cache line
constexpr int64_t kLines = 16;                                      // lines of one turn of a loop: 1024 bytes

uint64_t read(const char* from, int64_t n) {
  const Line* line = reinterpret_cast<const Line*>(from);
  Line sums[8] = {};
  for (const Line* const end = line + n / 64; line < end; line += kLines)
    for (int64_t k = 0; k < kLines; ++k) sums[k % 8] ^= line[k];
  for (int k = 1; k < 8; ++k) sums[0] ^= sums[k];
  uint64_t all = 0;
  for (int k = 0; k < 8; ++k) all ^= sums[0][k];
  return all;
}

void write(char* to, int64_t n, uint64_t value) {
  Line* line = reinterpret_cast<Line*>(to);
  const Line values = Line{} + value;
  for (Line* const end = line + n / 64; line < end; line += kLines)
    for (int64_t k = 0; k < kLines; ++k) line[k] = values;
}

void copy(char* to, const char* from, int64_t n) {
  Line* line = reinterpret_cast<Line*>(to);
  const Line* source = reinterpret_cast<const Line*>(from);
  for (Line* const end = line + n / 64; line < end; line += kLines, source += kLines)
    for (int64_t k = 0; k < kLines; ++k) line[k] = source[k];
}

void update(char* at, int64_t n) {
  Line* line = reinterpret_cast<Line*>(at);
  for (Line* const end = line + n / 64; line < end; line += kLines)
    for (int64_t k = 0; k < kLines; ++k) line[k] += 1;
}

}  // namespace

const MemoryFns& memory_fns() {
  static const MemoryFns fns{read, write, copy, update};
  return fns;
}

}  // namespace weft::WEFT_ISA_NS
