// The part of cuBLASLt's C interface that is used: types, constants and functions under their names in cublasLt.h
// (checked by a test). Matrices are column-major; an attribute is written from memory of exactly its type's size.
#pragma once
#include <cstddef>
#include <cstdint>

namespace weft::cuda::lt {

// Opaque objects of the library.
struct Context;
struct MatrixLayout;
struct Desc;
struct Preference;

struct Algo {
  uint64_t data[8];
};
struct HeuristicResult {
  Algo algo;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

enum Status : int { kSuccess = 0, kInvalidValue = 7, kNotSupported = 15 };
enum DataType : int { kR32F = 0, kR64F = 1, kR16F = 2, kR16BF = 14 };
enum ComputeType : int { kCompute32F = 68, kCompute64F = 70, kCompute32FFastTF32 = 77 };
enum Transpose : int { kN = 0, kT = 1 };
enum LayoutAttribute : int { kLayoutBatchCount = 5, kLayoutBatchStride = 6 };
enum DescAttribute : int {
  kDescTransA = 3,
  kDescTransB = 4,
  kDescEpilogue = 7,
  kDescBiasPointer = 8,
  kDescAuxPointer = 11,
  kDescAuxLd = 12,
  kDescAuxBatchStride = 13,
};
enum Epilogue : int {
  kDefault = 1,
  kBias = 4,
  kGelu = 32,
  kGeluAux = 32 | 128,
  kGeluBias = 32 | 4,
  kGeluAuxBias = 32 | 128 | 4,
  kDGelu = 64 | 128,
  kDGeluBGrad = 64 | 128 | 16,
  kBGradA = 256,
  kBGradB = 512,
};
enum PreferenceAttribute : int {
  kMaxWorkspace = 1,
  kReductionSchemes = 3,
  kAlignmentA = 5,
  kAlignmentB = 6,
  kAlignmentC = 7,
  kAlignmentD = 8,
};
enum ReductionScheme : uint32_t { kReduceComputeType = 2 };

/// cuBLASLt's functions.
struct CublasLtTable {
  size_t (*cublasLtGetVersion)();
  const char* (*cublasLtGetStatusString)(int status);
  int (*cublasLtCreate)(Context** handle);
  int (*cublasLtDestroy)(Context* handle);
  int (*cublasLtMatrixLayoutCreate)(MatrixLayout** layout, int type, uint64_t rows, uint64_t cols, int64_t ld);
  int (*cublasLtMatrixLayoutDestroy)(MatrixLayout* layout);
  int (*cublasLtMatrixLayoutSetAttribute)(MatrixLayout* layout, int attribute, const void* value, size_t bytes);
  int (*cublasLtMatmulDescCreate)(Desc** desc, int compute, int scale);
  int (*cublasLtMatmulDescDestroy)(Desc* desc);
  int (*cublasLtMatmulDescSetAttribute)(Desc* desc, int attribute, const void* value, size_t bytes);
  int (*cublasLtMatmulPreferenceCreate)(Preference** preference);
  int (*cublasLtMatmulPreferenceDestroy)(Preference* preference);
  int (*cublasLtMatmulPreferenceSetAttribute)(Preference* preference, int attribute, const void* value, size_t bytes);
  int (*cublasLtMatmulAlgoGetHeuristic)(Context* handle, Desc* desc, MatrixLayout* a, MatrixLayout* b, MatrixLayout* c,
                                        MatrixLayout* d, Preference* preference, int wanted, HeuristicResult* results,
                                        int* found);
  int (*cublasLtMatmul)(Context* handle, Desc* desc, const void* alpha, const void* a, MatrixLayout* a_layout,
                        const void* b, MatrixLayout* b_layout, const void* beta, const void* c, MatrixLayout* c_layout,
                        void* d, MatrixLayout* d_layout, const Algo* algo, void* workspace, size_t workspace_bytes,
                        void* stream);
};

}  // namespace weft::cuda::lt
