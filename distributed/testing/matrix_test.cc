// The equality matrix: compares thread ranks with one device for every pair of settings of every two mesh dimensions
// and options. `-- --full` runs the whole product (hours), `--seed N` runs another sample of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>

#include "distributed/testing/matrix_model.h"

namespace weft::testing {
namespace {

uint64_t seed = 1;

// Settings by factor.
enum Factor { kDp, kZero, kTp, kSequence, kCp, kCpKind, kEp, kCapacity, kVocab, kPp, kSchedule, kFactors };
constexpr int kLevels[kFactors] = {3, 4, 3, 2, 3, 9, 4, 2, 2, 2, 3};
using Cell = std::array<int, kFactors>;

int ranks(const Cell& c) { return (1 << c[kDp]) * (1 << c[kTp]) * (1 << c[kCp]) * (1 << c[kEp]) * (1 << c[kPp]); }

bool valid(const Cell& c, int most) {
  const int n = ranks(c);
  if (n < 2 || n > most) return false;
  if ((1 << c[kDp]) * (1 << c[kEp]) > 8) return false;  // a microbatch has 8 rows
  if (c[kCp] == 0 && c[kCpKind] != 0) return false;
  if (c[kTp] == 0 && c[kSequence] == 0) return false;  // this setting has no effect without tp
  if (c[kPp] == 0 && c[kSchedule] != 0) return false;
  const bool ulysses = c[kCpKind] % 3 == 2, other_order = c[kCpKind] >= 3;
  if (ulysses && (1 << c[kTp]) * (1 << c[kCp]) > 2) return false;  // there are two key heads
  if (other_order && c[kTp] > 0 && c[kSequence] == 1)
    return false;  // sequence parallelism supports one order of a sequence
  return true;
}

MatrixCase make(const Cell& c, DType dtype, int steps) {
  MatrixCase m;
  auto add = [&](const char* name, int level) {
    if (level > 0) m.mesh += str_cat(m.mesh.empty() ? "" : ",", name, 1 << level);
  };
  add("pp", c[kPp]);
  add("dp", c[kDp]);
  add("ep", c[kEp]);
  add("cp", c[kCp]);
  add("tp", c[kTp]);
  static constexpr const char* kSchedules[] = {"1f1b", "zb_h1", "interleaved_1f1b"};
  m.plan.pipeline = kSchedules[c[kSchedule]];
  m.plan.zero = c[kZero];
  m.plan.sequence = c[kSequence] == 1;
  static constexpr const char* kKinds[] = {"allgather", "ring", "ulysses"};
  m.plan.cp = kKinds[c[kCpKind] % 3];
  static constexpr const char* kLayouts[] = {"contiguous", "headtail", "documents"};
  m.plan.cp_layout = kLayouts[c[kCpKind] / 3];
  m.capacity = c[kCapacity] ? 1.25 : 0;
  m.vocab = c[kVocab] ? 261 : 264;
  m.dtype = dtype;
  m.steps = steps;
  return m;
}

// A covering array: cells that together contain every pair of settings of a valid cell.
std::vector<Cell> pairwise(std::mt19937_64& random, int most) {
  auto draw = [&] {
    Cell c;
    do
      for (int f = 0; f < kFactors; ++f) c[f] = static_cast<int>(random() % static_cast<uint64_t>(kLevels[f]));
    while (!valid(c, most));
    return c;
  };
  using Pair = std::array<int, 4>;
  auto pairs_of = [](const Cell& c) {
    std::vector<Pair> out;
    for (int a = 0; a < kFactors; ++a)
      for (int b = a + 1; b < kFactors; ++b) out.push_back({a, c[a], b, c[b]});
    return out;
  };
  std::map<Pair, bool> covered;
  for (int i = 0; i < 20000; ++i)
    for (const Pair& p : pairs_of(draw())) covered.emplace(p, false);
  std::vector<Cell> cells;
  for (;;) {
    Cell best{};
    int most_new = 0;
    for (int i = 0; i < 300; ++i) {
      const Cell c = draw();
      int fresh = 0;
      for (const Pair& p : pairs_of(c)) fresh += !covered.at(p);
      if (fresh > most_new) most_new = fresh, best = c;
    }
    if (most_new == 0) {
      const bool done = std::all_of(covered.begin(), covered.end(), [](const auto& p) { return p.second; });
      if (done) return cells;
      continue;
    }
    for (const Pair& p : pairs_of(best)) covered[p] = true;
    cells.push_back(best);
  }
}

std::vector<MatrixCase> cases(size_t want) {
  std::mt19937_64 random(seed);
  std::vector<MatrixCase> out;
  for (const Cell& c : pairwise(random, 8)) out.push_back(make(c, kFloat64, 3));
  auto draw = [&](int most, int least) {
    Cell c;
    do
      for (int f = 0; f < kFactors; ++f) c[f] = static_cast<int>(random() % static_cast<uint64_t>(kLevels[f]));
    while (!valid(c, most) || ranks(c) < least);
    return c;
  };
  for (int i = 0; i < 5; ++i) out.push_back(make(draw(16, 16), kFloat64, 3));
  while (out.size() + 10 < want) out.push_back(make(draw(8, 2), out.size() % 2 ? kFloat32 : kFloat64, 3));
  for (int i = 0; i < 10; ++i) out.push_back(make(draw(8, 2), kFloat64, 10));
  return out;
}

const MatrixRun& one_device(const MatrixCase& c) {
  static auto* runs = new std::map<std::string, MatrixRun>;
  MatrixCase alone = c;
  alone.mesh = "";
  alone.plan = {};
  const auto [it, fresh] = runs->try_emplace(alone.name());
  if (fresh) it->second = run_case(alone);
  return it->second;
}

void check(const MatrixCase& c) {
  SCOPED_TRACE(c.name());
  ::testing::Test::RecordProperty("cell", c.name());
  MatrixRun got;
  try {
    got = run_case(c);
  } catch (const Error& e) {
    ADD_FAILURE() << e.what();
    return;
  }
  // In f32, weights move by lr for any size of the gradient, so only losses must agree within 1e-5.
  const bool wide = c.dtype == kFloat64;
  EXPECT_EQ(difference(got, one_device(c), wide ? 1e-9 : 0.05, wide ? 1e-9 : 1e-5), "");
  EXPECT_EQ(got.actual, got.planned);
  EXPECT_FALSE(got.actual.empty());
  if (!wide) {  // f64 attention runs in primitives, outside the arena
    EXPECT_EQ(got.measured_peak, got.planned_peak);
  }
}

constexpr size_t kCells = 84;

class MatrixCell : public ::testing::TestWithParam<int> {};

TEST_P(MatrixCell, EqualsOneDevice) {
  static const auto* all = new std::vector<MatrixCase>(cases(kCells));
  ASSERT_EQ(all->size(), kCells) << "another seed may need more cells for all pairs";
  check((*all)[static_cast<size_t>(GetParam())]);
}
INSTANTIATE_TEST_SUITE_P(Cells, MatrixCell, ::testing::Range(0, static_cast<int>(kCells)));

TEST(MatrixFull, DISABLED_TheWholeProduct) {
  Cell c{};
  size_t cells = 0;
  for (;;) {
    if (valid(c, 16)) {
      check(make(c, kFloat64, 3));
      if (++cells % 20 == 0) std::printf("%zu cells\n", cells);
    }
    int f = 0;
    while (f < kFactors && ++c[f] == kLevels[f]) c[f++] = 0;
    if (f == kFactors) return;
  }
}

}  // namespace
}  // namespace weft::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i], "--full")) {
      ::testing::GTEST_FLAG(also_run_disabled_tests) = true;
      ::testing::GTEST_FLAG(filter) = "MatrixFull.*";
    } else if (!std::strcmp(argv[i], "--seed") && i + 1 < argc) {
      weft::testing::seed = std::strtoull(argv[++i], nullptr, 10);
    } else {
      std::fprintf(stderr, "unknown argument '%s'; need --full or --seed N\n", argv[i]);
      return 2;
    }
  }
  return RUN_ALL_TESTS();
}
