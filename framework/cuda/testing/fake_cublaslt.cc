#include "framework/cuda/testing/fake_cublaslt.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "framework/base/error.h"
#include "framework/base/str_cat.h"
#include "framework/cuda/libraries/driver_api.h"
#include "framework/cuda/testing/fake_driver.h"
#include "framework/tensor/dtype.h"

namespace weft::cuda {
namespace lt {
struct Context {
  CUmodule module = nullptr;  // module of a fake driver
  CUfunction matmul = nullptr;
};
struct MatrixLayout : FakeMatmul::Matrix {};
struct Desc {
  int compute, scale;
  int32_t transpose_a = 0, transpose_b = 0, epilogue = kDefault;
  void *bias = nullptr, *aux = nullptr;
  int64_t aux_ld = 0, aux_batch_stride = 0;
};
struct Preference {
  uint64_t workspace = 0;
  uint32_t reductions = 7;
  uint32_t align[4] = {256, 256, 256, 256};
};
}  // namespace lt

namespace {

FakeCublasLt* the_fake = nullptr;

int64_t size_of(int type) { return type == lt::kR64F ? 8 : type == lt::kR32F ? 4 : 2; }

double load(const void* p, int64_t i, int type) {
  switch (type) {
    case lt::kR64F:
      return static_cast<const double*>(p)[i];
    case lt::kR32F:
      return static_cast<const float*>(p)[i];
    case lt::kR16F:
      return static_cast<float>(static_cast<const float16*>(p)[i]);
    default:
      return static_cast<float>(static_cast<const bfloat16*>(p)[i]);
  }
}
void store(void* p, int64_t i, int type, double v) {
  switch (type) {
    case lt::kR64F:
      static_cast<double*>(p)[i] = v;
      break;
    case lt::kR32F:
      static_cast<float*>(p)[i] = static_cast<float>(v);
      break;
    case lt::kR16F:
      static_cast<float16*>(p)[i] = float16(static_cast<float>(v));
      break;
    default:
      static_cast<bfloat16*>(p)[i] = bfloat16(static_cast<float>(v));
  }
}

// gelu by tanh and its derivative (Hendrycks and Gimpel, 2016).
double gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double gelu_slope(double x) {
  const double c = std::sqrt(2 / M_PI), t = std::tanh(c * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
}

bool takes_bias(int e) { return e & (lt::kBias | 16 | lt::kBGradA | lt::kBGradB); }
bool takes_aux(int e) { return e & 128; }
bool known_epilogue(int e) {
  for (int known : {1, 4, 32, 32 | 128, 32 | 4, 32 | 128 | 4, 64 | 128, 64 | 128 | 16, 256, 512})
    if (e == known) return true;
  return false;
}

}  // namespace

// The functions of the table.
struct FakeCublasLtCalls {
  static int fault(const std::string& what) {
    the_fake->faults_.push_back(what);
    return lt::kInvalidValue;
  }

  template <class T>
  static int set(T& to, const void* value, size_t bytes, const char* what) {
    if (bytes != sizeof to) return fault(str_cat(what, ": ", bytes, " bytes; need ", sizeof to));
    std::memcpy(&to, value, bytes);
    return lt::kSuccess;
  }

  static int set_layout(lt::MatrixLayout* l, int attribute, const void* value, size_t bytes) {
    if (attribute == lt::kLayoutBatchCount) return set(l->batch, value, bytes, "batch count");
    if (attribute == lt::kLayoutBatchStride) return set(l->batch_stride, value, bytes, "batch stride");
    return fault(str_cat("layout attribute ", attribute));
  }
  static int set_desc(lt::Desc* d, int attribute, const void* value, size_t bytes) {
    switch (attribute) {
      case lt::kDescTransA:
        return set(d->transpose_a, value, bytes, "transpose a");
      case lt::kDescTransB:
        return set(d->transpose_b, value, bytes, "transpose b");
      case lt::kDescEpilogue:
        return set(d->epilogue, value, bytes, "epilogue");
      case lt::kDescBiasPointer:
        return set(d->bias, value, bytes, "bias");
      case lt::kDescAuxPointer:
        return set(d->aux, value, bytes, "aux");
      case lt::kDescAuxLd:
        return set(d->aux_ld, value, bytes, "aux ld");
      case lt::kDescAuxBatchStride:
        return set(d->aux_batch_stride, value, bytes, "aux batch stride");
      default:
        return fault(str_cat("descriptor attribute ", attribute));
    }
  }
  static int set_preference(lt::Preference* p, int attribute, const void* value, size_t bytes) {
    if (attribute == lt::kMaxWorkspace) return set(p->workspace, value, bytes, "workspace");
    if (attribute == lt::kReductionSchemes) return set(p->reductions, value, bytes, "reductions");
    if (attribute >= lt::kAlignmentA && attribute <= lt::kAlignmentD)
      return set(p->align[attribute - lt::kAlignmentA], value, bytes, "alignment");
    return fault(str_cat("preference attribute ", attribute));
  }

  static FakeMatmul described(const lt::Desc* d, const lt::MatrixLayout* a, const lt::MatrixLayout* b,
                              const lt::MatrixLayout* c, const lt::MatrixLayout* out) {
    FakeMatmul m;
    m.compute = d->compute;
    m.scale = d->scale;
    m.epilogue = d->epilogue;
    m.transpose_a = d->transpose_a == lt::kT;
    m.transpose_b = d->transpose_b == lt::kT;
    m.a = *a;
    m.b = *b;
    m.c = *c;
    m.d = *out;
    m.aux_ld = d->aux_ld;
    m.aux_batch_stride = d->aux_batch_stride;
    return m;
  }

  // The rules of cuBLASLt's documentation for any product; empty if the product is well formed.
  static std::string malformed(const FakeMatmul& m) {
    const uint64_t rows = m.transpose_a ? m.a.cols : m.a.rows, k = m.transpose_a ? m.a.rows : m.a.cols;
    const uint64_t cols = m.transpose_b ? m.b.rows : m.b.cols, k2 = m.transpose_b ? m.b.cols : m.b.rows;
    if (k != k2 || rows != m.d.rows || cols != m.d.cols || m.c.rows != rows || m.c.cols != cols)
      return str_cat("extents ", rows, " x ", k, " times ", k2, " x ", cols, " to ", m.d.rows, " x ", m.d.cols);
    if (rows == 0 || cols == 0 || k == 0) return "an extent is 0";
    for (const auto* x : {&m.a, &m.b, &m.c, &m.d}) {
      if (x->ld < static_cast<int64_t>(x->rows)) return str_cat("leading dimension ", x->ld, " of ", x->rows, " rows");
      if (x->batch != m.d.batch) return str_cat("batches of ", x->batch, " and ", m.d.batch);
    }
    const bool f64 = m.a.type == lt::kR64F;
    if (m.a.type != m.b.type || m.c.type != m.d.type) return "operands of two types";
    if (m.scale != (f64 ? lt::kR64F : lt::kR32F)) return "type of alpha";
    if (m.compute != (f64 ? lt::kCompute64F : lt::kCompute32F) &&
        (m.a.type != lt::kR32F || m.compute != lt::kCompute32FFastTF32))
      return str_cat("compute type ", m.compute, " for operands of type ", m.a.type);
    if (!known_epilogue(m.epilogue)) return str_cat("epilogue ", m.epilogue);
    if (takes_aux(m.epilogue) && m.aux_ld < static_cast<int64_t>(rows)) return str_cat("aux ld ", m.aux_ld);
    return "";
  }

  static int heuristic(lt::Context*, lt::Desc* d, lt::MatrixLayout* a, lt::MatrixLayout* b, lt::MatrixLayout* c,
                       lt::MatrixLayout* out, lt::Preference* p, int wanted, lt::HeuristicResult* results, int* found) {
    FakeMatmul m = described(d, a, b, c, out);
    *found = 0;
    if (std::string why = malformed(m); !why.empty()) return fault(why);
    if (wanted < 1) return fault("no algorithms wanted");
    if (takes_bias(m.epilogue) && !d->bias) return fault("no bias");
    // As documented: aux needs lines of multiples of 8 and 16-byte addresses; so do gelu's kernels.
    if (takes_aux(m.epilogue) &&
        (m.aux_ld % 8 || !d->aux || reinterpret_cast<uintptr_t>(d->aux) % 16 || m.aux_batch_stride % 8))
      return lt::kNotSupported;
    if (the_fake->workspace_ > p->workspace) return lt::kNotSupported;
    std::memcpy(m.align, p->align, sizeof m.align);
    m.reductions = p->reductions;
    m.workspace = the_fake->workspace_;
    the_fake->planned_.push_back(m);
    results[0] = {};
    results[0].algo.data[0] = the_fake->planned_.size();
    results[0].workspace = m.workspace;
    *found = 1;
    return lt::kSuccess;
  }

  // The bytes from `p` that a matrix spans, with all batches.
  static std::span<const char> span_of(const void* p, const FakeMatmul::Matrix& m) {
    const int64_t last = (m.batch - 1) * m.batch_stride + static_cast<int64_t>(m.cols - 1) * m.ld + m.rows;
    return {static_cast<const char*>(p), static_cast<size_t>(last * size_of(m.type))};
  }
  static bool inside(std::span<const char> s) {
    if (the_fake->allowed_.empty()) return true;
    for (const auto& a : the_fake->allowed_)
      if (s.data() >= a.data() && s.data() + s.size() <= a.data() + a.size()) return true;
    return false;
  }
  static bool overlap(std::span<const char> a, std::span<const char> b) {
    return a.data() < b.data() + b.size() && b.data() < a.data() + a.size();
  }

  static int matmul(lt::Context* context, lt::Desc* desc, const void* alpha, const void* a, lt::MatrixLayout* la,
                    const void* b, lt::MatrixLayout* lb, const void* beta, const void* c, lt::MatrixLayout* lc, void* d,
                    lt::MatrixLayout* ld, const lt::Algo* algo, void* workspace, size_t workspace_bytes, void* stream) {
    FakeMatmul m = described(desc, la, lb, lc, ld);
    if (std::string why = malformed(m); !why.empty()) return fault(why);
    const uint64_t id = algo->data[0];
    if (id < 1 || id > the_fake->planned_.size()) return fault("an algorithm of no heuristic");
    const FakeMatmul& plan = the_fake->planned_[id - 1];
    if (plan.a != m.a || plan.b != m.b || plan.c != m.c || plan.d != m.d || plan.epilogue != m.epilogue ||
        plan.transpose_a != m.transpose_a || plan.transpose_b != m.transpose_b || plan.compute != m.compute)
      return fault("run as another product than planned");
    std::memcpy(m.align, plan.align, sizeof m.align);
    if (workspace_bytes < plan.workspace || (plan.workspace && !workspace))
      return fault(str_cat("workspace of ", workspace_bytes, " bytes; planned ", plan.workspace));
    const void* address[] = {a, b, c, d};
    for (int i = 0; i < 4; ++i)
      if (!address[i] || reinterpret_cast<uintptr_t>(address[i]) % m.align[i])
        return fault(str_cat("address ", i, " is not aligned to ", m.align[i], " bytes as planned"));
    const double al = m.scale == lt::kR64F ? *static_cast<const double*>(alpha) : *static_cast<const float*>(alpha);
    const double be = m.scale == lt::kR64F ? *static_cast<const double*>(beta) : *static_cast<const float*>(beta);
    const auto sa = span_of(a, m.a), sb = span_of(b, m.b), sc = span_of(c, m.c), sd = span_of(d, m.d);
    if (!inside(sa) || !inside(sb) || !inside(sd) || (be != 0 && !inside(sc))) return fault("memory of others");
    if (overlap(sa, sd) || overlap(sb, sd)) return fault("the result overlaps an operand");
    if (be != 0 && c != d && overlap(sc, sd)) return fault("the result overlaps c");
    if (m.d.batch > 1 &&
        m.d.batch_stride < static_cast<int64_t>(m.d.cols - 1) * m.d.ld + static_cast<int64_t>(m.d.rows))
      return fault("results of a batch overlap");
    const bool bias_of_cols = m.epilogue == lt::kBGradB;
    const int64_t biases = bias_of_cols ? m.d.cols : m.d.rows;
    if (takes_bias(m.epilogue) &&
        !inside({static_cast<const char*>(desc->bias), static_cast<size_t>(biases * size_of(m.d.type))}))
      return fault("bias is memory of others");
    FakeMatmul::Matrix aux = m.d;
    aux.ld = m.aux_ld;
    aux.batch_stride = m.aux_batch_stride;
    if (takes_aux(m.epilogue) && !inside(span_of(desc->aux, aux))) return fault("aux is memory of others");
    if (takes_aux(m.epilogue) && reinterpret_cast<uintptr_t>(desc->aux) % 16) return fault("aux is not aligned");
    if ((m.epilogue & (16 | lt::kBGradA | lt::kBGradB)) && m.d.batch > 1) return fault("sums of a batch into one bias");
    the_fake->ran_.push_back(m);
    if (!the_fake->driver_) {
      compute(m, *desc, al, a, b, be, c, d);
      return lt::kSuccess;
    }
    auto range = [](std::span<const char> s) {
      return testing::FakeRange{reinterpret_cast<CUdeviceptr>(s.data()), s.size()};
    };
    FakeCublasLt::Job job{[=, desc = *desc] { compute(m, desc, al, a, b, be, c, d); },
                          {range(sa), range(sb), range(sd)}};
    if (be != 0) job.touches.push_back(range(sc));
    if (takes_aux(m.epilogue)) job.touches.push_back(range(span_of(desc->aux, aux)));
    the_fake->jobs_.push_back(std::move(job));
    return launch(*context, the_fake->jobs_.size() - 1, static_cast<CUstream>(stream));
  }

  // Runs a product as a kernel of the fake driver, identified by its number.
  static int launch(lt::Context& context, uint64_t job, CUstream stream) {
    const DriverApi& api = driver();
    if (!context.module && api.cuModuleLoadData(&context.module, "cublasLt") != CUDA_SUCCESS) return fault("no module");
    if (!context.matmul && api.cuModuleGetFunction(&context.matmul, context.module, kKernel) != CUDA_SUCCESS)
      return fault("no kernel");
    void* parameters[] = {&job};
    const CUresult r = api.cuLaunchKernel(context.matmul, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr);
    return r == CUDA_SUCCESS ? int{lt::kSuccess} : fault("the launch of a product fails");
  }
  static int destroy_context(lt::Context* context) {
    if (context->module) driver().cuModuleUnload(context->module);
    return destroy(context);
  }
  static constexpr const char* kKernel = "cublaslt_matmul";

  static void compute(const FakeMatmul& m, const lt::Desc& desc, double alpha, const void* a, const void* b,
                      double beta, const void* c, void* d) {
    const int64_t rows = m.d.rows, cols = m.d.cols, k = m.transpose_a ? m.a.rows : m.a.cols;
    auto at_a = [&](int64_t batch, int64_t i, int64_t p) {
      return load(a, batch * m.a.batch_stride + (m.transpose_a ? i * m.a.ld + p : p * m.a.ld + i), m.a.type);
    };
    auto at_b = [&](int64_t batch, int64_t p, int64_t j) {
      return load(b, batch * m.b.batch_stride + (m.transpose_b ? p * m.b.ld + j : j * m.b.ld + p), m.b.type);
    };
    const int e = m.epilogue;
    std::vector<double> sums(e == lt::kBGradB ? cols : rows, 0);
    for (int64_t batch = 0; batch < m.d.batch; ++batch)
      for (int64_t j = 0; j < cols; ++j)
        for (int64_t i = 0; i < rows; ++i) {
          double x = 0;
          for (int64_t p = 0; p < k; ++p) x += at_a(batch, i, p) * at_b(batch, p, j);
          // Rounded to the compute type after each step of the epilogue; the sum itself is more exact than cuBLASLt's.
          auto rounded = [&](double v) {
            return m.scale == lt::kR64F ? v : static_cast<double>(static_cast<float>(v));
          };
          x = rounded(rounded(x) * alpha);
          const int64_t at = batch * m.d.batch_stride + j * m.d.ld + i;
          if (beta != 0) x = rounded(x + beta * load(c, batch * m.c.batch_stride + j * m.c.ld + i, m.c.type));
          const int64_t aux = batch * m.aux_batch_stride + j * m.aux_ld + i;
          if (e & lt::kBias) x = rounded(x + load(desc.bias, i, m.d.type));
          if (e & 32) {
            if (takes_aux(e)) store(desc.aux, aux, m.d.type, x);
            x = gelu(x);
          }
          if (e & 64) x *= gelu_slope(load(desc.aux, aux, m.d.type));
          if (e & 16) sums[i] += x;
          store(d, at, m.d.type, x);
        }
    if (e == lt::kBGradA)
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t p = 0; p < k; ++p) sums[i] += at_a(0, i, p);
    if (e == lt::kBGradB)
      for (int64_t j = 0; j < cols; ++j)
        for (int64_t p = 0; p < k; ++p) sums[j] += at_b(0, p, j);
    if (e & (16 | lt::kBGradA | lt::kBGradB))
      for (size_t i = 0; i < sums.size(); ++i) store(desc.bias, static_cast<int64_t>(i), m.d.type, sums[i]);
  }

  template <class T>
  static int made(T** out, T* object) {
    ++the_fake->alive_;
    ++the_fake->made_;
    *out = object;
    return lt::kSuccess;
  }
  template <class T>
  static int destroy(T* object) {
    --the_fake->alive_;
    delete object;
    return lt::kSuccess;
  }
  static int create_layout(lt::MatrixLayout** out, int type, uint64_t rows, uint64_t cols, int64_t ld) {
    return made(out, new lt::MatrixLayout{{type, rows, cols, ld, 0, 1}});
  }
  static int create_desc(lt::Desc** out, int compute, int scale) {
    auto* d = new lt::Desc{compute, scale};
    return made(out, d);
  }
};

FakeCublasLt::FakeCublasLt(testing::FakeDriver* driver) : driver_(driver) {
  WEFT_BUG_IF(the_fake, "two fakes of cuBLASLt at once");
  the_fake = this;
  using F = FakeCublasLtCalls;
  if (driver) {
    testing::FakeKernel kernel;
    kernel.parameter_bytes = sizeof(uint64_t);
    kernel.run = [](const testing::FakeLaunch& l) { the_fake->jobs_[l.as<uint64_t>()].compute(); };
    kernel.touches = [](const testing::FakeLaunch& l) { return the_fake->jobs_[l.as<uint64_t>()].touches; };
    driver->add_kernel(F::kKernel, std::move(kernel));
  }
  table_.cublasLtGetVersion = [] { return size_t{130000}; };
  table_.cublasLtGetStatusString = [](int status) {
    if (!the_fake->faults_.empty()) return the_fake->faults_.back().c_str();
    return status == lt::kNotSupported ? "not supported" : "no error";
  };
  table_.cublasLtCreate = [](lt::Context** out) { return F::made(out, new lt::Context); };
  table_.cublasLtDestroy = F::destroy_context;
  table_.cublasLtMatrixLayoutCreate = F::create_layout;
  table_.cublasLtMatrixLayoutDestroy = F::destroy<lt::MatrixLayout>;
  table_.cublasLtMatrixLayoutSetAttribute = F::set_layout;
  table_.cublasLtMatmulDescCreate = F::create_desc;
  table_.cublasLtMatmulDescDestroy = F::destroy<lt::Desc>;
  table_.cublasLtMatmulDescSetAttribute = F::set_desc;
  table_.cublasLtMatmulPreferenceCreate = [](lt::Preference** out) { return F::made(out, new lt::Preference); };
  table_.cublasLtMatmulPreferenceDestroy = F::destroy<lt::Preference>;
  table_.cublasLtMatmulPreferenceSetAttribute = F::set_preference;
  table_.cublasLtMatmulAlgoGetHeuristic = F::heuristic;
  table_.cublasLtMatmul = F::matmul;
}

FakeCublasLt::~FakeCublasLt() { the_fake = nullptr; }

std::vector<std::string> FakeCublasLt::misaligned() const {
  std::vector<std::string> all;
  for (const FakeMatmul& m : planned_) {
    const uint64_t terms = m.transpose_a ? m.a.rows : m.a.cols;
    if (size_of(m.a.type) != 2 || std::min({m.d.rows, m.d.cols, terms}) < 8) continue;  // small remainders
    for (const auto& [name, x] : {std::pair("a", &m.a), std::pair("b", &m.b), std::pair("d", &m.d)})
      if (x->cols > 1 && x->ld * size_of(x->type) % 16 != 0)
        all.push_back(str_cat(name, " of ", m.d.rows, " x ", m.d.cols, ": ", x->cols, " rows of ", x->rows,
                              " elements at distances of ", x->ld));
  }
  return all;
}

void FakeCublasLt::allow(const void* data, size_t bytes) {
  allowed_.push_back({static_cast<const char*>(data), bytes});
}

}  // namespace weft::cuda
