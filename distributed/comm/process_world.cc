#include "distributed/comm/process_world.h"

#include <unistd.h>

#include <algorithm>

#include "distributed/comm/process_hub.h"
#include "distributed/comm/world_checks.h"

namespace weft::dist {

internal::ProcessGroup::ProcessGroup(std::shared_ptr<ProcessHub> world, const std::string& name,
                                     const std::vector<int>& members, int rank, uint64_t key)
    : Group({static_cast<int>(members.size()), name, members}),
      world_(std::move(world)),
      key_(key),
      me_(position_of(rank)) {}

Ref<internal::Group> internal::ProcessGroup::part(Op& split, int color, const std::string& name,
                                                  const std::vector<int>& ranks) {
  return world_->make_group(name, ranks, names_.ranks[me_], key_of(str_cat(key_, "/", split.number, "/", color)));
}

int internal::ProcessGroup::position_of(int world_rank) const {
  const auto it = std::find(names_.ranks.begin(), names_.ranks.end(), world_rank);
  return it == names_.ranks.end() ? -1 : static_cast<int>(it - names_.ranks.begin());
}

ProcessWorld::ProcessWorld(std::shared_ptr<ProcessHub> hub, std::chrono::nanoseconds timeout)
    : hub_(std::move(hub)), timeout_(timeout), process_(getpid()) {}

ProcessWorld::~ProcessWorld() {
  if (process_ == getpid())
    hub_->close();
  else
    new std::shared_ptr<ProcessHub>(std::move(hub_));  // a child of fork() has no threads to stop
}

int ProcessWorld::size() const { return hub_->size(); }
std::string ProcessWorld::name_of(int rank) const { return hub_->name_of(rank); }
void ProcessWorld::abort(const std::string& cause) { hub_->abort(cause); }

std::vector<Ref<Communicator>> ProcessWorld::communicators(const std::string& name, const std::vector<int>& group) {
  internal::check_group(name, group, size());
  const std::string text = str_cat(name, "/", group);
  const uint64_t key = internal::key_of(str_cat(text, "/", made_[text]++));
  std::vector<Ref<internal::Group>> groups;
  std::vector<Ref<Communicator>> all;
  for (size_t i = 0; i < group.size(); ++i) {
    if (!hub_->owns(group[i])) continue;
    groups.push_back(hub_->make_group(name, group, group[i], key));
    all.push_back(internal::make_communicator(groups.back(), static_cast<int>(i)));
  }
  const auto deadline = std::chrono::steady_clock::now() + timeout_;
  for (const Ref<internal::Group>& g : groups) g->open(deadline);
  return all;
}

}  // namespace weft::dist
