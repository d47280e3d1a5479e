// accumulate(): the parts of a batch against the whole batch, eager and compiled.
#include "ops/composite/math/accumulate.h"

#include <gtest/gtest.h>

#include "compiler/exec/testing/test_programs.h"
#include "framework/testing/compare.h"
#include "weft.h"

namespace weft {
namespace {

using Rows = std::function<Tensor(const Tensor&)>;

// The results of `rows` for each row of x, computed in n parts: each part adds its rows at their positions.
Tensor in_parts(int64_t n, const Tensor& x, const Rows& rows) {
  const int64_t batch = x.size(0);
  const Tensor at = arange(batch, {.dtype = kInt64});
  return accumulate(n, std::pair{x, at}, [&](const Tensor& part, const Tensor& index) {
    const Tensor y = rows(part);
    Shape whole = y.shape();
    whole[0] = batch;
    return index_add(zeros(whole, {.dtype = y.dtype()}), 0, index, y);
  });
}

// `rows` gives the same bits in n parts as for the whole batch, eager and compiled.
void expect_the_rows_of_the_batch(const char* what, const Tensor& x, const Rows& rows) {
  SCOPED_TRACE(what);
  manual_seed(5);
  const Tensor whole = compile([&](const Tensor& t) { return in_parts(1, t, rows); })(x);
  for (int64_t n : {2, 3, 6})
    for (bool enabled : {false, true}) {
      SCOPED_TRACE(str_cat(n, enabled ? " parts, compiled" : " parts, eager"));
      manual_seed(5);
      const Tensor parts =
          compile([&](const Tensor& t) { return in_parts(n, t, rows); }, CompileOptions{.enabled = enabled})(x);
      EXPECT_TRUE(testing::same_bits(parts + 0.0, whole + 0.0)) << parts << whole;  // sums of rows have no -0.0
    }
}

TEST(Accumulate, SumsThePartsInOrder) {
  const Tensor x = rand({12, 5}), w = rand({5, 3});
  const auto fn = [&](const Tensor& part) { return sum(tanh(matmul(part, w)), 0); };
  for (int64_t n : {1, 2, 3, 4, 6, 12}) {
    Tensor want;
    for (int64_t i = 0; i < n; ++i) {
      const Tensor y = fn(x.slice(0, i * 12 / n, (i + 1) * 12 / n));
      want = i ? want + y : y;
    }
    EXPECT_TRUE(testing::same_bits(accumulate(n, x, fn), want));
    auto step = compile([&](const Tensor& t) { return accumulate(n, t, fn); });
    EXPECT_TRUE(testing::same_bits(step(x), want));
  }
}

TEST(Accumulate, GradientsOfThePartsAreThoseOfTheBatch) {
  manual_seed(1);
  const Tensor x = randn({8, 6}, {.dtype = kFloat64}), y = randn({8, 2}, {.dtype = kFloat64});
  const Tensor a = randn({6, 7}, {.dtype = kFloat64}).requires_grad(),
               b = randn({7, 2}, {.dtype = kFloat64}).requires_grad();
  const auto run = [&](int64_t n, bool enabled) {
    manual_seed(2);
    const auto step = compile(
        [&](const Tensor& inputs, const Tensor& targets) {
          auto [loss, grads] = accumulate(n, std::pair{inputs, targets}, [&](const Tensor& in, const Tensor& out) {
            const Tensor hidden = dropout(tanh(matmul(in, a)), 0.3);
            const Tensor l = sum(square(matmul(hidden, b) - out)) / 16.0;
            return std::pair{l.detach(), std::vector<Tensor>(grad(l, {a, b}))};
          });
          grads.push_back(loss);
          return grads;
        },
        CompileOptions{.enabled = enabled});
    return step(x, y);
  };
  const std::vector<Tensor> want = run(1, true);
  for (int64_t n : {2, 4, 8})
    for (bool enabled : {false, true}) {
      const std::vector<Tensor> got = run(n, enabled);
      // Sums of at most 64 terms of size 10 in another order.
      for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(allclose(got[i], want[i], 0, 64 * 10 * 0x1p-52));
    }
}

TEST(Accumulate, IsDifferentiable) {
  manual_seed(1);
  const Tensor x = randn({8, 6}, {.dtype = kFloat64}).requires_grad(),
               w = randn({6, 7}, {.dtype = kFloat64}).requires_grad();
  const auto gradients = [&](int64_t n) {
    const Tensor y = accumulate(n, x, [&](const Tensor& part) { return sum(square(tanh(matmul(part, w))), 0); });
    return grad(sum(y * y), {x, w});
  };
  const Gradients want = gradients(1);
  for (int64_t n : {2, 8}) {
    const Gradients got = gradients(n);
    for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(allclose(got[i], want[i], 1e-12, 1e-12));
  }
}

TEST(Accumulate, RowsHaveTheRandomNumbersOfTheBatch) {
  manual_seed(1);
  const Tensor x = randn({6, 4, 8});
  expect_the_rows_of_the_batch("dropout", x, [](const Tensor& t) { return dropout(tanh(t), 0.5); });
  expect_the_rows_of_the_batch("rows times time", x, [](const Tensor& t) {
    return reshape(dropout(reshape(t, {-1, 8}), 0.5), t.shape());
  });
  expect_the_rows_of_the_batch("rows in dim 1", x,
                               [](const Tensor& t) { return transpose(dropout(transpose(t, 0, 1), 0.5), 0, 1); });
  expect_the_rows_of_the_batch("one word for each row", x, [](const Tensor& t) {
    return t * dropout(ones({t.size(0), 1, 1}), 0.5);
  });
  expect_the_rows_of_the_batch("attention", x, [](const Tensor& t) {
    const Tensor q = transpose(reshape(t, {-1, 4, 2, 4}), 1, 2);
    return scaled_dot_product_attention(q, q, q, {.dropout_p = 0.5, .is_causal = true});
  });
  expect_the_rows_of_the_batch("checkpoint", x, [](const Tensor& t) {
    return checkpoint([](const Tensor& in) { return dropout(exp(in), 0.5); }, t);
  });
  expect_the_rows_of_the_batch("scan", x, [](const Tensor& t) {
    auto [out, last] = scan(
        [](const Tensor& h, const Tensor& xt) {
          const Tensor y = dropout(h + xt, 0.25);
          return std::pair{y, y};
        },
        zeros({t.size(0), 8}), transpose(t, 0, 1));
    return transpose(out, 0, 1);
  });
  expect_the_rows_of_the_batch("gradient", x, [](const Tensor& t) {
    const Tensor in = t.detach().requires_grad();
    return grad(sum(dropout(square(in), 0.5)), {in})[0];
  });
}

TEST(Accumulate, NoiseOfWeightsIsThatOfTheBatch) {
  manual_seed(1);
  const Tensor x = randn({6, 8}), w = randn({8, 8});
  expect_the_rows_of_the_batch("noise", x, [&](const Tensor& t) { return matmul(t, dropout(w, 0.5)); });
}

TEST(Accumulate, RowsThatWereSelectedHaveOwnNumbers) {
  const Tensor x = ones({8, 64});
  const auto step = compile([&](const Tensor& t) {
    return accumulate(2, t, [](const Tensor& part) {
      // The selected rows of both parts are equal; their random words differ.
      return dropout(index_select(part, 0, arange(1, {.dtype = kInt64})), 0.5) * part.select(0, 0);
    });
  });
  const Tensor y = step(x);
  int64_t once = 0;
  for (float v : y.to_vector<float>()) once += v == 2;
  EXPECT_GT(once, 10);  // equal words would give 0 or 4 only; each is 2 with probability 1/2
}

TEST(Accumulate, HalfPrecisionResultsAreSummedInF32) {
  const Tensor x = full({256, 1}, 1.0, {.dtype = kBFloat16});
  const Tensor y = accumulate(256, x, [](const Tensor& part) { return sum(part) * 1.015625; });
  EXPECT_EQ(y.dtype(), kBFloat16);
  EXPECT_EQ(y.item<float>(), 260.0f);  // a sum in bf16 stays at 256
}

TEST(Accumulate, GraphsAndMemoryDoNotGrowWithTheNumberOfParts) {
  manual_seed(1);
  const Tensor w = randn({64, 64}).requires_grad();
  CompileStats first;
  for (int64_t n : {2, 4, 32}) {
    const auto step = compile([&](const Tensor& t) {
      return accumulate(
          n, t, [&](const Tensor& part) { return grad(mean(square(dropout(gelu(matmul(part, w)), 0.1))), {w})[0]; });
    });
    step(randn({n * 16, 64}));
    const CompileStats s = step.stats();
    if (n == 2) first = s;
    EXPECT_EQ(s.nodes, first.nodes);
    EXPECT_EQ(s.kernels, first.kernels);
    EXPECT_EQ(s.arena_bytes, first.arena_bytes);
  }
}

TEST(Accumulate, SumsAreComputedInPlace) {
  const auto step = compile([&](const Tensor& t) {
    return accumulate(4, t, [&](const Tensor& part) { return matmul(transpose(part, 0, 1), part); });
  });
  step(randn({64, 512}));
  // The product of a part, and its packed operands. A second copy of the sum would need the product's memory again.
  EXPECT_LT(step.stats().arena_bytes, 2 * 512 * 512 * 4);
}

TEST(Accumulate, NodesHaveTheLinesOfTheirCalls) {
  const auto line = static_cast<uint32_t>(__LINE__);
  const auto step = compile([&](const Tensor& t) {
    return accumulate(2, t, [&](const Tensor& part) {
      return sum(exp(part));  // line + 3
    });
  });
  step(ones({2, 2}));
  const Graph& g = step.graph("captured");
  bool found = false;
  for (int32_t id = 0; id < g.size(); ++id) {
    if (g.node(id).op != &accumulate_op) continue;
    EXPECT_EQ(g.node(id).line.line, line + 2);
    const Graph& body = *g.node(id).attrs.get<Ref<Graph>>("body");
    for (int32_t k = 0; k < body.size(); ++k)
      if (std::string_view(body.node(k).op->name) == "exp") {
        EXPECT_EQ(body.node(k).line.line, line + 3);
        found = true;
      }
  }
  EXPECT_TRUE(found);
}

TEST(Accumulate, Errors) {
  const auto message = [](auto fn) {
    try {
      fn();
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  const Tensor x = ones({6, 2});
  const auto self = [](const Tensor& t) { return sum(t); };
  const auto has = [&](auto fn, const char* text) {
    const std::string m = message(fn);
    EXPECT_NE(m.find(text), std::string::npos) << m;
    EXPECT_NE(m.find("at compiler/exec/accumulate_test.cc"), std::string::npos) << m;
  };
  has([&] { accumulate(0, x, self); }, "accumulate: n is 0; need 1 part or more");
  has([&] { accumulate(4, x, self); },
      "accumulate: a tensor of the batch is f32[6, 2]; need rows that 4 parts divide equally");
  has(
      [&] {
        accumulate(2, std::pair{x, ones({4})}, [](const Tensor& a, const Tensor&) { return sum(a); });
      },
      "accumulate: a tensor of the batch is f32[4]; need 6 rows, as the first has");
  has([&] { accumulate(2, scalar(1.0), self); }, "need rows in dim 0");
  has([&] { accumulate(2, x, [](const Tensor& t) { return t > 0; }); }, "need numbers, which can be added");
  has([&] { accumulate(2, x, [](const Tensor& t) { return ones({sum(t).item<int64_t>()}); }); }, "item");
}

}  // namespace
}  // namespace weft
