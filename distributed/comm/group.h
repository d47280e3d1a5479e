// Group: the part of a communicator that a transport implements. One class makes the Communicator of a rank from it,
// and one class the Work of a collective, for all transports.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "distributed/comm/matching.h"

namespace weft::dist::internal {

/// One collective of a group. Transports add their progress.
struct Op : RefCounted, Match {
  using Match::Match;
  uint64_t id = 0;  // Work::number()
  std::optional<Error> error;
};

/// Between threads, one group has all ranks of a communicator; between processes, a group has one rank. `rank` is a
/// position in the communicator. Ops are of the group that has started them.
class Group : public RefCounted {
 public:
  explicit Group(GroupNames names) : names_(std::move(names)) {}
  const GroupNames& names() const { return names_; }
  int size() const { return names_.size(); }

  /// Waits until the other ranks have created the group; throws if one does not.
  virtual void open(Work::Deadline) {}
  /// The op that a request of this rank joins; null with `*error` set if the group has failed. `color`: colour and key
  /// of a split.
  virtual Ref<Op> start(int rank, const CommRequest& request, std::optional<Error>* error,
                        const std::pair<int, int>* color = nullptr) = 0;
  /// The same contracts as Work::wait and Work::done.
  virtual std::optional<Error> wait(Op& op, Work::Deadline deadline) = 0;
  virtual bool done(Op& op) = 0;
  /// The rank drops the op. If the op is not done, it fails; returns when nothing uses the rank's operands.
  virtual void leave(Op& op, int rank) = 0;
  virtual void abort(const std::string& cause) = 0;
  virtual void retire(int rank, bool on) = 0;
  /// The group of the ranks of one colour of a split that is done; it is not open. `ranks` are numbers in the world.
  virtual Ref<Group> part(Op& split, int color, const std::string& name, const std::vector<int>& ranks) = 0;
  /// A rank has dropped its communicator.
  virtual void close() {}

 protected:
  const GroupNames names_;
};

/// The communicator of a rank of this group.
Ref<Communicator> make_communicator(Ref<Group> group, int rank);

}  // namespace weft::dist::internal
