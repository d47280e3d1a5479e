#include "distributed/replica/view_groups.h"

#include <gtest/gtest.h>

#include <barrier>
#include <thread>

#include "framework/base/error.h"
#include "framework/base/testing/error_of.h"

namespace weft::dist {
namespace {

using weft::testing::error_of;

/// A view of replicas named by letters.
control::ReplicaView view_of(int64_t number, const std::string& names) {
  control::ReplicaView v{.number = number};
  for (const char c : names) v.members.push_back({std::string(1, c), 1, false});
  return v;
}

/// Rounds between `n` replicas of one process.
class Rounds {
 public:
  explicit Rounds(size_t n) : values_(n), all_(static_cast<std::ptrdiff_t>(n)) {}
  ViewExchange at(size_t place) {
    return [this, place](const std::string& mine) {
      values_[place] = {mine};
      all_.arrive_and_wait();
      auto got = values_;
      all_.arrive_and_wait();
      return got;
    };
  }

 private:
  std::vector<std::vector<std::string>> values_;
  std::barrier<> all_;
};

/// Replicas form the groups of a view at once; returns the sums of their places by all ranks.
std::vector<int64_t> sums_of(std::vector<ViewGroups*> replicas, const control::ReplicaView& view) {
  Rounds rounds(replicas.size());
  std::vector<std::thread> threads;
  std::vector<int64_t> sums(replicas.size());
  for (size_t p = 0; p < replicas.size(); ++p)
    threads.emplace_back([&, p] {
      replicas[p]->form(view, static_cast<int>(p), rounds.at(p));
      int64_t word = static_cast<int64_t>(p + 1);
      const StridedView data(&word, kInt64, {1}, {1});
      for (const Ref<Communicator>& c :
           {replicas[p]->communicator(0), replicas[p]->communicator(1), replicas[p]->leaders()}) {
        EXPECT_EQ(c->rank(), static_cast<int>(p));
        const CommRequest request{.kind = Collective::kAllReduce, .in = data, .out = data, .site = kOwnSites};
        if (const auto e = c->start(request)->wait(std::chrono::steady_clock::now() + std::chrono::seconds(30)))
          ADD_FAILURE() << e->what();
      }
      sums[p] = word;
    });
  for (std::thread& t : threads) t.join();
  return sums;
}

class Transports : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(, Transports, ::testing::Values("shared", "gloo"));

TEST_P(Transports, SurvivorsKeepTheirConnections) {
  const ViewGroupsOptions options{.count = 2, .transport = GetParam()};
  ViewGroups a(options), c(options);
  {
    ViewGroups b(options);
    EXPECT_EQ(sums_of({&a, &b, &c}, view_of(1, "abc")), std::vector<int64_t>(3, 6 * 9));
  }
  a.close(1, "b has died");
  c.close(1, "b has died");
  EXPECT_EQ(sums_of({&a, &c}, view_of(2, "ac")), std::vector<int64_t>(2, 3 * 4));
  EXPECT_EQ(a.worlds(), 1);
  ViewGroups d(options);
  EXPECT_EQ(sums_of({&c, &a, &d}, view_of(3, "cad")), std::vector<int64_t>(3, 6 * 9));
  EXPECT_EQ(a.worlds(), 2);
  a.close(3, "a connection has failed");
  EXPECT_EQ(sums_of({&c, &a, &d}, view_of(4, "cad")), std::vector<int64_t>(3, 6 * 9));  // the same replicas
  EXPECT_EQ(a.worlds(), 3);
  a.close(4, "d has died");
  EXPECT_EQ(sums_of({&a}, view_of(5, "a")), std::vector<int64_t>{1});
  EXPECT_EQ(sums_of({&a, &c}, view_of(6, "ac")), std::vector<int64_t>(2, 3 * 4));
}

TEST_P(Transports, LeadersOnly) {
  const ViewGroupsOptions options{.count = 2, .transport = GetParam()};
  ViewGroups a(options), b({.count = 3, .transport = GetParam()}), second({.process = 1, .count = 2});
  const auto expect_groups = [](const ViewGroups& of, bool first, bool others, bool leaders) {
    EXPECT_EQ(static_cast<bool>(of.communicator(0)), first);
    EXPECT_EQ(static_cast<bool>(of.communicator(1)), others);
    EXPECT_EQ(static_cast<bool>(of.leaders()), leaders);
  };
  Rounds rounds(2);
  std::thread other([&] { b.form(view_of(1, "ab"), 1, rounds.at(1), /*leaders_only=*/true); });
  a.form(view_of(1, "ab"), 0, rounds.at(0), /*leaders_only=*/true);
  other.join();
  second.form(view_of(1, "ab"), 0, {}, /*leaders_only=*/true);
  for (const ViewGroups* of : {&a, &b}) expect_groups(*of, true, false, true);
  expect_groups(second, false, false, false);
  a.form(view_of(2, "a"), 0, {});
  second.form(view_of(2, "a"), 0, {});
  expect_groups(a, true, true, true);
  expect_groups(second, true, true, false);
  EXPECT_FALSE(a.communicator(2));
}

TEST_P(Transports, CloseEndsAViewThatIsBeingFormed) {
  const ViewGroupsOptions options{.count = 2, .transport = GetParam()};
  const int last = options.transport == "shared" ? 2 : 3;  // the round with the addresses
  ViewGroups a(options), b(options);
  Rounds rounds(2);
  std::thread closer;
  std::thread other([&] {  // b ends before it connects
    const auto exchange = [&, n = 0](const std::string& mine) mutable {
      const auto all = rounds.at(1)(mine);
      if (++n == last) throw Error(Code::kAborted, "b has ended");
      return all;
    };
    weft::testing::expect_has(error_of([&] { b.form(view_of(1, "ab"), 1, exchange); }), "b has ended");
  });
  const auto exchange = [&, n = 0](const std::string& mine) mutable {
    const auto all = rounds.at(0)(mine);
    if (++n == last) closer = std::thread([&] { a.close(1, "view 1 is over"); });
    return all;
  };
  EXPECT_EQ(error_of([&] { a.form(view_of(1, "ab"), 0, exchange); }), "view 1 is over");
  other.join();
  closer.join();
  EXPECT_FALSE(a.communicator(0));
  EXPECT_EQ(sums_of({&a}, view_of(2, "a")), std::vector<int64_t>{1});
}

}  // namespace
}  // namespace weft::dist
