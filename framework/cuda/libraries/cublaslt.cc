#include "framework/cuda/libraries/cublaslt.h"

#include <algorithm>
#include <atomic>

#include "framework/base/error.h"
#include "framework/base/switches.h"
#include "framework/cuda/libraries/driver_api.h"
#include "framework/cuda/libraries/dynamic_library.h"
#include "framework/cuda/libraries/library_places.h"
#include "framework/cuda/libraries/split_product.h"

namespace weft::cuda {
namespace {

using lt::Desc;
using lt::MatrixLayout;
using lt::Preference;

// A row-major matrix in cuBLASLt's column-major terms: its transpose, or, if `transposed`, the matrix itself.
struct ColumnMajorForm {
  bool transposed = false;  // columns, not rows, are contiguous
  int64_t ld = 0;
};

std::optional<ColumnMajorForm> form_of(int64_t rows, int64_t cols, const MatrixStrides& s) {
  // The stride of an extent of 1 is never used: choose the smallest valid leading dimension.
  auto along = [](int64_t inner, int64_t inner_stride, int64_t outer, int64_t outer_stride) -> std::optional<int64_t> {
    if (inner > 1 && inner_stride != 1) return {};
    if (outer == 1) return inner;
    return outer_stride >= inner ? std::optional(outer_stride) : std::nullopt;
  };
  if (auto ld = along(cols, s.col, rows, s.row)) return ColumnMajorForm{false, *ld};
  if (auto ld = along(rows, s.row, cols, s.col)) return ColumnMajorForm{true, *ld};
  return {};
}

std::atomic<uint64_t> made{0};

lt::DataType type_of(DType t) {
  switch (t) {
    case kFloat64:
      return lt::kR64F;
    case kFloat32:
      return lt::kR32F;
    case kFloat16:
      return lt::kR16F;
    case kBFloat16:
      return lt::kR16BF;
    default:
      WEFT_BUG_IF(true, "cublaslt: no products of ", t);
  }
}

lt::Epilogue epilogue_of(MatmulEpilogue e) {
  switch (e) {
    case MatmulEpilogue::none:
      return lt::kDefault;
    case MatmulEpilogue::bias:
      return lt::kBias;
    case MatmulEpilogue::gelu:
      return lt::kGelu;
    case MatmulEpilogue::gelu_bias:
      return lt::kGeluBias;
    case MatmulEpilogue::gelu_aux:
      return lt::kGeluAux;
    case MatmulEpilogue::gelu_bias_aux:
      return lt::kGeluAuxBias;
    case MatmulEpilogue::dgelu:
      return lt::kDGelu;
    case MatmulEpilogue::dgelu_bias_grad:
      return lt::kDGeluBGrad;
    // cuBLASLt's first operand is our second.
    case MatmulEpilogue::bias_grad_a:
      return lt::kBGradB;
    case MatmulEpilogue::bias_grad_b:
      return lt::kBGradA;
  }
  return lt::kDefault;
}

bool has_aux(MatmulEpilogue e) {
  return e == MatmulEpilogue::gelu_aux || e == MatmulEpilogue::gelu_bias_aux || e == MatmulEpilogue::dgelu ||
         e == MatmulEpilogue::dgelu_bias_grad;
}
// Leading dimension of gelu's input (aux): it has the layout of the result.
int64_t aux_ld(const MatmulShape& s) { return s.m == 1 ? s.n : s.out_row; }
bool has_bias(MatmulEpilogue e) {
  return e != MatmulEpilogue::none && e != MatmulEpilogue::gelu && e != MatmulEpilogue::gelu_aux &&
         e != MatmulEpilogue::dgelu;
}

void check_shape(const MatmulShape& s) {
  WEFT_BUG_IF(s.batch < 1 || s.m < 1 || s.n < 1 || s.k < 1, "cublaslt: extents ", s.batch, " x ", s.m, " x ", s.n,
              " x ", s.k);
  WEFT_BUG_IF(s.batch > INT32_MAX, "cublaslt: ", s.batch, " matrices");
  WEFT_BUG_IF(!readable_in_place(s.m, s.k, s.a) || !readable_in_place(s.k, s.n, s.b),
              "cublaslt: strides of an operand need a copy");
  WEFT_BUG_IF(s.m > 1 && s.out_row < s.n, "cublaslt: rows of the result overlap");
  WEFT_BUG_IF(s.out != s.in && !(s.out == kFloat32 && is_16bit(s.in)), "cublaslt: ", s.in, " to ", s.out);
  WEFT_BUG_IF(s.tf32 && s.in != kFloat32, "cublaslt: TF32 of ", s.in);
}

}  // namespace

// The descriptors of one product; destroyed with it.
class PreparedMatmul::Descriptors {
 public:
  Descriptors(const lt::CublasLtTable& call, const MatmulShape& s) : call_(call) {
    const bool f64 = s.in == kFloat64;
    const auto compute = f64 ? lt::kCompute64F : s.tf32 ? lt::kCompute32FFastTF32 : lt::kCompute32F;
    check(call.cublasLtMatmulDescCreate(&desc, compute, f64 ? lt::kR64F : lt::kR32F), "descriptor");
    const ColumnMajorForm fa = *form_of(s.m, s.k, s.a), fb = *form_of(s.k, s.n, s.b);
    set(lt::kDescTransA, static_cast<int32_t>(fb.transposed ? lt::kT : lt::kN));
    set(lt::kDescTransB, static_cast<int32_t>(fa.transposed ? lt::kT : lt::kN));
    set(lt::kDescEpilogue, static_cast<int32_t>(epilogue_of(s.epilogue)));
    if (has_aux(s.epilogue)) {
      set(lt::kDescAuxLd, aux_ld(s));
      if (s.batch > 1) set(lt::kDescAuxBatchStride, s.out_batch);
    }
    // Heuristics need to know that there will be addresses, and their alignment.
    const uintptr_t some = s.align_out;
    if (has_bias(s.epilogue)) set(lt::kDescBiasPointer, some);
    if (has_aux(s.epilogue)) set(lt::kDescAuxPointer, some);
    const lt::DataType in = type_of(s.in);
    first = layout(in, fb.transposed ? s.k : s.n, fb.transposed ? s.n : s.k, fb.ld, s.batch, s.b.batch);
    second = layout(in, fa.transposed ? s.m : s.k, fa.transposed ? s.k : s.m, fa.ld, s.batch, s.a.batch);
    out = layout(type_of(s.out), s.n, s.m, s.m == 1 ? s.n : s.out_row, s.batch, s.out_batch);
  }
  ~Descriptors() {
    for (MatrixLayout* l : {first, second, out})
      if (l) call_.cublasLtMatrixLayoutDestroy(l);
    if (preference) call_.cublasLtMatmulPreferenceDestroy(preference);
    if (desc) call_.cublasLtMatmulDescDestroy(desc);
  }
  Descriptors(const Descriptors&) = delete;

  template <class T>
  void set(lt::DescAttribute attribute, T value) {
    check(call_.cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value), "descriptor");
  }

  void prefer(const MatmulShape& s, int64_t workspace_limit) {
    check(call_.cublasLtMatmulPreferenceCreate(&preference), "preference");
    auto set_preference = [&](lt::PreferenceAttribute attribute, auto value) {
      check(call_.cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value), "preference");
    };
    set_preference(lt::kMaxWorkspace, static_cast<uint64_t>(workspace_limit));
    // Partial sums are added in the compute type: sums in bf16 would be rounded before they are added.
    set_preference(lt::kReductionSchemes, static_cast<uint32_t>(lt::kReduceComputeType));
    set_preference(lt::kAlignmentA, static_cast<uint32_t>(s.align_b));
    set_preference(lt::kAlignmentB, static_cast<uint32_t>(s.align_a));
    set_preference(lt::kAlignmentC, static_cast<uint32_t>(s.align_out));
    set_preference(lt::kAlignmentD, static_cast<uint32_t>(s.align_out));
  }

  void check(int status, const char* what) const {
    WEFT_CHECK_AS(kInternal, status == lt::kSuccess, "cublaslt: ", what, ": ", call_.cublasLtGetStatusString(status));
  }

  /// Sets the addresses for the next call; the mutex is held until the call is made.
  void point(const MatmulShape& s, const MatmulPointers& at) WEFT_REQUIRES(mutex) {
    if (has_bias(s.epilogue) && at.bias != bias_) set(lt::kDescBiasPointer, static_cast<const void*>(bias_ = at.bias));
    if (has_aux(s.epilogue) && at.aux != aux_) set(lt::kDescAuxPointer, static_cast<void*>(aux_ = at.aux));
  }

  Mutex mutex;
  Desc* desc = nullptr;
  MatrixLayout *first = nullptr, *second = nullptr, *out = nullptr;
  Preference* preference = nullptr;

 private:
  MatrixLayout* layout(lt::DataType type, int64_t rows, int64_t cols, int64_t ld, int64_t batch, int64_t stride) {
    MatrixLayout* l = nullptr;
    check(call_.cublasLtMatrixLayoutCreate(&l, type, rows, cols, ld), "layout");
    if (batch == 1) return l;
    const int32_t count = static_cast<int32_t>(batch);
    check(call_.cublasLtMatrixLayoutSetAttribute(l, lt::kLayoutBatchCount, &count, sizeof count), "layout");
    check(call_.cublasLtMatrixLayoutSetAttribute(l, lt::kLayoutBatchStride, &stride, sizeof stride), "layout");
    return l;
  }
  const lt::CublasLtTable& call_;
  void *bias_ = nullptr, *aux_ = nullptr;
};

/// Plans of the same CublasLt, which keeps them.
struct PreparedMatmul::SplitParts {
  SplitProduct split;
  const PreparedMatmul *first, *second;
};

PreparedMatmul::PreparedMatmul() = default;
PreparedMatmul::~PreparedMatmul() = default;

bool readable_in_place(int64_t rows, int64_t cols, const MatrixStrides& s) {
  return form_of(rows, cols, s).has_value();
}

const CublasLtLibrary& cublaslt_library() {
  static const CublasLtLibrary* found = [] {
    auto* l = new CublasLtLibrary;
    DynamicLibrary library(library_places("cublasLt", switch_value("WEFT_CUBLASLT"), availability().version / 1000));
    if (!library.open()) {
      l->unavailable = str_cat("cuBLASLt cannot be used: ", library.why_not(),
                               "; need CUDA 12 or later, or its path in WEFT_CUBLASLT");
      return l;
    }
    l->path = library.path();
#define WEFT_ROW(name) \
  { #name, reinterpret_cast < void**>(&l->call.name) }
    const WantedSymbol rows[] = {
        WEFT_ROW(cublasLtGetVersion),
        WEFT_ROW(cublasLtGetStatusString),
        WEFT_ROW(cublasLtCreate),
        WEFT_ROW(cublasLtDestroy),
        WEFT_ROW(cublasLtMatrixLayoutCreate),
        WEFT_ROW(cublasLtMatrixLayoutDestroy),
        WEFT_ROW(cublasLtMatrixLayoutSetAttribute),
        WEFT_ROW(cublasLtMatmulDescCreate),
        WEFT_ROW(cublasLtMatmulDescDestroy),
        WEFT_ROW(cublasLtMatmulDescSetAttribute),
        WEFT_ROW(cublasLtMatmulPreferenceCreate),
        WEFT_ROW(cublasLtMatmulPreferenceDestroy),
        WEFT_ROW(cublasLtMatmulPreferenceSetAttribute),
        WEFT_ROW(cublasLtMatmulAlgoGetHeuristic),
        WEFT_ROW(cublasLtMatmul),
    };
#undef WEFT_ROW
    if (std::string missing = library.fill(rows); !missing.empty()) {
      l->unavailable = str_cat("cuBLASLt cannot be used: ", missing, "; need CUDA 12 or later");
      return l;
    }
    // Version 12.x is 12xxyy, 11.x is 11xxyy.
    l->version = l->call.cublasLtGetVersion();
    if (l->version < 120000)
      l->unavailable = str_cat("cuBLASLt at ", l->path, " has version ", l->version, "; need 120000 or later");
    return l;
  }();
  return *found;
}

const lt::CublasLtTable& CublasLt::checked_table() {
  const CublasLtLibrary& l = cublaslt_library();
  WEFT_CHECK_AS(kUnavailable, l.unavailable.empty(), l.unavailable);
  return l.call;
}

CublasLt::CublasLt(const lt::CublasLtTable& table) : call_(table), serial_(++made) {
  const int status = call_.cublasLtCreate(&handle_);
  WEFT_CHECK_AS(kUnavailable, status == lt::kSuccess, "cublaslt: version ", call_.cublasLtGetVersion(),
                " does not start: ", call_.cublasLtGetStatusString(status), "; the driver is for CUDA ",
                version_text(availability().version), ": need one for the library's CUDA or later");
}

CublasLt::~CublasLt() {
  plans_.clear();
  call_.cublasLtDestroy(handle_);
}

const PreparedMatmul* CublasLt::plan(const MatmulShape& s, int64_t workspace_limit) {
  check_shape(s);
  MutexLock lock(mutex_);
  return find_plan(s, workspace_limit);
}

const PreparedMatmul* CublasLt::find_plan(const MatmulShape& s, int64_t workspace_limit) {
  const auto [it, fresh] = plans_.try_emplace({s, workspace_limit});
  if (!fresh) return it->second.get();
  std::unique_ptr<PreparedMatmul> plan;
  if (const auto split = split_product(s)) {
    const PreparedMatmul* first = find_plan(split->first, workspace_limit);
    const PreparedMatmul* second = first ? find_plan(split->second, workspace_limit) : nullptr;
    if (second) {
      plan = std::make_unique<PreparedMatmul>();
      plan->shape = s;
      plan->workspace = std::max(first->workspace, second->workspace);
      plan->parts.reset(new PreparedMatmul::SplitParts{*split, first, second});
    }
  }
  if (!plan) plan = make_plan(s, workspace_limit);
  return (it->second = std::move(plan)).get();
}

std::unique_ptr<PreparedMatmul> CublasLt::make_plan(const MatmulShape& s, int64_t workspace_limit) {
  // gelu's input is stored in lines of 16-byte pieces.
  if (has_aux(s.epilogue) && (s.align_out < 16 || aux_ld(s) % 8 != 0 || (s.batch > 1 && s.out_batch % 8 != 0)))
    return nullptr;
  auto plan = std::make_unique<PreparedMatmul>();
  plan->shape = s;
  plan->descriptors = std::make_unique<PreparedMatmul::Descriptors>(call_, s);
  PreparedMatmul::Descriptors& d = *plan->descriptors;
  d.prefer(s, workspace_limit);
  lt::HeuristicResult result = {};
  int found = 0;
  const int status = call_.cublasLtMatmulAlgoGetHeuristic(handle_, d.desc, d.first, d.second, d.out, d.out,
                                                          d.preference, 1, &result, &found);
  // The library uses several status codes to reject an epilogue that it lacks, in general or for this shape.
  if (status != lt::kNotSupported && s.epilogue == MatmulEpilogue::none) d.check(status, "choice of an algorithm");
  if (status != lt::kSuccess || found == 0 || result.state != lt::kSuccess) return nullptr;
  plan->algo = result.algo;
  plan->workspace = static_cast<int64_t>(result.workspace);
  return plan;
}

void CublasLt::run(const PreparedMatmul& plan, const MatmulPointers& at, void* stream) {
  const MatmulShape& s = plan.shape;
  if (plan.parts) {
    const SplitProduct& split = plan.parts->split;
    MatmulPointers smaller = at, larger = at;
    smaller.a = static_cast<const char*>(at.a) + split.a * itemsize(s.in);
    smaller.b = static_cast<const char*>(at.b) + split.b * itemsize(s.in);
    smaller.out = static_cast<char*>(at.out) + split.out * itemsize(s.out);
    larger.c = at.out;
    run(*plan.parts->first, split.first_is_smaller ? smaller : larger, stream);
    run(*plan.parts->second, split.first_is_smaller ? larger : smaller, stream);
    return;
  }
  PreparedMatmul::Descriptors& d = *plan.descriptors;
  const double alpha64 = s.alpha, beta64 = s.beta;
  const float alpha32 = static_cast<float>(s.alpha), beta32 = static_cast<float>(s.beta);
  const bool f64 = s.in == kFloat64;
  const void* alpha = f64 ? static_cast<const void*>(&alpha64) : &alpha32;
  const void* beta = f64 ? static_cast<const void*>(&beta64) : &beta32;
  // If beta is 0, c is not read: pass the result in its place.
  const void* c = s.beta != 0 ? at.c : at.out;
  MutexLock lock(d.mutex);
  d.point(s, at);
  d.check(call_.cublasLtMatmul(handle_, d.desc, alpha, at.b, d.first, at.a, d.second, beta, c, d.out, at.out, d.out,
                               &plan.algo, at.workspace, plan.workspace, stream),
          "product");
}

}  // namespace weft::cuda
