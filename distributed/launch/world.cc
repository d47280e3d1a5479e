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
#include "framework/base/mutex.h"
#include "framework/base/thread_pool.h"

namespace weft::dist {
namespace {

// The communicators of a world. They are created at first use, and aborted and reset together.
class Communicators {
 public:
  explicit Communicators(const Mesh& mesh) : mesh_(mesh) {}

  Ref<Communicator> get(int rank, const std::string& axes) {
    std::vector<int> group = mesh_.group(rank, axes);
    const auto me = std::find(group.begin(), group.end(), rank);
    MutexLock lock(mutex_);
    auto& all = groups_[{axes, group[0]}];
    if (all.empty()) {
      all = make_thread_communicators(static_cast<int>(group.size()), axes, group);
      if (!cause_.empty()) all[0]->abort(cause_);
      for (size_t i = 0; i < group.size(); ++i)
        if (returned_.contains(group[i])) set_retired(*all[i], true);
    }
    return all[me - group.begin()];
  }

  /// Keeps the first cause.
  void abort(const std::string& cause) {
    MutexLock lock(mutex_);
    if (!cause_.empty()) return;
    cause_ = cause;
    for (auto& [key, all] : groups_) all[0]->abort(cause);
  }

  /// The rank has returned from its function: no other rank may wait for it any more.
  void leave(int rank) {
    MutexLock lock(mutex_);
    returned_.insert(rank);
    for (auto& [key, all] : groups_) {
      const std::vector<int> group = mesh_.group(key.second, key.first);
      const auto me = std::find(group.begin(), group.end(), rank);
      if (me != group.end()) set_retired(*all[me - group.begin()], true);
    }
  }
  /// All ranks run again.
  void begin() {
    MutexLock lock(mutex_);
    if (returned_.empty()) return;
    returned_.clear();
    for (auto& [key, all] : groups_)
      for (const Ref<Communicator>& c : all) set_retired(*c, false);
  }

  void reset() {
    MutexLock lock(mutex_);
    groups_.clear();
    cause_.clear();
  }

 private:
  const Mesh& mesh_;
  Mutex mutex_;
  std::map<std::pair<std::string, int>, std::vector<Ref<Communicator>>> groups_;  // by axes and first rank
  std::string cause_;
  std::set<int> returned_;
};

class Rank final : public RankContext {
 public:
  Rank(int rank, int size, Communicators& all) : RankContext(rank, size, Device::cpu(rank)), all_(all) {}
  ~Rank() override { abandon(); }
  Communicator& communicator(const std::string& axes) override {
    auto it = mine_.find(axes);
    if (it == mine_.end()) it = mine_.emplace(axes, all_.get(rank(), axes)).first;
    return *it->second;
  }
  void reset() {
    abandon();
    mine_.clear();
  }

 private:
  Communicators& all_;
  std::map<std::string, Ref<Communicator>> mine_;
};

}  // namespace

struct World::Impl {
  Impl(Mesh m, WorldOptions o) : mesh(std::move(m)), communicators(mesh) {
    const int n = mesh.size();
    WEFT_CHECK(n <= 4096, "world: ", n, " ranks as threads of one process; need at most 4096");
    WEFT_CHECK(o.threads >= 0, "world: threads is ", o.threads, "; need 0 (one for each core) or more");
    WEFT_CHECK(o.timeout.count() > 0, "world: timeout is ", o.timeout.count(), " ns; need more than 0");
    const int threads = o.threads ? o.threads : std::max(1u, std::thread::hardware_concurrency());
    for (int r = 0; r < n; ++r) {
      ranks.push_back(std::make_unique<Rank>(r, n, communicators));
      ranks[r]->timeout = o.timeout;
      ranks[r]->recording = o.record;
    }
    for (int r = 0; r < n; ++r) {
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
    if (cause.empty()) return communicators.leave(r);
    cause = str_cat("rank ", r, ": ", cause);
    {
      std::lock_guard lock(mutex);
      // Aborted ranks only report that another rank failed.
      if (!error || (error->code() == Code::kAborted && code != Code::kAborted)) error.emplace(code, cause);
    }
    communicators.abort(cause);
    ranks[r]->abandon();
  }

  const pid_t process = getpid();
  const Mesh mesh;
  Communicators communicators;
  std::vector<std::unique_ptr<Rank>> ranks;
  std::vector<std::thread> drivers;

  std::mutex mutex;
  std::condition_variable begin, end;
  const std::function<void(int)>* fn = nullptr;
  uint64_t generation = 0;
  int left = 0;
  bool quit = false, running = false;
  std::optional<Error> error;
};

World::World(Mesh mesh, WorldOptions options) : impl_(std::make_unique<Impl>(std::move(mesh), options)) {}
World::~World() {
  if (impl_->process != getpid()) static_cast<void>(impl_.release());  // there is nothing to join
}
const Mesh& World::mesh() const { return impl_->mesh; }
RankContext& World::rank(int rank) {
  WEFT_CHECK(rank >= 0 && rank < size(), "world: rank ", rank, "; need 0 to ", size() - 1);
  return *impl_->ranks[rank];
}

void World::run(const std::function<void(int)>& fn) {
  Impl& w = *impl_;
  WEFT_CHECK_AS(kFailedPrecondition, w.process == getpid(),
                "world: fork() made this process, and the threads of the ranks stayed in its parent; need a world made "
                "in this process: compile the step after fork()");
  std::optional<Error> error;
  {
    std::unique_lock lock(w.mutex);
    WEFT_CHECK_AS(kFailedPrecondition, !w.running, "world: run() is already in progress");
    w.running = true;
    w.communicators.begin();
    w.fn = &fn;
    w.left = size();
    ++w.generation;
    w.begin.notify_all();
    w.end.wait(lock, [&] { return w.left == 0; });
    w.fn = nullptr;
    w.running = false;
    error.swap(w.error);
  }
  if (!error) return;
  for (auto& r : w.ranks) r->reset();
  w.communicators.reset();
  throw *error;
}

void World::clear_statistics() {
  for (auto& r : impl_->ranks) r->clear_statistics();
}

void World::record(bool on) {
  for (auto& r : impl_->ranks) r->recording = on;
}

std::string World::statistics() const {
  RankContext::Totals sum;
  for (const auto& r : impl_->ranks)
    for (const auto& [key, t] : r->totals()) {
      sum[key].count += t.count;
      sum[key].bytes += t.bytes;
      sum[key].wait_seconds += t.wait_seconds;
    }
  std::string text = "collective      over        count        bytes   waiting\n";
  const double n = size();
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
