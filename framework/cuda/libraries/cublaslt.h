// Matrix products on a GPU by cuBLASLt, found at run time. Our matrices are row-major and strided; cuBLASLt computes
// the transposed product of the transposed matrices, which are the same bytes. Partial sums of split products are added
// in the compute type and in a fixed order, so the result of a shape has the same bits in every run on the same device
// and version.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/mutex.h"
#include "framework/cuda/libraries/cublaslt_abi.h"
#include "framework/tensor/dtype.h"

namespace weft::cuda {

/// Tensor cores have fast kernels for matrices whose lines begin at multiples of kTensorCoreAlignment bytes.
inline constexpr int kTensorCoreAlignment = 16;

/// The library as found, or the reason why there is none.
struct CublasLtLibrary {
  lt::CublasLtTable call = {};
  std::string path;
  size_t version = 0;       // 130101: 13.1.1
  std::string unavailable;  // not empty: one sentence why it cannot be used
};
/// Searches once per process: switch WEFT_CUBLASLT, then the usual places. Needs version 12 or later.
const CublasLtLibrary& cublaslt_library();

/// Strides, in elements, of an operand of a batch of matrices; 0 where broadcast.
struct MatrixStrides {
  int64_t batch = 0, row = 0, col = 1;
  auto operator<=>(const MatrixStrides&) const = default;
};

/// The operation on the product's result before it is written; x is alpha a b + beta c.
enum class MatmulEpilogue {
  none,
  bias,       // x + bias[n]
  gelu,       // gelu_tanh(x)
  gelu_bias,  // gelu_tanh(x + bias[n])
  gelu_aux,   // as gelu; writes gelu's input to aux
  gelu_bias_aux,
  dgelu,            // x gelu_tanh'(aux)
  dgelu_bias_grad,  // as dgelu; writes the sums over m to bias[n]
  bias_grad_a,      // x; writes the sums of a over k to bias[m]
  bias_grad_b,      // x; writes the sums of b over k to bias[n]
};

/// out[batch, m, n] = epilogue(alpha a[batch, m, k] b[batch, k, n] + beta c[batch, m, n]). Floating-point only. out has
/// a's dtype, or f32 for 16-bit operands; bias and aux have out's dtype; aux has out's layout.
struct MatmulShape {
  DType in = kFloat32, out = kFloat32;
  int64_t batch = 1, m = 1, n = 1, k = 1;
  MatrixStrides a, b;
  int64_t out_batch = 0, out_row = 0;  // strides of out and c; columns are contiguous
  bool tf32 = false;                   // f32 operands rounded to 10 mantissa bits: only if the user chose it
  MatmulEpilogue epilogue = MatmulEpilogue::none;
  double alpha = 1, beta = 0;
  // Alignment of the addresses in bytes: powers of two, at most 256.
  int align_a = 256, align_b = 256, align_out = 256;
  auto operator<=>(const MatmulShape&) const = default;
};

/// True if cuBLASLt can read a rows x cols matrix with these strides in place: one stride is 1, and the other steps
/// over whole lines. An operand for which this is false must be copied first.
bool readable_in_place(int64_t rows, int64_t cols, const MatrixStrides& s);

/// A prepared product: its algorithm, its scratch size, and the library's descriptors, made once; or two products in
/// its place (framework/cuda/libraries/split_product.h).
struct PreparedMatmul {
  PreparedMatmul();
  ~PreparedMatmul();
  MatmulShape shape;
  lt::Algo algo = {};
  int64_t workspace = 0;

 private:
  friend class CublasLt;
  class Descriptors;
  std::unique_ptr<Descriptors> descriptors;
  struct SplitParts;
  std::unique_ptr<SplitParts> parts;
};

/// The addresses of one call, all on the device.
struct MatmulPointers {
  const void *a = nullptr, *b = nullptr, *c = nullptr;
  void* out = nullptr;
  void* bias = nullptr;  // read by the bias epilogues, written by the bias gradients
  void* aux = nullptr;   // written by gelu_aux, read by dgelu
  void* workspace = nullptr;
};

/// cuBLASLt on the device whose context was current at construction. Thread-safe.
class CublasLt {
 public:
  /// Throws weft::Error if the library or the device is missing.
  explicit CublasLt(const lt::CublasLtTable& table = checked_table());
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;

  /// The fastest algorithm for a shape by cuBLASLt's heuristics, cached per shape. Null if there is none within
  /// `workspace_limit` (epilogues need alignments that the shape may not have). Extents must be positive.
  const PreparedMatmul* plan(const MatmulShape& shape, int64_t workspace_limit = int64_t{32} << 20);
  /// Queues the product on a stream.
  void run(const PreparedMatmul& plan, const MatmulPointers& at, void* stream);
  /// Unique among the CublasLt objects of a process: a plan cached with this number is still alive.
  uint64_t serial() const { return serial_; }

 private:
  static const lt::CublasLtTable& checked_table();
  const PreparedMatmul* find_plan(const MatmulShape& shape, int64_t workspace_limit) WEFT_REQUIRES(mutex_);
  std::unique_ptr<PreparedMatmul> make_plan(const MatmulShape& shape, int64_t workspace_limit) WEFT_REQUIRES(mutex_);
  const lt::CublasLtTable& call_;
  const uint64_t serial_;
  lt::Context* handle_ = nullptr;
  Mutex mutex_;
  std::map<std::pair<MatmulShape, int64_t>, std::unique_ptr<PreparedMatmul>> plans_ WEFT_GUARDED_BY(mutex_);
};

}  // namespace weft::cuda
