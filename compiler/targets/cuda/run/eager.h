// Eager ops on GPUs: each call is an Operation, prepared at its first sight and found again by types and layouts.
// Nothing waits for the device until a value is read.
#pragma once
#include <cstdint>

namespace weft::cuda {

/// Makes GPUs the backend of Device::cuda(i) for eager ops. Cheap, and allowed on any machine: where there is no CUDA,
/// using the device says why.
void install_eager();

namespace internal {
/// Operations that eager keeps, and how often a call found its own, since the process began. For tests.
struct EagerCounts {
  int64_t kept = 0, found = 0, prepared = 0;
};
EagerCounts eager_counts();
/// At most this many operations are kept; the least recently used go first.
void set_eager_capacity(int64_t operations);
}  // namespace internal

}  // namespace weft::cuda
