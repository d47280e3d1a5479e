// The values of a graph that get padded rows.
#include "compiler/exec/plan/padded_rows.h"

#include "compiler/exec/testing/test_programs.h"
#include "framework/dispatch/capture.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"

namespace weft::internal {
namespace {

using Args = std::span<const Tensor>;
using Tensors = std::vector<Tensor>;

// "dot [160, 1]" of each padded value, in order.
std::vector<std::string> padded(const TensorFn& fn, std::vector<Shape> shapes, DType dtype = kBFloat16,
                                bool tf32 = false) {
  std::vector<TensorType> types;
  for (const Shape& s : shapes) types.push_back({dtype, {}, s});
  const Ref<Graph> g = capture_graph(fn, types);
  std::vector<std::string> all;
  for (const auto& [v, strides] : padded_rows(*g, {.row_alignment = 16}, {.tf32 = tf32}))
    all.push_back(str_cat(g->node(v).op->name, " ", strides));
  return all;
}
using Texts = std::vector<std::string>;

TEST(PaddedRows, OfWhatProductsWrite) {
  const std::vector<Shape> in = {{8, 32}, {32, 77}};
  const auto sums = [](Args x) { return Tensors{amax(mm(x[0], x[1]), {-1})}; };
  EXPECT_EQ(padded(sums, in), Texts{"dot [80, 1]"});
  EXPECT_EQ(padded(sums, in, kFloat16), Texts{"dot [80, 1]"});
  EXPECT_EQ(padded(sums, in, kFloat32), Texts{});
  EXPECT_EQ(padded(sums, in, kFloat32, true), Texts{"dot [80, 1]"});
  EXPECT_EQ(padded(sums, {{8, 32}, {32, 80}}), Texts{});
  EXPECT_EQ(padded(sums, {{1, 32}, {32, 77}}), Texts{});  // one row
  EXPECT_EQ(padded(sums, {{8, 32}, {32, 9}}), Texts{});   // almost twice the bytes
  EXPECT_EQ(padded([](Args x) { return Tensors{amax(matmul(x[0], x[1]), {-1})}; }, {{2, 3, 8, 32}, {2, 3, 32, 77}}),
            Texts{"dot [1920, 640, 80, 1]"});
  // Rows of several dims.
  EXPECT_EQ(padded(
                [](Args x) {
                  return Tensors{amax(mm(x[0], x[1]).reshape({8, 7, 11}), {-1})};
                },
                in),
            Texts{"dot [80, 1]"});
}

TEST(PaddedRows, NotOfResultsAndCells) {
  const std::vector<Shape> in = {{8, 32}, {32, 77}};
  EXPECT_EQ(padded([](Args x) { return Tensors{mm(x[0], x[1])}; }, in), Texts{});
  EXPECT_EQ(padded([](Args x) { return Tensors{transpose(mm(x[0], x[1]), 0, 1)}; }, in), Texts{});
  const Buffer cell(zeros({8, 77}, {.dtype = kBFloat16}), "cell");
  EXPECT_EQ(padded(
                [&](Args x) {
                  const Tensor y = mm(x[0], x[1]);
                  cell.set(y);
                  return Tensors{amax(y, {-1})};
                },
                in),
            Texts{});
}

TEST(PaddedRows, NotWhereAReaderNeedsWholeRows) {
  const std::vector<Shape> in = {{8, 32}, {32, 77}};
  EXPECT_EQ(padded([](Args x) { return Tensors{amax(mm(x[0], x[1]).reshape({616}), {-1})}; }, in), Texts{});
  EXPECT_EQ(padded([](Args x) { return Tensors{cat({mm(x[0], x[1]), mm(x[0], x[1])}, 0)}; }, in), Texts{});
}

// Like the gradient of logits: an operand of two products, once transposed.
TEST(PaddedRows, OfWhatProductsReadAndOfValuesBetween) {
  const auto fn = [](Args x) {
    const Tensor y = matmul(x[0], x[1]).reshape({16, 77}), d = exp(y) * 2.0;
    return Tensors{matmul(d, transpose(x[1], 0, 1)), matmul(transpose(x[0].reshape({16, 32}), 0, 1), d), amax(y)};
  };
  EXPECT_EQ(padded(fn, {{2, 8, 32}, {32, 77}}), (Texts{"dot [640, 80, 1]", "exp [80, 1]", "mul [80, 1]"}));
  // A value that is only an operand, and that the step computes from an argument.
  const auto cast = [](Args x) { return Tensors{mm(x[0].to(kBFloat16), x[1].to(kBFloat16))}; };
  EXPECT_EQ(padded(cast, {{8, 77}, {77, 32}}, kFloat32), Texts{"cast [80, 1]"});
  EXPECT_EQ(padded([](Args x) { return Tensors{mm(x[0] * 2.0, transpose(x[1], 0, 1) * 2.0)}; }, {{8, 77}, {32, 77}}),
            Texts{"mul [80, 1]"});
}

}  // namespace
}  // namespace weft::internal
