#include "distributed/diloco/outer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <set>
#include <string>

#include "distributed/diloco/exchange.h"
#include "framework/base/testing/error_of.h"

namespace weft::dist {
namespace {

using weft::testing::error_of;

TEST(Outer, Times) {
  const OuterOptions o{.every = 12, .fragments = 3, .delay = 2, .steps = 24};
  o.check();
  EXPECT_EQ(o.exchanges(), 6);
  std::vector<int64_t> begins, ends, steps;
  for (int64_t x = 0; x < o.exchanges(); ++x) {
    begins.push_back(o.begins_after(x));
    ends.push_back(o.ends_after(x));
    steps.push_back(o.steps_in(x));
  }
  EXPECT_EQ(begins, (std::vector<int64_t>{4, 8, 12, 16, 20, 24}));
  EXPECT_EQ(ends, (std::vector<int64_t>{6, 10, 14, 18, 22, 24}));
  EXPECT_EQ(steps, (std::vector<int64_t>{4, 8, 12, 12, 12, 12}));
  EXPECT_EQ(o.ends_after(-1), 0);
  // Three exchanges are under way after step 12, and the last three end with the run.
  const OuterOptions late{.every = 12, .fragments = 3, .delay = 9, .steps = 24};
  late.check();
  ends.clear();
  for (int64_t x = 0; x < late.exchanges(); ++x) ends.push_back(late.ends_after(x));
  EXPECT_EQ(ends, (std::vector<int64_t>{13, 17, 21, 24, 24, 24}));
}

// V52 of one million values, R = 2, H = 100: 5 kB for each step with int4, without its scales; 40 kB with f32.
TEST(Outer, BytesPerStep) {
  OuterOptions o{.every = 100, .steps = 100};
  EXPECT_EQ(o.bytes_per_step(1000000, 2), 40000);
  EXPECT_EQ(o.bytes_per_step(1000000, 4), 60000);
  o.wire = OuterWire::kInt4;
  EXPECT_NEAR(o.bytes_per_step(1000000, 2), 5000 * (1 + 4.0 / 128), 1);
}

TEST(Outer, RefusesOptions) {
  const auto error = [](OuterOptions o) { return error_of([&] { o.check(); }); };
  EXPECT_EQ(error({.every = 0, .steps = 10}), "diloco: got 0 steps between exchanges; need 1 or more");
  EXPECT_EQ(error({.every = 10, .fragments = 3, .steps = 10}),
            "outer_fragments: got 3; need a divisor of 10, the steps from one exchange of a parameter to the next");
  EXPECT_EQ(error({.every = 10, .fragments = 2, .delay = 9, .steps = 10}), "");
  EXPECT_EQ(error({.every = 10, .fragments = 2, .delay = 10, .steps = 10}),
            "outer_delay: got 10; need 0 or more, below 10, the steps from one exchange of a parameter to the next");
  EXPECT_EQ(error({.every = 10, .steps = 25}), "steps: got 25; need a multiple of 10, the steps between exchanges");
  EXPECT_EQ(error({.every = 1, .steps = 1, .lr = 0}), "outer_lr: got 0; need more than 0, at most 1000");
  EXPECT_EQ(error({.every = 1, .steps = 1, .momentum = 1}), "outer_momentum: got 1; need 0 or more, below 1");
  EXPECT_EQ(error({.every = 1, .steps = 1, .alpha = std::nan("")}), "outer_alpha: got nan; need 0 or more, below 1");
}

// Each value is in one fragment, and fragments are equal to one block.
TEST(Outer, Fragments) {
  for (const int64_t count : {1, 2, 3, 7})
    for (const std::vector<int64_t>& sizes :
         std::vector<std::vector<int64_t>>{{}, {5}, {1000, 0, 24, 3000}, {70000, 512, 1000000}}) {
      int64_t all = 0, largest = 0, smallest = INT64_MAX;
      for (const int64_t n : sizes) all += n;
      std::set<std::pair<size_t, int64_t>> seen;
      for (const auto& fragment : fragments_of(sizes, count)) {
        int64_t own = 0;
        for (const FragmentPiece& p : fragment) {
          own += p.count;
          ASSERT_GT(p.count, 0);
          ASSERT_LE(p.begin + p.count, sizes[p.part]);
          for (int64_t i = 0; i < p.count; ++i) ASSERT_TRUE(seen.emplace(p.part, p.begin + i).second);
        }
        largest = std::max(largest, own), smallest = std::min(smallest, own);
      }
      EXPECT_EQ(std::ssize(seen), all);
      const int64_t rounds = std::max<int64_t>(1, (all + count * 65536 - 1) / (count * 65536));
      EXPECT_LE(largest - smallest, std::max<int64_t>(256, all / count / rounds + 256)) << count << " of " << all;
      if (all > 100000) {
        EXPECT_LE(static_cast<double>(largest - smallest),
                  0.15 * static_cast<double>(all) / static_cast<double>(count));
      }
    }
  EXPECT_EQ(fragments_of(std::vector<int64_t>{300, 600}, 2),
            (std::vector<std::vector<FragmentPiece>>{{{0, 0, 300}, {1, 0, 212}}, {{1, 212, 388}}}));
}

// An f64 run of three replicas with quantised outer gradients, against NumPy (testdata/make_outer.py).
TEST(Outer, EqualsNumpy) {
  std::ifstream file("distributed/diloco/testdata/outer.txt");
  ASSERT_TRUE(file);
  int cases = 0;
  for (std::string wire; file >> wire; ++cases) {
    constexpr int kReplicas = 3, kExchanges = 6;
    constexpr size_t kValues = 700;
    const OuterOptions o{.lr = 0.7, .momentum = 0.9, .alpha = 0.25};
    std::vector<double> anchor(kValues), momentum(kValues, 0.0);
    std::vector<std::vector<double>> parameters(kReplicas, std::vector<double>(kValues));
    for (size_t i = 0; i < kValues; ++i) anchor[i] = std::sin(static_cast<double>(i));
    for (auto& p : parameters) p = anchor;
    const std::vector<int64_t> weights{640, 1280, 37};
    for (int x = 0; x < kExchanges; ++x) {
      std::vector<std::vector<double>> d(kReplicas, std::vector<double>(kValues));
      for (int r = 0; r < kReplicas; ++r)
        for (size_t i = 0; i < kValues; ++i) {
          parameters[r][i] += 0.01 * std::cos(static_cast<double>(i) * (r + 1) + x);
          d[r][i] = anchor[i] - parameters[r][i];
        }
      std::vector<double> sum(kValues, 0.0);
      if (wire == "f64") {
        int64_t total = 0;
        for (int r = 0; r < kReplicas; ++r) add_weighted<double>(sum, d[r], weights[r]), total += weights[r];
        divide<double>(sum, total);
      } else {
        std::vector<std::vector<float>> narrow;
        for (const auto& values : d) narrow.emplace_back(values.begin(), values.end());
        const std::vector<float> average = average_of(parse_outer_wire(wire), narrow, weights);
        sum.assign(average.begin(), average.end());
      }
      move_anchor<double>(o, sum, anchor.data(), momentum.data());
      for (auto& p : parameters) move_parameter<double>(o, anchor, p.data());
    }
    size_t count = 0;
    file >> count;
    for (size_t k = 0; k < count; ++k) {
      size_t i = 0;
      double expected_anchor = 0, expected_momentum = 0, expected_parameter = 0;
      file >> i >> expected_anchor >> expected_momentum >> expected_parameter;
      ASSERT_TRUE(file);
      EXPECT_NEAR(anchor[i], expected_anchor, 1e-12) << wire << " " << i;
      EXPECT_NEAR(momentum[i], expected_momentum, 1e-12) << wire << " " << i;
      EXPECT_NEAR(parameters[1][i], expected_parameter, 1e-12) << wire << " " << i;
    }
  }
  EXPECT_EQ(cases, 4);
}

}  // namespace
}  // namespace weft::dist
