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

/// The key of a part of the group with this key.
uint64_t part_key(uint64_t key, const Op& split, int color);

}  // namespace internal
}  // namespace weft::dist
