#include "framework/base/cpu.h"
#include "framework/base/thread_pool.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/strided_loop.h"
#include "ops/kernels/tables.h"

namespace weft::kernels {
namespace {

constexpr auto FLOAT = PwTypes::FLOAT, NUMERIC = PwTypes::NUMERIC, ANY = PwTypes::ANY, INT = PwTypes::INT,
               BITS = PwTypes::BITS;
struct OpInfo {
  PwInfo info;
  int flops;
};
constexpr OpInfo kRows[] = {
#define WEFT_UNARY(name, types, expr, vjp, lo, hi, flops, doc) {{#name, 1, types, false}, flops},
#define WEFT_TEST(name, types, expr, doc) {{#name, 1, types, true}, 1},
#define WEFT_BINARY(name, types, expr, vjp_a, vjp_b, lo, hi, flops, doc) {{#name, 2, types, false}, flops},
#define WEFT_COMPARE(name, types, expr, doc) {{#name, 2, types, true}, 1},
#define WEFT_TERNARY(name, types, expr, vjp_a, vjp_b, flops, doc) {{#name, 3, types, false}, flops},
#include "ops/kernels/pointwise.inc"
};

const PwRow* rows() {
  static const PwRow* const r = WEFT_SELECT(pointwise_rows)();
  return r;
}

// About 10 microseconds of work: less is not worth waking a thread.
int64_t grain_of(Pw op) { return kRows[static_cast<int>(op)].flops >= 10 ? 1 << 14 : 1 << 15; }

bool one_element(const StridedView& v) {
  for (int d = 0; d < v.shape.size(); ++d)
    if (v.shape[d] != 1 && v.strides[d] != 0) return false;
  return true;
}

void check(Pw op, std::span<const StridedView> in, const StridedView& out) {
  const PwInfo& info = pointwise_info(op);
  WEFT_CHECK(in.size() == info.operands, info.name, ": got ", in.size(), " operands; need ", int{info.operands});
  const DType dtype = in.back().dtype;
  WEFT_CHECK(pointwise_takes(op, dtype), info.name, ": does not support dtype ", dtype);
  for (size_t k = 0; k < in.size(); ++k) {
    const DType need = k == 0 && op == Pw::where ? kBool : dtype;
    WEFT_CHECK(in[k].dtype == need, info.name, ": operand ", k, " has dtype ", in[k].dtype, "; need ", need);
    WEFT_CHECK(in[k].shape == out.shape || in[k].shape.empty(), info.name, ": operand ", k, " has shape ", in[k].shape,
               "; need ", out.shape, " or []");
  }
  const DType need = info.bool_result ? kBool : dtype;
  WEFT_CHECK(out.dtype == need, info.name, ": output has dtype ", out.dtype, "; need ", need);
}

}  // namespace

const PwInfo& pointwise_info(Pw op) { return kRows[static_cast<int>(op)].info; }

bool pointwise_takes(Pw op, DType dtype) { return pointwise_contiguous_fn(op, dtype) != nullptr; }

PwFn pointwise_contiguous_fn(Pw op, DType dtype) {
  const int d = static_cast<int>(dtype);
  return d < kNumComputeDTypes ? rows()[static_cast<int>(op)].by_dtype[d] : nullptr;
}

void pointwise_fail(Pw op) {
  internal::fail(Code::kInvalidArgument,
                 str_cat(pointwise_info(op).name, ": integer division by zero; need divisors other than 0"));
}

void pointwise(Pw op, std::span<const StridedView> in, const StridedView& out) {
  check(op, in, out);
  const PwFn fn = pointwise_contiguous_fn(op, in.back().dtype);
  const int64_t n = out.numel(), grain = grain_of(op);
  int status;
  if (n <= grain && out.contiguous()) {
    const void* data[kMaxOperands];
    uint32_t scalars = 0;
    bool direct = true;
    for (size_t k = 0; k < in.size(); ++k) {
      data[k] = in[k].data;
      if (in[k].shape.size() == out.shape.size() && in[k].contiguous()) continue;
      if (!one_element(in[k])) {
        direct = false;
        break;
      }
      scalars |= 1u << k;
    }
    if (direct) {
      if (fn(data, out.data, n, scalars)) pointwise_fail(op);
      return;
    }
  }
  status = strided_apply(fn, in, out, grain);
  if (status) pointwise_fail(op);
}

}  // namespace weft::kernels
