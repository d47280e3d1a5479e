// The communicator and the Works of a rank, on top of the group of a transport between processes. A group has rank(),
// size(), names(), key(), start(), wait(), done(), leave(), abort() and retire().
#pragma once
#include <algorithm>
#include <utility>

#include "distributed/comm/matching.h"
#include "distributed/comm/world_checks.h"

namespace weft::dist::internal {

template <class Group, class Op>
class ProcessWork final : public Work {
 public:
  ProcessWork(Ref<Group> group, Ref<Op> op) : group_(std::move(group)), op_(std::move(op)) {}
  ~ProcessWork() override { group_->leave(*op_); }
  std::optional<Error> wait(Deadline deadline) override { return group_->wait(*op_, deadline); }
  bool done() override { return group_->done(*op_); }
  Deadline all_started() const override { return op_->all_started; }
  uint64_t number() const override { return op_->id; }

 private:
  Ref<Group> group_;
  Ref<Op> op_;
};

template <class Group, class Op>
class ProcessCommunicator : public Communicator {
 public:
  explicit ProcessCommunicator(Ref<Group> group) : group_(std::move(group)) {}
  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }

  Ref<Work> start(const CommRequest& request) override {
    std::optional<Error> error;
    Ref<Op> op = group_->start(request, &error);
    if (!op) return make_ref<FailedWork>(*error);
    return make_ref<ProcessWork<Group, Op>>(group_, std::move(op));
  }

  Ref<Communicator> split(int color, int key, Work::Deadline deadline) override {
    std::optional<Error> error;
    const std::pair<int, int> asked{color, key};
    Ref<Op> op = group_->start({}, &error, &asked);
    if (!op) throw *error;
    auto work = make_ref<ProcessWork<Group, Op>>(group_, op);
    if ((error = work->wait(deadline))) throw *error;
    const GroupNames& names = group_->names();
    for (const auto& [part, members] : names.parts(*op)) {
      if (std::find(members.begin(), members.end(), rank()) == members.end()) continue;
      std::vector<int> ranks;
      for (int m : members) ranks.push_back(names.ranks[m]);
      return make_part(names.part_name(part), ranks, key_of(str_cat(group_->key(), "/", op->number, "/", part)),
                       deadline);
    }
    return {};
  }

  void abort(const std::string& cause) override { group_->abort(cause); }
  void retire(bool on) override { group_->retire(on); }
  Group& group() { return *group_; }

 protected:
  /// The open communicator of this rank among `ranks` of the world.
  virtual Ref<Communicator> make_part(const std::string& name, const std::vector<int>& ranks, uint64_t key,
                                      Work::Deadline deadline) = 0;

  const Ref<Group> group_;
};

}  // namespace weft::dist::internal
