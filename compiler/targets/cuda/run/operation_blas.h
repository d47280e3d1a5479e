// cuBLASLt of a GPU: one per process and GPU, made at first use, gone when the driver is replaced.
#pragma once
#include "framework/cuda/cublaslt.h"
#include "framework/cuda/gpu.h"

namespace weft::cuda {

/// Throws Unavailable with the reason where the library is not there.
CublasLt& blas_of(Gpu& gpu);

namespace internal {
/// Puts another library in cuBLASLt's place; null: the one of the machine. For tests, and not beside running work.
void set_cublaslt(const lt::Table* table);
}  // namespace internal

}  // namespace weft::cuda
