#include "distributed/comm/shared/world.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <thread>

#include "distributed/comm/shared/connect.h"
#include "distributed/comm/shared/engine.h"
#include "distributed/comm/world_checks.h"
#include "framework/base/wait.h"

namespace weft::dist {
namespace {

using shared::Engine;
using shared::PeerProcess;
using shared::Segment;
using shared::SegmentHeader;
using shared::SharedGroup;

struct SharedHub final : ProcessHub {
  SharedHub(Store& store, int size, const std::vector<int>& local, const SharedWorldOptions& o)
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
    quit = internal::Fd(eventfd(0, EFD_CLOEXEC));
    WEFT_CHECK_AS(kResourceExhausted, quit, "shared memory: eventfd failed");
    watcher = std::thread([this] { watch(); });
    if (options.progress_thread) progress = std::thread([this] { help(); });
  }

  int size() const override { return static_cast<int>(pids.size()); }
  bool owns(int rank) const override { return engines.contains(rank); }
  std::string name_of(int rank) const override { return str_cat("rank ", rank, " (pid ", pids.at(rank), ")"); }

  Ref<internal::Group> make_group(const std::string& name, const std::vector<int>& ranks, int rank,
                                  uint64_t key) override {
    return make_ref<SharedGroup>(shared_from_this(), *engines.at(rank), name, ranks, key);
  }

  void close() override {
    for (auto& [r, e] : engines) e->close();
    for (auto& segment : own) segment->header().closed.store(1);
    stop.store(true);
    const uint64_t one = 1;
    if (write(quit.get(), &one, sizeof one) != sizeof one) std::abort();
    watcher.join();
    if (progress.joinable()) {
      SegmentHeader& h = own[0]->header();
      h.progress_bell.fetch_add(1);
      weft::internal::futex_wake(h.progress_bell);
      progress.join();
    }
    for (PeerProcess& p : peers) {
      p.socket = internal::Fd();
      p.pidfd = internal::Fd();
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
      places.endings[r] = str_cat(name_of(r), " has ", left ? "left" : "died");
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
      weft::internal::futex_wait(h.progress_bell, seen, std::chrono::seconds(1));
      h.progress_sleeps.store(0);
    }
  }

  void abort(const std::string& cause) override {
    {
      const std::lock_guard lock(aborting);
      if (places.aborted.load()) return;
      places.cause = cause;
      places.aborted.store(true, std::memory_order_release);
    }
    for (auto& [r, engine] : engines) engine->abort(cause);
  }

  const SharedWorldOptions options;
  std::mutex aborting;
  shared::Places places;
  std::vector<pid_t> pids;  // index: rank
  std::vector<std::unique_ptr<Segment>> own;
  std::vector<PeerProcess> peers;
  std::map<int, std::unique_ptr<Engine>> engines;  // key: rank
  internal::Fd quit;
  std::atomic<bool> stop{false};
  std::thread watcher, progress;
};

}  // namespace

std::unique_ptr<ProcessWorld> make_shared_world(Store& store, int size, std::vector<int> local_ranks,
                                                const SharedWorldOptions& options) {
  local_ranks = internal::checked_local_ranks("shared world", size, std::move(local_ranks));
  return std::make_unique<ProcessWorld>(std::make_shared<SharedHub>(store, size, local_ranks, options),
                                        options.timeout);
}

}  // namespace weft::dist
