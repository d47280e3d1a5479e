#include "compiler/targets/cuda/gemm/epilogue.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <vector>

#include "framework/autodiff/grad.h"
#include "framework/dispatch/dispatch.h"
#include "framework/ir/op_def.h"
#include "ops/core/core.h"
#include "ops/core/products/dot.h"

namespace weft::cuda {
namespace {

constexpr int64_t kPoints = 96;

// gelu by tanh, and its derivative.
double gelu_of(double x) {
  const double u = std::numbers::sqrt2 * std::numbers::inv_sqrtpi * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1 + std::tanh(u));
}
double gelu_slope(double x) {
  const double c = std::numbers::sqrt2 * std::numbers::inv_sqrtpi, t = std::tanh(c * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
}

// How a value broadcasts to the product's result: one number, one per column, one per element.
enum class Broadcast { scalar, row, full };

// Evaluates the body as a function of one element, in f64, at sample points.
class Points {
 public:
  Points(const Graph& g, int32_t dot) : g_(g), dot_(dot) {
    const Node& n = g.node(dot);
    const Shape& shape = n.outputs[0].shape;
    numel_ = shape.numel();
    const int columns =
        g.type(n.inputs[1]).shape.size() - n.attrs.ints("b_batch").size() - n.attrs.ints("b_contract").size();
    for (int d = shape.size() - columns; d < shape.size(); ++d) columns_ *= shape[d];
    product = values(0);
  }

  /// [kPoints], f64 or bool; empty if it is not a function of one element of the product and of inputs.
  std::optional<Tensor> of(Value v) {
    auto it = seen_.find(v);
    if (it == seen_.end()) it = seen_.emplace(v, evaluate(v)).first;
    return it->second;
  }
  std::optional<std::vector<double>> numbers(Value v) {
    const std::optional<Tensor> x = of(v);
    if (!x || x->dtype() != kFloat64) return {};
    return x->to_vector<double>();
  }

  bool product_used() const { return product_used_; }
  int64_t numel() const { return numel_; }
  int64_t columns() const { return columns_; }
  std::vector<double> product;
  struct Input {
    int index;
    std::vector<double> at;
  };
  std::vector<Input> rows, fulls;  // inputs found so far

 private:
  // Numbers between -4 and 4; each seed gives different ones.
  static std::vector<double> values(int seed) {
    std::vector<double> v(kPoints);
    for (int64_t i = 0; i < kPoints; ++i)
      v[i] = 8 * std::fmod((static_cast<double>(i) + 1) * (std::numbers::phi + 0.37 * seed), 1.0) - 4;
    return v;
  }
  static Tensor tensor(const std::vector<double>& v) { return Tensor::from_vector(v, {kPoints}); }

  std::optional<Broadcast> broadcast_of(const Shape& s) const {
    const int64_t n = s.numel();
    if (n == numel_) return Broadcast::full;
    if (n == columns_) return Broadcast::row;
    if (n == 1) return Broadcast::scalar;
    return {};
  }

  std::optional<Tensor> evaluate(Value v) {
    const Node& n = g_.node(v);
    const TensorType& type = g_.type(v);
    if (v.node == dot_) {
      product_used_ = true;
      return tensor(product);
    }
    const std::optional<Broadcast> here = broadcast_of(type.shape);
    if (!here) return {};
    if (is_argument(n)) {
      if (*here == Broadcast::scalar || !is_floating(type.dtype)) return {};
      auto& list = *here == Broadcast::row ? rows : fulls;
      list.push_back({static_cast<int>(n.attrs.i("index")), values(1 + static_cast<int>(rows.size() + fulls.size()))});
      return tensor(list.back().at);
    }
    if (n.op == &constant_op) return constant(n, type);
    if (const Placing p = n.op->placing; p == Placing::kReshape || p == Placing::kBroadcast || p == Placing::kSame) {
      if (p == Placing::kBroadcast && !repeats_rows(g_.type(n.inputs[0]).shape, type.shape)) return {};
      return of(n.inputs[0]);
    }
    if (n.op == &cast_op)
      return is_floating(type.dtype) && is_floating(g_.type(n.inputs[0]).dtype) ? of(n.inputs[0]) : std::nullopt;
    if (!n.op->is(kPointwise)) return {};
    std::vector<Tensor> in;
    for (Value i : n.inputs) {
      std::optional<Tensor> x = of(i);
      if (!x) return {};
      in.push_back(std::move(*x));
    }
    try {
      return dispatch(*n.op, weft::internal::pointers(in), n.attrs);
    } catch (const Error&) {
      return {};  // the op does not take f64
    }
  }

  std::optional<Tensor> constant(const Node& n, const TensorType& type) const {
    if (!is_floating(type.dtype) || !n.attrs.has("value")) return {};
    const AttrValue& value = *n.attrs.find("value");
    double number = 0;
    if (const auto* d = std::get_if<double>(&value))
      number = *d;
    else if (const auto* i = std::get_if<int64_t>(&value))
      number = static_cast<double>(*i);
    else
      return {};
    return tensor(std::vector<double>(kPoints, number));
  }

  // Whether element i of a broadcast's result is element i % (number of elements) of its operand.
  static bool repeats_rows(const Shape& from, const Shape& to) {
    if (from.numel() == 1) return true;
    bool leading = false;
    for (int d = 1; d <= from.size(); ++d) {
      const int64_t x = from[from.size() - d], y = to[to.size() - d];
      leading |= x != y;
      if (leading && x != 1) return false;
    }
    return true;
  }

  const Graph& g_;
  const int32_t dot_;
  int64_t numel_ = 0, columns_ = 1;
  bool product_used_ = false;
  std::map<Value, std::optional<Tensor>> seen_;
};

using SampledFunction = std::vector<double>;

template <class F>
bool equals(const SampledFunction& f, F expected) {
  for (size_t i = 0; i < f.size(); ++i) {
    const double want = expected(i);
    // Constants that were rounded to f32 have a relative error of up to 2^-24.
    if (!(std::abs(f[i] - want) <= 1e-6 * std::max(1.0, std::abs(want)))) return false;
  }
  return true;
}

// The operand of an output that is a sum over the rows, if it is one.
std::optional<Value> summed_rows(const Graph& g, Value v, const Points& p) {
  while (g.node(v).op == &cast_op || g.node(v).op->placing == Placing::kReshape) v = g.node(v).inputs[0];
  const Node& n = g.node(v);
  if (n.op->reduction != Reduction::kSum || n.outputs[0].shape.numel() != p.columns()) return {};
  const Shape& dims = n.attrs.ints("dims");
  if (g.type(n.inputs[0]).shape.numel() != p.numel()) return {};
  for (int i = 0; i < dims.size(); ++i)
    if (dims[i] != i) return {};
  return n.inputs[0];
}

// Whether cuBLASLt can add this input to each row, in the result's dtype: it has that dtype, or the body casts it to
// that dtype before any other use.
bool serves_as_bias(const Graph& body, int input, DType out) {
  const Value v = body.inputs[static_cast<size_t>(input)];
  if (body.type(v).dtype == out) return true;
  if (!is_floating(body.type(v).dtype)) return false;
  for (int32_t id = 0; id < body.size(); ++id) {
    const Node& n = body.node(id);
    if (std::find(n.inputs.begin(), n.inputs.end(), v) == n.inputs.end()) continue;
    if (n.op != &cast_op || n.outputs[0].dtype != out) return false;
  }
  return true;
}

}  // namespace

std::optional<LtEpilogue> match_epilogue(const Graph& body, int32_t dot, bool round_like_eager) {
  if (body.node(dot).op != &dot_op || body.outputs.empty() || body.outputs.size() > 2) return {};
  const DType in = body.type(body.node(dot).inputs[0]).dtype, product_type = body.node(dot).outputs[0].dtype;
  const bool narrow = is_16bit(in), exact = !narrow || round_like_eager;
  NoGrad no_grad;
  Points points(body, dot);
  LtEpilogue e;

  // The outputs: the result, and possibly the operand of gelu or the column sums of the result.
  std::vector<SampledFunction> f;
  for (size_t i = 0; i < body.outputs.size(); ++i) {
    if (i == 1 && !exact && body.node(dot).attrs.ints("a_batch").empty()) {  // a batch would need several sums
      if (auto sums = summed_rows(body, body.outputs[1], points)) {
        // cuBLASLt writes them in the result's dtype.
        if (body.type(body.outputs[1]).dtype != body.type(body.outputs[0]).dtype) return {};
        const auto of_sums = points.numbers(*sums);
        if (!of_sums || !equals(*of_sums, [&](size_t k) { return f[0][k]; })) return {};
        e.bias_output = 1;
        break;
      }
    }
    if (body.type(body.outputs[i]).shape.numel() != points.numel()) return {};
    auto numbers = points.numbers(body.outputs[i]);
    if (!numbers) return {};
    f.push_back(std::move(*numbers));
  }
  if (!points.product_used() || points.rows.size() > 1 || points.fulls.size() > 1) return {};
  const DType out = body.type(body.outputs[0]).dtype;
  if (out != in && !(narrow && out == kFloat32)) return {};
  // Eager mode rounds to 16 bits here and then reads the value as f32.
  if (round_like_eager && narrow && product_type != out) return {};

  const SampledFunction& x = points.product;
  auto row = [&](size_t i) { return points.rows.empty() ? 0.0 : points.rows[0].at[i]; };
  auto full = [&](size_t i) { return points.fulls.empty() ? 0.0 : points.fulls[0].at[i]; };
  const int row_index = points.rows.empty() ? -1 : points.rows[0].index;
  const int full_index = points.fulls.empty() ? -1 : points.fulls[0].index;

  if (f.size() == 2) {
    if (exact || full_index >= 0 || body.type(body.outputs[1]).dtype != out) return {};
    if (row_index >= 0 && !serves_as_bias(body, row_index, out)) return {};
    for (int before : {0, 1}) {
      if (!equals(f[before], [&](size_t i) { return x[i] + row(i); })) continue;
      if (!equals(f[1 - before], [&](size_t i) { return gelu_of(x[i] + row(i)); })) continue;
      e.kind = row_index >= 0 ? MatmulEpilogue::gelu_bias_aux : MatmulEpilogue::gelu_aux;
      e.bias = row_index;
      e.output = 1 - before;
      e.aux_output = before;
      return e;
    }
    return {};
  }
  if (!exact && full_index >= 0 && row_index < 0 &&
      equals(f[0], [&](size_t i) { return x[i] * gelu_slope(full(i)); })) {
    if (body.type(body.inputs[full_index]).dtype != out) return {};
    e.kind = e.bias_output >= 0 ? MatmulEpilogue::dgelu_bias_grad : MatmulEpilogue::dgelu;
    e.aux_input = full_index;
    return e;
  }
  if (e.bias_output >= 0) return {};
  if (!exact && full_index < 0 && equals(f[0], [&](size_t i) { return gelu_of(x[i] + row(i)); })) {
    e.kind = row_index >= 0 ? MatmulEpilogue::gelu_bias : MatmulEpilogue::gelu;
    e.bias = row_index;
    return row_index >= 0 && !serves_as_bias(body, row_index, out) ? std::nullopt : std::optional(e);
  }
  // Least squares for alpha x + beta c + bias. The fit is exact if the function has this form.
  double normal[2][3] = {};
  for (size_t i = 0; i < x.size(); ++i) {
    const double t[2] = {x[i], full(i)}, y = f[0][i] - row(i);
    for (int r = 0; r < 2; ++r) {
      for (int c = 0; c < 2; ++c) normal[r][c] += t[r] * t[c];
      normal[r][2] += t[r] * y;
    }
  }
  if (full_index < 0) {
    e.alpha = normal[0][2] / normal[0][0];
  } else {
    const double d = normal[0][0] * normal[1][1] - normal[0][1] * normal[1][0];
    e.alpha = (normal[0][2] * normal[1][1] - normal[1][2] * normal[0][1]) / d;
    e.beta = (normal[0][0] * normal[1][2] - normal[1][0] * normal[0][2]) / d;
  }
  // Use the f32 value of a factor if it is within rounding error of one.
  for (double* k : {&e.alpha, &e.beta})
    if (const double f32 = static_cast<float>(*k); std::abs(*k - f32) <= 1e-9 * std::abs(*k)) *k = f32;
  if (!equals(f[0], [&](size_t i) { return e.alpha * x[i] + e.beta * full(i) + row(i); })) return {};
  e.kind = row_index >= 0 ? MatmulEpilogue::bias : MatmulEpilogue::none;
  e.bias = row_index;
  e.c = full_index;
  if (row_index >= 0 && !serves_as_bias(body, row_index, out)) return {};
  if (full_index >= 0 && body.type(body.inputs[full_index]).dtype != out) return {};
  if (exact) {
    // Each of these terms rounds once after the sum, as the op alone does.
    const int terms = (e.alpha != 1) + (e.c >= 0) + (e.bias >= 0);
    if (terms > 1 || (e.c >= 0 && e.beta != 1) || (narrow && terms > 0)) return {};
  }
  return e;
}

}  // namespace weft::cuda
