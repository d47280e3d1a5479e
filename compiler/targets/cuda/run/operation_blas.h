// The cuBLASLt of a GPU: one per process and GPU, created at first use and destroyed when the driver is replaced.
#pragma once
#include "framework/cuda/gpu.h"
#include "framework/cuda/libraries/cublaslt.h"

namespace weft::cuda {

/// Throws Unavailable with the reason if the library cannot be loaded.
CublasLt& blas_of(Gpu& gpu);

namespace internal {
/// Replaces cuBLASLt with another library; null restores the machine's. For tests, while no work is running.
void set_cublaslt(const lt::CublasLtTable* table);
}  // namespace internal

}  // namespace weft::cuda
