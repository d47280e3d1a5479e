#include "distributed/comm/gloo/world.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <thread>

#include "distributed/comm/gloo/connect.h"
#include "distributed/comm/gloo/group.h"
#include "distributed/comm/world_checks.h"

namespace weft::dist {
namespace {

using wire::FrameHeader;
using wire::FrameKind;
using wire::GlooGroup;
using wire::GlooOp;
using Lock = std::unique_lock<std::mutex>;

constexpr size_t kMaxEarlyOpens = 1 << 16;
constexpr auto kLeaveTimeout = std::chrono::seconds(2);
constexpr auto kShortLeaveTimeout = std::chrono::milliseconds(200);  // the others learn the cause from another source

std::string own_host() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

// A process's entry in the store for each of its ranks.
struct Member {
  int first = 0;  // the process's first rank
  int64_t pid = 0;
  std::string host, network;
};

std::string key_of(int rank) { return str_cat("gloo/rank_", rank); }

struct GlooHub final : wire::Hub, ProcessHub {
  GlooHub(Store& store, int size, const std::vector<int>& local_ranks, const GlooWorldOptions& o)
      : options(o), members(size), process_of(size), local(size) {
    settles = options.settles;
    const auto deadline = std::chrono::steady_clock::now() + options.timeout;
    join(store, local_ranks, deadline);
    wire::ConnectOptions connect{options.address, options.interface, store.get("gloo/token", deadline)};
    const bool one_host =
        std::all_of(members.begin(), members.end(), [&](const Member& m) { return m.network == members[0].network; });
    if (connect.address.empty() && connect.interface.empty() && one_host) connect.address = "127.0.0.1";
    const wire::LinkEvents events{[this](int p, const FrameHeader& h, const char* data) { frame(p, h, data); },
                                  [this](int p) { lost(p); }};
    std::vector<std::string> names;
    for (int r : firsts) names.push_back(name_of(r));
    connections = std::make_unique<wire::Connections>(wire::connect_processes(store, mine, names, connect, deadline),
                                                      options.silence);
    peers.resize(firsts.size());
    own = wire::make_own_link(mine, events);
    connections->start(events);
    worker = std::thread([this] { work_on_tasks(); });
  }

  void join(Store& store, const std::vector<int>& local_ranks, Store::Deadline deadline) {
    if (local_ranks[0] == 0) store.set("gloo/token", internal::random_text());
    for (int r : local_ranks)
      store.set(key_of(r), str_cat(local_ranks[0], " ", getpid(), " ", own_host(), " ", internal::own_network()));
    for (int r = 0; r < size(); ++r) {
      Member& m = members[r];
      std::istringstream text(store.get(key_of(r), deadline));
      text >> m.first >> m.pid >> m.host >> m.network;
      WEFT_CHECK_AS(kUnavailable, text && m.first >= 0 && m.first <= r, "gloo: the store has a wrong ", key_of(r));
      if (m.first == r) firsts.push_back(r);
      const auto it = std::find(firsts.begin(), firsts.end(), m.first);
      WEFT_CHECK_AS(kUnavailable, it != firsts.end(), "gloo: the store has a wrong ", key_of(r));
      process_of[r] = static_cast<int>(it - firsts.begin());
    }
    for (int r : local_ranks) local[r] = true;
    mine = process_of[local_ranks[0]];
  }

  int size() const override { return static_cast<int>(members.size()); }
  bool owns(int rank) const override { return local[rank]; }
  std::string name_of(int rank) const override {
    return str_cat("rank ", rank, " (pid ", members[rank].pid, " on host ", members[rank].host, ")");
  }

  void send(wire::Outgoing f) override {
    if (closed) return;
    const int p = process_of[f.header.to];
    if (p == mine) return own->send(std::move(f));
    if (!peers[p].lost) connections->link(p).send(std::move(f));
  }

  void send_to_process(int p, FrameKind kind) {
    FrameHeader h;
    h.kind = kind;
    h.from = firsts[mine];
    h.to = firsts[p];
    send({h, {}, {}});
  }

  bool poll(const std::vector<int>& ranks) override {
    std::vector<int> processes;
    for (int r : ranks)
      if (const int p = process_of[r]; p != mine && std::find(processes.begin(), processes.end(), p) == processes.end())
        processes.push_back(p);
    return connections->poll(processes);
  }

  void work(Ref<GlooGroup> group, Ref<GlooOp> op) override {
    tasks.emplace_back(std::move(group), std::move(op));
    changed.notify_all();
  }

  std::string ending(int rank, bool* left) const override {
    const int p = process_of[rank];
    if (p == mine) return {};
    *left = peers[p].left;
    if (*left) return name_of(rank) + " has left";
    return peers[p].lost ? str_cat(name_of(rank), " ", kUnreachable) : "";
  }

  void work_on_tasks() {
    Lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return closed || !tasks.empty(); });
      if (closed) return;
      auto [group, op] = std::move(tasks.front());
      tasks.pop_front();
      lock.unlock();
      group->work(*op);
      group = {};
      op = {};
      lock.lock();
    }
  }

  void frame(int p, const FrameHeader& h, const char* payload) {
    Lock lock(mutex);
    WEFT_CHECK(h.from >= 0 && h.from < size() && process_of[h.from] == p && h.to >= 0 && h.to < size() && local[h.to],
               "gloo: a message between wrong ranks");
    if (h.kind == FrameKind::kLeave || h.kind == FrameKind::kLeaveAck) {
      (h.kind == FrameKind::kLeave ? peers[p].left : peers[p].acknowledged) = true;
      if (h.kind == FrameKind::kLeave) {
        send_to_process(p, FrameKind::kLeaveAck);
        notify_groups(p);
      }
      changed.notify_all();
      return;
    }
    const auto it = groups.find({h.group, h.to});
    if (it != groups.end()) {
      const Ref<GlooGroup> group = it->second;
      return group->receive(h, payload, lock);
    }
    if (h.kind != FrameKind::kOpen) return;  // for other kinds, this rank has dropped the communicator
    WEFT_CHECK(early_opens.size() < kMaxEarlyOpens, "gloo: too many communicators");
    early_opens.insert({h.group, h.to, h.from});
  }

  void lost(int p) {
    const std::lock_guard lock(mutex);
    if (closed || peers[p].lost) return;
    peers[p].lost = true;
    notify_groups(p);
    changed.notify_all();
  }

  void notify_groups(int p) {
    std::vector<Ref<GlooGroup>> all;
    for (auto& [key, group] : groups) all.push_back(group);
    for (const Ref<GlooGroup>& group : all)
      for (int r = 0; r < size(); ++r)
        if (process_of[r] == p && group->has(r)) group->ended(r);
  }

  Ref<internal::Group> make_group(const std::string& name, const std::vector<int>& ranks, int rank,
                                  uint64_t key) override {
    auto group = make_ref<GlooGroup>(*this, shared_from_this(), name, ranks, rank, key);
    const std::lock_guard lock(mutex);
    WEFT_CHECK_AS(kAborted, !closed, "communicator ", name, ": this process has left the world");
    WEFT_CHECK_AS(kAborted, cause.empty(), "communicator ", name, ": ", cause);
    groups[{key, rank}] = group;
    for (size_t i = 0; i < ranks.size(); ++i)
      if (early_opens.erase({key, rank, ranks[i]}) > 0) group->opened(static_cast<int>(i));
    group->announce();
    return group;
  }

  std::string aborted() const override { return cause; }

  void abort(const std::string& why) override {
    const std::lock_guard lock(mutex);
    if (closed || !cause.empty()) return;
    cause = why;
    for (auto& [key, group] : groups) group->fail_here(Error(Code::kAborted, cause), nullptr);
    changed.notify_all();
  }

  void remove(GlooGroup& group) override {
    if (pid != getpid()) return;
    group.retire(0, true);
    const std::lock_guard lock(mutex);
    groups.erase({group.key(), group.world_rank()});
  }

  void close() override {
    {
      Lock lock(mutex);
      for (auto& [key, group] : groups)
        group->fail_here(Error(Code::kAborted, "this process has left the world"), nullptr);
      const auto gone = [&](size_t p) { return static_cast<int>(p) == mine || peers[p].acknowledged || peers[p].lost; };
      for (size_t p = 0; p < peers.size(); ++p)
        if (!gone(p)) send_to_process(static_cast<int>(p), FrameKind::kLeave);
      // Data that the others have not read yet could be lost with the connection.
      changed.wait_for(lock, cause.empty() ? kLeaveTimeout : kShortLeaveTimeout, [&] {
        for (size_t p = 0; p < peers.size(); ++p)
          if (!gone(p)) return false;
        return true;
      });
      closed = true;
      changed.notify_all();
    }
    worker.join();
    connections->close();
    own->close();
    const std::lock_guard lock(mutex);
    tasks.clear();
    groups.clear();
  }

  struct Peer {
    bool left = false;          // the peer has sent kLeave
    bool acknowledged = false;  // the peer has acknowledged that this process leaves
    bool lost = false;          // the peer's connection has ended
  };

  const pid_t pid = getpid();
  const GlooWorldOptions options;
  std::vector<Member> members;  // index: rank
  std::vector<int> process_of, firsts;
  std::vector<bool> local;
  int mine = 0;  // number of this process
  std::unique_ptr<wire::Connections> connections;
  std::unique_ptr<wire::Link> own;
  std::vector<Peer> peers;                                    // index: process
  std::map<std::pair<uint64_t, int>, Ref<GlooGroup>> groups;  // key: key of the group, and rank
  std::set<std::tuple<uint64_t, int, int>>
      early_opens;  // key, to, from: a peer has created the communicator before this rank
  std::deque<std::pair<Ref<GlooGroup>, Ref<GlooOp>>> tasks;
  std::condition_variable changed;
  bool closed = false;
  std::string cause;  // why the world has failed; empty: it has not
  std::thread worker;
};

}  // namespace

std::unique_ptr<ProcessWorld> make_gloo_world(Store& store, int size, std::vector<int> local_ranks,
                                              const GlooWorldOptions& options) {
  local_ranks = internal::checked_local_ranks("gloo world", size, std::move(local_ranks));
  return std::make_unique<ProcessWorld>(std::make_shared<GlooHub>(store, size, local_ranks, options), options.timeout);
}

}  // namespace weft::dist
