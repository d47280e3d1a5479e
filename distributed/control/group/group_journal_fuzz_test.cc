// Damaged journals of a group, and journals with intact records of false views. Each is refused, or gives views that
// follow each other.
#include <gtest/gtest.h>

#include "distributed/control/group/group.h"
#include "distributed/control/service/journal.h"
#include "framework/base/error.h"
#include "framework/io/file.h"
#include "framework/testing/fuzz.h"

namespace weft::control {
namespace {

using weft::testing::FuzzRandom;

std::vector<ReplicaView> some_views() {
  const std::string facts = "plan 1f3a\nseed 7";
  return {{1, 0, 0, {{"a", 1}, {"b", 1}, {"c", 1}}, facts},
          {2, 41, 1, {{"a", 1}, {"c", 1}}, facts},
          {3, 90, 2, {{"a", 1}, {"c", 1}, {"b", 2, true}}, facts},
          {4, 60, 2, {{"c", 2}, {"d", 1, true}}, facts},
          {5, 61, 4, {{"c", 2}}, facts},
          {6, 70, 5, {{"c", 2}}, facts, true}};
}

TEST(GroupJournalFuzz, Views) {
  const std::vector<ReplicaView> views = some_views();
  for (size_t i = 0; i < views.size(); ++i) {
    const ReplicaView before = i == 0 ? ReplicaView() : views[i - 1];
    const auto read = [&](const std::string& record) {
      const ReplicaView v = view_of(record, before);
      EXPECT_EQ(problem_of(before, v), "");
      EXPECT_EQ(view_of(record_of(v), before), v);
      EXPECT_TRUE(before.number == 0 || v.number == before.number + 1);
      GroupState state{.config = {.replicas = kReplicas}, .view = before};
      EXPECT_EQ(commit(state, record), "");
      EXPECT_EQ(state.view, v);
      for (const ViewMember& m : v.members) EXPECT_EQ(state.replicas.at(m.name).incarnation, m.incarnation);
    };
    weft::testing::fuzz({.seeds = {record_of(views[i])},
                         .damage =
                             [](std::string& s, FuzzRandom& r) {
                               weft::testing::damage_text(s, r, {"-1", "true", "\"heals\"", "\"a\"", "{", "[]", "1e3"});
                             },
                         .read = read,
                         .names = "record",
                         .inputs = 5000});
  }
}

TEST(GroupJournalFuzz, Files) {
  const std::string path = ::testing::TempDir() + "/fuzz_group_journal";
  const GroupState fresh{.config = {.job = "fuzz", .replicas = 3}};
  io::write_file_atomic(path, "");
  {
    GroupState state = fresh;
    Journal journal(path, title_of(state), [](const std::string&) { return ""; });
    for (const ReplicaView& v : some_views()) journal.append(record_of(v));
  }
  const auto read = [&](const std::string& bytes) {
    io::write_file_atomic(path, bytes);
    // A reader gets the same views, and leaves the file to the service.
    GroupState seen = fresh;
    std::string title, problem;
    try {
      title = read_journal(path, [&](const std::string& record) { return commit(seen, record); });
    } catch (const Error& e) {
      problem = e.what();
    }
    EXPECT_EQ(io::read_file(path), bytes);
    GroupState state = fresh;
    const Journal journal(path, title_of(state), [&](const std::string& record) { return commit(state, record); });
    EXPECT_LE(state.view.number, 6);
    EXPECT_TRUE(problem.empty() ? title == title_of(fresh) && seen.view == state.view : state.view.number == 0)
        << problem;
    ASSERT_EQ(journal.continued(), state.view.number != 0);
    if (state.view.number != 0) {
      EXPECT_EQ(state.view, some_views()[static_cast<size_t>(state.view.number - 1)]);
    }
  };
  weft::testing::fuzz({.seeds = {io::read_file(path)},
                       .damage = [](std::string& s, FuzzRandom& r) { weft::testing::damage_bytes(s, r); },
                       .read = read,
                       .names = path,
                       .inputs = 500});
}

}  // namespace
}  // namespace weft::control
