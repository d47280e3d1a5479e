// ProcessWorld: the ranks of several processes, over any transport.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "distributed/comm/group.h"

namespace weft::dist {

namespace internal {

/// The transport of a world in this process. It lives as long as its groups, also after the world has left.
class ProcessHub : public std::enable_shared_from_this<ProcessHub> {
 public:
  virtual ~ProcessHub() = default;
  virtual int size() const = 0;
  virtual bool owns(int rank) const = 0;
  virtual std::string name_of(int rank) const = 0;
  /// The group of `ranks`, not open yet, of which `rank` is in this process. `key` is equal in all processes.
  virtual Ref<Group> make_group(const std::string& name, const std::vector<int>& ranks, int rank, uint64_t key) = 0;
  virtual void abort(const std::string& cause) = 0;
  /// Leaves the world and ends the threads; keeps everything that groups need.
  virtual void close() = 0;
};

/// The key of a part of the group with this key.
uint64_t part_key(uint64_t key, const Op& split, int color);

}  // namespace internal

/// Shared memory: distributed/comm/shared/world.h. TCP: distributed/comm/gloo/world.h.
class ProcessWorld final {
 public:
  ProcessWorld(std::shared_ptr<internal::ProcessHub> hub, std::chrono::nanoseconds timeout);
  /// Leaves: no other rank waits for ranks of this process any more. Drop its communicators first.
  ~ProcessWorld();
  ProcessWorld(const ProcessWorld&) = delete;

  /// The number of ranks.
  int size() const { return hub_->size(); }
  /// "rank 2 (pid 7)"; over TCP with the host: "rank 2 (pid 7 on host a)".
  std::string name_of(int rank) const { return hub_->name_of(rank); }
  /// Creates a communicator of the ranks `group`; returns the communicators of this process's ranks, in the order of
  /// `group`. All processes with ranks in `group` create the same communicators in the same order, and wait for each
  /// other.
  std::vector<Ref<Communicator>> communicators(const std::string& name, const std::vector<int>& group);
  /// All communicators of this process, including later ones, fail with this cause. Does not wait.
  void abort(const std::string& cause) { hub_->abort(cause); }

 private:
  std::shared_ptr<internal::ProcessHub> hub_;
  const std::chrono::nanoseconds timeout_;
  const pid_t process_;
  std::map<std::string, int> made_;  // number of communicators of this name and these ranks so far
};

}  // namespace weft::dist
