#include "distributed/control/group/group.h"

#include <gtest/gtest.h>

#include "distributed/control/group/member.h"
#include "framework/base/error.h"
#include "framework/base/testing/error_of.h"

namespace weft::control {
namespace {

using weft::testing::expect_has;
using Stand = ReplicaStatus::Stand;

/// A service of replicas named by letters, whose connections have the numbers 1, 2, ... in the order of their starts.
class Group {
 public:
  explicit Group(GroupConfig config) : state{.config = std::move(config)} {}

  /// Sends a status; returns the reply.
  GroupStatus send(const std::string& name, Stand stand, ReplicaStatus more = {}) {
    more.name = name;
    more.stand = stand;
    if (more.incarnation == 0) more.incarnation = 1;
    const auto connection = static_cast<uint64_t>(10 * (name[0] - 'a') + more.incarnation);
    last = apply(state, {.kind = GroupEvent::Kind::kStatus, .now_ms = now, .connection = connection, .status = more});
    for (const auto& [to, status] : last.replies)
      if (to == connection) return status;
    return {};
  }
  GroupStatus join(const std::string& name, ReplicaStatus more = {}) {
    more.view = state.view.number;
    return send(name, Stand::kJoins, more);
  }
  /// A report of a member with the state.
  GroupStatus report(const std::string& name, int64_t step, bool sums) {
    const int64_t view = state.view.number;
    return send(name, Stand::kReports, {.view = view, .state_view = view, .step = step, .sums = sums});
  }
  /// Lets time pass in ticks of 50 ms; all of `alive` send a status in each.
  void pass(int64_t ms, const std::vector<std::string>& alive = {}) {
    for (const int64_t end = now + ms; now < end;) {
      now += 50;
      for (const std::string& name : alive) send(name, Stand::kWorks, {.view = state.view.number});
      last = apply(state, {.kind = GroupEvent::Kind::kTick, .now_ms = now});
    }
  }
  std::string text() const {
    std::string out = str_cat(state.view.number, " from ", state.view.start, ":");
    for (const ViewMember& m : state.view.members) out += str_cat(" ", m.name, m.heals ? "+" : "");
    return out;
  }

  GroupState state;
  GroupOutcome last;
  int64_t now = 0;
};

/// A group of three in view 1.
Group three() {
  Group g({.replicas = 3});
  for (const char* name : {"c", "a", "b"}) g.join(name);
  EXPECT_EQ(g.text(), "1 from 0: a b c");
  return g;
}

TEST(Group, FirstViewWaitsForAllReplicas) {
  Group g({.replicas = 3, .replicas_min = 2});
  g.join("a");
  g.pass(3000, {"a"});
  EXPECT_EQ(g.text(), "0 from 0:");
  g.join("b");
  g.pass(3000, {"a", "b"});  // 5 s after the first one
  EXPECT_EQ(g.text(), "1 from 0: a b");
  Group one({.replicas = 3, .replicas_min = 2});
  one.join("a");
  one.pass(20000, {"a"});
  EXPECT_EQ(one.text(), "0 from 0:");
}

TEST(Group, StartOfTheNextView) {
  struct Case {
    int64_t step_a, step_b;
    bool sums_a, sums_b;
    const char* text;
  };
  const Case cases[] = {{7, 7, true, true, "2 from 8: a b"},
                        {7, 7, true, false, "2 from 7: a b"},
                        {7, 7, false, false, "2 from 7: a b"},
                        {8, 7, false, true, "2 from 8: a b"},
                        {7, 8, true, false, "2 from 8: a b"}};
  for (const Case& c : cases) {
    Group g = three();
    g.report("a", c.step_a, c.sums_a);
    EXPECT_TRUE(status_of(g.state, 1).report_wanted);
    g.report("b", c.step_b, c.sums_b);
    EXPECT_EQ(g.state.view.number, 1);
    apply(g.state, {.kind = GroupEvent::Kind::kDeath, .now_ms = g.now, .status = {.name = "c", .incarnation = 1}});
    EXPECT_EQ(g.text(), c.text);
    EXPECT_EQ(g.state.view.after, 1);
  }
}

TEST(Group, AReportedEndStays) {
  Group g = three();
  const auto report_end = [&](const char* name, int64_t incarnation) {
    apply(g.state,
          {.kind = GroupEvent::Kind::kDeath, .now_ms = g.now, .status = {.name = name, .incarnation = incarnation}});
  };
  report_end("c", 1);
  EXPECT_EQ(g.send("c", Stand::kWorks, {.view = 1}).refused,
            "replica 'c' has ended, as its launcher has reported; need a new start of this replica");
  EXPECT_TRUE(g.report("c", 4, true).ended);
  for (const char* name : {"a", "b"}) g.report(name, 4, true);
  EXPECT_EQ(g.text(), "2 from 5: a b");
  EXPECT_FALSE(g.state.replicas.contains("c"));
  EXPECT_TRUE(g.join("c").ended);
  EXPECT_EQ(g.join("c").incarnation, 0);  // it may not take a later one
  EXPECT_FALSE(status_of(g.state, 2).stop_wanted);
  g.pass(59000, {"a", "b", "c"});
  EXPECT_TRUE(g.join("c").ended);  // each status renews the memory
  EXPECT_EQ(g.join("c", {.incarnation = 2}).refused, "");
  EXPECT_TRUE(status_of(g.state, 2).stop_wanted);
  report_end("c", 1);  // again, and too late
  EXPECT_FALSE(g.state.replicas.at("c").gone);
  EXPECT_EQ(g.join("c").incarnation, 2);
  for (const char* name : {"a", "b"}) g.report(name, 7, false);
  EXPECT_EQ(g.text(), "3 from 7: a b c+");
  // An end that is reported before the first status.
  report_end("d", 5);
  EXPECT_TRUE(g.join("d", {.incarnation = 5}).ended);
  EXPECT_EQ(g.join("d", {.incarnation = 4}).incarnation, 5);  // the clock of its host is behind
  EXPECT_EQ(g.join("d", {.incarnation = 6}).refused, "");
  // Nothing piles up.
  g.pass(61000, {"a", "b"});
  EXPECT_TRUE(g.state.ended.empty());
  for (size_t i = 0; i < kReplicas + 10; ++i) report_end(str_cat("job", i).c_str(), 1);
  EXPECT_EQ(g.state.ended.size(), kReplicas);
  report_end("", 1);
  report_end("e", -1);
  EXPECT_EQ(g.state.ended.size(), kReplicas);
}

TEST(Group, TheViewThatCommitsAStepHasItsNote) {
  Group g = three();
  const auto report = [&](const char* name, int64_t step, bool sums, int64_t note) {
    const int64_t view = g.state.view.number;
    g.send(name, Stand::kReports, {.view = view, .state_view = view, .step = step, .sums = sums, .note = note});
  };
  report("a", 5, false, 143);  // the ack of step 4 is complete
  report("b", 4, true, 0);
  report("c", 4, true, 2);
  EXPECT_EQ(g.state.view.note, 143);
  EXPECT_EQ(view_of(record_of(g.state.view), {}).note, 143);
  for (const char* name : {"a", "b", "c"}) report(name, 5, false, 0);
  EXPECT_EQ(g.state.view.note, 0);
  const std::string damaged =
      "the service of replicas got a damaged status of replica 'a'; need equal versions of Weft";
  EXPECT_EQ(g.send("a", Stand::kReports, {.view = 3, .state_view = 3, .step = 6, .note = -1}).refused, damaged);
}

TEST(Group, JoinersFollowTheMembersAndHeal) {
  Group g = three();
  g.report("a", 4, false);
  g.report("c", 4, false);
  EXPECT_FALSE(status_of(g.state, 1).stop_wanted);
  Group other = g;
  g.join("b", {.incarnation = 2, .state_view = 1, .step = 3});  // b was started again, with a checkpoint
  EXPECT_EQ(g.text(), "2 from 4: a c b+");
  other.join("b", {.incarnation = 2, .state_view = 1, .step = 4});
  EXPECT_EQ(other.text(), "2 from 4: a c b");  // the checkpoint is the state
  g.state.config.replicas = 4;
  const GroupStatus reply = g.join("d");
  EXPECT_TRUE(reply.stop_wanted);
  EXPECT_EQ(reply.number, 2);
  EXPECT_EQ(reply.view.number, 0);
  EXPECT_EQ(g.send("d", Stand::kJoins).view.number, 2);  // a process that does not know the view
}

TEST(Group, ViewsHaveTheOwnValuesOfMembers) {
  Group g({.replicas = 3});
  g.join("a", {.own = "mesh tp2\nrows 4\n"});
  g.join("b", {.own = "mesh tp2\nrows 2\n"});
  g.pass(6000, {"a", "b"});
  EXPECT_EQ(g.text(), "1 from 0: a b");
  EXPECT_TRUE(has_equal_ranks(g.state.view));
  g.join("c", {.own = "rows 12\nmesh dp2"});
  for (const char* name : {"a", "b"}) g.report(name, 5, false);
  EXPECT_EQ(g.text(), "2 from 5: a b c+");
  EXPECT_FALSE(has_equal_ranks(g.state.view));
  const ReplicaView read = view_of(record_of(g.state.view), {});
  EXPECT_EQ(read, g.state.view);
  EXPECT_EQ(own_value(read.members[1], "rows"), "2");
  EXPECT_EQ(own_value(read.members[2], "rows"), "12");
  EXPECT_EQ(own_value(read.members[2], "mesh"), "dp2");
  EXPECT_EQ(own_value(read.members[2], "ro"), "");
  ReplicaView several = g.state.view;  // one mesh in other numbers of processes
  for (ViewMember& m : several.members) m.own = "mesh fsdp2\nprocesses 2\n";
  EXPECT_TRUE(has_equal_ranks(several));
  several.members[1].own = "mesh fsdp2\nprocesses 1\n";
  EXPECT_FALSE(has_equal_ranks(several));
  EXPECT_NE(g.join("d", {.own = std::string(401, 'x')}).refused, "");
}

TEST(Group, TheLatestStateBeginsIfNoMemberHasOne) {
  Group g = three();
  g.pass(2100);  // all are silent
  EXPECT_EQ(g.state.replicas.size(), 3u);
  g.join("a", {.incarnation = 2, .state_view = 1, .step = 30});  // a checkpoint
  g.pass(4000, {});
  g.join("a", {.incarnation = 2, .state_view = 1, .step = 30});
  g.join("b", {.incarnation = 2});
  EXPECT_EQ(g.state.view.number, 1);
  g.join("c", {.incarnation = 2, .state_view = 1, .step = 20});
  EXPECT_EQ(g.text(), "2 from 30: a b+ c+");
}

TEST(Group, TheTimeToGatherBeginsAgain) {
  Group g({.replicas = 4, .replicas_min = 3});
  for (const char* name : {"a", "b", "c", "d"}) g.join(name);
  g.pass(2100);  // all are silent
  g.join("e");
  g.report("b", 7, false);  // a member with the state is back, and waits for a third process
  g.pass(6000, {"b", "e"});
  EXPECT_EQ(g.state.gather_from_ms, -1);
  apply(g.state, {.kind = GroupEvent::Kind::kDeath, .now_ms = g.now, .status = {.name = "b", .incarnation = 1}});
  g.join("f");
  g.join("g");
  EXPECT_EQ(g.state.view.number, 1);  // another member may still come back
  g.pass(5100, {"e", "f", "g"});
  EXPECT_EQ(g.text(), "2 from 0: e f g");
}

TEST(Group, SparesWait) {
  Group g({.replicas = 2});
  g.join("a");
  g.join("z", {.state_view = 3, .step = 40});  // a checkpoint
  EXPECT_EQ(g.text(), "4 from 40: z a+");
  g.join("c");
  EXPECT_FALSE(status_of(g.state, 4).stop_wanted);
  g.report("a", 41, false);
  g.report("z", 41, false);
  EXPECT_EQ(g.text(), "5 from 41: z a");
  g.join("c");
  apply(g.state, {.kind = GroupEvent::Kind::kDeath, .now_ms = g.now, .status = {.name = "z", .incarnation = 1}});
  g.report("a", 42, false);
  EXPECT_EQ(g.text(), "6 from 42: a c+");
}

TEST(Group, TheRunEndsWhenAMemberHasFinished) {
  Group g = three();
  const auto finish = [&](const char* name) {
    const int64_t view = g.state.view.number;
    g.send(name, Stand::kReports, {.view = view, .state_view = view, .step = 10, .finished = true});
  };
  finish("a");
  EXPECT_TRUE(status_of(g.state, 1).report_wanted);
  g.report("b", 9, true);  // its last ack failed
  g.join("d");
  finish("c");
  EXPECT_EQ(g.text(), "2 from 10: a b c");
  EXPECT_TRUE(g.state.view.ended);
  EXPECT_FALSE(status_of(g.state, 2).report_wanted || status_of(g.state, 2).stop_wanted);
  EXPECT_TRUE(g.send("d", Stand::kJoins).view.ended);
  for (const char* name : {"a", "b", "c"}) g.send(name, Stand::kLeaves, {.view = 2});
  // A late replica cannot make the last steps again alone. One with the state at the end can continue the run.
  Group other = g;
  g.join("d", {.incarnation = 2, .state_view = 1, .step = 8});
  GroupStatus last;
  for (int i = 0; i < 60 && last.refused.empty(); ++i) {
    g.now += 100;
    last = g.join("d", {.incarnation = 2, .state_view = 1, .step = 8});
  }
  EXPECT_EQ(last.refused,
            "the run has ended at step 10, and no replica has this state; need a replica that resumes from its "
            "checkpoint, or another journal for a new run");
  other.join("b", {.incarnation = 2});
  other.join("c", {.incarnation = 2});
  other.join("a", {.incarnation = 2, .state_view = 1, .step = 10});
  EXPECT_EQ(other.text(), "3 from 10: a b+ c+");
  EXPECT_FALSE(other.state.view.ended);
}

// View 2 only commits the last step, whose checkpoint names view 1.
TEST(Group, ARunThatEndedInAViewWithoutStepsContinues) {
  Group g = three();
  for (const char* name : {"a", "b", "c"}) g.report(name, 9, true);
  EXPECT_EQ(g.text(), "2 from 10: a b c");
  for (const char* name : {"a", "b", "c"})
    g.send(name, Stand::kReports, {.view = 2, .state_view = 2, .step = 10, .finished = true});
  EXPECT_EQ(g.text(), "3 from 10: a b c");
  EXPECT_TRUE(g.state.view.ended);
  for (const char* name : {"a", "b", "c"}) g.send(name, Stand::kLeaves, {.view = 3});
  for (const char* name : {"a", "b", "c"}) g.join(name, {.incarnation = 2, .state_view = 1, .step = 10});
  EXPECT_EQ(g.text(), "4 from 10: a b c");
  EXPECT_FALSE(g.state.view.ended);
}

TEST(Group, AViewThatCannotFollowEndsItsProcesses) {
  Group g = three();
  for (const char* name : {"a", "b"}) g.report(name, 3, true);
  g.state.replicas.at("a").status.step = g.state.replicas.at("b").status.step = -5;
  apply(g.state, {.kind = GroupEvent::Kind::kDeath, .now_ms = g.now, .status = {.name = "c", .incarnation = 1}});
  EXPECT_EQ(g.state.view.number, 1);
  EXPECT_TRUE(g.state.replicas.at("a").gone);
  g.join("a", {.incarnation = 2});
  g.join("b", {.incarnation = 2});
  g.join("c", {.incarnation = 2});
  EXPECT_EQ(g.text(), "2 from 0: a b c");
}

TEST(Group, AProcessThatWasSilentIsHeardAgain) {
  Group g = three();
  g.pass(2100, {"a", "b"});
  EXPECT_TRUE(status_of(g.state, 1).report_wanted);
  g.report("a", 3, true);
  g.report("c", 3, true);  // back before the others have reported
  g.report("b", 3, true);
  EXPECT_EQ(g.text(), "2 from 4: a b c");
}

TEST(Group, ConnectionsAndStalls) {
  Group g = three();
  apply(g.state, {.kind = GroupEvent::Kind::kClosed, .now_ms = g.now, .connection = 1});
  g.pass(350, {"b", "c"});
  EXPECT_FALSE(status_of(g.state, 1).report_wanted);
  g.pass(100, {"b", "c"});
  EXPECT_TRUE(status_of(g.state, 1).report_wanted);
  Group stalled = three();
  stalled.now += 60000;  // the service did not run
  stalled.pass(1000);
  EXPECT_FALSE(status_of(stalled.state, 1).report_wanted);
}

TEST(Group, RestartFromTheJournal) {
  Group g = three();
  g.report("a", 9, true);
  GroupState again{.config = g.state.config};
  EXPECT_EQ(commit(again, record_of(g.state.view)), "");
  restart(again, g.now);
  EXPECT_EQ(again.view, g.state.view);
  g.state = again;
  g.pass(4900);
  EXPECT_FALSE(status_of(g.state, 1).report_wanted);
  g.report("a", 9, true);
  g.report("b", 9, true);
  g.pass(300, {});
  EXPECT_EQ(g.text(), "2 from 10: a b");
}

TEST(Group, Refusals) {
  Group g = three();
  EXPECT_EQ(g.send("a", Stand::kWorks, {.view = 4}).refused,
            "replica 'a' is in view 4, and the service of replicas in view 1; need the service's journal when it "
            "restarts");
  EXPECT_EQ(g.join("d", {.state_view = 6}).refused,
            "replica 'd' has a checkpoint of view 6, and the service of replicas is in view 1; need the service's "
            "journal when it restarts");
  EXPECT_EQ(g.join("d", {.facts = "seed 8"}).refused,
            "replica 'd' has 'seed 8' and the group has ''; need equal values: start all replicas with the same "
            "binary, flags and environment");
  EXPECT_EQ(g.join("d", {.replicas = 4}).refused,
            "replica 'd' has a mesh of 4 replicas, and the service of replicas has 3; need equal numbers in --mesh and "
            "in --replicas of launch --serve");
  EXPECT_EQ(g.join("b", {.incarnation = 2, .replicas = 3}).refused, "");
  EXPECT_EQ(g.send("b", Stand::kWorks, {.view = 1}).refused,
            "replica 'b' was started again; need one process for each replica");
  EXPECT_EQ(g.send("a", Stand::kWorks, {.incarnation = -1}).refused,
            "the service of replicas got a damaged status of replica 'a'; need equal versions of Weft");
  EXPECT_EQ(g.send("b", Stand::kWorks, {.view = 1}).incarnation, 2);
  const std::string damaged =
      "the service of replicas got a damaged status of replica 'a'; need equal versions of Weft";
  EXPECT_EQ(g.send("a", Stand::kReports, {.view = 1, .step = 4}).refused, damaged);  // without the state of view 1
  Group facts({.replicas = 2});
  facts.join("a", {.facts = "plan 1f\nseed 7\nbinary 3"});
  expect_has(facts.join("b", {.facts = "plan 1f\nseed 8\nbinary 3"}).refused,
             "replica 'b' has 'seed 8' and the group has 'seed 7'; need equal values");
}

TEST(Views, Problems) {
  const ReplicaView first{1, 0, 0, {{"a", 1}, {"b", 1}}};
  const auto problem = [&](const ReplicaView& v) { return problem_of(first, v); };
  EXPECT_EQ(problem({2, 5, 1, {{"a", 1}, {"b", 2, true}}}), "");
  EXPECT_EQ(problem({3, 5, 1, {{"a", 1}}}), "got view 3 after view 1; need the views in their order");
  EXPECT_EQ(problem({2, 5, 1, {}}), "view 2 has 0 members; need 1 to 4096");
  EXPECT_EQ(problem({2, 5, 1, {{"a", 1}, {"a", 2}}}), "view 2 has member 'a' twice; need each once");
  EXPECT_EQ(problem({2, 5, 1, {{"a", 0}}}), "view 2 has member 'a' with incarnation 0; need 1 to 4611686018427387904");
  EXPECT_EQ(problem({2, 5, 1, {{"a", 1, true}}}),
            "view 2 has no member that has the state; need one that does not heal");
  EXPECT_EQ(problem({2, 5, 2, {{"a", 1}}}), "view 2 has the state of view 2; need an earlier view");
  EXPECT_EQ(problem({2, -1, 1, {{"a", 1}}}), "view 2 has start -1; need 0 to 1125899906842624");
  EXPECT_EQ(problem({2, 5, 1, {{"a", 1}}, "", false, -1}), "view 2 has note -1; need 0 to 2147483647");
  const ReplicaView later{4, 50, 3, {{"a", 3}, {"b", 1, true}}};
  EXPECT_EQ(problem_of(later, {5, 40, 4, {{"a", 3}}}),
            "view 5 has start 40 after view 4 and member 'a', which was at step 50 in view 4; need a later start in "
            "this view");
  EXPECT_EQ(problem_of(later, {5, 50, 4, {{"a", 2}}}),
            "view 5 has member 'a' with incarnation 2 after 3; need a later one");
  EXPECT_EQ(problem_of(later, {5, 20, 2, {{"b", 1}}}), "");  // it had not healed
  expect_has(weft::testing::error_of([&] { (void)view_of(record_of(first), first); }),
             "record: got view 1 after view 1; need the views in their order");
  expect_has(weft::testing::error_of([&] { (void)view_of("abc", first); }), "record: ");
}

TEST(Views, HistoryAndParts) {
  const std::vector<ReplicaView> views = {{1, 0, 0, {{"a", 1}, {"b", 1}, {"c", 1}}},
                                          {2, 10, 1, {{"a", 1}, {"b", 1}}},
                                          {3, 10, 2, {{"a", 1}, {"b", 1}, {"c", 2, true}}},
                                          {4, 6, 1, {{"c", 3}}},
                                          {5, 20, 3, {{"b", 1}}}};
  const auto numbers = [&](int64_t number, bool all = false) {
    std::string out;
    for (const ReplicaView& v : history_of(views, number, all)) out += str_cat(v.number);
    return out;
  };
  EXPECT_EQ(numbers(2), "12");
  EXPECT_EQ(numbers(3), "13");  // view 2 has no step
  EXPECT_EQ(numbers(4), "14");
  EXPECT_EQ(numbers(5), "135");
  EXPECT_EQ(numbers(4, true), "14");
  EXPECT_EQ(numbers(5, true), "1235");
  EXPECT_EQ(parts_before(history_of(views, 3), 10), 30);
  EXPECT_EQ(parts_before(history_of(views, 3), 12), 36);
  EXPECT_EQ(parts_before(history_of(views, 4), 12), 24);
  EXPECT_EQ(parts_before(history_of(views, 5), 21), 61);
  EXPECT_EQ(parts_before({{1, 0, 0, std::vector<ViewMember>(kReplicas)}}, kMostSteps), int64_t{1} << 62);
}

TEST(Member, LeavesAfterTheStep) {
  MemberState m{.name = "a"};
  using Kind = MemberEvent::Kind;
  using Action = MemberAction;
  const auto actions = [&](const MemberEvent& e) { return apply(m, e); };
  const ReplicaView view{1, 0, 0, {{"a", 1}, {"b", 1}}};
  EXPECT_EQ(actions({.kind = Kind::kStatus, .status = {.number = 1, .view = view}}),
            (std::vector{Action::kRetry, Action::kForm}));
  EXPECT_TRUE(actions({.kind = Kind::kLeave}).empty());
  EXPECT_EQ(actions({.kind = Kind::kSums, .view = 1}), (std::vector{Action::kEnterAck}));
  EXPECT_TRUE(m.stop);
  EXPECT_TRUE(actions({.kind = Kind::kAckComplete, .view = 0, .stop = true}).empty());  // an ack of an earlier view
  EXPECT_EQ(actions({.kind = Kind::kAckComplete, .view = 1, .stop = true}),
            (std::vector{Action::kCommit, Action::kCloseGroups, Action::kReport, Action::kEnd}));
  EXPECT_EQ(status_of(m).stand, Stand::kLeaves);
}

TEST(Member, KnowsTheNoteOfACommittedStep) {
  using Kind = MemberEvent::Kind;
  const auto view = [](int64_t number, int64_t start, bool ended, int64_t note) {
    return MemberEvent{.kind = Kind::kStatus,
                       .status = {.number = number, .view = {number, start, 0, {{"a", 1}}, "", ended, note}}};
  };
  MemberState m{.name = "a"};
  apply(m, view(1, 0, false, 0));
  apply(m, {.kind = Kind::kSums, .view = 1, .note = 2});
  EXPECT_EQ(m.group_note, 0);
  MemberState doubts = m, repeats = m, late = m;
  apply(m, {.kind = Kind::kAckComplete, .view = 1, .note = 143});
  EXPECT_EQ(m.group_note, 143);
  apply(m, {.kind = Kind::kFailed, .view = 1});
  EXPECT_EQ(status_of(m).note, 143);
  apply(doubts, {.kind = Kind::kAckFailed, .view = 1});
  EXPECT_EQ(status_of(doubts).note, 2);
  repeats = doubts;
  apply(doubts, view(2, 1, false, 143));
  EXPECT_EQ(str_cat(doubts.step, " ", doubts.group_note), "1 143");
  apply(repeats, view(2, 0, false, 143));  // the step is not committed
  EXPECT_EQ(str_cat(repeats.step, " ", repeats.group_note), "0 0");
  apply(late, {.kind = Kind::kStatus, .status = {.number = 2, .view = {2, 1, 0, {{"b", 1}}, "", true, 143}}});
  EXPECT_EQ(str_cat(late.step, " ", late.group_note), "0 143");  // the others have ended the run
}

TEST(Member, WaitsForTheEndOfTheRun) {
  MemberState m{.name = "a", .step = 9};
  using Kind = MemberEvent::Kind;
  using Action = MemberAction;
  const auto view = [&](int64_t number, bool ended) {
    return apply(m,
                 {.kind = Kind::kStatus, .status = {.number = number, .view = {number, 9, 0, {{"a", 1}}, "", ended}}});
  };
  view(1, false);
  EXPECT_EQ(apply(m, {.kind = Kind::kFinished, .view = 1}), (std::vector{Action::kReport}));
  EXPECT_TRUE(status_of(m).finished);
  EXPECT_EQ(view(2, false), (std::vector{Action::kRetry, Action::kForm}));
  EXPECT_EQ(apply(m, {.kind = Kind::kFinished, .view = 2}), (std::vector{Action::kReport}));
  EXPECT_EQ(view(3, true), (std::vector{Action::kRetry, Action::kEnd}));
  EXPECT_EQ(m.refused, "");
  MemberState later{.name = "b", .incarnation = 2};  // started after the end
  apply(later, {.kind = Kind::kStatus, .status = {.number = 3, .view = m.view}});
  EXPECT_EQ(later.stage, MemberStage::kJoining);
}

TEST(Member, TakesALaterIncarnationBeforeTheServiceHasAcceptedIt) {
  MemberState m{.name = "a", .incarnation = 100};
  const MemberEvent refusal{.kind = MemberEvent::Kind::kStatus,
                            .status = {.refused = "replica 'a' was started again", .incarnation = 300}};
  EXPECT_EQ(apply(m, refusal), (std::vector{MemberAction::kReport}));
  EXPECT_EQ(m.incarnation, 301);
  EXPECT_TRUE(apply(m, refusal).empty());  // the answer to another status with incarnation 100
  apply(m, {.kind = MemberEvent::Kind::kStatus, .status = {}});
  apply(m, {.kind = MemberEvent::Kind::kStatus, .status = {.refused = "was started again", .incarnation = 302}});
  EXPECT_EQ(m.refused, "was started again");
}

TEST(Member, RefusesAViewThatItCannotTake) {
  MemberState m{.name = "a", .step = 3};
  const ReplicaView view{1, 5, 0, {{"a", 1}}};
  apply(m, {.kind = MemberEvent::Kind::kStatus, .status = {.number = 1, .view = view}});
  EXPECT_EQ(m.refused,
            "replica 'a' is at step 3, and view 1 starts at step 5 without healing it; need equal versions of Weft");
}

}  // namespace
}  // namespace weft::control
