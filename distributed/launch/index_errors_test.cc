// An index out of range gives the error of one device on every mesh, after the rank: index, position and bound refer to
// the whole index and the whole table, even if one of them is split.
#include <gtest/gtest.h>

#include <functional>

#include "distributed/launch/compile.h"
#include "framework/base/testing/error_of.h"
#include "weft.h"

namespace weft::dist {
namespace {

using testing::placed_error_of;

constexpr int64_t kRows = 12, kColumns = 8, kBatch = 4;

Tensor flat(const Tensor& index) { return reshape(index, {-1}); }
// One index for each row of the batch; the bad index is in column 3.
Tensor column(const Tensor& index) { return flat(slice(index, 1, 3, 4)); }

struct Case {
  const char* name;
  Tensor (*fn)(const Tensor& table, const Tensor& index, const Tensor& x);
};
const Case kCases[] = {
    {"index_select", [](const Tensor& w, const Tensor& i, const Tensor&) { return index_select(w, 0, flat(i)) * 1.5; }},
    {"embedding", [](const Tensor& w, const Tensor& i, const Tensor&) { return tanh(embedding(i, w)); }},
    {"gather", [](const Tensor& w, const Tensor& i, const Tensor&) { return gather(w, 0, i) * 1.5; }},
    {"scatter_add", [](const Tensor& w, const Tensor& i, const Tensor& x) { return tanh(scatter_add(w, 0, i, x)); }},
    {"index_add",
     [](const Tensor& w, const Tensor& i, const Tensor& x) { return tanh(index_add(w, 0, column(i), x)); }},
    {"index_copy",
     [](const Tensor& w, const Tensor& i, const Tensor& x) { return tanh(index_copy(w, 0, column(i), x)); }},
    {"cross_entropy",
     [](const Tensor& w, const Tensor& i, const Tensor& x) {
       return cross_entropy(matmul(x, transpose(w, 0, 1)), column(i), {.ignore_index = -5});
     }},
};

enum class Asked { kValue, kGradient, kAfterSet };

struct Step {
  const Case& c;
  const Asked asked;
  Parameter w{full({kRows, kColumns}, 0.25), "w"};

  Tensor operator()(const Tensor& index, const Tensor& x) {
    if (asked == Asked::kAfterSet) w.set(w.value() * 1.0);
    const Tensor y = sum(c.fn(w.value(), index, x));
    // The table is in every graph so that rules find it.
    return asked == Asked::kGradient ? grad(y, std::vector<Parameter>{w})[0] + w.value() : y;
  }
};

Tensor indices(int64_t bad) {
  std::vector<int64_t> v;
  for (int64_t i = 0; i < kBatch * kColumns; ++i) v.push_back(i * 5 % kRows);
  if (bad) v[2 * kColumns + 3] = bad;
  return Tensor::from_vector<int64_t>(v, {kBatch, kColumns});
}

// Whether writes had begun depends on the order of launches.
std::string without_advice(const std::string& error) { return error.substr(0, error.find("; cells were")); }

void check(const char* mesh, const Case& c, Asked asked, bool exact) {
  SCOPED_TRACE(str_cat(mesh, ", ", c.name, ", ", static_cast<int>(asked), exact ? ", verify_numerics" : ""));
  const bool tp = Mesh::parse(mesh).find("tp");
  CompileOptions how{.mesh = Mesh::parse(mesh), .plan = tp ? Plan{{"w", {{"tp", Shard(0)}}}} : Plan{}};
  how.verify_numerics = exact;
  CompileOptions alone{.verify_numerics = exact};
  if (tp) alone.disable = {"linear_cross_entropy"};  // as on a mesh with tp
  Step one{c, asked}, many{c, asked};
  auto on_one = weft::compile([&](Tensor i, Tensor x) { return one(i, x); }, alone);
  auto on_mesh = dist::compile([&](Tensor i, Tensor x) { return many(i, x); }, how);
  const Tensor x = full({kBatch, kColumns}, 0.5);
  for (int64_t bad : {int64_t{99}, int64_t{-1}, kRows}) {
    EXPECT_EQ(on_mesh(indices(0), x).to_vector<float>().size(), on_one(indices(0), x).to_vector<float>().size());
    const std::string want = without_advice(placed_error_of([&] { on_one(indices(bad), x); }));
    const std::string got = without_advice(placed_error_of([&] { on_mesh(indices(bad), x); }));
    EXPECT_NE(want.find(str_cat(" ", bad, " at position ")), want.npos) << want;
    EXPECT_EQ(got.substr(0, 5), "rank ") << got;
    EXPECT_EQ(got.substr(std::min(got.size(), got.find(": ") + 2)), want);
    one.w.set(full({kRows, kColumns}, 0.25));
    many.w.set(full({kRows, kColumns}, 0.25));
  }
}

class MeshIndexErrors : public ::testing::TestWithParam<const char*> {};

TEST_P(MeshIndexErrors, AreThoseOfOneDevice) {
  for (const Case& c : kCases)
    for (Asked asked : {Asked::kValue, Asked::kGradient, Asked::kAfterSet})
      for (bool exact : {false, true}) check(GetParam(), c, asked, exact);
}
INSTANTIATE_TEST_SUITE_P(Meshes, MeshIndexErrors, ::testing::Values("dp2", "fsdp2", "tp2", "dp2,tp2", "cp2"));

// The table has fewer rows than the mesh has ranks, so some ranks have none.
TEST(MeshIndices, WithEmptyPartsOfTheTable) {
  Parameter w(full({2, 4}, 1.0), "w");
  auto step = compile([&](Tensor i) { return index_select(w.value(), 0, i); },
                      {.mesh = Mesh::parse("tp4"), .plan = Plan{{"w", {{"tp", Shard(1)}}}}});
  EXPECT_EQ(step(Tensor::from_vector<int64_t>({1, 0}, {2})).to_vector<float>(), std::vector<float>(8, 1));
  EXPECT_NE(placed_error_of([&] {
              step(Tensor::from_vector<int64_t>({1, 2}, {2}));
            }).find("index_select: index 2 at position 1 is out of range; need 0 to 1"),
            std::string::npos);
}

// quantile's error does not mention the index of its look-up.
TEST(MeshIndices, AWholeErrorIsThatOfOneDevice) {
  auto fn = [](Tensor q, Tensor x) { return sum(quantile(flatten(x), q)); };
  auto one = weft::compile(fn);
  auto many = compile(fn, {.mesh = Mesh::parse("dp2")});
  const Tensor x = full({kBatch, kColumns}, 0.5), q = Tensor::from_vector({0.5, 2}, {2});
  const std::string want = without_advice(placed_error_of([&] { one(q, x); }));
  const std::string got = without_advice(placed_error_of([&] { many(q, x); }));
  EXPECT_EQ(want.substr(0, 56), "quantile: a q is not in [0, 1]; need numbers from 0 to 1");
  EXPECT_EQ(got.substr(std::min(got.size(), got.find(": ") + 2)), want);
}

// An ignored target is no error, and counts nowhere.
TEST(MeshIndices, IgnoredTargetsAreNotErrors) {
  for (const char* mesh : {"dp2", "tp2"}) {
    const bool tp = Mesh::parse(mesh).find("tp");
    Parameter w(full({kRows, kColumns}, 0.25), "w");
    auto fn = [&](Tensor t, Tensor x) {
      return cross_entropy(matmul(x, transpose(w.value(), 0, 1)), t, {.ignore_index = -5});
    };
    const Tensor x = full({kBatch, kColumns}, 0.5), t = Tensor::from_vector<int64_t>({1, -5, -5, 3}, {kBatch});
    const double want = weft::compile(fn)(t, x).item<double>();
    EXPECT_NEAR(
        dist::compile(fn, {.mesh = Mesh::parse(mesh), .plan = tp ? Plan{{"w", {{"tp", Shard(0)}}}} : Plan{}})(t, x)
            .item<double>(),
        want, 1e-6)
        << mesh;
  }
}

}  // namespace
}  // namespace weft::dist
