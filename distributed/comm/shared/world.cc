#include "distributed/comm/shared/world.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <thread>

#include "distributed/comm/process_communicator.h"
#include "distributed/comm/shared/connect.h"
#include "distributed/comm/shared/engine.h"
#include "distributed/comm/world_checks.h"

namespace weft::dist {
namespace {

using shared::Engine;
using shared::Group;
using shared::Op;
using shared::PeerProcess;
using shared::Segment;
using shared::SegmentHeader;

class SharedCommunicator final : public internal::ProcessCommunicator<Group, Op> {
 public:
  using ProcessCommunicator::ProcessCommunicator;

 private:
  Ref<Communicator> make_part(const std::string& name, const std::vector<int>& ranks, uint64_t key,
                              Work::Deadline deadline) override {
    auto group = make_ref<Group>(group_->world(), group_->engine(), name, ranks, key);
    group->open(deadline);
    return make_ref<SharedCommunicator>(std::move(group));
  }
};

}  // namespace

struct SharedWorld::State {
  State(Store& store, int size, const std::vector<int>& local, const SharedWorldOptions& o)
      : options(o), places(size, o.piece_bytes), pids(size) {
    WEFT_CHECK(options.piece_bytes >= int64_t{64} * size, "shared memory: pieces have ", options.piece_bytes,
               " bytes; need at least 64 for each of ", size, " ranks");
    std::vector<Segment*> list;
    for (int r : local) {
      own.push_back(std::make_unique<Segment>(r, options.reserve_bytes));
      own.back()->header().progress_rank = local[0];
      own.back()->header().piece_bytes = options.piece_bytes;
      places.segments[r] = own.back().get();
      places.local[r] = true;
      pids[r] = getpid();
      list.push_back(own.back().get());
    }
    peers = shared::connect_processes(store, size, list, std::chrono::steady_clock::now() + options.timeout);
    for (const PeerProcess& p : peers)
      for (size_t i = 0; i < p.ranks.size(); ++i) {
        places.segments[p.ranks[i]] = p.segments[i].get();
        pids[p.ranks[i]] = p.pid;
        const int64_t piece = p.segments[i]->header().piece_bytes;
        WEFT_CHECK(piece == options.piece_bytes, "shared memory: pieces of rank ", p.ranks[i], " have ", piece,
                   " bytes, and of rank ", local[0], " ", options.piece_bytes, "; need the same in all processes");
      }
    for (int r : local) engines[r] = std::make_unique<Engine>(places, r, options.spin, options.progress_thread);
    quit = shared::Fd(eventfd(0, EFD_CLOEXEC));
    WEFT_CHECK_AS(kResourceExhausted, quit, "shared memory: eventfd failed");
    watcher = std::thread([this] { watch(); });
    if (options.progress_thread) progress = std::thread([this] { help(); });
  }

  // Ends the threads; keeps everything that communicators need.
  void close() {
    for (auto& [r, e] : engines) e->close();
    for (auto& segment : own) segment->header().closed.store(1);
    stop.store(true);
    const uint64_t one = 1;
    if (write(quit.get(), &one, sizeof one) != sizeof one) std::abort();
    watcher.join();
    if (progress.joinable()) {
      SegmentHeader& h = own[0]->header();
      h.progress_bell.fetch_add(1);
      shared::futex_wake(h.progress_bell);
      progress.join();
    }
    for (PeerProcess& p : peers) {
      p.socket = shared::Fd();
      p.pidfd = shared::Fd();
    }
  }

  // Reports processes that end.
  void watch() {
    std::vector<bool> ended(peers.size());
    while (!stop.load()) {
      std::vector<pollfd> list{{quit.get(), POLLIN, 0}};
      std::vector<size_t> of{peers.size()};
      for (size_t i = 0; i < peers.size(); ++i) {
        if (ended[i]) continue;
        // The connection also ends if the process leaves; a child of the process may keep it open.
        list.push_back({peers[i].socket.get(), POLLIN, 0});
        of.push_back(i);
        if (!peers[i].pidfd) continue;
        list.push_back({peers[i].pidfd.get(), POLLIN, 0});
        of.push_back(i);
      }
      if (poll(list.data(), list.size(), -1) <= 0) continue;
      for (size_t j = 1; j < list.size(); ++j)
        if (list[j].revents && !ended[of[j]]) {
          ended[of[j]] = true;
          end(peers[of[j]]);
        }
    }
  }

  void end(const PeerProcess& p) {
    const bool left = p.segments[0]->header().closed.load();
    for (int r : p.ranks) {
      places.endings[r] = str_cat("rank ", r, " (pid ", p.pid, ") has ", left ? "left" : "died");
      places.ended[r].store(true, std::memory_order_release);
    }
    for (int r : p.ranks)
      for (auto& [mine, engine] : engines) {
        if (!left) engine->end(r, places.endings[r]);
        shared::ring(places, mine);
      }
  }

  // Does the parts of ranks that compute, and sleeps while there are no such parts.
  void help() {
    SegmentHeader& h = own[0]->header();
    while (!stop.load()) {
      const uint32_t seen = h.progress_bell.load();
      bool worked = false;
      for (auto& [r, engine] : engines) worked |= engine->step();
      if (worked) continue;
      h.progress_sleeps.store(1);
      shared::futex_wait(h.progress_bell, seen, std::chrono::seconds(1));
      h.progress_sleeps.store(0);
    }
  }

  void abort(const std::string& cause) {
    {
      const std::lock_guard lock(aborting);
      if (places.aborted.load()) return;
      places.cause = cause;
      places.aborted.store(true, std::memory_order_release);
    }
    for (auto& [r, engine] : engines) engine->abort(cause);
  }

  const pid_t process = getpid();
  const SharedWorldOptions options;
  std::mutex aborting;
  shared::Places places;
  std::vector<pid_t> pids;  // by rank
  std::vector<std::unique_ptr<Segment>> own;
  std::vector<PeerProcess> peers;
  std::map<int, std::unique_ptr<Engine>> engines;  // by rank
  std::map<std::string, int> made;                 // number of communicators of this name and these ranks so far
  shared::Fd quit;
  std::atomic<bool> stop{false};
  std::thread watcher, progress;
};

SharedWorld::SharedWorld(Store& store, int size, std::vector<int> local_ranks, SharedWorldOptions options) {
  local_ranks = internal::checked_local_ranks("shared world", size, std::move(local_ranks));
  state_ = std::make_shared<State>(store, size, local_ranks, options);
}

SharedWorld::~SharedWorld() {
  if (state_->process == getpid())
    state_->close();
  else
    new std::shared_ptr<State>(std::move(state_));  // a child of fork() has no threads to stop
}

int SharedWorld::size() const { return static_cast<int>(state_->pids.size()); }
pid_t SharedWorld::process_of(int rank) const { return state_->pids.at(rank); }

void SharedWorld::abort(const std::string& cause) { state_->abort(cause); }

std::vector<Ref<Communicator>> SharedWorld::communicators(const std::string& name, const std::vector<int>& group) {
  internal::check_group(name, group, size());
  const std::string text = str_cat(name, "/", group);
  const uint64_t key = internal::key_of(str_cat(text, "/", state_->made[text]++));
  std::vector<Ref<Group>> groups;
  for (int r : group)
    if (const auto it = state_->engines.find(r); it != state_->engines.end())
      groups.push_back(make_ref<Group>(state_, *it->second, name, group, key));
  const auto deadline = std::chrono::steady_clock::now() + state_->options.timeout;
  std::vector<Ref<Communicator>> all;
  for (const Ref<Group>& g : groups) {
    g->open(deadline);
    all.push_back(make_ref<SharedCommunicator>(g));
  }
  return all;
}

}  // namespace weft::dist
