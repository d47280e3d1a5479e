#include "framework/dispatch/rank/flight.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <thread>
#include <vector>

namespace weft::flight {
namespace {

std::string path_of(const std::string& name) { return ::testing::TempDir() + "/" + name; }

struct File {
  explicit File(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
    std::memcpy(static_cast<void*>(&header), bytes.data(), sizeof header);
    records.resize(header.capacity);
    std::memcpy(static_cast<void*>(records.data()), bytes.data() + sizeof header, records.size() * sizeof(Record));
  }
  std::string bytes;
  Header header;
  std::vector<Record> records;
};

TEST(Flight, WrapsAndKeepsTheLastRecords) {
  const std::string path = path_of("wrap");
  RecordRing ring(path, 3, 8, 16);
  EXPECT_EQ(ring.communicator("dp"), 0);
  EXPECT_EQ(ring.communicator("dp,tp"), 1);
  EXPECT_EQ(ring.communicator("dp"), 0);
  for (int i = 0; i < 100; ++i) ring.start(0, {.kind = Collective::kAllReduce, .site = 7}, 64);
  const File f(path);
  EXPECT_EQ(f.header.rank, 3);
  EXPECT_EQ(f.header.size, 8);
  EXPECT_EQ(f.header.pid, getpid());
  EXPECT_GT(f.header.process_start, 0u);
  EXPECT_EQ(f.header.next, 100u);
  EXPECT_STREQ(f.header.communicators[1].name, "dp,tp");
  EXPECT_EQ(f.header.communicators[0].started, 100u);
  std::set<uint64_t> seen;
  for (const Record& r : f.records) {
    EXPECT_EQ(r.check, check_of(r));
    EXPECT_EQ(r.number, r.sequence);
    EXPECT_EQ(r.site, 7u);
    seen.insert(r.sequence);
  }
  EXPECT_EQ(seen.size(), 16u);
  EXPECT_EQ(*seen.begin(), 85u);
}

TEST(Flight, AViewCountsItsOwnSums) {
  const std::string path = path_of("view");
  RecordRing ring(path, 0, 1, 16);
  const uint16_t world = ring.communicator("world"), replicas = ring.communicator(kReplicaAxis);
  const auto start = [&](uint16_t c) { ring.start(c, {.kind = Collective::kAllReduce, .site = 7}, 64); };
  start(world), start(replicas), start(replicas);
  ring.set_view({.replica = "a", .view = 4, .place = 1, .members = 3});
  start(replicas);
  const File f(path);
  EXPECT_STREQ(f.header.replica, "a");
  EXPECT_EQ(f.header.view, 4);
  EXPECT_EQ(f.header.place, 1u);
  EXPECT_EQ(f.header.members, 3u);
  EXPECT_EQ(f.header.sums_before, 2u);
  EXPECT_EQ(f.header.communicators[replicas].started, 3u);
}

TEST(Flight, ReplacesOnlyRings) {
  const std::string path = path_of("mine");
  { RecordRing first(path, 0, 1, 16); }
  { RecordRing second(path, 0, 1, 16); }
  for (const char* text : {"a user's own file", "WFLIGHT"}) {
    std::ofstream(path) << text;
    EXPECT_THROW(RecordRing(path, 0, 1, 16), Error);
    std::string read;
    std::ifstream in(path);
    std::getline(in, read);
    EXPECT_EQ(read, text);
  }
}

TEST(Flight, ManyThreadsLoseNoRecord) {
  const std::string path = path_of("threads");
  RecordRing ring(path, 0, 1, 1 << 14);
  std::vector<std::thread> all;
  for (int t = 0; t < 8; ++t)
    all.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) ring.phase(Event::kPhaseBegin, Phase::kLoader);
    });
  for (std::thread& t : all) t.join();
  const File f(path);
  EXPECT_EQ(f.header.next, 16000u);
  for (size_t i = 0; i < 16000; ++i) {
    ASSERT_EQ(f.records[i].sequence, i + 1);
    ASSERT_EQ(f.records[i].check, check_of(f.records[i]));
  }
}

TEST(Flight, OutlivesAKilledProcess) {
  const std::string path = path_of("killed");
  const pid_t child = fork();
  if (child == 0) {
    RecordRing ring(path, 1, 2, 64);
    ring.phase(Event::kPhaseBegin, Phase::kCheckpoint);
    ring.fail(Code::kInternal, "no weights");
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  const File f(path);
  EXPECT_EQ(f.header.next, 2u);
  EXPECT_EQ(f.header.ended, 0);
  EXPECT_STREQ(f.header.failure, "no weights");
  EXPECT_EQ(f.records[0].phase, Phase::kCheckpoint);
  EXPECT_EQ(f.records[1].event, Event::kFailed);
}

TEST(Flight, AProgramRecordsItsPhasesAndItsEnd) {
  const std::string folder = ::testing::TempDir() + "/of/a_job";
  const pid_t child = fork();
  if (child == 0) {
    setenv(kFolderVariable, folder.c_str(), 1);
    RecordRing* const a = ring(0, 2);
    ring(1, 2);
    if (!a || ring(0, 2) != a) _exit(9);
    { HostPhase phase(Phase::kEvaluation); }
    exit(5);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 5);
  for (int r = 0; r < 2; ++r) {
    const File f(folder + "/" + ring_name(r));
    EXPECT_EQ(f.header.next, 2u);
    EXPECT_EQ(f.header.ended, 1);
    EXPECT_EQ(f.header.code, 5);
    EXPECT_EQ(f.records[1].event, Event::kPhaseEnd);
    EXPECT_EQ(f.records[1].phase, Phase::kEvaluation);
  }
}

TEST(Flight, WithoutRoomIsAnError) { EXPECT_THROW(RecordRing("/no/such/folder/ring.0", 0, 1), Error); }

}  // namespace
}  // namespace weft::flight
