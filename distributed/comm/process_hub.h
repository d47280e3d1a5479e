// ProcessHub: the transport of a ProcessWorld in one process. Users of worlds need no groups, so this header is apart.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "distributed/comm/group.h"

namespace weft::dist {

/// It lives as long as its groups, also after the world has left.
class ProcessHub : public std::enable_shared_from_this<ProcessHub> {
 public:
  virtual ~ProcessHub() = default;
  virtual int size() const = 0;
  virtual bool owns(int rank) const = 0;
  virtual std::string name_of(int rank) const = 0;
  /// The group of `ranks`, not open yet, of which `rank` is in this process. `key` is equal in all processes.
  virtual Ref<internal::Group> make_group(const std::string& name, const std::vector<int>& ranks, int rank,
                                          uint64_t key) = 0;
  virtual void abort(const std::string& cause) = 0;
  /// Leaves the world and ends the threads; keeps everything that groups need.
  virtual void close() = 0;
};

namespace internal {

/// The group of one rank of this process.
class ProcessGroup : public Group {
 public:
  /// `members` are ranks of the world, among them `rank`.
  ProcessGroup(std::shared_ptr<ProcessHub> world, const std::string& name, const std::vector<int>& members, int rank,
               uint64_t key);
  Ref<Group> part(Op& split, int color, const std::string& name, const std::vector<int>& ranks) final;
  bool has(int world_rank) const { return position_of(world_rank) >= 0; }

 protected:
  /// The position of a rank of the world in the group, or -1.
  int position_of(int world_rank) const;

  const std::shared_ptr<ProcessHub> world_;
  const uint64_t key_;  // equal in all processes
  const int me_;        // position of the rank of this process
};

}  // namespace internal
}  // namespace weft::dist
