// Attention in rows that a large finite number masks: eagerly and compiled, forward and backward, by score_mods, by the
// mask of scaled_dot_product_attention and by written-out softmax. The reference is the f64 softmax of the scores as
// f32 rounds them. Bounds: the roundings of the kernels, and one ulp of a score wherever another order of the sum q k^T
// may round the masked score to its neighbour; where all orders agree, nothing is allowed for it.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "compiler/exec/compile.h"
#include "compiler/targets/cpu/target.h"
#include "compiler/verify/launch_check.h"
#include "framework/autodiff/grad.h"
#include "framework/dispatch/dispatch.h"
#include "framework/testing/compare.h"
#include "framework/testing/values.h"
#include "ops/attention/flex_attention.h"
#include "ops/attention/record.h"
#include "ops/composite/layers/attention.h"
#include "ops/composite/layers/softmax.h"
#include "ops/core/core.h"

namespace weft {
namespace {

using testing::Random;
using testing::random_tensor;
using testing::unit_roundoff;

constexpr double kEps = 0x1p-24, kScale = 0.25;  // 1 / sqrt(16)
constexpr int64_t kB = 2, kH = 2, kD = 16, kDv = 8;
constexpr double kMasks[] = {
    -1e4, -65504, -1e6, -1e7, -1e8, -1e10, -1e12, -1e20, -1e30, -1e38, std::numeric_limits<float>::lowest()};

struct Lengths {
  int64_t sq, skv;
};
// Few queries, whose keys are read in place and in pieces; and tiles.
constexpr Lengths kLengths[] = {{1, 1100}, {3, 40}, {40, 150}};

using Reals = std::vector<double>;
Reals reals(const Tensor& t) { return t.to(kFloat64).contiguous().to_vector<double>(); }

/// Masks every second query of batch entry 0 as a whole, and the first half of the keys of entry 1 (padding).
Tensor hidden(const Lengths& n) {
  std::vector<float> v;
  for (int64_t b = 0; b < kB; ++b)
    for (int64_t i = 0; i < n.sq; ++i)
      for (int64_t j = 0; j < n.skv; ++j) v.push_back(b == 0 ? i % 2 == 0 : j < n.skv / 2);
  return Tensor::from_vector<float>(v, {kB, 1, n.sq, n.skv});
}

struct Operands {
  Tensor q, k, v, dout, hidden;
  Operands(const Lengths& n, DType t, Random& random)
      : q(random_tensor(t, {kB, kH, n.sq, kD}, random, -1, 1)),
        k(random_tensor(t, {kB, kH, n.skv, kD}, random, -1, 1)),
        v(random_tensor(t, {kB, kH, n.skv, kDv}, random, -1, 1)),
        dout(random_tensor(t, {kB, kH, n.sq, kDv}, random, -1, 1)),
        hidden(weft::hidden(n)) {}
};

/// Results and their bounds: out, dq, dk, dv.
struct Want {
  Reals value[4], bound[4];

  /// replaces: a masked score is the mask itself, else the sum of both.
  Want(const Operands& o, const Lengths& n, double mask, bool replaces) {
    const DType t = o.q.dtype();
    const double u = unit_roundoff(t), narrow = t == kBFloat16 ? 2 * u : 0, keys = static_cast<double>(n.skv);
    const Reals q = reals(o.q), k = reals(o.k), v = reals(o.v), g = reals(o.dout), hide = reals(o.hidden);
    const Tensor* like[] = {&o.dout, &o.q, &o.k, &o.v};
    for (int r = 0; r < 4; ++r) value[r].assign(like[r]->numel(), 0), bound[r] = value[r];
    std::vector<bool> fixed(n.skv);  // a masked score without a derivative
    Reals s(n.skv), flip(n.skv), p(n.skv), off(n.skv), dp(n.skv), dp_size(n.skv);
    for (int64_t row = 0; row < kB * kH * n.sq; ++row) {
      const int64_t head = row / n.sq, i = row % n.sq, b = head / kH;
      const double *q_i = &q[row * kD], *g_i = &g[row * kDv];
      double top = -HUGE_VAL, total = 0, flips = 0, delta = 0, delta_off = 0;
      for (int64_t j = 0; j < n.skv; ++j) {
        const double *k_j = &k[(head * n.skv + j) * kD], *v_j = &v[(head * n.skv + j) * kDv];
        double dot = 0, size = 0;
        for (int64_t x = 0; x < kD; ++x) dot += q_i[x] * k_j[x], size += std::abs(q_i[x] * k_j[x]);
        const double any_order = kScale * size * (kD + 4) * kEps;
        const bool masked = hide[(b * n.sq + i) * n.skv + j] != 0;
        fixed[j] = masked && replaces;
        auto rounded = [&](double x) {
          return !masked    ? static_cast<double>(static_cast<float>(x))
                 : replaces ? static_cast<double>(static_cast<float>(mask))
                            : static_cast<double>(static_cast<float>(x) + static_cast<float>(mask));
        };
        s[j] = rounded(dot * kScale);
        flip[j] = std::max(rounded(dot * kScale + any_order) - s[j], s[j] - rounded(dot * kScale - any_order));
        flips = std::max(flips, flip[j]);
        top = std::max(top, s[j]);
        dp[j] = dp_size[j] = 0;
        for (int64_t x = 0; x < kDv; ++x) dp[j] += g_i[x] * v_j[x], dp_size[j] += std::abs(g_i[x] * v_j[x]);
      }
      for (int64_t j = 0; j < n.skv; ++j) total += p[j] = std::exp(s[j] - top);
      // An exponent has a rounding of the difference, one of the factor, and of the stored logarithm of the sum.
      const double common = std::expm1(2 * flips) + (2 * keys + 40 + 4 * std::log(keys)) * kEps;
      double* out = &value[0][row * kDv];
      double* out_bound = &bound[0][row * kDv];
      for (int64_t j = 0; j < n.skv; ++j) {
        p[j] /= total;
        off[j] = p[j] * (common + 6 * kEps * std::min(top - s[j], 200.0)) + 0x1p-125;
        for (int64_t x = 0; x < kDv; ++x) {
          const double v_x = v[(head * n.skv + j) * kDv + x];
          out[x] += p[j] * v_x;
          out_bound[x] += (off[j] + narrow * p[j]) * std::abs(v_x);
        }
      }
      for (int64_t x = 0; x < kDv; ++x) {
        out_bound[x] += u * std::abs(out[x]) + (t == kFloat16 ? 0x1p-25 : 0);
        delta += out[x] * g_i[x];
        delta_off += out_bound[x] * std::abs(g_i[x]) + (kDv + 2) * kEps * std::abs(out[x] * g_i[x]);
      }
      for (int64_t j = 0; j < n.skv; ++j) {
        const int64_t at = head * n.skv + j;
        const double ds = p[j] * (dp[j] - delta);
        const double ds_off = off[j] * (std::abs(dp[j]) + std::abs(delta)) +
                              (p[j] + off[j]) * ((kDv + 2) * kEps * dp_size[j] + delta_off) +
                              (narrow + (keys + 40) * kEps) * std::abs(ds);
        for (int64_t x = 0; x < kD && !fixed[j]; ++x) {
          const double by_q = kScale * k[at * kD + x], by_k = kScale * q_i[x];
          value[1][row * kD + x] += ds * by_q, bound[1][row * kD + x] += ds_off * std::abs(by_q);
          value[2][at * kD + x] += ds * by_k, bound[2][at * kD + x] += ds_off * std::abs(by_k);
        }
        for (int64_t x = 0; x < kDv; ++x) {
          value[3][at * kDv + x] += p[j] * g_i[x];
          bound[3][at * kDv + x] += (off[j] + (narrow + (keys + 40) * kEps) * p[j]) * std::abs(g_i[x]);
        }
      }
    }
    for (int r = 1; r < 4; ++r)
      for (size_t i = 0; i < value[r].size(); ++i)
        bound[r][i] += u * std::abs(value[r][i]) + (t == kFloat16 ? 0x1p-25 : 0);
  }
};

/// Bounds that a flip of a huge score makes infinite leave the result free, but not NaN.
void expect_within(const std::vector<Tensor>& got, const Want& want) {
  const char* const names[] = {"out", "dq", "dk", "dv"};
  for (int r = 0; r < 4; ++r) {
    const Reals x = reals(got[static_cast<size_t>(r)]);
    ASSERT_EQ(x.size(), want.value[r].size());
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_TRUE(std::isfinite(x[i]) && std::abs(x[i] - want.value[r][i]) <= want.bound[r][i])
          << names[r] << " " << i << ": " << x[i] << ", want " << want.value[r][i] << " within " << want.bound[r][i];
  }
}

using AttentionOf = Tensor (*)(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask);

Tensor by_mod(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask) {
  const Tensor table = reshape(mask, {kB, mask.size(2), mask.size(3)});
  return flex_attention(q, k, v, {.score_mod = [=](const Score& s) { return s.value + table[s.b][s.q][s.kv]; }});
}
Tensor by_mask(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask) {
  return scaled_dot_product_attention(q, k, v, {.attn_mask = mask});
}
Tensor by_where(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask) {
  return matmul(softmax(where(lt(mask, 0), mask.to(q.dtype()), matmul(q, transpose(k, -1, -2)) * kScale), -1), v);
}

void sweep(AttentionOf attention, bool replaces, std::initializer_list<DType> types) {
  Random random(5);
  for (DType t : types)
    for (const Lengths& n : kLengths) {
      const Operands o(n, t, random);
      // Only attention is tested: the mask has no gradient.
      auto step = [&](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& dout, const Tensor& mask) {
        const std::vector<Tensor> wrt{q.requires_grad(), k.requires_grad(), v.requires_grad()};
        std::vector<Tensor> r{attention(wrt[0], wrt[1], wrt[2], mask)};
        for (const Tensor& g : grad(r[0], wrt, {.grad_output = dout})) r.push_back(g);
        return r;
      };
      auto compiled = compile(step, {.verify = true});
      for (double mask : kMasks) {
        SCOPED_TRACE(str_cat(t, " sq ", n.sq, " skv ", n.skv, " mask ", mask));
        // The replacement is a number of the scores' dtype, in which a row of infinite ones has no softmax.
        if (replaces && !std::isfinite(full({}, mask).to(t).item<float>())) continue;
        const Want want(o, n, mask, replaces);
        // Written-out scores of 16 bits are rounded eagerly: written_attention_test.
        if (!replaces || t == kFloat32) expect_within(step(o.q, o.k, o.v, o.dout, o.hidden * mask), want);
        expect_within(compiled(o.q, o.k, o.v, o.dout, o.hidden * mask), want);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
}

TEST(HugeScores, OfAMod) { sweep(by_mod, false, {kFloat32, kBFloat16, kFloat16}); }
TEST(HugeScores, OfAnAddedMask) { sweep(by_mask, false, {kFloat32, kBFloat16, kFloat16}); }
// Softmax with the whole scores in memory, which a pass turns into attention.
TEST(HugeScores, OfAReplacement) { sweep(by_where, true, {kFloat32, kBFloat16, kFloat16}); }

// Equal scores without a mod, far from 0 before and after a scale that is no power of two.
TEST(HugeScores, OfTheProduct) {
  for (double size : {0x1p20, 0x1p35, 0x1p50}) {  // no order of the sum rounds it
    const Tensor q = full({1, 1, 2, 6}, -size), k = full({1, 1, 5, 6}, size), v = reshape(arange(5.0), {1, 1, 5, 1});
    const AttentionResult r = flex_attention_aux(q, k, v);
    EXPECT_EQ(r.out.to_vector<float>(), (std::vector<float>{2, 2}));
    const Tensor own = v.requires_grad();
    const Tensor dv = grad(sum(flex_attention(q, k, own)), {own})[0];
    for (float x : dv.to_vector<float>()) EXPECT_NEAR(x, 0.4, 8 * kEps);
  }
  // Here forward and backward may differ by one ulp of a score, which is more than any exponent.
  for (double size : {1e5, 1e10, 1e15}) {
    const Tensor q = full({1, 1, 2, 6}, -size), k = full({1, 1, 5, 6}, size), v = ones({1, 1, 5, 1}).requires_grad();
    for (float x : grad(sum(flex_attention(q, k, v)), {v})[0].to_vector<float>())
      EXPECT_TRUE(x >= 0 && x <= 0.4f * (1 + 8 * kEps)) << x;
  }
}

// `verify` compares such rows with attention's primitives.
TEST(HugeScores, AreVerified) {
  Random random(7);
  for (DType t : {kFloat32, kBFloat16})
    for (double mask : {-1e4, -1e30}) {
      const Operands o({3, 40}, t, random);
      const Tensor table = o.hidden * mask;
      const internal::AttentionCall call = internal::attention_call(
          o.q, o.k, o.v, {.score_mod = [=](const Score& s) { return s.value + table[s.b][0][s.q][s.kv]; }});
      const std::vector<Tensor> right = dispatch_multi(attention_op, internal::pointers(call.operands), call.attrs);
      Node node;
      node.op = &attention_op, node.attrs = call.attrs;
      std::vector<StridedView> in, out;
      for (const Tensor& x : call.operands) in.push_back(x.view_for_kernel());
      for (const Tensor& x : right) out.push_back(x.view_for_kernel()), node.outputs.push_back(x.type());
      Target& cpu = internal::cpu_target();
      const auto operation = cpu.prepare(Device::cpu(), attention_op, call.attrs, in, out, 64, {});
      const auto passes = [&](const std::vector<Tensor>& got) {
        const auto check = internal::make_launch_check(cpu, {});
        EXPECT_TRUE(check->wants(*operation, node, false));
        return testing::error_of([&] { check->compare(*operation, node, false, call.operands, got); }).empty();
      };
      EXPECT_TRUE(passes(right));
      // Wrong values of an element of a masked row: sums of probabilities that are all infinite or all 0, and an error.
      for (double wrong : {std::nan(""), 0., 1.25}) {
        std::vector<double> values = right[0].to(kFloat64).to_vector<double>();
        values[0] = wrong == 1.25 ? values[0] * wrong : wrong;
        EXPECT_FALSE(passes({Tensor::from_vector<double>(values, right[0].shape()).to(t), right[1], right[2]}))
            << wrong;
      }
      EXPECT_FALSE(passes({right[0], right[1] + 0.1, right[2]}));
    }
}

}  // namespace
}  // namespace weft
