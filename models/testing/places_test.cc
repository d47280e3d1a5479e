// Errors and graph nodes name the user's line and the layer: eagerly, compiled, interpreted and on a mesh; for every
// public function.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "distributed/launch/compile.h"
#include "framework/base/switches.h"
#include "framework/testing/compare.h"
#include "weft.h"

namespace weft {
namespace {

using testing::placed_error_of;

// The message and its place: a line near `line`, and names.
void expect_text(const std::string& text, const std::string& message, int line, const std::string& names = "") {
  const std::string before = message + "; at models/testing/places_test.cc:";
  ASSERT_EQ(text.substr(0, before.size()), before);
  size_t digits = 0;
  EXPECT_NEAR(std::stoi(text.substr(before.size()), &digits), line, 3) << text;
  EXPECT_EQ(text.substr(before.size() + digits), names.empty() ? "" : ", in " + names) << text;
}

struct Net : nn::Module {
  std::vector<nn::Linear> blocks;
  nn::Attention attn{8, 2};
  nn::Embedding table{5, 8};
  Net() {
    for (int i = 0; i < 2; ++i) blocks.emplace_back(8, 8);
    register_modules("blocks", blocks);
    register_module("attn", attn);
    register_module("table", table);
  }
  Tensor operator()(const Tensor& x) const { return blocks[1](x); }
  static constexpr int kLine = __LINE__ - 1;
};

struct Outer : nn::Module {
  Net net;
  Outer() { register_module("net", net); }
};

// The error of fn(x), eagerly and in a compiled function.
void expect_error(const std::function<Tensor(const Tensor&)>& fn, const Tensor& x, const std::string& message,
                  const std::string& names = "", int line = __builtin_LINE()) {
  SCOPED_TRACE(message);
  expect_text(placed_error_of([&] { fn(x); }), message, line, names);
  auto step = compile([&](Tensor t) { return fn(t); });
  expect_text(placed_error_of([&] { step(x); }), message, line, names);
}

TEST(Places, OfOpsAreTheUsersLines) {
  expect_error(
      [](const Tensor& x) {
        return matmul(x, ones({9, 2}));
      },
      ones({4, 8}), "matmul: inner dimensions differ: [4, 8] x [9, 2] (8 != 9); need equal ones");
  expect_error([](const Tensor& x) { return x + ones({3}); }, ones({4}),
               "add: shapes [4] and [3] do not broadcast: dimension 0 has 4 and 3; need equal extents or 1");
  expect_error([](const Tensor& x) { return x[7]; }, ones({4}),
               "select: index 7 is out of range for dim 0 of [4]; need -4 to 3");
  expect_error([](const Tensor& x) { return ones({x.size(2)}); }, ones({4, 2}),
               "size: dim 2 is out of range for a tensor of 2 dimensions; need -2 to 1");
  expect_error(
      [](const Tensor& x) {
        return softmax(x.reshape({3, 2}), 1);
      },
      ones({8}), "reshape: [8] has 8 elements; shape [3, 2] needs 6");
}

TEST(Places, OfLayersAreTheCallersLineAndThePath) {
  const std::string mismatch = "linear: input [2, 5] does not fit weight [8, 8]; need [..., in] and [out, in]";
  Net net;
  EXPECT_EQ(net.blocks[1].path(), "blocks.1");
  expect_error([&](const Tensor& x) { return net(x); }, ones({2, 5}), mismatch, "blocks.1", Net::kLine);
  Outer outer;
  expect_error([&](const Tensor& x) { return outer.net(x); }, ones({2, 5}), mismatch, "net.blocks.1", Net::kLine);
  expect_error([&](const Tensor& x) { return outer.net.attn(x); }, ones({2, 8}),
               "Attention: x is f32[2, 8]; need [batch, time, dim]", "net.attn");
  outer.net.blocks[1] = nn::Linear(8, 8);  // takes over the path
  expect_error([&](const Tensor& x) { return outer.net(x); }, ones({2, 5}), mismatch, "net.blocks.1", Net::kLine);
  const Outer copy = clone(outer);
  EXPECT_EQ(copy.net.attn.qkv.path(), "net.attn.qkv");
  const nn::Sequential chain(nn::Linear(8, 4), nn::Linear(8, 2));
  expect_error([&](const Tensor& x) { return chain(x); }, ones({2, 8}),
               "linear: input [2, 4] does not fit weight [2, 8]; need [..., in] and [out, in]", "1 (Linear)");
  auto scoped = [](const Tensor& x) {
    NameScope scope("head");
    return relu(x).view({3});
  };
  expect_error(scoped, ones({2}), "view: [2] has 2 elements; shape [3] needs 3", "head", __LINE__ - 2);
}

struct SameName : nn::Module {
  nn::Linear a{2, 2}, b{2, 2};
  SameName() {
    register_module("a", a);
    register_module("a", b);
  }
  static constexpr int kLine = __LINE__ - 2;
};

struct Zero : nn::Module {
  nn::Linear member{8, 0};
  static constexpr int kLine = __LINE__ - 1;
};

TEST(Places, OfConstructorsAreTheCallersLine) {
  expect_text(placed_error_of([] { SameName(); }), "Module: the name 'a' is registered twice; need another name",
              SameName::kLine);
  const std::string zero = "Linear: need positive sizes; got 8 -> 0";
  expect_text(placed_error_of([] { Zero(); }), zero, Zero::kLine);
  // The standard library is the caller, so the line is unknown.
  EXPECT_EQ(placed_error_of([] { std::vector<nn::Linear>().emplace_back(8, 0); }), zero);
  EXPECT_EQ(placed_error_of([] { std::make_unique<nn::Linear>(8, 0); }), zero);
}

// If Weft itself reads a lazy value, the only known line of the user is the line that made the value.
TEST(Places, OfLazyValuesAreWhereTheyAreReadOrMade) {
  const nn::LayerNorm huge(int64_t{1} << 48, {.bias = false});
  const int line = __LINE__ - 1;
  const auto message = [](const std::string& text) { return text.substr(0, text.find("; at ")); };
  const std::string made = placed_error_of([&] { const Tensor t = huge.weight; });
  EXPECT_EQ(made.substr(0, 13), "out of memory");
  expect_text(made, message(made), line);
  const std::string read = placed_error_of([&] { huge.state_dict(); });
  expect_text(read, message(read), __LINE__ - 1);
}

// Text of a command line or of a file has no line in the program.
TEST(Places, OfMeshesInFlagsAreNone) {
  EXPECT_EQ(placed_error_of([] { dist::Mesh::parse("dp0", {}); }), "mesh: dimension 'dp' has size 0; need 1 or more");
}

// One bad index, at position 2 of `tokens`: eagerly, compiled and on rank 1 of a mesh. The call may be in any scope.
void expect_at_run_time(const std::function<Tensor(const Tensor&)>& fn, const Tensor& tokens, const std::string& names,
                        int line = __builtin_LINE()) {
  SCOPED_TRACE(names);
  auto step = compile([&](Tensor t) { return fn(t); });
  auto mesh = dist::compile([&](Tensor t) { return fn(t); }, {.mesh = dist::Mesh({{"dp", 2}})});
  const std::string was = switch_value("WEFT_EXEC");
  set_switch("WEFT_EXEC", "interp");
  auto nodes = compile([&](Tensor t) { return fn(t); });
  set_switch("WEFT_EXEC", was);
  const std::string eager = placed_error_of([&] { fn(tokens); });
  NameScope caller("train");
  const std::string compiled = placed_error_of([&] { step(tokens); }), ranks = placed_error_of([&] { mesh(tokens); }),
                    interpreted = placed_error_of([&] { nodes(tokens); });
  EXPECT_EQ(ranks.substr(0, 8), "rank 1: ");
  for (const std::string& text : {eager, compiled, ranks, interpreted}) {
    const size_t place = text.find("; at "), rank = text.starts_with("rank 1: ") ? 8 : 0;
    EXPECT_EQ(text.substr(rank, place - rank), eager.substr(0, eager.find("; at ")));
    EXPECT_NE(text.find(" at position 2"), text.npos) << text;
    expect_text(text, text.substr(0, place), line, names);
  }
}

TEST(Places, OfRunTimeErrorsAreTheSameCompiledAndOnAMesh) {
  Outer outer;
  const nn::Embedding& table = outer.net.table;
  const Tensor tokens = Tensor::from_vector<int64_t>({0, 1, 9, 2}, {4, 1});
  expect_at_run_time([&](const Tensor& t) { return table(t); }, tokens, "net.table");
  expect_at_run_time([&](const Tensor& t) { return tanh(table(t + 1)); }, tokens, "net.table");  // one kernel
  expect_at_run_time(
      [&](const Tensor& t) {
        const Tensor logits = outer.net.blocks[1](ones({4, 8}));
        NameScope scope("loss");
        return cross_entropy(logits, flatten(t));
      },
      tokens, "loss", __LINE__ - 2);
  expect_at_run_time(
      [&](const Tensor& t) {  // the table's own name, as no layer has it
        return embedding(t, table.weight);
      },
      tokens, "", __LINE__ - 2);
  // An error of shapes is found before the step is split, so it equals the error of one device.
  auto wrong = dist::compile([](Tensor t) { return matmul(t, ones({9, 2})); }, {.mesh = dist::Mesh({{"dp", 2}})});
  expect_text(placed_error_of([&] {
                wrong(ones({4, 8}));
              }),
              "matmul: inner dimensions differ: [4, 8] x [9, 2] (8 != 9); need equal ones", __LINE__ - 2);
}

TEST(Places, EndWithTheirCall) {
  placed_error_of([] { matmul(ones({2, 3}), ones({2, 3})); });
  EXPECT_EQ(placed_error_of([] { parse_dtype("f31"); }).find("; at "), std::string::npos);
}

// Every public function: its nodes and its parts' nodes carry the line of the call.
struct Row {
  const char* name;
  std::function<void(const Tensor& x, const Tensor& i, const Parameter& p)> call;
};

#define ROW(...)                                                                                                   \
  {                                                                                                                \
#__VA_ARGS__, [](const Tensor& x, const Tensor& i, const Parameter& p) { (void)p, (void)i, (void)x; __VA_ARGS__; } \
  }

const std::vector<Row>& rows() {
  // x: f32 [4, 6]; i: i64 [2]; p: f32 [6]
  static const auto* table = new std::vector<Row>{
      ROW(x + 1.0),
      ROW(x + p),
      ROW(-x),
      ROW(!(x > 0.5)),
      ROW((x > 0.5) + (x > 1.0)),
      ROW(where(x > 0.5, x, 0.0)),
      ROW(x.to(kFloat64)),
      ROW(pow(x, 2)),
      ROW(x[1]),
      ROW(x[-1]),
      ROW(x[i]),
      ROW(x.std({1})),
      ROW(full({2}, 3.0)),
      ROW(zeros({2})),
      ROW(zeros_like(x)),
      ROW(full_like(x, 2)),
      ROW(arange(5)),
      ROW(arange(0, 5)),
      ROW(arange(5, {.dtype = kFloat32})),
      ROW(eye(3)),
      ROW(rand({3})),
      ROW(randn({3})),
      ROW(uniform({3}, 0, 2)),
      ROW(normal({3}, 0, 2)),
      ROW(randint(0, 5, {3})),
      ROW(rand_like(x)),
      ROW(bernoulli(x)),
      ROW(reshape(x, {24})),
      ROW(x.view({-1})),
      ROW(permute(x, {1, 0})),
      ROW(x.transpose(0, 1)),
      ROW(x.t()),
      ROW(movedim(x, 0, 1)),
      ROW(expand(x.unsqueeze(0), {2, 4, 6})),
      ROW(squeeze(x.unsqueeze(0))),
      ROW(flatten(x)),
      ROW(x.slice(0, 1, 3)),
      ROW(select(x, 0, 1)),
      ROW(pad(x, {1, 1})),
      ROW(cat({x, x}, 0)),
      ROW(stack({x, x})),
      ROW(split(x, 2, 1)),
      ROW(chunk(x, 2, 0)),
      ROW(unbind(x)),
      ROW(tril(x)),
      ROW(triu(x)),
      ROW(roll(x, 1, 0)),
      ROW(flip(x, 0)),
      ROW(repeat_interleave(x, 2, 0)),
      ROW(sum(x)),
      ROW(x.mean({0}, true)),
      ROW(amax(x)),
      ROW(prod(x)),
      ROW(var(x)),
      ROW(logsumexp(x, 1)),
      ROW(argmax(x)),
      ROW(argmin(x, 1)),
      ROW(cumsum(x, 0)),
      ROW(any(x)),
      ROW(all(x)),
      ROW(gather(x, 0, i.unsqueeze(1))),
      ROW(take_along_dim(x, i.unsqueeze(1), 0)),
      ROW(index_select(x, 0, i)),
      ROW(scatter_add(x, 0, i.unsqueeze(1), x)),
      ROW(index_add(x, 1, i, x.slice(1, 0, 2))),
      ROW(index_copy(x, 0, i, x.slice(0, 0, 2))),
      ROW(embedding(i, x)),
      ROW(one_hot(i, 3)),
      ROW(histogram(i, 3)),
      ROW(masked_fill(x, x > 1.0, 0.0)),
      ROW(dynamic_update_slice(x, x.slice(0, 0, 1), {1, 0})),
      ROW(dynamic_slice(x, {1, 0}, {1, 6})),
      ROW(sort(x)),
      ROW(argsort(x)),
      ROW(topk(x, 2)),
      ROW(matmul(x, x.t())),
      ROW(mm(x, x.t())),
      ROW(bmm(x.unsqueeze(0), x.t().unsqueeze(0))),
      ROW(linear(x, x, Tensor())),
      ROW(einsum("ij,kj->ik", {x, x})),
      ROW(softmax(x, -1)),
      ROW(log_softmax(x, 0)),
      ROW(gelu(x)),
      ROW(gelu(x, "tanh")),
      ROW(silu(x)),
      ROW(softplus(x)),
      ROW(leaky_relu(x)),
      ROW(elu(x)),
      ROW(selu(x)),
      ROW(celu(x)),
      ROW(glu(x)),
      ROW(mish(x)),
      ROW(swish(x)),
      ROW(hardtanh(x)),
      ROW(relu6(x)),
      ROW(hardsigmoid(x)),
      ROW(hardswish(x)),
      ROW(softsign(x)),
      ROW(tanhshrink(x)),
      ROW(hardshrink(x)),
      ROW(softshrink(x)),
      ROW(threshold(x, 0.5, 2)),
      ROW(prelu(x, p)),
      ROW(exp2(x)),
      ROW(log2(x)),
      ROW(log10(x)),
      ROW(cbrt(x)),
      ROW(hypot(x, p)),
      ROW(tan(x)),
      ROW(asin(x)),
      ROW(acos(x)),
      ROW(atan(x)),
      ROW(atan2(x, p)),
      ROW(sinh(x)),
      ROW(cosh(x)),
      ROW(asinh(x)),
      ROW(acosh(x)),
      ROW(atanh(x)),
      ROW(deg2rad(x)),
      ROW(rad2deg(x)),
      ROW(trunc(x)),
      ROW(frac(x)),
      ROW(fmod(x, 2.0)),
      ROW(copysign(x, p)),
      ROW(heaviside(x, 0.5)),
      ROW(positive(x + 1.0)),
      ROW(sgn(x)),
      ROW(isinf(x)),
      ROW(isposinf(x)),
      ROW(isneginf(x)),
      ROW(nan_to_num(x)),
      ROW(lerp(x, p, 0.5)),
      ROW(addcmul(x, x, p)),
      ROW(addcdiv(x, x, p, 2)),
      ROW(erfc(x)),
      ROW(erfinv(x)),
      ROW(lgamma(x)),
      ROW(digamma(x)),
      ROW(sinc(x)),
      ROW(logit(x, 0.1)),
      ROW(xlogy(x, p)),
      ROW(logaddexp(x, p)),
      ROW(logaddexp2(x, p)),
      ROW(max(x)),
      ROW(min(x, 0)),
      ROW(max(x, 1, true)),
      ROW(max(x, x)),
      ROW(min(x, p)),
      ROW(aminmax(x)),
      ROW(aminmax(x, 0)),
      ROW(count_nonzero(x)),
      ROW(nansum(x)),
      ROW(nanmean(x, 0)),
      ROW(std_mean(x)),
      ROW(var_mean(x, 1)),
      ROW(isclose(x, p)),
      ROW(cumprod(x, 0)),
      ROW(logcumsumexp(x, 1)),
      ROW(cummax(x, 0)),
      ROW(cummin(x, 1)),
      ROW(diff(x)),
      ROW(norm(x)),
      ROW(norm(x, 3, 1)),
      ROW(normalize(x)),
      ROW(cosine_similarity(x, p)),
      ROW(pairwise_distance(x, p)),
      ROW(cdist(x, x)),
      ROW(cdist(x, x, 2, "use_mm_for_euclid_dist")),
      ROW(diagonal(x)),
      ROW(diag_embed(x)),
      ROW(diag(p)),
      ROW(trace(x)),
      ROW(dot(p, p)),
      ROW(vdot(p, p)),
      ROW(inner(x, p)),
      ROW(outer(p, p)),
      ROW(mv(x, p)),
      ROW(tensordot(x, x.t(), 1)),
      ROW(tensordot(x, x, {1}, {1})),
      ROW(cross(x.slice(1, 0, 3), x.slice(1, 3, 6), 1)),
      ROW(kron(x, p)),
      ROW(addmm(p, x, ones({6, 6}), 0.5)),
      ROW(baddbmm(x, x.unsqueeze(0), ones({1, 6, 6}))),
      ROW(addmv(ones({4}), x, p)),
      ROW(softmin(x, 1)),
      ROW(gumbel_softmax(x, 1, true)),
      ROW(layer_norm(x, {6}, p, p, 1e-5)),
      ROW(rms_norm(x, p, 1e-5)),
      ROW(dropout(x, 0.5)),
      ROW(cross_entropy(x.slice(0, 0, 2), i)),
      ROW(nll_loss(x.slice(0, 0, 2), i)),
      ROW(mse_loss(x, x)),
      ROW(l1_loss(x, x)),
      ROW(binary_cross_entropy_with_logits(x, x)),
      ROW(binary_cross_entropy_with_logits(x, x, {.weight = x, .pos_weight = p})),
      ROW(binary_cross_entropy(sigmoid(x), x)),
      ROW(cross_entropy(x, p.value() * ones({4, 6}), {.weight = p, .dim = 1})),
      ROW(huber_loss(x, x)),
      ROW(smooth_l1_loss(x, x)),
      ROW(kl_div(x, x)),
      ROW(poisson_nll_loss(x, x, {.full = true})),
      ROW(gaussian_nll_loss(x, x, exp(x))),
      ROW(hinge_embedding_loss(x, x)),
      ROW(margin_ranking_loss(x, x, x)),
      ROW(soft_margin_loss(x, x)),
      ROW(cosine_embedding_loss(x, x, x.sum({1}))),
      ROW(triplet_margin_loss(x, x, x, {.p = 3, .swap = true})),
      ROW(multi_margin_loss(x.slice(0, 0, 2), i, {.p = 2, .weight = p})),
      ROW(multilabel_margin_loss(x, x.to(kInt64))),
      ROW(multilabel_soft_margin_loss(x, x, {.weight = p})),
      ROW(ctc_loss(x.unsqueeze(1), i.unsqueeze(0), std::vector<int64_t>{4}, std::vector<int64_t>{2})),
      ROW(scaled_dot_product_attention(x.view({1, 1, 4, 6}), x.view({1, 1, 4, 6}), x.view({1, 1, 4, 6}))),
      ROW(solve(x.slice(1, 0, 4), x)),
      ROW(inverse(x.slice(1, 0, 4))),
      ROW(det(x.slice(1, 0, 4))),
      ROW(slogdet(x.slice(1, 0, 4))),
      ROW(cholesky(x.slice(1, 0, 4), true)),
      ROW(qr(x)),
      ROW(svd(x)),
      ROW(linalg::svd(x)),
      ROW(linalg::svdvals(x)),
      ROW(linalg::eigh(x.slice(1, 0, 4))),
      ROW(linalg::eigvalsh(x.slice(1, 0, 4), "U")),
      ROW(linalg::pinv(x)),
      ROW(linalg::lstsq(x, x)),
      ROW(linalg::matrix_rank(x)),
      ROW(linalg::matrix_norm(x)),
      ROW(linalg::matrix_norm(x, 1)),
      ROW(matrix_power(x.slice(1, 0, 4), -3)),
      ROW(matrix_exp(x.slice(1, 0, 4))),
      ROW(softmin(x)),
      ROW(log_softmax(x)),
      ROW(fill_diagonal(x, 1.0)),
      ROW(masked_scatter(x, x > 0.5, x)),
      ROW(take_along_dim(x, i)),
      ROW(div(x, 2.0, "trunc")),
      ROW(div(i, 2, "trunc")),
      ROW(round(x, 1)),
      ROW(signbit(x)),
      ROW(fmax(x, p)),
      ROW(fmin(x, p)),
      ROW(nextafter(x, p)),
      ROW(gcd(i, 4)),
      ROW(lcm(i, 4)),
      ROW(vecdot(x, p)),
      ROW(max_pool1d_with_indices(x.unsqueeze(0), 2)),
      ROW(adaptive_max_pool1d_with_indices(x.unsqueeze(0), 4)),
      ROW(max_unpool1d(x.unsqueeze(0), x.unsqueeze(0).to(kInt64), 2)),
      ROW(avg_pool2d(x.unsqueeze(0), 2, 2, 0, false, true, 3)),
      ROW(pixel_shuffle(x.view({4, 2, 3}), 2)),
      ROW(pixel_unshuffle(x.unsqueeze(0), 2)),
      ROW(affine_grid(x.view({4, 2, 3}), {4, 1, 2, 2})),
      ROW(grid_sample(x.view({1, 1, 4, 6}), x.view({1, 6, 2, 2}), "bilinear", "reflection")),
      ROW(interpolate(x.view({1, 1, 4, 6}), {.size = {8}, .mode = "bicubic"})),
      ROW(interpolate(x.view({1, 1, 4, 6}), {.size = {2}, .mode = "bilinear", .antialias = true})),
      ROW(linalg::solve_triangular(x.slice(1, 0, 4), x, false)),
      ROW(cholesky_solve(x, x.slice(1, 0, 4))),
      ROW(linalg::lu(x)),
      ROW(linalg::lu_factor(x)),
      ROW(linalg::lu_solve(x.slice(1, 0, 4), i.repeat({2}), x)),
      ROW(linalg::cond(x)),
      ROW(linalg::cond(x.slice(1, 0, 4), "fro")),
      ROW(jacobian([](const Tensor& t) { return t; }, x.slice(0, 0, 1))),
      ROW(hessian([](const Tensor& t) { return t.sum(); }, x.slice(0, 0, 1))),
      ROW(vjp([](const Tensor& t) { return t; }, x, x)),
      ROW(jvp([](const Tensor& t) { return t; }, x, x)),
      ROW(distributions::Normal(x, 1.0).rsample({2})),
      ROW(distributions::Normal(x, 1.0).log_prob(x)),
      ROW(distributions::Uniform(x, 9.0).log_prob(x)),
      ROW(distributions::Exponential(x).entropy()),
      ROW(distributions::Bernoulli(x).sample({2})),
      ROW(distributions::Categorical(x).sample({2})),
      ROW(distributions::Categorical({.logits = x}).entropy()),
      ROW(kl_divergence(distributions::Categorical(x), distributions::Categorical(x))),
      ROW(route_top_k(x)),
      ROW(sort_by_expert(i.unsqueeze(1), 3)),
      ROW(tensor({1.0, 2.0}) + x[0][0]),
      ROW(scalar(3.0) + x),
      ROW(linspace(0, 1, 5)),
      ROW(logspace(0, 1, 5)),
      ROW(meshgrid({x[0], x[1]})),
      ROW(cartesian_prod({x[0], x[1]})),
      ROW(combinations(x[0])),
      ROW(tril_indices(3, 3)),
      ROW(empty_like(x)),
      ROW(randint_like(x, 5)),
      ROW(randperm(5)),
      ROW(exponential({3})),
      ROW(multinomial(x, 2)),
      ROW(multinomial(x, 2, true)),
      ROW(vstack({x, x})),
      ROW(hstack({x, x})),
      ROW(dstack({x, x})),
      ROW(column_stack({x, x})),
      ROW(block_diag({x, x})),
      ROW(repeat(x, {2, 2})),
      ROW(tile(x, 2)),
      ROW(swapaxes(x, 0, 1)),
      ROW(moveaxis(x, {0, 1}, {1, 0})),
      ROW(ravel(x)),
      ROW(unflatten(x, 1, {2, 3})),
      ROW(fliplr(x)),
      ROW(flip(x, {0, 1})),
      ROW(roll(x, 1)),
      ROW(rot90(x)),
      ROW(narrow(x, 0, 1, 2)),
      ROW(tensor_split(x, 2)),
      ROW(tensor_split(x, {1})),
      ROW(atleast_3d(x)),
      ROW(broadcast_tensors({x, x[0]})),
      ROW(repeat_interleave(x, 2)),
      ROW(repeat_interleave(x, tensor({2, 1, 0, 1}), 0)),
      ROW(index(x, {Slice(1, 3), None, 0})),
      ROW(index(x, {i, i})),
      ROW(index_put(x, {i, i}, 0.0)),
      ROW(index_put(x, {x > 1.0}, 0.0)),
      ROW(index_add(x, 1, i, x.slice(1, 0, 2), 2)),
      ROW(index_fill(x, 0, i, 1.0)),
      ROW(scatter(x, 0, i.unsqueeze(1), 1.0)),
      ROW(scatter_reduce(x, 0, i.unsqueeze(1), x, "sum")),
      ROW(scatter_reduce(x, 0, i.unsqueeze(1), x, "mean")),
      ROW(scatter_reduce(x, 0, i.unsqueeze(1), x, "prod")),
      ROW(scatter_reduce(x, 0, i.unsqueeze(1), x, "amax")),
      ROW(take(x, i)),
      ROW(put(x, i, 1.0 * x[0].slice(0, 0, 2))),
      ROW(x[tensor({true, false, true, true})]),
      ROW(masked_select(x, tensor({true, false, true, true, false, false}))),
      ROW(searchsorted(x[0], x)),
      ROW(bucketize(x, x[0])),
      ROW(isin(i, 1)),
      ROW(median(x)),
      ROW(median(x, 1)),
      ROW(nanmedian(x, 1)),
      ROW(quantile(x, 0.5)),
      ROW(mode(x)),
      ROW(kthvalue(x, 2)),
      ROW(msort(x)),
      ROW(histc(x, 4)),
      ROW(cov(x)),
      ROW(corrcoef(x)),
      ROW(p.value() * 2.0),
      ROW(p.value().detach()),
      ROW(p.set(p.value() + 1.0)),
      ROW(nn::Linear(6, 2)(x)),
      ROW(nn::RMSNorm(6)(x)),
      ROW(nn::Dropout(0.5)(x)),
      ROW(nn::GELU()(x)),
      ROW(nn::Unflatten(1, {2, 3})(x)),
      ROW(nn::Sequential(nn::Linear(6, 2), nn::Tanh())(x)),
      ROW(nn::Bilinear(6, 6, 2)(x, x)),
      ROW(nn::Embedding(5, 2, {.padding_idx = 0})(i)),
      ROW(nn::init::uniform(p)),
      ROW(nn::init::trunc_normal(p)),
      ROW(optim::clip_grad_norm({x}, 1.0)),
      ROW(optim::clip_grad_value({x}, 1.0)),
  };
  return *table;
}

TEST(Places, OfNodesAreTheUsersLinesForEveryFunction) {
  for (const Row& row : rows()) {
    Parameter p(ones({6}));
    Ref<Graph> g = capture_graph(
        [&](std::span<const Tensor> in) {
          row.call(in[0], in[1], p);
          return std::vector<Tensor>{};
        },
        std::vector<TensorType>{{kFloat32, Device::cpu(), {4, 6}}, {kInt64, Device::cpu(), {2}}});
    for (int32_t id = 0; id < g->size(); ++id) {
      const Node& n = g->node(id);
      if (n.op->is(kStructural)) continue;
      EXPECT_EQ(std::string(n.line.file), "models/testing/places_test.cc")
          << row.name << ": " << n.op->name << " at " << n.line.to_string();
    }
  }
}

}  // namespace
}  // namespace weft
