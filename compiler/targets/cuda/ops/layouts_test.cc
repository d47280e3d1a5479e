// More than the records' samples: views, odd and larger sizes, results in place, indices out of range, 8-bit floats.
#include <gtest/gtest.h>

#include <cmath>

#include "compiler/targets/cuda/ops/ops.h"
#include "compiler/targets/cuda/ops/testing/run_op.h"
#include "framework/dispatch/dispatch.h"
#include "ops/all_ops.h"
#include "ops/core/core.h"
#include "ops/core/indexing/moe.h"
#include "ops/core/products/exact.h"

namespace weft::cuda {
namespace {

Tensor integers(const Shape& shape, int64_t below, uint64_t seed, DType t = kInt64) {
  manual_seed(seed);
  return randint(0, below, shape, {.dtype = t});
}
Tensor values(const Shape& shape, uint64_t seed, DType t = kFloat32) {
  manual_seed(seed);
  return randn(shape).to(t);
}

// Runs calls of one op in the emulation and with the CPU's kernel.
void expect_equal(const OpDef& op, const std::vector<std::pair<Attrs, std::vector<Tensor>>>& calls,
                  int alignment = 16) {
  OpRunner runner;
  std::vector<testing::Case> cases;
  for (const auto& [attrs, in] : calls) {
    testing::Case c;
    c.op = &op;
    c.attrs = attrs;
    c.in = in;
    ASSERT_TRUE(runner.prepare(c, alignment)) << op.name << ", call " << cases.size();
    cases.push_back(std::move(c));
  }
  for (size_t i = 0; i < cases.size(); ++i) {
    const std::vector<Tensor> want = testing::run(cases[i], cases[i].in);
    const OpRunner::Result got = runner.run(i, cases[i].in);
    EXPECT_FALSE(got.bad) << op.name << ", call " << i;
    for (size_t k = 0; k < want.size(); ++k)
      EXPECT_EQ(first_difference(got.out[k], want[k]), "") << op.name << ", call " << i << ", result " << k;
  }
}

Attrs along(int64_t dim) { return {{"dim", dim}}; }

TEST(CudaOpLayouts, Views) {
  const Tensor x = values({6, 8, 10}, 1), y = transpose(values({10, 8, 6}, 2), 0, 2), z = slice(x, 2, 1, 9, 2);
  expect_equal(contiguous_op, {{{}, {y}},
                               {{}, {z}},
                               {{}, {broadcast_to(values({8, 1}, 3), {6, 8, 10})}},
                               {{}, {transpose(values({64, 48}, 4, kBFloat16), 0, 1)}},
                               {{}, {transpose(values({2, 37, 3, 70}, 5), 1, 3)}}});
  expect_equal(concat_op, {{along(1), {x, y}}, {along(0), {x, y, x}}, {along(2), {slice(x, 2, 0, 8), x, z}}});
  const Attrs pads{{"lo", Shape{0, 4, 0}}, {"hi", Shape{1, 2, 0}}, {"value", 0.0}};
  const Attrs filled{{"lo", Shape{1, 0, 2}}, {"hi", Shape{0, 0, 1}}, {"value", -1.5}};
  const Attrs spread{{"lo", Shape{1, 0, 4}}, {"hi", Shape{0, 0, 2}}, {"interior", Shape{0, 2, 1}}, {"value", 0.0}};
  const Attrs columns{{"lo", Shape{0, 0, 4}}, {"hi", Shape{0, 0, 2}}, {"value", 0.0}};
  expect_equal(pad_op, {{pads, {x}},
                        {filled, {x}},
                        {spread, {x}},
                        {pads, {y}},
                        {columns, {slice(x, 2, 0, 8)}},
                        {columns, {values({6, 8, 8}, 5, kBFloat16)}}});
  const Attrs two{{"dims", Shape{0, 2}}};
  expect_equal(reduce_sum_op, {{two, {x}},
                               {two, {y}},
                               {two, {values({70, 2, 33}, 6)}},
                               {two, {values({70, 2, 333}, 7, kBFloat16)}},
                               {two, {values({90, 1, 333}, 7)}}});
  expect_equal(argmax_op, {{along(0), {x}},
                           {along(1), {y}},
                           {along(2), {z}},
                           {along(0), {values({3000}, 8)}},
                           {along(1), {integers({3, 9000}, 50, 9)}},
                           {along(0), {values({9000, 2}, 8)}}});
  for (bool reverse : {false, true}) {
    auto scan = [&](int64_t d) { return Attrs{{"dim", d}, {"reverse", reverse}}; };
    expect_equal(cumsum_op, {{scan(0), {values({70, 50}, 1)}},
                             {scan(1), {values({3, 2500}, 2)}},
                             {scan(1), {transpose(values({70, 50}, 3), 0, 1)}},
                             {scan(0), {integers({2500}, 9, 4)}},
                             {scan(1), {values({3, 100}, 5, kBFloat16)}},
                             {scan(1), {values({2, 9000}, 6)}},
                             {scan(0), {values({300, 40}, 7, kFloat64)}},
                             {scan(0), {integers({9000, 2}, 9, 8, kInt32)}}});
  }
}

TEST(CudaOpLayouts, Order) {
  for (bool down : {false, true}) {
    auto sort = [&](int64_t d) { return Attrs{{"dim", d}, {"descending", down}}; };
    auto topk = [&](int64_t d, int64_t k) { return Attrs{{"dim", d}, {"k", k}, {"largest", down}}; };
    const Tensor few = integers({9000}, 7, 1, kInt32), rows = values({3, 2500}, 2),
                 wide = integers({2, 2500}, 1 << 30, 3);
    Tensor special = values({700}, 5);
    float* p = static_cast<float*>(special.view_for_kernel().data);
    p[3] = p[400] = NAN;
    p[9] = -0.0f;
    p[10] = 0.0f;
    p[11] = -INFINITY;
    expect_equal(sort_op, {{sort(0), {few}},
                           {sort(1), {rows}},
                           {sort(0), {transpose(rows, 0, 1)}},
                           {sort(1), {wide}},
                           {sort(0), {special}},
                           {sort(0), {values({65}, 3, kFloat64)}}});
    expect_equal(topk_op, {{topk(1, 8), {values({37, 64}, 1)}},
                           {topk(1, 2), {values({9, 257}, 2, kBFloat16)}},
                           {topk(0, 50), {few}},
                           {topk(1, 2200), {rows}},
                           {topk(1, 3), {rows}},
                           {topk(0, 1), {transpose(values({5, 300}, 7), 0, 1)}},
                           {topk(1, 5), {wide}}});
  }
}

TEST(CudaOpLayouts, SumsAtIndices) {
  for (DType t : {kFloat32, kBFloat16, kInt64}) {
    auto some = [&](const Shape& s, uint64_t seed) {
      return t == kInt64 ? integers(s, 1000, seed) : values(s, seed, t);
    };
    const Tensor ids = integers({700}, 19, 1), often = integers({3000}, 3, 2, kInt32);
    // Runs of 31 to 33, one run of everything, and one that starts at a multiple of 32.
    std::vector<int64_t> runs;
    for (int64_t target : {0, 2, 3, 5})
      runs.insert(runs.end(), target == 0 ? 32 : target == 2 ? 33 : target == 3 ? 31 : 100, target);
    const Tensor edges = Tensor::from_vector(runs, {static_cast<int64_t>(runs.size())});
    expect_equal(index_add_op, {{{}, {some({19, 24}, 3), ids, some({700, 24}, 4)}},
                                {{}, {some({19, 5}, 3), ids, some({700, 5}, 4)}},
                                {{}, {some({3}, 5), often, some({3000}, 6)}},
                                {{}, {some({19, 3, 8}, 3), ids, transpose(some({700, 8, 3}, 4), 1, 2)}},
                                {{}, {some({6, 80}, 3), edges, some({196, 80}, 4)}},
                                {{}, {some({6, 7}, 3), edges, some({196, 7}, 4)}},
                                {{}, {some({2, 36}, 3), integers({700}, 1, 1), some({700, 36}, 4)}}});
    expect_equal(scatter_add_op, {{along(1), {some({5, 30}, 1), integers({5, 40}, 30, 2), some({5, 40}, 3)}},
                                  {along(0), {some({30, 5}, 1), integers({40, 4}, 30, 2), some({40, 4}, 3)}},
                                  {along(1), {some({3, 30}, 1), integers({3, 700}, 30, 2), some({3, 700}, 3)}},
                                  {along(0), {some({7}, 1), integers({2600}, 7, 2), some({2600}, 3)}},
                                  {along(0), {some({7}, 1), edges, some({196}, 3)}},
                                  {along(0), {some({70, 3}, 1), integers({100, 3}, 70, 2), some({100, 3}, 3)}}});
    expect_equal(index_copy_op, {{{}, {some({19, 24}, 3), ids, some({700, 24}, 4)}},
                                 {{}, {some({19, 5}, 3), slice(ids, 0, 0, 60, 3), some({20, 5}, 4)}}});
  }
  const Tensor ids = integers({700}, 19, 1);
  expect_equal(exact_index_add_op, {{{{"rows", int64_t{19}}}, {ids, values({700, 9}, 2)}},
                                    {{{"rows", int64_t{2}}}, {integers({17000}, 2, 2), values({17000}, 3)}}});
  expect_equal(exact_sum_op, {{{{"dims", Shape{0}}}, {values({40000, 2}, 1)}},
                              {{{"dims", Shape{0}}}, {values({70000}, 2, kFloat64)}}});
}

// The last of the values for a position stays.
TEST(CudaOpLayouts, RepeatedPositions) {
  std::vector<int64_t> at{0, 0, 2};
  for (int i = 0; i < 997; ++i) at.push_back(2);
  for (DType t : {kFloat32, kBFloat16, kInt64}) {
    testing::Case c;
    c.op = &index_copy_op;
    c.in = {zeros({3, 2}, {.dtype = t}), Tensor::from_vector(at, {1000}),
            reshape(remainder(arange(2000, {.dtype = kInt64}), 251), {1000, 2}).to(t)};
    OpRunner runner;
    ASSERT_TRUE(runner.prepare(c));
    EXPECT_EQ(runner.run(0, c.in).out.at(0).to(kInt64).to_vector<int64_t>(),
              (std::vector<int64_t>{2, 3, 0, 0, 1998 % 251, 1999 % 251}))
        << t;
  }
}

TEST(CudaOpLayouts, Experts) {
  for (int64_t experts : {1, 8, 300}) {
    const ExpertOrder o = expert_order(integers({1100, 2}, experts, 3), experts);
    expect_equal(expert_order_op, {{{{"num_experts", experts}}, {integers({1100, 2}, experts, 3)}}});
    if (experts == 8) {
      const Attrs k{{"k", int64_t{2}}};
      for (DType t : {kFloat32, kBFloat16}) {
        const Tensor x = values({1100, 16}, 4, t), y = values({2200, 16}, 5, t), w = values({1100, 2}, 6);
        expect_equal(dispatch_rows_op, {{k, {x, o.slots, o.tokens, o.rows}}, {k, {x, o.slots, o.tokens, o.rows, w}}});
        expect_equal(combine_rows_op, {{k, {y, o.slots, o.tokens, o.rows}}, {k, {y, o.slots, o.tokens, o.rows, w}}});
        expect_equal(row_dots_op, {{k, {y, x, o.slots, o.tokens, o.rows}}});
      }
    }
  }
  const ExpertOrder o = expert_order(integers({4, 1}, 3, 3), 3);
  expect_equal(row_dots_op,
               {{{{"k", int64_t{1}}}, {values({4, 5000}, 1), values({4, 5000}, 2), o.slots, o.tokens, o.rows}}});
}

TEST(CudaOpLayouts, EightBitFloats) {
  for (DType t : {kFloat8E4M3, kFloat8E5M2}) {
    Tensor every = Tensor::empty({t, Device(), Shape{256}});
    for (int i = 0; i < 256; ++i) static_cast<uint8_t*>(every.view_for_kernel().data)[i] = static_cast<uint8_t>(i);
    std::vector<std::pair<Attrs, std::vector<Tensor>>> calls;
    calls.push_back({{{"dtype", kFloat32}}, {every}});
    calls.push_back({{{"dtype", kBFloat16}}, {every}});
    std::vector<float> reals = {0.0f, -0.0f, 1e-9f, 448, 449, 464, 480, 57344, 61439, 61440, 1e30f, INFINITY, NAN};
    manual_seed(1);
    for (float v : (randn({2000}) * 8.0).to_vector<float>()) reals.push_back(std::exp2(v) * (v > 3 ? -1.0f : 1.0f));
    const Tensor x = Tensor::from_vector(reals, {static_cast<int64_t>(reals.size())});
    calls.push_back({{{"dtype", t}}, {x}});
    calls.push_back({{{"dtype", t}}, {x.to(kFloat64)}});
    expect_equal(cast_op, calls);
  }
}

// Addresses that are aligned only to an element.
TEST(CudaOpLayouts, Unaligned) {
  const Tensor x = values({9, 16}, 1), ids = integers({30}, 9, 2), src = values({30, 16}, 3);
  expect_equal(index_add_op, {{{}, {x, ids, src}}}, 4);
  expect_equal(concat_op, {{along(0), {x, x}}}, 4);
  expect_equal(pad_op, {{{{"lo", Shape{1, 4}}, {"hi", Shape{0, 4}}, {"value", 0.0}}, {x}}}, 4);
  const Tensor word = Tensor::from_vector(std::vector<int64_t>{7}, {});
  expect_equal(random_bits_op, {{{{"shape", Shape{9, 5}}, {"op_id", int64_t{3}}}, {word, word}}}, 4);
  const ExpertOrder o = expert_order(integers({9, 2}, 3, 3), 3);
  const Attrs k{{"k", int64_t{2}}};
  expect_equal(dispatch_rows_op, {{k, {x, o.slots, o.tokens, o.rows}}}, 4);
}

TEST(CudaOpLayouts, InPlace) {
  const Tensor x = values({19, 24}, 1), ids = integers({70}, 19, 2), src = values({70, 24}, 3);
  testing::Case c;
  c.op = &index_add_op;
  c.in = {x, ids, src};
  OpRunner runner;
  ASSERT_TRUE(runner.prepare(c));
  const Tensor want = testing::run(c, c.in)[0];
  EXPECT_EQ(first_difference(runner.run(0, {add(x, 0.0), ids, src}, true).out[0], want), "");
}

TEST(CudaOpLayouts, WhatIsOutOfRangeIsTold) {
  const Tensor x = values({5, 4}, 1), wrong = Tensor::from_vector(std::vector<int64_t>{0, 5}, {2});
  const Tensor far = Tensor::from_vector(std::vector<int64_t>{4}, {}),
               zero = Tensor::from_vector(std::vector<int64_t>{0}, {});
  const Tensor divisor = Tensor::from_vector(std::vector<int32_t>{0, 5}, {2});
  const std::vector<testing::Case> cases = {
      {&index_add_op, {}, {x, wrong, values({2, 4}, 2)}},
      {&index_copy_op, {}, {x, wrong, values({2, 4}, 2)}},
      {&scatter_add_op, along(0), {values({5}, 1), wrong, values({2}, 2)}},
      {&gather_op, along(0), {values({5}, 1), wrong}},
      {&index_select_op, along(0), {x, wrong}},
      {&index_select_op, along(0), {values({0, 4}, 1), wrong}},
      {&dynamic_slice_op, {{"sizes", Shape{2, 4}}}, {x, far, zero}},
      {&dynamic_update_slice_op, {}, {x, values({2, 4}, 3), far, zero}},
      {&expert_order_op, {{"num_experts", int64_t{5}}}, {unsqueeze(wrong, 1)}},
      {&exact_index_add_op, {{"rows", int64_t{5}}}, {wrong, values({2}, 2)}},
      {op_table().find("remainder"), {}, {divisor, divisor}},
  };
  OpRunner runner;
  for (const testing::Case& c : cases) ASSERT_TRUE(runner.prepare(c)) << c.op->name;
  for (size_t i = 0; i < cases.size(); ++i) EXPECT_TRUE(runner.run(i, cases[i].in).bad) << cases[i].op->name;
}

}  // namespace
}  // namespace weft::cuda
