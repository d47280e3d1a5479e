#include "distributed/diloco/exchange.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <optional>
#include <thread>

#include "distributed/comm/threads.h"
#include "distributed/diloco/outer.h"
#include "framework/base/testing/error_of.h"

namespace weft::dist {
namespace {

Work::Deadline soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(60); }

std::vector<float> gradient(size_t values, int replica) {
  std::vector<float> d(values);
  for (size_t i = 0; i < values; ++i) d[i] = std::sin(static_cast<float>(i * 7 + 1) * static_cast<float>(replica + 1));
  return d;
}

// A sequential reference: element by element, and block by block. The wire has one zero: + 0.0f.
std::vector<float> reference(OuterWire wire, const std::vector<std::vector<float>>& d,
                             const std::vector<int64_t>& weights) {
  const auto pass = [&](const std::vector<float>& values) {
    std::vector<float> all;
    for (size_t begin = 0; begin < values.size(); begin += 256) {
      const std::vector<float> block(values.begin() + static_cast<ptrdiff_t>(begin),
                                     values.begin() + static_cast<ptrdiff_t>(std::min(values.size(), begin + 256)));
      float largest = 0;
      for (const float v : block) largest = std::max(largest, std::abs(v));
      const float scale = largest / (wire == OuterWire::kInt8 ? 127.0f : 7.0f);
      for (const float v : block) {
        if (wire == OuterWire::kF32) all.push_back(v);
        if (wire == OuterWire::kBf16) all.push_back(static_cast<float>(bfloat16(v)));
        if (wire == OuterWire::kInt8 || wire == OuterWire::kInt4)
          all.push_back(scale > 0 ? std::nearbyint(v / scale) * scale + 0.0f : 0.0f);
      }
    }
    return all;
  };
  std::vector<std::vector<float>> arrived;
  for (const auto& values : d) arrived.push_back(pass(values));
  std::vector<float> average(d[0].size());
  for (size_t i = 0; i < average.size(); ++i) {
    float sum = 0;
    int64_t total = 0;
    for (size_t r = 0; r < d.size(); ++r) {
      sum += static_cast<float>(weights[r]) * arrived[r][i];
      total += weights[r];
    }
    average[i] = total > 0 ? sum / static_cast<float>(total) : 0.0f;
  }
  return pass(average);
}

bool equal_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

TEST(Exchange, EqualsTheReferenceToTheBit) {
  for (const OuterWire wire : {OuterWire::kF32, OuterWire::kBf16, OuterWire::kInt8, OuterWire::kInt4})
    for (const int replicas : {1, 2, 3, 4})
      for (const size_t values : {0, 1, 100, 256, 1000, 5000}) {
        std::vector<std::vector<float>> d;
        std::vector<int64_t> weights;
        for (int r = 0; r < replicas; ++r) {
          d.push_back(gradient(values, r));
          weights.push_back(r == 1 ? 0 : 640 + 64 * r);
        }
        const std::vector<float> expected = reference(wire, d, weights);
        EXPECT_TRUE(equal_bits(average_of(wire, d, weights), expected));
        const auto all = make_thread_communicators(replicas, "replica");
        std::vector<std::thread> threads;
        std::vector<int64_t> sent(static_cast<size_t>(replicas));
        for (int r = 0; r < replicas; ++r)
          threads.emplace_back([&, r] {
            EXPECT_TRUE(equal_bits(exchange(*all[r], wire, d[r], weights[r], soon(), sent[r]), expected))
                << replicas << " " << values;
          });
        for (std::thread& t : threads) t.join();
        int64_t total = 0;
        for (const int64_t n : sent) total += n;
        EXPECT_EQ(total, 2 * (replicas - 1) * (wire_bytes(wire, std::ssize(d[0])) + 16 * replicas));
      }
}

// Replicas without weight, such as all that have just come back, change nothing.
TEST(Exchange, WithoutWeightTheAverageIsZero) {
  const std::vector<std::vector<float>> d(2, std::vector<float>(300, 5.0f));
  EXPECT_EQ(average_of(OuterWire::kInt4, d, std::vector<int64_t>{0, 0}), std::vector<float>(300, 0.0f));
}

// A NaN of one replica is a NaN of all.
TEST(Exchange, NonFiniteGradientsArrive) {
  std::vector<std::vector<float>> d{gradient(300, 0), gradient(300, 1)};
  d[1][7] = std::nanf("");
  const std::vector<float> average = average_of(OuterWire::kInt8, d, std::vector<int64_t>{1, 1});
  EXPECT_TRUE(std::isnan(average[7]));
  EXPECT_TRUE(std::isnan(average[255]));
  EXPECT_FALSE(std::isnan(average[256]));
}

// A communicator that damages one byte of the first collective.
struct Damaging final : Communicator {
  explicit Damaging(Ref<Communicator> c) : inner(std::move(c)) {}
  int rank() const override { return inner->rank(); }
  int size() const override { return inner->size(); }
  Ref<Work> start(const CommRequest& r) override {
    if (!std::exchange(done, true)) static_cast<std::byte*>(r.in.data)[r.in.numel() - 3] ^= std::byte{4};
    return inner->start(r);
  }
  Ref<Communicator> split(int, int, Work::Deadline) override { return {}; }
  void abort(const std::string& cause) override { inner->abort(cause); }
  void retire(bool) override {}
  Ref<Communicator> inner;
  bool done = false;
};

TEST(Exchange, DamagedMessagesAreRefused) {
  const auto all = make_thread_communicators(2, "replica");
  std::vector<std::string> errors(2);
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      const Ref<Communicator> c = r == 0 ? Ref<Communicator>(make_ref<Damaging>(all[0])) : all[1];
      errors[r] = weft::testing::error_of([&] {
        int64_t sent = 0;
        try {
          (void)exchange(*c, OuterWire::kF32, gradient(1000, r), 1, soon(), sent);
        } catch (const Error&) {
          c->abort("an exchange failed");
          throw;
        }
      });
    });
  for (std::thread& t : threads) t.join();
  weft::testing::expect_has(errors[1], "arrived damaged: their checksum differs");
  weft::testing::expect_has(errors[0], "an exchange failed");
}

}  // namespace
}  // namespace weft::dist
