// The groups of a view: for each rank of this process, the communicator with the equal ranks of the other live
// replicas, and in the process of rank 0 the communicator of the leaders. With `leaders_only`, rank 0 alone has such
// a communicator.
//
// After a death the survivors form groups on the connections that they have. If a process is new, or the same replicas
// have failed before, all connect anew: over shared memory if they are on one host, else over TCP.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "distributed/comm/process_world.h"
#include "distributed/comm/store.h"
#include "distributed/control/group/view.h"
#include "framework/dispatch/rank/communicator.h"

namespace weft::dist {

/// Each process of all live replicas gives a value. Returns the values by place of the replica, and process in it. All
/// processes make equal numbers of calls in a view. With `leaders_only`, the processes 0 alone.
using ViewExchange = std::function<std::vector<std::vector<std::string>>(const std::string& mine)>;

/// Values as one text, and back. Throws Unavailable for damaged texts.
std::string join_values(const std::vector<std::string>& values);
std::vector<std::string> split_values(const std::string& text);

struct ViewGroupsOptions {
  int process = 0;                 // number of this process in its replica; process 0 has rank 0, the leader
  int count = 1;                   // ranks of this process
  std::string transport = "auto";  // "shared", "gloo", or "auto": shared memory if all are on one host
  std::string address = {};        // for TCP: the address of this process; empty: see GlooWorldOptions
  std::chrono::nanoseconds timeout = std::chrono::seconds(kDefaultTimeout);
};

class ViewGroups {
 public:
  explicit ViewGroups(const ViewGroupsOptions& options) : options_(options) {}
  ~ViewGroups();
  ViewGroups(const ViewGroups&) = delete;

  /// Forms the groups of a view, in which this replica is at `place`. Drops the groups before. Throws if another
  /// process fails, at the deadline, or after close(). `leaders_only`: process 0 makes the groups of rank 0 alone, and
  /// `exchange` is among the processes 0; the others make none.
  void form(const control::ReplicaView& view, int place, const ViewExchange& exchange, bool leaders_only = false);
  /// All collectives of the view `number` and of earlier ones fail with this cause, also while form() runs. Any thread
  /// may call it.
  void close(int64_t number, const std::string& cause);

  /// The communicator of local rank `i`; null if it has none.
  Ref<Communicator> communicator(int i) const;
  /// The communicator of the leaders, in process 0; null without groups.
  Ref<Communicator> leaders() const;
  /// The view of the groups, or of form() while it runs; 0: none.
  int64_t view() const;
  /// The number of worlds made so far, for tests.
  int worlds() const { return worlds_; }

 private:
  class ExchangeStore;
  void connect(const control::ReplicaView& view, int place, int count, bool one_host, const ViewExchange& exchange);
  void check() const;

  const ViewGroupsOptions options_;
  mutable std::mutex mutex_;
  int64_t view_ = 0, closed_ = 0;
  std::string cause_;                         // why `closed_` is set
  bool is_forming_ = false;                   // the groups are not complete
  std::vector<control::ViewMember> members_;  // the latest view's members
  std::shared_ptr<ProcessWorld> world_;       // null: none
  int64_t world_view_ = 0;                    // the view for which the world was made
  int world_count_ = 0;                       // its ranks for each replica
  int world_place_ = 0;                       // the place of this replica in this view
  std::vector<Ref<Communicator>> groups_;     // index: local rank
  Ref<Communicator> leaders_;                 // in process 0
  int worlds_ = 0;
};

}  // namespace weft::dist
