#include "distributed/comm/group.h"

#include <algorithm>

namespace weft::dist::internal {
namespace {

class GroupWork final : public Work {
 public:
  GroupWork(Ref<Group> group, Ref<Op> op, int rank, std::optional<Error> error)
      : group_(std::move(group)), op_(std::move(op)), rank_(rank), error_(std::move(error)) {}
  ~GroupWork() override {
    if (op_) group_->leave(*op_, rank_);
  }
  std::optional<Error> wait(Deadline deadline) override { return op_ ? group_->wait(*op_, deadline) : error_; }
  bool done() override { return !op_ || group_->done(*op_); }
  Deadline all_started() const override { return op_ ? op_->all_started : Deadline(); }
  uint64_t number() const override { return op_ ? op_->id : 0; }

 private:
  const Ref<Group> group_;
  const Ref<Op> op_;  // null: it failed when it was started
  const int rank_;
  const std::optional<Error> error_;
};

class GroupCommunicator final : public Communicator {
 public:
  GroupCommunicator(Ref<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}
  ~GroupCommunicator() override { group_->close(); }
  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }

  Ref<Work> start(const CommRequest& request) override {
    std::optional<Error> error;
    Ref<Op> op = group_->start(rank_, request, &error);
    return make_ref<GroupWork>(group_, std::move(op), rank_, std::move(error));
  }

  Ref<Communicator> split(int color, int key, Work::Deadline deadline) override {
    std::optional<Error> error;
    const std::pair<int, int> asked{color, key};
    Ref<Op> op = group_->start(rank_, {}, &error, &asked);
    const auto work = make_ref<GroupWork>(group_, op, rank_, std::move(error));
    if (const auto failed = work->wait(deadline)) throw *failed;
    const GroupNames& names = group_->names();
    for (const auto& [part, members] : names.parts(*op)) {
      const auto me = std::find(members.begin(), members.end(), rank_);
      if (me == members.end()) continue;
      std::vector<int> ranks;
      for (int m : members) ranks.push_back(names.ranks[m]);
      Ref<Group> group = group_->part(*op, part, names.part_name(part), ranks);
      Ref<Communicator> made = make_communicator(group, static_cast<int>(me - members.begin()));
      group->open(deadline);
      return made;
    }
    return {};
  }

  void abort(const std::string& cause) override { group_->abort(cause); }
  void retire(bool on) override { group_->retire(rank_, on); }

 private:
  const Ref<Group> group_;
  const int rank_;
};

}  // namespace

Ref<Communicator> make_communicator(Ref<Group> group, int rank) {
  return make_ref<GroupCommunicator>(std::move(group), rank);
}

}  // namespace weft::dist::internal
