#include "compiler/exec/verify_fused.h"

#include <cstdlib>
#include <cstring>

#include "compiler/exec/error_bounds.h"
#include "compiler/exec/reference.h"
#include "compiler/exec/reproduction.h"
#include "framework/base/switches.h"
#include "framework/dispatch/state.h"
#include "framework/ir/op_def.h"
#include "ops/core/creation.h"
#include "ops/kernels/kernels.h"

namespace weft::internal {
namespace {

Tensor tensor_of(const StridedView& v) {
  Tensor t = Tensor::empty({v.dtype, {}, v.shape});
  if (v.shape.numel()) kernels::cast_copy(v, t.view_for_kernel());
  return t;
}

// The first flat position whose bits differ, NaN agreeing with NaN; -1: none.
int64_t first_difference(const Tensor& got, const Tensor& want) {
  const char *x = static_cast<const char*>(got.view_for_kernel().data),
             *y = static_cast<const char*>(want.view_for_kernel().data);
  const int64_t size = itemsize(got.dtype()), n = got.numel();
  if (n == 0 || std::memcmp(x, y, n * size) == 0) return -1;
  const bool floating = is_floating(got.dtype());
  Tensor a, b;
  if (floating) {
    a = Tensor::empty({kFloat64, {}, got.shape()});
    b = Tensor::empty(a.type());
    kernels::cast_copy(got.view_for_kernel(), a.view_for_kernel());
    kernels::cast_copy(want.view_for_kernel(), b.view_for_kernel());
  }
  for (int64_t i = 0; i < n; ++i) {
    if (std::memcmp(x + i * size, y + i * size, size) == 0) continue;
    if (floating && a.data<double>()[i] != a.data<double>()[i] && b.data<double>()[i] != b.data<double>()[i]) continue;
    return i;
  }
  return -1;
}

std::string index_text(int64_t flat, const Shape& shape) {
  Shape at = Shape::filled(shape.size(), 0);
  for (int d = shape.size() - 1; d >= 0; --d) {
    at[d] = flat % shape[d];
    flat /= shape[d];
  }
  return at.to_string();
}

std::string element_text(const Tensor& t, int64_t flat) {
  const StridedView v{static_cast<char*>(t.view_for_kernel().data) + flat * itemsize(t.dtype()), t.dtype(), {}, {}};
  double value = 0;
  kernels::cast_copy(v, {&value, kFloat64, {}, {}});
  char s[40];
  std::snprintf(s, sizeof s, "%.9g", value);
  return s;
}

}  // namespace

const FusedCheck fused_check = {set_aside, verify_fused};

std::vector<Tensor> set_aside(std::span<const StridedView> in) {
  std::vector<Tensor> copies;
  for (const StridedView& v : in) copies.push_back(tensor_of(v));
  return copies;
}

bool verifies_kernels() {
  if (switch_value("WEFT_VERIFY") == "auto") return std::getenv("TEST_TMPDIR") != nullptr;
  return switch_on("WEFT_VERIFY");
}

std::string ops_text(const Graph& body, size_t lines) {
  std::vector<std::pair<std::string, std::string>> by_line;  // line, ops
  for (int32_t id = 0; id < body.size(); ++id) {
    const Node& n = body.node(id);
    if (n.op->is(kStructural) || n.op == &input_op || n.op == &constant_op || n.op->is(kView)) continue;
    const std::string line = n.line.to_string();
    auto at = by_line.begin();
    while (at != by_line.end() && at->first != line) ++at;
    if (at == by_line.end()) at = by_line.insert(at, {line, ""});
    if ((", " + at->second + ",").find(str_cat(", ", n.op->name, ",")) != std::string::npos) continue;
    at->second += str_cat(at->second.empty() ? "" : ", ", n.op->name);
  }
  std::string s;
  for (size_t i = 0; i < by_line.size() && i < lines; ++i)
    s += str_cat(s.empty() ? "" : "; ", by_line[i].second, by_line[i].first.empty() ? "" : " at ", by_line[i].first);
  if (by_line.size() > lines) s += str_cat("; and ", by_line.size() - lines, " more lines");
  return s.empty() ? "moves elements" : s;
}

void verify_fused(const FusedKernel& k, const Graph& body, std::span<const Tensor> in,
                  std::span<const StridedView> out) {
  NoGrad guard;
  const bool exact = k.lowered().rounds_less.empty();
  std::vector<BoundedValue> want;
  if (exact) {
    for (Tensor& t : evaluate(body, in).outputs) want.push_back({std::move(t), {}, {}, {}});
  } else {
    want = bounded_outputs(body, in);
  }
  for (size_t i = 0; i < out.size(); ++i) {
    const Tensor got = tensor_of(out[i]);
    const int64_t at = exact ? first_difference(got, want[i].eager) : first_outside(got, want[i]);
    if (at < 0) continue;
    std::string need = element_text(copy_of(want[i].eager), at);
    if (want[i].lo.defined())
      need += str_cat(" or at least within [", element_text(copy_of(want[i].lo), at), ", ",
                      element_text(copy_of(want[i].hi), at), "]");
    internal::fail(Code::kInternal,
                   str_cat("verify: kernel ", k.name(), " (", ops_text(body, 8), "): result ", i, " ", got.type(),
                           " first differs from its ops run one by one at ", index_text(at, got.shape()), ": got ",
                           element_text(got, at), "; need ", need, "; ", write_reproduction(k, body, in, want)));
  }
}

}  // namespace weft::internal
