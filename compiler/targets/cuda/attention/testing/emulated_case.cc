#include "compiler/targets/cuda/attention/testing/emulated_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "compiler/targets/cuda/testing/emulate/emulate.h"
#include "compiler/targets/cuda/testing/emulate/tensor_map.h"
#include "framework/dispatch/dispatch.h"
#include "ops/attention/record.h"
#include "ops/core/core.h"

namespace weft::cuda {
namespace {

using testing::Dice;
using testing::expect_within;
using Operand = testing::RandomOperand;

bool same_bits(const Tensor& a, const Tensor& b) {
  const StridedView x = a.contiguous().view_for_kernel(), y = b.contiguous().view_for_kernel();
  return x.shape == y.shape && std::memcmp(x.data, y.data, static_cast<size_t>(x.nbytes())) == 0;
}

template <class Named>
const Named& named(std::span<const Named> all, const char* name) {
  for (const Named& n : all)
    if (std::string(n.name) == name) return n;
  throw std::invalid_argument(name);
}

bool dirty_key(const testing::AttentionSizes& s, int64_t kv) { return kv > s.skv / 2 && kv % 16 == 5; }

/// v with infinity and NaN at the dirty keys.
Tensor dirty(const testing::AttentionSizes& s, const Operand& v) {
  constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> x = v.values;
  for (size_t i = 0; i < x.size(); ++i)
    if (const size_t row = i / static_cast<size_t>(s.dv); dirty_key(s, static_cast<int64_t>(row) % s.skv))
      x[i] = i % 3 == 0 ? kInf : i % 3 == 1 ? -kInf : kNan;
  return Tensor::from_vector<double>(x, v.tensor.shape()).to(v.tensor.dtype());
}

/// Rows that see a dirty key may hold anything. All other rows must equal a run without dirty keys.
void expect_clean(const EmulatedCase& c, const testing::MadeMask& mask, const Tensor& out, testing::Bounded want) {
  const testing::AttentionSizes& s = c.sizes;
  std::vector<double> got = out.to(kFloat64).contiguous().to_vector<double>();
  int64_t clean = 0;
  for (int64_t row = 0; row < s.b * s.hq * s.sq; ++row) {
    bool sees = false;
    for (int64_t kv = 0; kv < s.skv; ++kv)
      sees |= dirty_key(s, kv) && mask.seen(row / s.sq / s.hq, row / s.sq % s.hq, row % s.sq, kv);
    clean += !sees;
    for (int64_t i = row * s.dv; sees && i < (row + 1) * s.dv; ++i) {
      EXPECT_FALSE(std::isfinite(got[i])) << "out[" << i << "]";
      got[i] = want.value[i];
    }
  }
  EXPECT_GT(clean, 0);
  EXPECT_LT(clean, s.b * s.hq * s.sq);
  expect_within("out", Tensor::from_vector<double>(got, out.shape()), want);
}

}  // namespace

std::vector<Tensor> run_emulated(const Attrs& attrs, const std::vector<Tensor>& in, bool backward,
                                 const AttentionKernelOptions& options, uint64_t seed) {
  const OpDef& op = backward ? attention_backward_op : attention_op;
  std::vector<TensorType> types;
  std::vector<StridedView> in_views, out_views;
  std::vector<Tensor> held, out;
  for (const Tensor& t : in) {
    // The first three keep their layouts.
    held.push_back(held.size() < 3 ? t : t.contiguous());
    types.push_back(held.back().type());
    in_views.push_back(held.back().view_for_kernel());
  }
  for (const TensorType& t : op.infer({op, attrs, types})) {
    out.push_back(Tensor::empty(t));
    out_views.push_back(out.back().view_for_kernel());
    std::memset(out_views.back().data, 0x7f, static_cast<size_t>(t.nbytes()));  // makes unwritten elements visible
  }
  const AttentionProgram program(attrs, in_views, out_views, backward, options);
  std::vector<char> memory(static_cast<size_t>(program.workspace(in_views)) + 256, 0x7f);
  void* workspace = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(memory.data()) + 255) / 256 * 256);
  if (options.maps) {
    EXPECT_TRUE(std::any_of(program.kernels().begin(), program.kernels().end(),
                            [](const Kernel& k) { return k.symbol.find("hopper") != std::string::npos; }));
  }
  Emulated emulated(program.kernels(), {.seed = seed});
  struct alignas(64) Parameters {
    std::byte bytes[kAttentionMapsAt + kMostAttentionMaps * 128];
  } parameters;
  for (const AttentionLaunch& l : program.launches(in_views, out_views, workspace)) {
    std::memcpy(parameters.bytes, &l.params, sizeof l.params);
    for (size_t i = 0; i < l.maps.size(); ++i)
      encode_tensor_map(parameters.bytes + kAttentionMapsAt + 128 * i, 2, l.maps[i].base, l.maps[i].extents,
                        l.maps[i].strides, l.maps[i].box, 128);
    const size_t bytes = l.maps.empty() ? sizeof l.params : kAttentionMapsAt + 128 * l.maps.size();
    emulated.launch(program.kernels()[static_cast<size_t>(l.kernel)].symbol, l.grid,
                    std::span<const std::byte>(parameters.bytes, bytes));
  }
  return out;
}

void check_emulated(const EmulatedCase& c) {
  const testing::AttentionSizes& s = c.sizes;
  SCOPED_TRACE(str_cat("mask '", c.mask, "', score '", c.score, "', ", c.type, ", b ", s.b, " kv_b ", s.kv_b, " hq ",
                       s.hq, " hkv ", s.hkv, " sq ", s.sq, " skv ", s.skv, " d ", s.d, " dv ", s.dv, " blocks ",
                       c.blocks[0]));
  Dice dice(c.seed);
  const testing::MadeMask mask = named(testing::conformance_masks(), c.mask).make(s, dice);
  const testing::MadeScore score = named(testing::conformance_scores(), c.score).make(s, dice);
  const Operand q(c.type, {s.b, s.hq, s.sq, s.d}, dice), k(c.type, {s.kv_b, s.hkv, s.skv, s.d}, dice),
      v(c.type, {s.kv_b, s.hkv, s.skv, s.dv}, dice), w(c.type, {s.b, s.hq, s.sq, s.dv}, dice),
      u(kFloat32, {s.b, s.hq, s.sq}, dice);
  FlexAttentionOptions o{.enable_gqa = s.hq != s.hkv};
  if (score.mod) o.score_mod = score.mod(score.tables);
  if (mask.mod && c.blocks[0]) {
    o.block_mask = create_block_mask(mask.mod, s.b, s.hq, s.sq, s.skv, {.block_size = c.blocks});
  } else {
    o.mask_mod = mask.mod;
  }
  const Tensor values = c.dirty_values ? dirty(s, v) : v.tensor;
  const weft::internal::AttentionCall call = weft::internal::attention_call(q.tensor, k.tensor, values, o);
  std::vector<DType> types;
  for (const Tensor& t : score.tables) types.push_back(t.dtype());
  const testing::DenseAttention want(s, c.type, 1 / std::sqrt(static_cast<double>(s.d)),
                                     {q.values, k.values, v.values, w.values, u.values}, mask, score, types,
                                     c.options.tf32 ? testing::Products::kTf32 : testing::Products::kTensorCores);
  std::vector<Tensor> got;
  try {
    got = run_emulated(call.attrs, call.operands, false, c.options);
    const std::vector<Tensor> again = run_emulated(call.attrs, call.operands, false, c.options, 2);
    for (size_t i = 0; i < got.size(); ++i) ASSERT_TRUE(same_bits(got[i], again[i])) << "result " << i;
  } catch (const Error& e) {
    FAIL() << e.what();
  }
  c.dirty_values ? expect_clean(c, mask, got[0], want.out) : expect_within("out", got[0], want.out);
  const Tensor max = got[2] * weft::internal::softmax_scale(call.attrs);
  expect_within("lse", got[1] + max, want.lse);
  expect_within("max", max, want.max);
  if (!c.backward || ::testing::Test::HasFatalFailure()) return;

  std::vector<Tensor> operands = call.operands;
  for (const Tensor& t : {got[0], got[1], got[2], w.tensor, u.tensor}) operands.push_back(t);
  Attrs attrs = c.wide ? call.attrs.with("wide", true) : call.attrs;
  if (c.fixed_tables) attrs = attrs.with("fixed_tables", c.fixed_tables);
  std::vector<Tensor> back;
  try {
    back = run_emulated(attrs, operands, true, c.options);
    const std::vector<Tensor> again = run_emulated(attrs, operands, true, c.options, 2);
    for (size_t i = 0; i < back.size(); ++i) ASSERT_TRUE(same_bits(back[i], again[i])) << "gradient " << i;
  } catch (const Error& e) {
    FAIL() << e.what();
  }
  expect_within("dq", back[0], want.dq);
  expect_within("dk", back[1], want.dk);
  expect_within("dv", back[2], want.dv);
  // Captured tensors are in the order in which the mod reads them.
  const weft::internal::AttentionOperands at(attrs);
  size_t next = 3;
  for (int i = 0; i < at.score_tables; ++i) {
    const Tensor& operand = call.operands[static_cast<size_t>(at.score_first + i)];
    if (!at.learned(i, operand.dtype())) continue;
    const Tensor& g = back[next++];
    for (size_t t = 0; t < score.tables.size(); ++t)
      if (score.tables[t].view_for_kernel().data == operand.view_for_kernel().data)
        expect_within(str_cat("table ", t).c_str(), g, want.tables[t]);
  }
}

}  // namespace weft::cuda
