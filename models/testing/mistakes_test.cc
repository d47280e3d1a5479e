// About 100 mistakes of users. Each message names the mistake, its place, the given value and the needed value.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "distributed/launch/compile.h"
#include "framework/testing/compare.h"
#include "models/gpt/model.h"
#include "models/llama/model.h"
#include "models/moe/model.h"
#include "weft.h"

namespace weft {
namespace {

using testing::placed_error_of;

struct Mistake {
  int line;
  const char* what;  // the beginning of the message: the op and the mistake
  const char* got;
  const char* need;
  std::function<void()> code;
  bool placed = true;  // names the line of the call
};

struct TwoLayers : nn::Module {
  nn::Linear up{4, 8}, down{8, 2};
  TwoLayers() {
    register_module("up", up);
    register_module("down", down);
  }
  Tensor operator()(const Tensor& x) const { return down(up(x)); }
};

Tensor ints(std::vector<int64_t> v) { return Tensor::from_vector<int64_t>(v, {static_cast<int64_t>(v.size())}); }
const TensorOptions kMeta{.device = Device::meta()}, kLong{.dtype = kInt64}, kFlag{.dtype = kBool},
    kDouble{.dtype = kFloat64};

template <class Layer>
Layer wide(auto... sizes) {
  Layer layer(sizes...);
  layer.to(kFloat64);
  return layer;
}

#define CASE(what, got, need, ...)                 \
  {                                                \
    __LINE__, what, got, need, [] { __VA_ARGS__; } \
  }
#define UNPLACED(what, got, need, ...)                    \
  {                                                       \
    __LINE__, what, got, need, [] { __VA_ARGS__; }, false \
  }

const std::vector<Mistake> kShapes = {
    CASE("matmul: inner dimensions differ", "[4, 8] x [9, 2]", "need equal", matmul(ones({4, 8}), ones({9, 2}))),
    CASE("matmul: got", "[] x [3]", "need one dim or more", matmul(ones({}), ones({3}))),
    CASE("mm: got", "[2, 3, 4] x [4, 5]", "need two tensors of 2 dims", mm(ones({2, 3, 4}), ones({4, 5}))),
    CASE("bmm: batches differ", "(2 != 3)", "need equal", bmm(ones({2, 3, 4}), ones({3, 4, 5}))),
    CASE("linear: input", "[2, 5]", "need [..., in] and [out, in]", linear(ones({2, 5}), ones({4, 4}), Tensor())),
    CASE("linear: bias", "[3]", "need [out]", linear(ones({2, 4}), ones({4, 4}), ones({3}))),
    CASE("add: shapes", "[4] and [3]", "need equal extents or 1", ones({4}) + ones({3})),
    CASE("where: shapes", "[4] and [3]", "need equal extents or 1", where(ones({4}, kFlag), ones({3}), 0.0)),
    CASE("reshape", "[8] has 8 elements", "needs 6", reshape(ones({8}), {3, 2})),
    CASE("reshape", "[8] has 8 elements", "need a shape that fits", reshape(ones({8}), {3, -1})),
    CASE("reshape", "two extents of -1", "need one at most", reshape(ones({8}), {-1, -1})),
    CASE("permute", "dims [0, 0] of [2, 3]", "need each of the 2 dims once", permute(ones({2, 3}), {0, 0})),
    CASE("transpose: dim 2", "2 dimensions", "need -2 to 1", transpose(ones({2, 3}), 0, 2)),
    CASE("expand: [3]", "[2, 4]", "need equal extents or 1", expand(ones({3}), {2, 4})),
    CASE("unsqueeze: dim 5", "out of range", "need -3 to 2", unsqueeze(ones({2, 3}), 5)),
    CASE("size: dim 2", "tensor of 2 dimensions", "need -2 to 1", ones({2, 3}).size(2)),
    CASE("size: dim 0", "f32[]", "need a tensor with dims", ones({}).size(0)),
    CASE("sum: dim 3", "2 dimensions", "need -2 to 1", sum(ones({2, 3}), 3)),
    CASE("sum: dims", "[0, -2]", "need each once", sum(ones({2, 3}), {0, -2})),
    CASE("amax: dims [1]", "[2, 0]", "need one or more", amax(ones({2, 0}), 1)),
    CASE("cat: shapes", "[2, 3] and [2, 4]", "need equal extents", cat({ones({2, 3}), ones({2, 4})})),
    CASE("vstack: shapes", "[1, 3] and [1, 2]", "need equal extents", vstack({ones({3}), ones({2})})),
    CASE("hstack: shapes", "[3] and [2, 2]", "need equal extents", hstack({ones({3}), ones({2, 2})})),
    CASE("dstack: shapes", "[1, 3, 1] and [1, 2, 1]", "need equal extents", dstack({ones({3}), ones({2})})),
    CASE("column_stack: shapes", "[3, 1] and [2, 1]", "need equal extents", column_stack({ones({3}), ones({2})})),
    CASE("cross: got", "[5, 3] and [5, 1]", "need equal numbers of dims, and extent 3 in dim 1 of both",
         cross(ones({5, 3}), ones({5, 1}))),
    CASE("eye: got", "2 rows and -3 columns", "need 0 or more", eye(2, -3)),
    CASE("roll: got a scalar", "dims [0]", "need no dims", roll(ones({}), 1, 0)),
    CASE("argsort: dim 1", "1 dimension;", "need -1 to 0", argsort(ones({3}), 1)),
    CASE("stack: shapes", "[2] and [3]", "need equal", stack({ones({2}), ones({3})})),
    CASE("cat: no tensors", "no tensors", "need one or more", cat({})),
    CASE("split: sizes", "[1, 1] of dim 0 of [3]", "need a sum of 3", split(ones({3}), std::vector<int64_t>{1, 1})),
    CASE("pad", "3 widths for [3]", "need a pair", pad(ones({3}), {1, 2, 3})),
    CASE("pad", "-4 and 0", "need", pad(ones({3}), {-4, 0})),
    CASE("pad: shape", "too many elements", "need fewer", pad(ones({4}), {INT64_MAX, INT64_MAX})),
    CASE("repeat_interleave: shape", "too many elements", "need fewer",
         repeat_interleave(ones({4}), int64_t{1} << 61, 0)),
    CASE("full: negative extent", "[2, -1]", "need 0 or more", zeros({2, -1})),
    CASE("full: shape", "too many elements", "need fewer", zeros({int64_t{1} << 40, int64_t{1} << 40})),
    UNPLACED("shape: got", "9 dimensions", "need at most 8", zeros({1, 1, 1, 1, 1, 1, 1, 1, 1})),
    CASE("einsum: 'i'", "is 2 and 3", "need equal extents", einsum("i,i->i", {ones({2}), ones({3})})),
    CASE("einsum: got", "1 tensors for 'ij,jk->ik'", "need 2", einsum("ij,jk->ik", {ones({2, 2})})),
    CASE("layer_norm", "[2, 5]", "need", layer_norm(ones({2, 5}), {4}, ones({4}), ones({4}), 1e-5)),
    CASE("softmax: dim 2", "2 dimensions", "need -2 to 1", softmax(ones({2, 3}), 2)),
    CASE("cross_entropy: scores f32[2, 3]", "shape [3]", "need [2]", cross_entropy(ones({2, 3}), zeros({3}, kLong))),
    CASE("cross_entropy: scores", "[3, 7]", "give {.dim = 1}", cross_entropy(ones({3, 5, 7}), zeros({3, 7}, kLong))),
    CASE("mse_loss: x has shape", "[2, 3] and target [3]", "need equal shapes", mse_loss(ones({2, 3}), ones({3}))),
    CASE("flex_attention", "head dims", "differ",
         flex_attention(ones({1, 1, 4, 8}), ones({1, 1, 4, 16}), ones({1, 1, 4, 16}))),
    CASE("from_vector: got 3 values", "shape [2, 2]", "needs 4", Tensor::from_vector({1, 2, 3}, {2, 2})),
};

const std::vector<Mistake> kDTypes = {
    CASE("sub: does not support", "bool", "convert with to(f32)", ones({2}, kFlag) - ones({2}, kFlag)),
    CASE("bit_and: does not support", "f32", "need an integer dtype", ones({2}) & ones({2})),
    CASE("mean: got", "i64", "need a floating-point dtype", mean(ones({2}, kLong))),
    CASE("softmax", "i64", "need", softmax(ones({2}, kLong), 0)),
    CASE("linear: input is", "i64[2, 4]", "need a floating-point dtype",
         linear(ones({2, 4}, kLong), ones({4, 4}), Tensor())),
    CASE("where: the condition is", "f32", "need bool", where(ones({2}), ones({2}), 0.0)),
    CASE("gather: index is", "f32[2]", "need integers", gather(ones({2}), 0, ones({2}))),
    CASE("embedding: index is", "f32[3, 4]", "need integers", embedding(ones({3, 4}), ints({0, 1}))),
    CASE("operator[]: index is", "f32[2]", "need integers", ones({3})[ones({2})]),
    CASE("operator[]: the index is", "1.5", "need an integer", ones({3})[1.5]),
    CASE("cross_entropy: targets are", "bool[2]", "need integer classes",
         cross_entropy(ones({2, 3}), ones({2}, kFlag))),
    CASE("cross_entropy: targets are", "f32[2] for scores f32[2, 3]", "need integer classes",
         cross_entropy(ones({2, 3}), ones({2}))),
    CASE("full: 300", "u8", "need 0 to 255", full({2}, 300, {.dtype = kUInt8})),
    CASE("pad: 1e+30", "i64", "need -9223372036854775808 to", pad(ones({2}, kLong), {1, 1}, 1e30)),
    CASE("masked_fill: 256", "u8", "need 0 to 255", masked_fill(ones({2}, {.dtype = kUInt8}), ones({2}, kFlag), 256)),
    CASE("eq: -1", "u8", "need 0 to 255", ones({2}, {.dtype = kUInt8}) == -1),
    CASE("index_fill: 300", "u8", "need 0 to 255", index_fill(ones({2}, {.dtype = kUInt8}), 0, ints({0}), 300)),
    CASE("randint: bf16", "from 0 to 999", "need a range within", randint(0, 1000, {2}, {.dtype = kBFloat16})),
    CASE("scatter_add: x and src", "f32 and i64", "need one dtype",
         scatter_add(ones({3}), 0, ints({0, 1}), ints({1, 1}))),
    CASE("data: asked for", "f64 of a tensor of f32", "convert with to(f64)", ones({2}).data<double>()),
    CASE("rand: dtype is", "i64", "need f32", rand({2}, kLong)),
    CASE("sort: does not support", "f8e4m3", "convert", sort(ones({3}).to(kFloat8E4M3))),
    CASE("argsort: does not support", "f8e4m3", "convert", argsort(ones({3}).to(kFloat8E4M3))),
    CASE("msort: does not support", "f8e4m3", "convert", msort(ones({3}).to(kFloat8E4M3))),
    CASE("median: does not support", "f8e4m3", "convert", median(ones({3}).to(kFloat8E4M3), 0)),
    CASE("fmod: does not support", "f8e4m3", "convert", fmod(ones({3}).to(kFloat8E4M3), 2)),
    CASE("masked_fill: the value is", "i64[1]", "need an integer", masked_fill(ints({1}), ones({1}, kFlag), 0.5)),
    CASE("linear: the weights are f64", "f32[2, 4]", "x.to(kFloat64)", linear(ones({2, 4}), ones({3, 4}, kDouble))),
    CASE("conv1d: the weights are f64", "f32[1, 1, 4]", "x.to(kFloat64)",
         conv1d(ones({1, 1, 4}), ones({1, 1, 2}, kDouble))),
    CASE("layer_norm: the weights are f64", "f32[2, 4]", "x.to(kFloat64)",
         layer_norm(ones({2, 4}), {4}, ones({4}, kDouble))),
    CASE("prelu: the weights are f64", "f32[2, 4]", "x.to(kFloat64)", prelu(ones({2, 4}), ones({1}, kDouble))),
    CASE("prelu: the weights are f64", "f32[2, 4]", "x.to(kFloat64)", wide<nn::PReLU>()(ones({2, 4}))),
    CASE("Bilinear: the weights are f64", "f32[2, 3]", "x.to(kFloat64)",
         wide<nn::Bilinear>(3, 4, 2)(ones({2, 3}), ones({2, 4}))),
    CASE("Bilinear: got", "f32[2, 3] and f64[2, 4]", "x1.to(kFloat64)",
         nn::Bilinear(3, 4, 2)(ones({2, 3}), ones({2, 4}, kDouble))),
    CASE("cross_entropy: the weights are f64", "f32[2, 3]", "x.to(kFloat64)",
         cross_entropy(ones({2, 3}), zeros({2}, kLong), {.weight = ones({3}, kDouble)})),
    CASE("cross_entropy: the weights are f64", "f32[2, 3]", "x.to(kFloat64)",
         cross_entropy(ones({2, 3}), ones({2, 3}), {.weight = ones({3}, kDouble)})),
    CASE("nll_loss: the weights are f64", "f32[2, 3]", "x.to(kFloat64)",
         nll_loss(ones({2, 3}), zeros({2}, kLong), {.weight = ones({3}, kDouble)})),
    CASE("binary_cross_entropy_with_logits: the weights are f64", "f32[2, 3]", "x.to(kFloat64)",
         binary_cross_entropy_with_logits(ones({2, 3}), ones({2, 3}), {.pos_weight = ones({3}, kDouble)})),
    CASE("binary_cross_entropy: the weights are f64", "f32[2, 3]", "x.to(kFloat64)",
         binary_cross_entropy(ones({2, 3}), ones({2, 3}), {.weight = ones({3}, kDouble)})),
    CASE("multi_margin_loss: the weights are f64", "f32[2, 3]", "x.to(kFloat64)",
         multi_margin_loss(ones({2, 3}), zeros({2}, kLong), {.weight = ones({3}, kDouble)})),
    CASE("multilabel_soft_margin_loss: the weights are f64", "f32[2, 3]", "x.to(kFloat64)",
         multilabel_soft_margin_loss(ones({2, 3}), ones({2, 3}), {.weight = ones({3}, kDouble)})),
    CASE("binary_cross_entropy: the target is f64[2]", "f32[2]", "x.to(kFloat64)",
         binary_cross_entropy(ones({2}), ones({2}, kDouble))),
    CASE("grid_sample: the grid is f64", "f32[1, 1, 2, 2]", "x.to(kFloat64)",
         grid_sample(ones({1, 1, 2, 2}), zeros({1, 1, 1, 2}, kDouble))),
    CASE("route_top_k: the bias is f64[3]", "f32[2, 3]", "x.to(kFloat64)",
         route_top_k(ones({2, 3}), {.bias = zeros({3}, kDouble)})),
    CASE("LSTM: h0 is f64", "f32[1, 2, 3]", "x.to(kFloat64)",
         nn::LSTM(3, 4)(ones({1, 2, 3}), {.h = zeros({1, 2, 4}, kDouble)})),
    CASE("LSTM: c0 is f64", "f32[1, 2, 3]", "x.to(kFloat64)",
         nn::LSTM(3, 4)(ones({1, 2, 3}), {.c = zeros({1, 2, 4}, kDouble)})),
    CASE("GRU: h0 is f64", "f32[1, 2, 3]", "x.to(kFloat64)", nn::GRU(3, 4)(ones({1, 2, 3}), zeros({1, 2, 4}, kDouble))),
    CASE("RNN: h0 is f64", "f32[1, 2, 3]", "x.to(kFloat64)", nn::RNN(3, 4)(ones({1, 2, 3}), zeros({1, 2, 4}, kDouble))),
    CASE("LSTMCell: c is f64[2, 4]", "f32[2, 3]", "x.to(kFloat64)",
         nn::LSTMCell(3, 4)(ones({2, 3}), {.c = zeros({2, 4}, kDouble)})),
    CASE("GRUCell: h is f64[2, 4]", "f32[2, 3]", "x.to(kFloat64)",
         nn::GRUCell(3, 4)(ones({2, 3}), zeros({2, 4}, kDouble))),
    CASE("lerp: the weights are f64", "f32[2]", "x.to(kFloat64)", lerp(ones({2}), ones({2}), ones({2}, kDouble))),
    CASE("cov: the weights are f64", "f32[2, 3]", "x.to(kFloat64)",
         cov(ones({2, 3}), {.aweights = ones({3}, kDouble)})),
    CASE("lgamma: does not support", "f8e4m3", "convert", lgamma(ones({3}).to(kFloat8E4M3))),
    CASE("digamma: does not support", "f8e5m2", "convert", digamma(ones({3}).to(kFloat8E5M2))),
    CASE("arange: 259", "u8", "need 0 to 255", arange(250, 260, {.dtype = kUInt8})),
    CASE("grad: cannot differentiate", "i64[2]", "need a floating-point", grad(sum(ones({2})), {ints({1, 2})})),
};

const std::vector<Mistake> kDevices = {
    CASE("add: operand 1", "on meta and operand 0 on cpu", "need one device", ones({2}) + ones({2}, kMeta)),
    CASE("dot: operand 1", "meta and operand 0 on cpu", "need one device", matmul(ones({2, 2}), ones({2, 2}, kMeta))),
    CASE("cat: operand 1", "meta", "need one device", cat({ones({2}), ones({2}, kMeta)})),
    CASE("item: a tensor on meta", "f32[]@meta", "need one on cpu", sum(ones({2}, kMeta)).item<float>()),
    CASE("to_vector: a tensor on meta", "f32[2]@meta", "need one on cpu", ones({2}, kMeta).to_vector<float>()),
    CASE("to: a tensor on meta", "f32[2]@meta", "need one on cpu", ones({2}, kMeta).to(Device::cpu())),
    CASE("where: operand", "meta", "need one device", where(ones({2}, kFlag), ones({2}, kMeta), ones({2}))),
    CASE("allocate: device", "other:0", "need cpu", ones({2}).to(Device::other())),
};

const std::vector<Mistake> kIndexing = {
    CASE("select: index 4", "dim 0 of [4]", "need -4 to 3", ones({4})[4]),
    CASE("select: got a scalar", "scalar", "need a dim", ones({})[0]),
    CASE("index_select: 2 positions in a scalar", "2", "need one", index_select(ones({}), 0, ints({0, 0}))),
    CASE("take_along_dim: index 7", "position 0", "need 0 to 2", take_along_dim(ones({3}), ints({7}), 0)),
    CASE("scatter_reduce: index 7", "position 0", "need 0 to 2",
         scatter_reduce(ones({3}), 0, ints({7}), ones({1}), "sum")),
    CASE("histogram: index 7", "position 0", "need 0 to 2", histogram(ints({7}), 3)),
    CASE("expert_capacity: 0 experts", "factor 1", "need positive numbers", expert_capacity(4, 2, 0, 1)),
    CASE("assign_capacity: an index is not a position", "index 3", "need 0 to 2",
         assign_capacity(ints({0, 3}).unsqueeze(1), 3, 2)),
    CASE("slice: step is 0", "0", "need 1 or more", slice(ones({4}), 0, 0, 4, 0)),
    CASE("slice: dim 1", "1 dimension;", "need -1 to 0", slice(ones({4}), 1, 0, 2)),
    CASE("gather: index 7", "position 1", "need 0 to 2", gather(ones({3}), 0, ints({0, 7}))),
    CASE("index_select: index -1", "position 0", "need 0 to 2", index_select(ones({3}), 0, ints({-1}))),
    CASE("embedding: an index is not a row: index_select: index 9", "position 0", "need 0 to 2",
         embedding(ints({9}), ones({3, 2}))),
    CASE("index_add: index 3", "position 0", "need 0 to 2", index_add(ones({3}), 0, ints({3}), ones({1}))),
    CASE("index_copy: src", "[2] does not fit", "need [1]", index_copy(ones({3}), 0, ints({0}), ones({2}))),
    CASE("gather: index", "[2] does not fit [3, 3]", "need the same number of dims",
         gather(ones({3, 3}), 0, ints({0, 1}))),
    CASE("topk: k is 5", "[3]", "need 0 to 3", topk(ones({3}), 5)),
    CASE("dynamic_slice: start 3", "block [2] outside [4]", "need 0 to 2", dynamic_slice(ones({4}), {3}, {2})),
    CASE("cross_entropy: a target is not a class", "index 7", "need 0 to 2", cross_entropy(ones({2, 3}), ints({0, 7}))),
    CASE("remainder: integer division by zero", "zero", "need divisors other than 0",
         remainder(ints({1, 2}), ints({1, 0}))),
    CASE("item: tensor f32[2]", "2 elements", "need exactly one", ones({2}).item<float>()),
    CASE("add: an operand is an undefined tensor", "undefined", "need one with a value", ones({2}) + Tensor()),
    CASE("relu: operand is an undefined tensor", "undefined", "need one with a value", relu(Tensor())),
    CASE("arange: step is 0", "0", "need another", arange(0, 4, 0)),
    CASE("randint: range", "[5, 5)", "need 1 to 2^31", randint(5, 5, {2})),
    CASE("dropout: p is 1.5", "1.5", "need a probability", dropout(ones({2}), 1.5)),
};

const std::vector<Mistake> kModules = {
    CASE("linear: input [2, 5]", "[2, 5]", "need [..., in]", TwoLayers().up(ones({2, 5}))),
    CASE("Linear: need positive sizes", "0 -> 4", "need positive", nn::Linear(0, 4)),
    CASE("Linear: need positive sizes", "8 -> -1", "need positive", nn::Mlp(8, -1)),
    CASE("Attention: dim 10", "heads 4", "need", nn::Attention(10, 4)),
    CASE("Attention: need positive sizes", "heads 0", "need positive", nn::Attention(10, 0)),
    CASE("Attention: heads 4", "kv_heads 3", "need", nn::TransformerBlock(8, {.heads = 4, .kv_heads = 3})),
    CASE("LayerNorm: normalized_shape is [-1]", "-1", "need one dim or more", nn::LayerNorm(-1)),
    CASE("LayerNorm: eps is -1", "-1", "need a finite number >= 0", nn::LayerNorm(4, {.eps = -1})),
    CASE("RMSNorm: eps is nan", "nan", "need a finite number >= 0", nn::RMSNorm(4, {.eps = std::nan("")})),
    CASE("BatchNorm2d: eps is -1", "-1", "need a finite number >= 0", nn::BatchNorm2d(4, {.eps = -1})),
    CASE("BatchNorm1d: momentum is nan", "nan", "need a number up to 1",
         nn::BatchNorm1d(4, {.momentum = std::nan("")})),
    CASE("GroupNorm: eps is -1", "-1", "need a finite number >= 0", nn::GroupNorm(2, 4, {.eps = -1})),
    CASE("InstanceNorm1d: eps is inf", "inf", "need a finite number >= 0", nn::InstanceNorm1d(4, {.eps = HUGE_VAL})),
    CASE("layer_norm: eps is -1", "-1", "need a finite number >= 0",
         layer_norm(ones({2, 4}), {4}, Tensor(), Tensor(), -1)),
    CASE("rms_norm: eps is -0.5", "-0.5", "need a finite number >= 0", rms_norm(ones({2, 4}), {4}, Tensor(), -0.5)),
    CASE("rms_norm: eps is nan", "nan", "need a finite number >= 0",
         rms_norm(ones({2, 4}), {4}, Tensor(), std::nan(""))),
    CASE("batch_norm: eps is nan", "nan", "need a finite number >= 0",
         batch_norm(ones({2, 4}), Tensor(), Tensor(), Tensor(), Tensor(), std::nan(""))),
    CASE("group_norm: eps is -1", "-1", "need a finite number >= 0",
         group_norm(ones({2, 4}), 2, Tensor(), Tensor(), -1)),
    CASE("Embedding: need positive sizes", "0 x 4", "need positive", nn::Embedding(0, 4)),
    CASE("MoE: got hidden 0", "top_k 2 of 8", "need hidden > 0", nn::MoE(8, {})),
    CASE("KvCache: need positive sizes", "layers 0", "need positive", nn::KvCache(nn::KvCacheShape{})),
    CASE("KvCache: layers is 1000000000000", "1000000000000", "need at most 65536",
         nn::KvCache({.layers = 1'000'000'000'000, .kv_heads = 1, .capacity = 1, .head_dim = 1})),
    CASE("Module: used after a move from it", "move", "need the new module", TwoLayers a;
         const TwoLayers b = std::move(a); a.parameters()),
    CASE("to: a tensor on meta", "@meta", "need one on cpu", TwoLayers a; a.to(Device::meta()); a.state_dict();
         a.to(Device::cpu())),
    CASE("load_state_dict: 'up.weight' is undefined", "undefined", "is undefined",
         TwoLayers().load_state_dict({{"up.weight", Tensor()}}, false)),
    CASE("Dropout: p is 2", "2", "need 0 <= p < 1", nn::Dropout(2)),
    CASE("config: field 'dim'", "'768'", "need a multiple of heads, 5", gpt::Model({.heads = 5})),
    CASE("config: field 'layers'", "'0'", "need a whole number from 1 to 10000", llama::Model({.layers = 0})),
    CASE("MoE: got", "top_k 9 of 8 experts", "need", moe::Model({.experts = 8, .top_k = 9})),
    CASE("set: cell", "f32[2]; got f32[3]", "need the cell's type", Parameter(ones({2})).set(ones({3}))),
    CASE("Parameter: undefined value", "undefined", "need one with a value", Parameter p{Tensor()}),
    CASE("load_state_dict", "up.weight", "missing", TwoLayers().load_state_dict({})),
    CASE("Module::to", "i64", "need a floating-point type", TwoLayers().to(kInt64)),
    CASE("Parameter: used before", "before", "need one made", Parameter().value()),
};

const std::vector<Mistake> kOptimisers = {
    CASE("optimiser: got no parameters", "no parameters", "need one or more", optim::SGD(std::vector<Parameter>{})),
    CASE("optimiser: lr is -1", "-1", "need a finite number >= 0", optim::AdamW(TwoLayers().parameters(), {.lr = -1})),
    CASE("SGD: momentum is 0", "0", "above 0 with nesterov", optim::SGD(TwoLayers().parameters(), {.nesterov = true})),
    CASE("GradScaler: update got f32[2]", "f32[2]", "need a 0-d bool", optim::GradScaler().update(ones({2}))),
    CASE("load_state_dict: optimiser state", "missing", "'opt.lr' is missing",
         optim::SGD(TwoLayers().parameters()).load_state_dict({})),
    CASE("load_state_dict: EMA state", "missing", "missing", optim::EMA(TwoLayers().parameters()).load_state_dict({})),
    CASE("optimiser: made inside a compiled function", "inside", "make it before the step",
         compile([](Tensor x) { return optim::SGD(TwoLayers().parameters()), x; })(ones({2}))),
    CASE("minimize: the loss depends on none", "none of the 4", "need a loss of its model", TwoLayers a;
         optim::SGD(a.parameters()).minimize(sum(TwoLayers()(ones({2, 4}))))),
    CASE("GradScaler: growth_interval is 0", "0", "need at least 1", optim::GradScaler({.growth_interval = 0})),
    CASE("step: got 1 gradients", "1 gradients", "need one for each",
         optim::SGD(TwoLayers().parameters()).step({ones({8, 4})})),
    CASE("step: gradient 0", "[3]", "need gradients in the order", Parameter p(ones({2}));
         optim::SGD({p}).step({ones({3})})),
    CASE("clip_grad_norm: max_norm is 0", "0", "need a number above 0", optim::clip_grad_norm({ones({2})}, 0)),
};

const std::vector<Mistake> kCapture = {
    CASE("item: the value", "does not exist yet", "need to return it",
         compile([](Tensor x) { return x * x.sum().item<float>(); })(ones({2}))),
    CASE("equal: the value", "does not exist yet", "need to return it",
         compile([](Tensor x) { return x.equal(x) ? x : x * 2.0; })(ones({2}))),
    CASE("matmul: inner dimensions differ", "[2, 3] x [2, 3]", "need equal",
         compile([](Tensor x) { return matmul(x, x); })(ones({2, 3}))),
    CASE("requires_grad: a tensor of i64", "i64", "need a floating-point dtype", ints({1, 2}).requires_grad()),
    CASE("grad: the loss is", "f32[2]", "need one element", Tensor x = ones({2}).requires_grad(); grad(x * 2.0, {x})),
    CASE("grad: operand 0", "does not record", "need a Parameter", grad(sum(ones({2})), {ones({2})})),
    CASE("gather: index 7", "position 0", "need 0 to 2",
         compile([](Tensor i) { return gather(ones({3}), 0, i); })(ints({7}))),
    CASE("cross_entropy: a target is not a class: ", "index 7", "need 0 to 2",
         compile([](Tensor x, Tensor t) { return cross_entropy(x, t); })(ones({2, 3}), ints({0, 7}))),
    CASE("assign_capacity: an index is not a position: ", "index 3", "need 0 to 2",
         compile([](Tensor i) { return assign_capacity(i, 3, 2).place; })(ints({0, 3}).unsqueeze(1))),
    CASE("embedding: an index is not a row: ", "index 9", "need 0 to 2",
         compile([](Tensor i, Tensor w) { return tanh(embedding(i, w)); })(ints({9}), ones({3, 2}))),
    CASE("floor_divide: integer division by zero", "zero", "need divisors other than 0",
         compile([](Tensor x) { return x + floor_divide(full({}, 5, kLong), full({}, 0, kLong)); })(ints({1}))),
    CASE("checkpoint: result 0", "undefined", "need one with a value",
         checkpoint([](Tensor) { return Tensor(); }, ones({2}))),
    CASE("checkpoint: operand 1", "undefined", "need one with a value",
         checkpoint([](Tensor x, Tensor) { return x; }, ones({2}), Tensor())),
    CASE("custom_grad: backward returned", "2 gradients", "need 1",
         CustomGrad([](std::span<const Tensor> in) { return std::vector<Tensor>{in[0]}; },
                    [](std::span<const Tensor> in, auto, auto) { return std::vector<Tensor>(2, in[0]); })(ones({2}))),
    CASE("custom_grad: the gradient of input 0", "shape [3]", "need [2]",
         custom_grad([](Tensor x) { return x; }, [](Tensor, Tensor, Tensor) { return ones({3}); })(ones({2}))),
    CASE("custom_grad: the gradient of input 0", "i64[2]", "need a floating-point dtype",
         custom_grad([](Tensor x) { return x; }, [](Tensor, Tensor, Tensor) { return ones({2}, kLong); })(ones({2}))),
    CASE("custom_grad: result 0", "undefined", "need one with a value",
         custom_grad([](Tensor) { return Tensor(); }, [](Tensor, Tensor, Tensor g) { return g; })(ones({2}))),
};

const std::vector<Mistake> kMeshes = {
    CASE("mesh 'dp2,'", "column 5", "need a dimension after ','", dist::Mesh::parse("dp2,")),
    CASE("mesh: dimension 'dp'", "given twice", "twice", dist::Mesh::parse("dp2,dp2")),
    CASE("mesh: dimension 'dp'", "size 0", "need 1 or more", dist::Mesh({{"dp", 0}})),
    CASE("mesh: view 'ep' of size 3", "'dp' of size 2", "groups of 3", dist::Mesh{{"dp", 2}, {"ep(dp)", 3}}),
    CASE("matmul: inner dimensions differ", "[4, 8] x [9, 2]", "need equal",
         dist::compile(
             [](Tensor x) {
               return matmul(x, ones({9, 2}));
             },
             {.mesh = dist::Mesh({{"dp", 2}})})(ones({4, 8}))),
    UNPLACED("mesh", "a batch of 3", "does not divide",
             dist::compile([](Tensor x) { return x + 1.0; }, {.mesh = dist::Mesh({{"dp", 2}})})(ones({3}))),
};

const std::vector<Mistake> kAttention = {
    CASE("create_block_mask: Q_LEN is", "-1", "need lengths", create_block_mask(attention::causal(), 1, 1, -1, 4)),
    CASE("BlockMask: asked for", "[5, 6)", "need 0 <= begin",
         create_block_mask(attention::causal(), 1, 1, 64, 64).at(5)),
    CASE("BlockMask::shape", "is empty", "make one first", BlockMask().shape()),
    CASE("BlockMask::resize: Q_LEN is", "-1", "need lengths",
         create_block_mask(attention::causal(), 1, 1, 64, 64).resize(-1, 64)),
    CASE("BlockMask::from_kv_blocks: kv_indices is", "undefined", "need kv_num_blocks",
         BlockMask::from_kv_blocks({}, {}, {}, {}, {})),
    CASE("attention::softcap: cap is", "0", "need a positive number", attention::softcap(0)),
    CASE("attention::alibi: heads is", "0", "need 1 or more", attention::alibi(0)),
    CASE("attention::sliding_window: window is", "-1", "need 0 or more", attention::sliding_window(-1)),
    CASE("attention::document_offsets: cu_seqlens", "from 1 to 3", "need 0 and then",
         attention::document_offsets(ints({1, 3}))),
    CASE("attention::document_offsets: cu_seqlens", "9223372036854775807", "need less than 2^31",
         attention::document_offsets(ints({0, INT64_MAX}))),
    CASE("attention::neighborhood_1d: kernel", "4", "need", attention::neighborhood_1d(8, 4)),
};

const std::vector<Mistake> kForeign = {
    CASE("from_dlpack: got null", "null", "need a capsule", from_dlpack(nullptr)),
    CASE("to_dlpack: a tensor on meta", "f32[2]@meta", "need one on cpu", to_dlpack(ones({2}, kMeta))),
    CASE("to_dlpack: got dtype", "f8e4m3", "need one that DLPack", to_dlpack(ones({2}).to(kFloat8E4M3))),
    CASE("from_blob: the bool at position 1", "byte 7", "need 0 or 1", uint8_t b[] = {0, 7};
         Tensor::from_blob(b, {2}, kBool)),
};

// Functions that are made of others: the error names the function that was called.
const std::vector<Mistake> kNames = {
    CASE("swapaxes: dim 2", "2 dimensions", "need -2 to 1", swapaxes(ones({2, 3}), 0, 2)),
    CASE("swapdims: dim 2", "2 dimensions", "need -2 to 1", swapdims(ones({2, 3}), 0, 2)),
    CASE("unbind: dim 2", "2 dimensions", "need -2 to 1", unbind(ones({2, 3}), 2)),
    CASE("split: dim 2", "2 dimensions", "need -2 to 1", split(ones({2, 3}), 1, 2)),
    CASE("chunk: dim 2", "2 dimensions", "need -2 to 1", chunk(ones({2, 3}), 2, 2)),
    CASE("chunk: got a scalar", "scalar", "need a dim", chunk(ones({}), 2)),
    CASE("view: [8] has 8 elements", "[3, 2]", "needs 6", view(ones({8}), {3, 2})),
    CASE("view: [8] has 8 elements", "[3, 2]", "needs 6", ones({8}).view(3, 2)),
    CASE("view_as: [8] has 8 elements", "[3, 2]", "needs 6", ones({8}).view_as(ones({3, 2}))),
    CASE("expand: [3]", "[2, 4]", "need equal extents or 1", ones({3}).expand({2, 4})),
    CASE("expand_as: [3]", "[2, 4]", "need equal extents or 1", ones({3}).expand_as(ones({2, 4}))),
    UNPLACED("broadcast_to: [3]", "[2, 4]", "need equal extents or 1", broadcast_to(ones({3}), {2, 4})),
    CASE("max: shapes", "[4] and [3]", "need equal extents or 1", max(ones({4}), ones({3}))),
    CASE("min: shapes", "[4] and [3]", "need equal extents or 1", min(ones({4}), ones({3}))),
    CASE("addcmul: shapes", "[4] and [3]", "need equal extents or 1", addcmul(ones({4}), ones({4}), ones({3}))),
    CASE("addcdiv: shapes", "[4] and [3]", "need equal extents or 1", addcdiv(ones({4}), ones({4}), ones({3}))),
    CASE("clamp_min: shapes", "[4] and [3]", "need equal extents or 1", clamp_min(ones({4}), ones({3}))),
    CASE("clamp_max: shapes", "[4] and [3]", "need equal extents or 1", clamp_max(ones({4}), ones({3}))),
    CASE("clamp: shapes", "[4] and [3]", "need equal extents or 1", clamp(ones({4}), 0, ones({3}))),
    CASE("nansum: dim 3", "2 dimensions", "need -2 to 1", nansum(ones({2, 3}), 3)),
    CASE("any: dim 3", "2 dimensions", "need -2 to 1", any(ones({2, 3}), 3)),
    CASE("all: dim 3", "2 dimensions", "need -2 to 1", all(ones({2, 3}), 3)),
    CASE("count_nonzero: dim 3", "2 dimensions", "need -2 to 1", count_nonzero(ones({2, 3}), 3)),
    CASE("sinc: does not support", "f8e4m3", "convert", sinc(ones({3}).to(kFloat8E4M3))),
    CASE("erfinv: does not support", "f8e4m3", "convert", erfinv(ones({3}).to(kFloat8E4M3))),
    CASE("logit: does not support", "f8e4m3", "convert", logit(ones({3}).to(kFloat8E4M3))),
    CASE("softsign: does not support", "f8e4m3", "convert", softsign(ones({3}).to(kFloat8E4M3))),
    CASE("tanhshrink: does not support", "f8e4m3", "convert", tanhshrink(ones({3}).to(kFloat8E4M3))),
    CASE("relu6: does not support", "f8e4m3", "convert", relu6(ones({3}).to(kFloat8E4M3))),
    CASE("unique: does not support", "f8e4m3", "convert", unique(ones({3}).to(kFloat8E4M3))),
    CASE("unique_consecutive: does not support", "f8e4m3", "convert", unique_consecutive(ones({3}).to(kFloat8E4M3))),
    CASE("hardtanh: does not support", "f8e4m3", "convert", hardtanh(ones({3}).to(kFloat8E4M3))),
    CASE("nansum: does not support", "f8e4m3", "convert", nansum(ones({3}).to(kFloat8E4M3))),
    CASE("any: does not support", "f8e4m3", "convert", any(ones({3}).to(kFloat8E4M3))),
    CASE("all: does not support", "f8e4m3", "convert", all(ones({3}).to(kFloat8E4M3))),
    CASE("count_nonzero: does not support", "f8e4m3", "convert", count_nonzero(ones({3}).to(kFloat8E4M3))),
    CASE("isin: does not support", "f8e4m3", "convert", isin(ones({3}).to(kFloat8E4M3), ones({2}))),
};

void check(const std::vector<Mistake>& table) {
  for (const Mistake& m : table) {
    const std::string text = placed_error_of(m.code);
    SCOPED_TRACE(str_cat("line ", m.line, ": ", text));
    EXPECT_EQ(text.find(m.what), 0u) << "what: " << m.what;
    EXPECT_NE(text.find(m.got), std::string::npos) << "got: " << m.got;
    EXPECT_NE(text.find(m.need), std::string::npos) << "need: " << m.need;
    const std::string file = "models/testing/mistakes_test.cc:";
    const size_t at = text.find(file);
    EXPECT_EQ(at != std::string::npos, m.placed) << "where";
    if (at == std::string::npos || !m.placed) continue;
    EXPECT_EQ(text.find(file, at + 1), std::string::npos) << "two places";
    EXPECT_NEAR(std::stoi(text.substr(at + file.size())), m.line, 3) << "where";
  }
}

TEST(Mistakes, OfShapes) { check(kShapes); }
TEST(Mistakes, OfOtherNames) { check(kNames); }
TEST(Mistakes, OfDTypes) { check(kDTypes); }
TEST(Mistakes, OfDevices) { check(kDevices); }
TEST(Mistakes, OfIndexing) { check(kIndexing); }
TEST(Mistakes, OfModules) { check(kModules); }
TEST(Mistakes, OfOptimisers) { check(kOptimisers); }
TEST(Mistakes, OfCapture) { check(kCapture); }
TEST(Mistakes, OfMeshes) { check(kMeshes); }
TEST(Mistakes, OfAttention) { check(kAttention); }
TEST(Mistakes, OfForeignMemory) { check(kForeign); }

}  // namespace
}  // namespace weft
