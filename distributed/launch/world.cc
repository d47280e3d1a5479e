#include "distributed/launch/world.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "distributed/comm/threads.h"
#include "distributed/launch/processes.h"
#include "framework/base/mutex.h"
#include "framework/base/thread_pool.h"

namespace weft::dist {
namespace {

// The communicators of the ranks of this process, by axes and ranks of their group: between threads, or between the
// processes of a job. The first use of a communicator creates it. In a job it also waits for the other processes:
// ranks must use several communicators in one order.
class Transport {
 public:
  Transport(const Mesh& mesh, Processes* job) : mesh_(mesh), job_(job) {}

  // The communicator of a rank of this process along mesh dimensions, in its place.
  Ref<Communicator> get(int rank, const std::string& axes) {
    std::vector<int> group = mesh_.group(place_of(rank), axes);
    for (int& r : group) r = rank_at(r);
    MutexLock lock(mutex_);
    auto& all = groups_[{axes, group}];
    if (all.empty()) {
      all = make(axes, group);
      if (!cause_.empty()) all.begin()->second->abort(cause_);
      for (auto& [r, c] : all)
        if (returned_.contains(r)) c->retire(true);
    }
    return all.at(rank);
  }

  void take_places(const std::string& dim, int by) { dim_ = dim, by_ = by; }
  std::pair<std::string, int> places() const { return {dim_, by_}; }
  int place_of(int rank) const { return further(rank, by_); }
  int rank_at(int place) const { return further(place, -by_); }

  // Aborts all communicators, including later ones, until reset(). Keeps the first cause.
  void abort(const std::string& cause) {
    MutexLock lock(mutex_);
    if (!cause_.empty()) return;
    cause_ = cause;
    for (auto& [key, all] : groups_)
      if (!all.empty()) all.begin()->second->abort(cause);
  }

  // The rank has returned from its function: no other rank may wait for it any more. Not in a job, where another
  // process may be in its next call already, or still in its previous call.
  void leave(int rank) {
    if (job_) return;
    MutexLock lock(mutex_);
    returned_.insert(rank);
    for (auto& [key, all] : groups_)
      if (const auto it = all.find(rank); it != all.end()) it->second->retire(true);
  }
  // All ranks run again.
  void begin() {
    MutexLock lock(mutex_);
    if (returned_.empty()) return;
    returned_.clear();
    for (auto& [key, all] : groups_)
      for (auto& [r, c] : all) c->retire(false);
  }

  // Drops all communicators; later ones are new.
  void reset() {
    MutexLock lock(mutex_);
    groups_.clear();
    cause_.clear();
  }

 private:
  using Group = std::map<int, Ref<Communicator>>;  // key: rank of this process

  int further(int rank, int by) const {
    if (by == 0) return rank;
    const std::vector<int> line = mesh_.group(rank, dim_);
    const auto n = static_cast<int64_t>(line.size());
    return line[static_cast<size_t>(((mesh_.coordinate(rank, dim_) + by) % n + n) % n)];
  }

  Group make(const std::string& axes, const std::vector<int>& group) {
    const std::vector<Ref<Communicator>> all =
        job_ ? job_->world().communicators(axes, group)
             : make_thread_communicators(static_cast<int>(group.size()), axes, group);
    Group made;
    auto next = all.begin();
    for (int r : group)
      if (!job_ || job_->owns(r)) made[r] = *next++;
    return made;
  }

  const Mesh& mesh_;
  Processes* const job_;
  Mutex mutex_;
  std::map<std::pair<std::string, std::vector<int>>, Group> groups_;
  std::string dim_;
  int by_ = 0;
  std::string cause_;
  std::set<int> returned_;
};

class Rank final : public RankContext {
 public:
  Rank(int rank, int size, Transport& all) : RankContext(rank, size, Device::cpu(rank)), all_(all) {}
  ~Rank() override { abandon(); }
  Communicator& communicator(const std::string& axes) override {
    if (replica && axes == "replica") return replica->sums();
    std::map<std::string, Ref<Communicator>>& mine = mine_[all_.places()];
    auto it = mine.find(axes);
    if (it == mine.end()) {
      Ref<Communicator> made = all_.get(rank(), axes);
      if (replica && axes == "world") made = replica->votes(std::move(made));
      it = mine.emplace(axes, std::move(made)).first;
    }
    return *it->second;
  }
  void reset() {
    abandon();
    mine_.clear();
  }
  std::optional<ReplicaRank> replica;

 private:
  Transport& all_;
  std::map<std::pair<std::string, int>, std::map<std::string, Ref<Communicator>>> mine_;  // key: places, then axes
};

}  // namespace

struct World::Impl {
  Impl(Mesh m, WorldOptions o) : mesh(std::move(m)), replicas(o.replicas) {
    const int n = mesh.size();
    WEFT_CHECK(!job || job->size() == n, "world: mesh ", mesh.to_string(), " has ", n, " ranks, and the job ",
               job ? job->size() : 0, "; need equal numbers");
    WEFT_CHECK(n <= 4096, "world: ", n, " ranks as threads of one process; need at most 4096");
    WEFT_CHECK(o.threads >= 0, "world: threads is ", o.threads, "; need 0 (one for each core) or more");
    WEFT_CHECK(o.timeout.count() > 0, "world: timeout is ", o.timeout.count(), " ns; need more than 0");
    const int threads = o.threads ? o.threads : std::max(1u, std::thread::hardware_concurrency());
    ranks.resize(n);
    for (int r = 0; r < n; ++r) {
      if (!is_local(r)) continue;
      local.push_back(r);
      ranks[r] = std::make_unique<Rank>(r, n, transport);
      if (replicas) ranks[r]->replica.emplace(*replicas, *ranks[r], r == local[0]);
      ranks[r]->timeout = o.timeout;
      ranks[r]->recording = o.record;
      ranks[r]->flight = flight::ring(r, n);
      if (ranks[r]->flight) ranks[r]->flight->set_mesh(mesh.to_string());
    }
    for (int r : local) {
      // Threads are shared as evenly as possible; each rank has at least its driver.
      const int slice = std::max(1, threads * (r + 1) / n - threads * r / n);
      drivers.emplace_back([this, r, slice] { drive(r, slice); });
    }
  }
  ~Impl() {
    {
      std::lock_guard lock(mutex);
      quit = true;
    }
    begin.notify_all();
    for (std::thread& t : drivers) t.join();
  }

  void drive(int r, int slice) {
    ThreadPool pool(slice);
    ScopedPool use(pool);
    ScopedRank me(*ranks[r]);
    uint64_t seen = 0;
    std::unique_lock lock(mutex);
    while (true) {
      begin.wait(lock, [&] { return quit || generation != seen; });
      if (quit) return;
      seen = generation;
      lock.unlock();
      run_rank(r);
      lock.lock();
      if (--left == 0) end.notify_all();
    }
  }

  void run_rank(int r) {
    std::string cause;
    Code code = Code::kInternal;
    try {
      (*fn)(r);
      const size_t left_over = ranks[r]->under_way();
      if (left_over) {
        code = Code::kFailedPrecondition;
        cause = str_cat(left_over, " collectives were started but not waited for");
      }
    } catch (const Error& e) {
      cause = e.what();
      code = e.code();
    } catch (const std::exception& e) {
      cause = e.what();
    } catch (...) {
      cause = "an exception of unknown type";
    }
    if (ranks[r]->replica && ranks[r]->replica->take_uncommitted()) {
      std::lock_guard lock(mutex);
      uncommitted = cause;
    } else if (!cause.empty()) {
      return failed(r, code, cause);
    }
    transport.leave(r);
  }

  void failed(int r, Code code, std::string cause) {
    if (ranks[r]->flight) ranks[r]->flight->fail(code, cause);
    cause = str_cat("rank ", r, ": ", cause);
    {
      std::lock_guard lock(mutex);
      // Aborted ranks only report that another rank failed.
      if (!error || (error->code() == Code::kAborted && code != Code::kAborted)) error.emplace(code, cause);
    }
    transport.abort(cause);
    if (replicas) replicas->close(cause);
    ranks[r]->abandon();
  }

  const pid_t process = getpid();
  const Mesh mesh;
  Processes* const job = Processes::current();
  LiveReplicas* const replicas;
  Transport transport{mesh, job};
  std::vector<std::string> connected;        // axes
  std::vector<int> local;                    // the ranks of this process
  std::vector<std::unique_ptr<Rank>> ranks;  // index: rank; null for ranks of other processes
  std::vector<std::thread> drivers;

  FairMutex turn;
  std::mutex mutex;
  std::condition_variable begin, end;
  const std::function<void(int)>* fn = nullptr;
  uint64_t generation = 0;
  int left = 0;
  bool quit = false, running = false;
  std::optional<Error> error;
  std::string uncommitted;  // the error of a rank whose step is not committed
};

World::World(Mesh mesh, WorldOptions options) : impl_(std::make_unique<Impl>(std::move(mesh), options)) {}
World::~World() {
  if (impl_->process != getpid()) static_cast<void>(impl_.release());  // there is nothing to join
}
const Mesh& World::mesh() const { return impl_->mesh; }
const std::vector<int>& World::local() const { return impl_->local; }
RankContext& World::rank(int rank) {
  WEFT_CHECK(rank >= 0 && rank < size(), "world: rank ", rank, "; need 0 to ", size() - 1);
  WEFT_CHECK(impl_->ranks[rank], "world: rank ", rank, " belongs to another process; need a rank of this process");
  return *impl_->ranks[rank];
}

ReplicaRank* World::replica_rank(int r) {
  std::optional<ReplicaRank>& x = impl_->ranks[static_cast<size_t>(r)]->replica;
  return x ? &*x : nullptr;
}

void World::run(const std::function<void(int)>& fn) {
  Impl& w = *impl_;
  if (w.job) w.job->take_thread("a run on the mesh");
  WEFT_CHECK_AS(kFailedPrecondition, w.process == getpid(),
                "world: fork() made this process, and the threads of the ranks stayed in its parent; need a world made "
                "in this process: compile the step after fork()");
  std::optional<Error> error;
  std::string uncommitted;
  {
    std::unique_lock lock(w.mutex);
    WEFT_CHECK_AS(kFailedPrecondition, !w.running, "world: run() is already in progress");
    w.running = true;
    w.transport.begin();
    w.fn = &fn;
    w.left = static_cast<int>(w.local.size());
    ++w.generation;
    w.begin.notify_all();
    w.end.wait(lock, [&] { return w.left == 0; });
    w.fn = nullptr;
    w.running = false;
    error.swap(w.error);
    uncommitted.swap(w.uncommitted);
  }
  if (!error && !uncommitted.empty()) throw Uncommitted(Code::kAborted, uncommitted);
  if (!error) return;
  for (int r : w.local) w.ranks[r]->reset();
  w.transport.reset();
  throw *error;
}

void World::connect(const std::vector<std::string>& axes) {
  // Goes through groups by their first places, which is the same order in all processes.
  for (const std::string& names : axes)
    for (int first = 0; first < size(); ++first) {
      if (impl_->replicas && names == "replica") break;  // the view has these
      const std::vector<int> group = mesh().group(first, names);
      if (group[0] != first) continue;
      for (int place : group)
        if (const auto& rank = impl_->ranks[impl_->transport.rank_at(place)]) rank->communicator(names);
    }
  for (const std::string& names : axes)
    if (std::find(impl_->connected.begin(), impl_->connected.end(), names) == impl_->connected.end())
      impl_->connected.push_back(names);
}

void World::take_places(const std::string& dim, int by) {
  impl_->transport.take_places(by ? dim : "", by);
  if (by != 0) connect(impl_->connected);
}

FairMutex& World::turn() { return impl_->turn; }

void World::clear_statistics() {
  for (int r : impl_->local) impl_->ranks[r]->clear_statistics();
}

void World::record(bool on) {
  for (int r : impl_->local) impl_->ranks[r]->recording = on;
}

std::string World::statistics() const {
  RankContext::Totals sum;
  for (int r : impl_->local)
    for (const auto& [key, t] : impl_->ranks[r]->totals()) {
      sum[key].count += t.count;
      sum[key].bytes += t.bytes;
      sum[key].wait_seconds += t.wait_seconds;
    }
  std::string text = "collective      over        count        bytes   waiting\n";
  const auto n = static_cast<double>(impl_->local.size());
  for (const auto& [key, t] : sum) {
    if (t.count == 0) continue;
    char line[160];
    std::snprintf(line, sizeof line, "%-15s %-9s %7.6g %12.9g %6.2f ms\n",
                  std::string(to_string_view(key.first)).c_str(), key.second.c_str(), static_cast<double>(t.count) / n,
                  static_cast<double>(t.bytes) / n, t.wait_seconds / n * 1e3);
    text += line;
  }
  return text;
}

void run(const Mesh& mesh, const std::function<void(int)>& fn, WorldOptions options) { World(mesh, options).run(fn); }

}  // namespace weft::dist
