// Replicas as processes with the service of replicas on loopback. Their training step is 20 lines of plain f32
// arithmetic, so that a sequential reference here makes the run again from the journal: all states must have its bits.
// The program starts itself again as a replica.
#include "distributed/diloco/diloco_replica.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "distributed/control/group/group_server.h"
#include "distributed/control/service/journal.h"
#include "framework/base/error.h"
#include "framework/base/testing/error_of.h"
#include "framework/io/checksum.h"
#include "weft.h"

extern char** environ;

// gRPC is not instrumented: the sanitizer does not see how it hands an operation from thread to thread.
extern "C" const char* __tsan_default_suppressions() { return "race:^grpc::"; }

namespace weft::dist {
namespace {

constexpr int64_t kSizes[] = {700, 900}, kValues = 1600, kRows = 2;
const Shape kShapes[] = {{20, 35}, {30, 30}};

using Values = std::vector<float>;

/// The parameters of a replica and the state of its optimiser, as the reference has them.
struct Net {
  Values p = Values(kValues), v = Values(kValues, 0.0f);
  Net() {
    for (int64_t i = 0; i < kValues; ++i) p[i] = static_cast<float>(i % 17) * 0.25f - 2;
  }
};

float sample(int64_t row, int64_t i) {
  uint64_t h = (static_cast<uint64_t>(row) * 1000003 + static_cast<uint64_t>(i)) * 0x9e3779b97f4a7c15u;
  h ^= h >> 29;
  return static_cast<float>(h & 0xffff) / 32768.0f - 1;
}

void train(float* p, float* v, int64_t n, int64_t offset, int64_t row, int64_t rows) {
  for (int64_t r = row; r < row + rows; ++r)
    for (int64_t i = 0; i < n; ++i) {
      v[i] = 0.8f * v[i] + 0.01f * p[i] + sample(r, offset + i);
      p[i] = p[i] - 0.05f * v[i];
    }
}

std::string digest(const Values& v) { return io::hex64(io::checksum(std::as_bytes(std::span(v)))); }

OuterOptions options_of(const std::string& text) {
  OuterOptions o;
  std::string wire;
  std::istringstream(text) >> o.every >> o.fragments >> o.delay >> o.alpha >> wire >> o.steps;
  o.wire = parse_outer_wire(wire);
  return o;
}

// ---- a replica ----
struct Cells {
  NamedCells parameters, velocity;
  std::unique_ptr<World> world;  // null: one device
  CellShards of_mesh;

  /// Columns are split over tp, and copied over dp.
  explicit Cells(const std::string& mesh = "") {
    const Net net;
    int64_t at = 0;
    for (const int64_t n : kSizes) {
      const Values own(net.p.begin() + at, net.p.begin() + at + n);
      const Shape& shape = kShapes[parameters.size()];
      parameters.emplace_back(str_cat("w", n), Parameter(Tensor::from_vector<float>(own, shape)));
      velocity.emplace_back(str_cat("v", n), Buffer(zeros(shape)));
      at += n;
    }
    if (mesh.empty()) return;
    world = std::make_unique<World>(Mesh::parse(mesh), WorldOptions{.threads = 1});
    std::vector<int> place;
    for (int r = 0; r < world->size(); ++r) place.push_back(r);
    for (const NamedCells* cells : {&parameters, &velocity})
      for (const auto& [name, cell] : *cells) {
        Spec spec = Spec::replicated(cell.shape());
        if (world->mesh().find("tp")) spec.dims[1] = one_segment(cell.shape()[1], Axes{0});
        of_mesh.emplace_back(cell.ref(),
                             make_ref<ShardedCell>(ShardedCell::ShardLayout{world->mesh(), place, spec}, cell.type()));
      }
  }
  CellShards shards(bool made) const {
    for (const auto& [cell, sharded] : of_mesh) {
      if (!made || !cell->value.defined()) continue;
      sharded->scatter(cell->value);
      cell->remote = sharded;
      cell->value = {};
    }
    return of_mesh;
  }
  void train(int64_t row, int64_t rows) const {
    int64_t at = 0;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const CellHandle &p = parameters[i].second, &v = velocity[i].second;
      Values new_p = p.value().to_vector<float>(), new_v = v.value().to_vector<float>();
      dist::train(new_p.data(), new_v.data(), p.numel(), at, row, rows);
      at += p.numel();
      p.set(Tensor::from_vector<float>(new_p, p.shape()));
      v.set(Tensor::from_vector<float>(new_v, v.shape()));
    }
  }
  static Values all(const NamedCells& cells, size_t begin, size_t end) {
    Values values;
    for (size_t i = begin; i < end; ++i)
      for (const float x : cells[i].second.value().to_vector<float>()) values.push_back(x);
    return values;
  }
};

std::string text_of(const Values& p, const Values& v, const Values& anchor, const Values& momentum) {
  return str_cat(digest(p), " ", digest(v), " ", digest(anchor), " ", digest(momentum));
}

std::string text_of(const Cells& c, const DilocoReplica& d) {
  return text_of(Cells::all(c.parameters, 0, 2), Cells::all(c.velocity, 0, 2), Cells::all(d.cells(), 0, 2),
                 Cells::all(d.cells(), 2, 4));
}

DilocoStep step_of(const Cells& cells) {
  return {.prepare = [&cells] { return cells.world.get(); },
          .shards = [&cells](bool made) { return cells.shards(made); },
          .parameters = cells.parameters,
          .others = cells.velocity,
          .record = [] { return "of the program"; },
          .adopt = [](const std::string& record) { WEFT_CHECK(record == "of the program", "record ", record); },
          .make = [&cells](int64_t, int64_t row, int64_t rows) { cells.train(row, rows); }};
}

int run_replica(const std::string& address, const std::string& name, const std::string& folder,
                const std::string& options, int pause_us, const std::string& mesh, int64_t rows) try {
  const OuterOptions o = options_of(options);
  const Cells cells(mesh);
  ReplicaRun run({.name = name,
                  .address = address,
                  .facts = "options " + options + "\n",
                  .own = own_values(cells.world ? cells.world->mesh() : Mesh(), rows),
                  .ranks = cells.world ? cells.world->size() : 1,
                  .timeout = std::chrono::seconds(60)},
                 DilocoReplica::made_before(o));
  DilocoReplica diloco(o, step_of(cells), rows);
  diloco.begin({}, &run);
  std::ofstream progress(folder + "/" + name + ".progress", std::ios::app);
  for (;;) {
    if (!diloco.ready() && !run.has_view() && !diloco.enter()) break;
    if (diloco.between() && diloco.position().step == o.steps) {
      run.finish();
      continue;
    }
    if (!diloco.ready()) {
      diloco.advance();
      continue;
    }
    cells.train(diloco.row(), diloco.rows());
    diloco.made();
    progress << "." << std::flush;
    ::usleep(static_cast<useconds_t>(pause_us));
  }
  std::ofstream(folder + "/" + name + ".end") << text_of(cells, diloco) << " " << diloco.position().samples;
  return 0;
} catch (const Error& e) {
  std::ofstream(folder + "/" + name + ".error") << e.what();
  return 3;
}

// ---- the reference ----
/// The run of a journal, one replica after the other: the last states by name.
class Reference {
 public:
  Reference(const OuterOptions& o, std::vector<control::ReplicaView> views) : o_(o), views_(std::move(views)) {
    anchor_ = Net().p;
    for (int64_t x = 0; x < o_.exchanges(); ++x) {
      join(2 * x, x);
      const control::ReplicaView at_begin = of(2 * x);
      const int64_t begin = step_, end = std::min((x + 1) * period() + o_.delay, o_.steps);
      for (const control::ViewMember& m : at_begin.members) {
        Replica& r = replicas_[m.name];
        r.rows = rows_of(m);
        for (int64_t t = begin; t < end; ++t) {
          weft::dist::train(r.net.p.data(), r.net.v.data(), kValues, 0, samples_ + (t - begin) * r.rows, r.rows);
          if ((t + 1) % period() == 0) gradient(r, (t + 1) / period() - 1);
        }
        samples_ += (end - begin) * r.rows;
      }
      step_ = end;
      join(2 * x + 1, x);
      exchange(of(2 * x + 1), x);
    }
  }
  std::string text(const std::string& name) {
    const Net& net = replicas_.at(name).net;
    return str_cat(text_of(net.p, net.v, anchor_, momentum_), " ", samples_);
  }

 private:
  struct Replica {
    Net net;
    int64_t since = 0, rows = 0;
    std::map<int64_t, std::pair<Values, int64_t>> sent;  // key: exchange; outer gradients, weight
  };
  int64_t period() const { return o_.every / o_.fragments; }
  static int64_t rows_of(const control::ViewMember& m) { return std::stoll(m.own.substr(m.own.find("rows ") + 5)); }
  const control::ReplicaView& of(int64_t s) const {
    const control::ReplicaView* found = nullptr;
    for (const control::ReplicaView& v : views_)
      if (v.start <= s && !v.ended) found = &v;
    return *found;
  }
  bool in_fragment(int64_t i, int64_t x) const {
    const int64_t n = o_.fragments, block = ((kValues + n - 1) / n + 255) / 256 * 256;
    return i / block % n == x % n;
  }
  // The place of value i in the fragment, after a place. With scales, each parameter begins a block of 256 values.
  size_t place_of(int64_t i, size_t after) const {
    const int64_t n = o_.fragments, block = ((kValues + n - 1) / n + 255) / 256 * 256;
    const bool begins = i == kSizes[0] || i % block == 0;
    return begins && o_.wire != OuterWire::kF32 ? (after + 255) / 256 * 256 : after;
  }
  void gradient(Replica& r, int64_t x) const {
    Values d;
    for (int64_t i = 0; i < kValues; ++i) {
      if (!in_fragment(i, x)) continue;
      d.resize(place_of(i, d.size()), 0.0f);
      d.push_back(anchor_[i] - r.net.p[i]);
    }
    const int64_t from = std::max({int64_t{0}, (x + 1 - o_.fragments) * period(), r.since});
    r.sent[x] = {d, std::max<int64_t>(0, (x + 1) * period() - from) * r.rows};
  }
  void join(int64_t s, int64_t x) {
    for (const control::ReplicaView& v : views_) {
      if (v.start != s || v.ended) continue;
      std::string donor;
      for (const control::ViewMember& m : v.members)
        if (!m.heals && donor.empty()) donor = m.name;
      for (const control::ViewMember& m : v.members) {
        if (!m.heals) continue;
        Replica& r = replicas_[m.name];
        r.net.v = replicas_[donor].net.v;
        r.net.p = anchor_;
        r.since = step_;
        r.rows = rows_of(m);
        for (int64_t y = x; (y + 1) * period() <= step_; ++y) gradient(r, y);  // without weight
      }
    }
  }
  static Values passed(OuterWire wire, const Values& values) {
    if (wire == OuterWire::kF32) return values;
    Values all;
    for (size_t begin = 0; begin < values.size(); begin += 256) {
      const size_t end = std::min(values.size(), begin + 256);
      float largest = 0;
      for (size_t i = begin; i < end; ++i) largest = std::max(largest, std::abs(values[i]));
      const float scale = largest / (wire == OuterWire::kInt8 ? 127.0f : 7.0f);
      for (size_t i = begin; i < end; ++i)
        all.push_back(scale > 0 ? std::nearbyint(values[i] / scale) * scale + 0.0f : 0.0f);
    }
    return all;
  }
  void exchange(const control::ReplicaView& view, int64_t x) {
    std::vector<Values> arrived;
    int64_t total = 0;
    for (const control::ViewMember& m : view.members) {
      const auto& [d, weight] = replicas_.at(m.name).sent.at(x);
      arrived.push_back(passed(o_.wire, d));
      total += weight;
    }
    Values average(arrived[0].size(), 0.0f);
    for (size_t i = 0; i < average.size(); ++i) {
      for (size_t r = 0; r < arrived.size(); ++r)
        average[i] += static_cast<float>(replicas_.at(view.members[r].name).sent.at(x).second) * arrived[r][i];
      average[i] = total > 0 ? average[i] / static_cast<float>(total) : 0.0f;
    }
    average = passed(o_.wire, average);
    size_t k = 0;
    for (int64_t i = 0; i < kValues; ++i) {
      if (!in_fragment(i, x)) continue;
      k = place_of(i, k);
      const float sum = average[k++];
      momentum_[i] = 0.9f * momentum_[i] + sum;
      anchor_[i] = anchor_[i] - 0.7f * (sum + 0.9f * momentum_[i]);
      const auto alpha = static_cast<float>(o_.alpha);
      for (const control::ViewMember& m : view.members) {
        float& p = replicas_.at(m.name).net.p[i];
        p = alpha * p + (1.0f - alpha) * anchor_[i];
      }
    }
  }

  const OuterOptions o_;
  const std::vector<control::ReplicaView> views_;
  Values anchor_, momentum_ = Values(kValues, 0.0f);
  std::map<std::string, Replica> replicas_;
  int64_t step_ = 0, samples_ = 0;
};

// ---- the test's processes ----
class DilocoRun : public ::testing::Test {
 protected:
  DilocoRun() {
    std::string form = ::testing::TempDir() + "/diloco_XXXXXX";
    folder_ = ::mkdtemp(form.data());
  }
  void serve(int64_t replicas) {
    server_.emplace(control::GroupServerOptions{.journal = folder_ + "/journal", .replicas = replicas});
  }
  ~DilocoRun() override {
    for (const auto& [name, pid] : running_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }
  void start(const std::string& name, int pause_us = 0, const std::string& mesh = "", int64_t rows = kRows) {
    std::vector<std::string> arguments = {"/proc/self/exe",  "--replica", server_->address(), name, folder_, options_,
                                          str_cat(pause_us), mesh,        str_cat(rows)};
    std::vector<char*> argv;
    for (std::string& a : arguments) argv.push_back(a.data());
    argv.push_back(nullptr);
    ASSERT_EQ(::posix_spawn(&running_[name], "/proc/self/exe", nullptr, nullptr, argv.data(), environ), 0);
  }
  void kill_replica(const std::string& name) {
    ::kill(running_[name], SIGKILL);
    ::waitpid(running_[name], nullptr, 0);
    running_.erase(name);
  }
  std::string content(const std::string& file) const {
    std::ifstream in(folder_ + "/" + file);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  int64_t steps(const std::string& name) const { return std::ssize(content(name + ".progress")); }
  void await(const std::string& name, int64_t n) const {
    for (int i = 0; i < 60000 && steps(name) < n; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ASSERT_GE(steps(name), n) << name << content(name + ".error");
  }
  /// All running replicas end with the bits of the reference, and of the replay.
  void expect_end() {
    for (const auto& [name, pid] : running_) {
      int status = 0;
      ::waitpid(pid, &status, 0);
      EXPECT_EQ(status, 0) << name << ": " << content(name + ".error");
    }
    server_.reset();
    std::vector<control::ReplicaView> views;
    control::read_journal(folder_ + "/journal", [&](const std::string& record) {
      views.push_back(control::view_of(record, views.empty() ? control::ReplicaView() : views.back()));
      return "";
    });
    const OuterOptions o = options_of(options_);
    Reference reference(o, views);
    for (const auto& [name, pid] : running_) EXPECT_EQ(content(name + ".end"), reference.text(name)) << name;
    running_.clear();

    const auto replay = std::make_shared<const Replay>(folder_ + "/journal");
    const Cells cells;
    DilocoReplica diloco(o, step_of(cells), kRows);
    diloco.begin({}, nullptr, replay);
    while (!diloco.between() || diloco.position().step < o.steps) {
      if (!diloco.ready()) {
        diloco.advance();
        continue;
      }
      cells.train(diloco.row(), diloco.rows());
      diloco.made();
    }
    const std::string first = replay->view_at(2 * o.exchanges() - 1).members[0].name;
    EXPECT_EQ(str_cat(text_of(cells, diloco), " ", diloco.position().samples), reference.text(first));
  }

  std::string folder_, options_;
  std::optional<control::GroupServer> server_;
  std::map<std::string, pid_t> running_;
};

struct Case {
  int replicas;
  const char* options;  // every, fragments, delay, alpha, wire, steps
};

class WithoutFaults : public DilocoRun, public ::testing::WithParamInterface<Case> {};
INSTANTIATE_TEST_SUITE_P(, WithoutFaults,
                         ::testing::Values(Case{2, "3 1 0 0 f32 30"}, Case{2, "10 1 4 0.5 f32 40"},
                                           Case{3, "6 2 1 0.25 f32 36"}, Case{4, "9 3 2 0.5 f32 45"},
                                           Case{3, "10 2 0 0 int8 40"}, Case{4, "6 3 1 0.5 int4 36"},
                                           Case{2, "12 3 4 0.5 f32 36"}, Case{3, "12 4 11 0.25 f32 48"},
                                           Case{4, "10 5 7 0.5 int8 30"}));

TEST_P(WithoutFaults, EqualsTheReferenceToTheBit) {
  options_ = GetParam().options;
  serve(GetParam().replicas);
  const std::vector<std::string> names{"a", "b", "c", "d"};
  for (int r = 0; r < GetParam().replicas; ++r) start(names[static_cast<size_t>(r)]);
  expect_end();
}

class WithFaults : public DilocoRun, public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(, WithFaults,
                         ::testing::Values("10 1 0 0 f32 2000", "12 3 2 0.5 f32 2004", "10 2 3 0.25 int8 2000",
                                           "12 4 7 0.5 f32 2004", "20 4 19 0.25 int8 2000"));

// Replicas are killed in the middle of their steps, and come back.
TEST_P(WithFaults, LostReplicasComeBack) {
  options_ = GetParam();
  serve(3);
  for (const char* name : {"a", "b", "c"}) start(name, 1500);
  await("a", 25);
  for (const char* name : {"b", "a", "c"}) {
    kill_replica(name);
    const std::string other = name == std::string("b") ? "a" : "b";
    await(other, steps(other) + 33);
    start(name, 1500);
    await(name, steps(name) + 25);
  }
  expect_end();
}

// Replicas on different meshes, and with different numbers of rows.
class OnOtherMeshes : public DilocoRun, public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(, OnOtherMeshes,
                         ::testing::Values("10 1 4 0.5 f32 40", "9 3 7 0.25 f32 45", "10 2 0 0 int8 40"));

TEST_P(OnOtherMeshes, EqualsTheReferenceToTheBit) {
  options_ = GetParam();
  serve(3);
  start("a");
  start("b", 0, "tp2", 3);
  start("c", 0, "dp2", 1);
  expect_end();

  const Replay replay(folder_ + "/journal");
  const OuterOptions o = options_of(options_);
  const std::string own = own_values(Mesh(), kRows);
  EXPECT_EQ(weft::testing::error_of([&] { DilocoReplica::check_replay(replay, o, own, /*exact=*/true); }), "");
  const std::string error =
      weft::testing::error_of([&] { DilocoReplica::check_replay(replay, o, own, /*exact=*/false); });
  EXPECT_NE(error.find("replay: replica 'b' of view 1 had the mesh tp2 and "), std::string::npos) << error;
  EXPECT_NE(error.find("this process has the mesh of one rank and "), std::string::npos) << error;
}

// The scales depend on the mesh if it is the mesh of all replicas.
TEST_F(DilocoRun, AReplayOnAnotherMesh) {
  for (const char* wire : {"f32", "int8"}) {
    options_ = str_cat("3 1 0 0 ", wire, " 6");
    std::filesystem::remove(folder_ + "/journal");
    serve(2);
    for (const char* name : {"a", "b"}) start(name, 0, "tp2");
    for (const char* name : {"a", "b"}) ::waitpid(running_.at(name), nullptr, 0);
    running_.clear();
    server_.reset();
    const Replay replay(folder_ + "/journal");
    const auto error_on = [&](const Mesh& mesh, bool exact) {
      return weft::testing::error_of(
          [&] { DilocoReplica::check_replay(replay, options_of(options_), own_values(mesh, kRows), exact); });
    };
    EXPECT_EQ(error_on(Mesh::parse("tp2"), false), "");
    EXPECT_NE(error_on(Mesh(), false), "");
    EXPECT_EQ(error_on(Mesh(), true).find("because the scales") != std::string::npos, wire == std::string("int8"));
  }
}

class LostOnOtherMeshes : public DilocoRun, public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(, LostOnOtherMeshes, ::testing::Values("10 1 0 0 f32 2000", "12 3 8 0.25 f32 2004"));

TEST_P(LostOnOtherMeshes, AReplicaComesBackOnAnotherMesh) {
  options_ = GetParam();
  serve(3);
  start("a", 1500);
  start("b", 1500, "tp3", 3);
  start("c", 1500, "tp2", 1);
  await("a", 25);
  const std::map<std::string, std::string> next{{"b", "dp2"}, {"a", "tp2"}, {"c", ""}};
  for (const char* name : {"b", "a", "c"}) {
    kill_replica(name);
    const std::string other = name == std::string("b") ? "a" : "b";
    await(other, steps(other) + 33);
    start(name, 1500, next.at(name), 4);
    await(name, steps(name) + 25);
  }
  expect_end();
}

}  // namespace
}  // namespace weft::dist

int main(int argc, char** argv) {
  const std::vector<std::string> a(argv, argv + argc);
  if (argc == 9 && a[1] == "--replica")
    return weft::dist::run_replica(a[2], a[3], a[4], a[5], std::stoi(a[6]), a[7], std::stoll(a[8]));
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
