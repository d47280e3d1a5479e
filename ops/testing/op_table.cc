#include "ops/testing/op_table.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "framework/autodiff/grad.h"
#include "framework/base/thread_pool.h"
#include "framework/dispatch/dispatch.h"
#include "framework/dispatch/interpreter.h"
#include "framework/ir/rewrite.h"
#include "framework/testing/gradcheck.h"
#include "ops/all_ops.h"
#include "ops/testing/cases.h"

namespace weft::testing {

using weft::internal::Sample;

std::vector<const OpDef*> tested(std::span<const OpDef* const> ops) {
  std::vector<const OpDef*> kept;
  for (const OpDef* op : ops)
    if (!op->is(kStructural) && op->samples) kept.push_back(op);
  return kept;
}

namespace {

std::vector<TensorType> types_of(const std::vector<Tensor>& in) {
  std::vector<TensorType> types;
  for (const Tensor& t : in) types.push_back(t.type());
  return types;
}

Ref<Graph> captured(const Case& c) {
  return capture_graph([&](std::span<const Tensor> in) { return run(c, {in.begin(), in.end()}); }, types_of(c.in));
}

// Gradients of every floating operand for all results, weighted by ones.
std::vector<Tensor> gradients(const Case& c, std::span<const Tensor> given) {
  std::vector<Tensor> in(given.begin(), given.end()), leaves, total;
  for (Tensor& t : in)
    if (is_floating(t.dtype())) leaves.push_back(t = t.requires_grad());
  for (const Tensor& y : run(c, in)) {
    if (!is_floating(y.dtype())) continue;
    std::vector<Tensor> g = grad(y, leaves, {.grad_output = internal::full_of(y.type(), 1)});
    for (size_t i = 0; i < g.size(); ++i)
      if (total.size() < g.size()) total.push_back(g[i]);
  }
  return total;
}

bool differentiable(const Case& c) {
  if (!c.op->vjp || c.op->is(kNotDifferentiable) || !c.grad) return false;
  bool in = false, out = false;
  for (const Tensor& t : c.in) in |= is_floating(t.dtype());
  for (const TensorType& t : infer(c, c.in)) out |= is_floating(t.dtype);
  return in && out;
}

class Threads {
 public:
  explicit Threads(int n) : saved_(num_threads()) { set_num_threads(n); }
  ~Threads() { set_num_threads(saved_); }

 private:
  int saved_;
};

}  // namespace

TEST_P(OpTable, HasSamples) {
  ASSERT_NE(op().samples, nullptr) << op().name;
  bool error = false, ok = false;
  for (const Sample& s : op().samples()) (s.error.empty() ? ok : error) = true;
  EXPECT_TRUE(ok) << "no sample that works";
  EXPECT_NE(op().infer, nullptr);
  EXPECT_NE(op().dims, nullptr);
  EXPECT_STRNE(op().doc, "");
  EXPECT_EQ(op_table().find(op().name), &op()) << "not found by name";
}

TEST_P(OpTable, EagerMatchesReferenceInEveryLayout) {
  for (const Case& c : cases_of(op())) {
    SCOPED_TRACE(c.label);
    std::vector<Tensor> plain = run(c, c.in);
    EXPECT_TRUE(matches_reference(c, c.in, plain));
    for (Layout layout : kLayouts) {
      if (layout == Layout::kContiguous) continue;
      SCOPED_TRACE(name_of(layout));
      std::vector<Tensor> in = c.in, same = c.in;
      for (size_t i = 0; i < in.size(); ++i) {
        if (layout == Layout::kBroadcast && !c.data[i]) continue;
        in[i] = with_layout(in[i], layout);
        same[i] = from_reals(to_reals(in[i]), in[i].type());
      }
      std::vector<Tensor> out = run(c, in), want = run(c, same);
      EXPECT_TRUE(matches_reference(c, same, out));
      for (size_t i = 0; i < out.size(); ++i) EXPECT_TRUE(same_bits(out[i], want[i])) << "depends on the layout";
    }
  }
}

// Zeros of both signs, infinities, NaN, the ends of the range and denormals, in all pairs, compared with <cmath>.
TEST_P(OpTable, SpecialValues) {
  const std::string_view name = op().name;
  // There is no single convention for a remainder of zero or infinity.
  if (op().scalar < 0 || name == "where" || name == "remainder" || name == "floor_divide") return;
  const Sample sample = op().samples()[0];
  if (sample.in[0].dtype != kFloat32) return;
  for (DType t : {kFloat32, kFloat64, kBFloat16, kFloat16}) {
    const Real inf = std::numeric_limits<Real>::infinity(), most = max_finite(t), least = 2 * tiny_roundoff(t);
    const std::vector<Real> special = {0,   -0.0L, 1,     -1,     inf,   -inf,  std::numeric_limits<Real>::quiet_NaN(),
                                       0.5, 2,     -3,    most,   -most, least, -least,
                                       100, -100,  1e-3L, -1e-3L, 7.5,   1e4L};
    Case c = make_case(op(), sample, t, 1);
    c.label = str_cat("special values, ", t);
    SCOPED_TRACE(c.label);
    std::vector<std::vector<Real>> v(c.in.size());
    for (Real a : special)
      for (Real b : special) {
        v[0].push_back(a);
        if (v.size() > 1) v[1].push_back(b);
      }
    for (size_t i = 0; i < v.size(); ++i)
      c.in[i] = from_reals(v[i], {t, Device::cpu(), {static_cast<int64_t>(v[i].size())}});
    std::vector<Tensor> out = run(c, c.in);
    auto ok = matches_reference(c, c.in, out);
    if (!ok) {
      // Names the operands.
      std::vector<RefTensor> in;
      for (const Tensor& x : c.in) in.push_back({x.type(), to_reals(x)});
      const Types types = infer(c, c.in);
      RefResult want = find_reference(op())({op(), c.attrs, in, types})[0];
      std::vector<Real> got = to_reals(out[0]);
      for (size_t i = 0; i < got.size(); ++i)
        if (!(got[i] == want.v[i]) && !(std::isnan(got[i]) && std::isnan(want.v[i])) &&
            !(std::fabs(got[i] - want.v[i]) <= want.bound[i]))
          ok << "; of " << static_cast<double>(in[0].v[i])
             << (in.size() > 1 ? str_cat(" and ", static_cast<double>(in[1].v[i])) : "") << ": "
             << static_cast<double>(got[i]) << ", need " << static_cast<double>(want.v[i]);
    }
    EXPECT_TRUE(ok);
  }
}

TEST_P(OpTable, CapturedGraphGivesTheSameBits) {
  for (const Case& c : cases_of(op())) {
    SCOPED_TRACE(c.label);
    Ref<Graph> g = captured(c);
    verify(*g);
    std::vector<Tensor> want = run(c, c.in), got = interpret(*g, c.in);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same_bits(got[i], want[i]));
    Ref<Graph> parsed = parse_graph(g->to_string(), op_table());
    EXPECT_TRUE(structurally_equal(*parsed, *g)) << g->to_string();
  }
}

TEST_P(OpTable, InferenceNeedsNoValues) {
  for (const Case& c : cases_of(op())) {
    SCOPED_TRACE(c.label);
    Case meta = c;
    for (Tensor& t : meta.in) t = Tensor::empty({t.dtype(), Device::meta(), t.shape()});
    if (meta.in.empty()) meta.attrs = c.attrs.with("device", std::string("meta"));
    std::vector<Tensor> got = run(meta, meta.in), want = run(c, c.in);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].shape(), want[i].shape());
      EXPECT_EQ(got[i].dtype(), want[i].dtype());
      EXPECT_EQ(got[i].device(), Device::meta());
    }
  }
}

TEST_P(OpTable, DimMapAndCostFitTheTypes) {
  for (const Case& c : cases_of(op())) {
    SCOPED_TRACE(c.label);
    std::vector<TensorType> in = types_of(c.in);
    Types out = infer(c, c.in);
    DimMap m = op().dims(c.attrs, in, out);
    SCOPED_TRACE(m.to_string());
    ASSERT_EQ(m.in.size(), in.size());
    ASSERT_EQ(m.out.size(), out.size());
    std::vector<bool> kept(m.factors.size(), false);
    auto check = [&](const std::vector<DimFactors>& maps, std::span<const TensorType> types, bool result) {
      for (size_t k = 0; k < maps.size(); ++k) {
        const Shape& shape = types[k].shape;
        ASSERT_EQ(static_cast<int>(maps[k].size()), shape.size()) << (result ? "result " : "operand ") << k;
        for (int d = 0; d < shape.size(); ++d) {
          int64_t extent = 1;
          for (int f : maps[k][d]) {
            ASSERT_LT(f, static_cast<int>(m.factors.size()));
            extent *= m.factors[f].size;
            if (result) kept[f] = true;
          }
          EXPECT_TRUE(extent == shape[d] || (maps[k][d].empty() && (shape[d] == 1 || result == false)) ||
                      (result && maps[k][d].empty()))
              << (result ? "result " : "operand ") << k << " dim " << d << ": " << extent << " and " << shape[d];
        }
      }
    };
    check(m.in, in, false);
    check(m.out, out, true);
    for (size_t f = 0; f < m.factors.size(); ++f)
      EXPECT_TRUE(kept[f] || m.factors[f].kind != FactorKind::kPass)
          << m.factors[f].name << " is neither kept nor reduced";
    DimMap again = DimMap::parse(m.to_string(), in, out, [&] {
      std::vector<std::pair<std::string, int64_t>> sizes;
      for (const Factor& f : m.factors) sizes.emplace_back(f.name, f.size);
      return sizes;
    }());
    EXPECT_EQ(again.to_string(), m.to_string());
    Cost cost = op_cost(op(), c.attrs, in, out);
    EXPECT_TRUE(std::isfinite(cost.flops) && cost.flops >= 0) << cost.flops;
    EXPECT_TRUE(std::isfinite(cost.bytes) && cost.bytes >= 0) << cost.bytes;
    bool empty = false;
    for (const TensorType& t : in) empty |= t.shape.numel() == 0;
    for (const TensorType& t : out) empty |= t.shape.numel() == 0;
    if (!empty) {
      EXPECT_GT(cost.bytes, 0);
    }
  }
}

TEST_P(OpTable, DerivativeMatchesCentralDifferences) {
  for (const Case& c : cases_of(op(), kFloat64)) {
    if (!differentiable(c)) continue;
    SCOPED_TRACE(c.label);
    TensorFn fn = [&](std::span<const Tensor> in) { return run(c, {in.begin(), in.end()}); };
    EXPECT_TRUE(gradcheck(fn, c.in));
    EXPECT_TRUE(gradcheck(fn, c.in, {.elements = 4, .captured = true}));
  }
}

TEST_P(OpTable, SecondDerivativeMatchesCentralDifferences) {
  int checked = 0;
  for (const Case& c : cases_of(op(), kFloat64)) {
    if (!differentiable(c) || checked == 3) continue;
    bool small = true;
    for (const Tensor& t : c.in) small &= t.numel() <= 200;
    if (!small) continue;
    ++checked;
    SCOPED_TRACE(c.label);
    TensorFn fn = [&](std::span<const Tensor> in) { return run(c, {in.begin(), in.end()}); };
    EXPECT_TRUE(gradgradcheck(fn, c.in, {.elements = 6}));
  }
}

TEST_P(OpTable, GradientsHaveTheOperandsTypesEagerlyAndCaptured) {
  for (DType t : {kFloat32, kBFloat16, kFloat16})
    for (const Case& c : cases_of(op(), t)) {
      if (!differentiable(c)) continue;
      SCOPED_TRACE(c.label);
      std::vector<Tensor> eager = gradients(c, c.in);
      Ref<Graph> g = capture_graph([&](std::span<const Tensor> in) { return gradients(c, in); }, types_of(c.in));
      verify(*g);
      Ref<Graph> joint = expand_grad(*g);
      verify(*joint);
      std::vector<Tensor> traced = interpret(*joint, c.in);
      size_t k = 0;
      for (const Tensor& x : c.in) {
        if (!is_floating(x.dtype())) continue;
        ASSERT_LT(k, eager.size());
        EXPECT_EQ(eager[k].dtype(), x.dtype());
        EXPECT_EQ(eager[k].shape(), x.shape());
        EXPECT_TRUE(same_bits(traced[k], eager[k]));
        ++k;
      }
    }
}

TEST_P(OpTable, ErrorsSayWhatIsWrong) {
  for (const Sample& s : op().samples()) {
    if (s.error.empty()) continue;
    Case c = make_case(op(), s, kFloat32, 5);
    // The dtypes and ranges of error samples are literal.
    std::string text = error_of([&] { run(c, c.in); });
    EXPECT_NE(text.find(s.error), std::string::npos)
        << "got \"" << text << "\"; need it to contain \"" << s.error << '"';
  }
}

TEST_P(OpTable, BadOperandsAreErrorsNotCrashes) {
  for (const Case& c : cases_of(op(), kFloat32)) {
    SCOPED_TRACE(c.label);
    for (size_t i = 0; i < c.in.size(); ++i) {
      Case bad = c;
      bad.in[i] = Tensor();
      EXPECT_NE(error_of([&] { run(bad, bad.in); }).find("undefined"), std::string::npos);
      if (c.in.size() > 1) {
        bad.in[i] = Tensor::empty({c.in[i].dtype(), Device::meta(), c.in[i].shape()});
        // Pointwise ops accept 0-d operands on the CPU beside operands on any other host device.
        bool only_scalars = true;
        for (size_t k = 0; k < c.in.size(); ++k) only_scalars &= k == i || c.in[k].dim() == 0;
        const std::string error = error_of([&] { run(bad, bad.in); });
        const bool takes_these = error_of([&] { run(c, c.in); }) == error_of([] {});
        if (takes_these && !only_scalars) {
          EXPECT_NE(error.find("device"), std::string::npos) << error;
        }
      }
      // Storage formats, other kinds and other ranks: must give a result or an Error.
      for (DType t : {kFloat8E4M3, kBool, kInt64, kFloat64}) {
        bad.in[i] = Tensor::empty({t, Device::cpu(), c.in[i].shape()});
        if (bad.in[i].numel() > 0) std::memset(bad.in[i].view_for_kernel().data, 0, bad.in[i].type().nbytes());
        error_of([&] { run(bad, bad.in); });
      }
      for (const Shape& shape : {Shape{}, Shape{0}, Shape{2, 3, 4, 1, 2}}) {
        bad.in[i] = Tensor::empty({c.in[i].dtype(), Device::cpu(), shape});
        if (bad.in[i].numel() > 0) std::memset(bad.in[i].view_for_kernel().data, 0, bad.in[i].type().nbytes());
        error_of([&] { run(bad, bad.in); });
      }
    }
  }
}

TEST_P(OpTable, BitsDoNotDependOnTheNumberOfThreads) {
  for (const Case& c : large_cases_of(op())) {
    SCOPED_TRACE(c.label);
    std::vector<Tensor> one, three;
    {
      Threads t(1);
      one = run(c, c.in);
    }
    {
      Threads t(3);
      three = run(c, c.in);
    }
    ASSERT_EQ(one.size(), three.size());
    for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(same_bits(one[i], three[i]));
  }
}

}  // namespace weft::testing
