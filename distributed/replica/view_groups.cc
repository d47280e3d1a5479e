#include "distributed/replica/view_groups.h"

#include <cstdlib>
#include <map>
#include <sstream>
#include <utility>

#include "distributed/comm/gloo/world.h"
#include "distributed/comm/self.h"
#include "distributed/comm/shared/world.h"
#include "distributed/comm/world_checks.h"
#include "framework/base/error.h"

namespace weft::dist {
namespace {

using Lock = std::lock_guard<std::mutex>;

}  // namespace

std::string join_values(const std::vector<std::string>& values) {
  std::string text;
  for (const std::string& v : values) text += str_cat(v.size(), " ", v);
  return text;
}

std::vector<std::string> split_values(const std::string& text) {
  std::vector<std::string> values;
  for (size_t at = 0; at < text.size();) {
    const size_t space = text.find(' ', at);
    const size_t size = space == text.npos ? text.npos : std::strtoull(text.c_str() + at, nullptr, 10);
    WEFT_CHECK_AS(kUnavailable, space != text.npos && size < text.size() - space,
                  "replicas: the values of another process are damaged");
    values.push_back(text.substr(space + 1, size));
    at = space + 1 + size;
  }
  return values;
}

/// The store of a world that is being made. The values set since the last exchange are exchanged at the next get() or
/// check(), which all processes reach.
class ViewGroups::ExchangeStore final : public Store {
 public:
  ExchangeStore(const ViewGroups& groups, const ViewExchange& exchange) : groups_(groups), exchange_(exchange) {}
  void set(const std::string& key, const std::string& value) override { mine_.insert(mine_.end(), {key, value}); }
  std::string get(const std::string& key, Deadline) override {
    check();
    const auto at = all_.find(key);
    WEFT_CHECK_AS(kUnavailable, at != all_.end(), "replicas: no process has set ", key);
    return at->second;
  }
  void check() override {
    groups_.check();
    if (mine_.empty()) return;
    for (const auto& replica : exchange_(join_values(std::exchange(mine_, {})))) {
      const std::vector<std::string> values = split_values(replica.at(static_cast<size_t>(groups_.options_.process)));
      for (size_t i = 0; i + 1 < values.size(); i += 2) all_[values[i]] = values[i + 1];
    }
  }

 private:
  const ViewGroups& groups_;
  const ViewExchange& exchange_;
  std::vector<std::string> mine_;  // keys and values, in turn
  std::map<std::string, std::string> all_;
};

ViewGroups::~ViewGroups() {
  groups_.clear();
  leaders_ = {};
  if (world_) world_->abort("this replica has ended");  // so that it does not wait for others that do not answer
}

void ViewGroups::check() const {
  const Lock lock(mutex_);
  WEFT_CHECK_AS(kAborted, closed_ < view_, cause_);
}

void ViewGroups::form(const control::ReplicaView& view, int place, const ViewExchange& exchange, bool leaders_only) {
  const int count = !leaders_only ? options_.count : options_.process == 0;
  std::vector<control::ViewMember> members = view.members;
  for (control::ViewMember& m : members) m.heals = false;
  bool keeps = false;  // whether it makes the groups on the connections that it has
  {
    const Lock lock(mutex_);
    groups_.clear();
    leaders_ = {};
    keeps = world_ && !is_forming_ && members != members_ && world_count_ == count;
    view_ = view.number;
    members_ = members;
    is_forming_ = true;
  }
  check();
  std::vector<Ref<Communicator>> groups;
  Ref<Communicator> leaders;
  if (view.members.size() == 1) {
    for (int i = 0; i < count; ++i) groups.push_back(make_self_communicator());
    if (options_.process == 0) leaders = make_self_communicator();
  } else if (count > 0) {
    const std::string network = internal::own_network();
    const auto all = exchange(str_cat(keeps ? world_view_ : 0, " ", world_place_, " ", network));
    bool one_host = true;
    std::vector<int> places;
    for (const auto& replica : all)
      for (size_t p = 0; p < replica.size(); ++p) {
        std::istringstream text(replica[p]);
        int64_t world = 0;
        int world_place = 0;
        std::string host;
        text >> world >> world_place >> host;
        WEFT_CHECK_AS(kUnavailable, !text.fail(), "replicas: the values of another process are damaged");
        keeps &= world != 0 && world == world_view_;
        one_host &= host == network;
        if (static_cast<int>(p) == options_.process) places.push_back(world_place);
      }
    if (!keeps) {
      connect(view, place, count, one_host, exchange);
      for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<int>(i);
    }
    const auto group_of = [&](const std::string& name, int i) {
      std::vector<int> ranks;
      for (const int p : places) ranks.push_back(p * count + i);
      return world_->communicators(str_cat(name, " of view ", view.number), ranks).at(0);
    };
    for (int i = 0; i < count; ++i) groups.push_back(group_of("replica", i));
    if (options_.process == 0) leaders = group_of("leaders", 0);
  }
  const Lock lock(mutex_);
  WEFT_CHECK_AS(kAborted, closed_ < view_, cause_);
  groups_ = std::move(groups);
  leaders_ = std::move(leaders);
  is_forming_ = false;
}

void ViewGroups::connect(const control::ReplicaView& view, int place, int count, bool one_host,
                         const ViewExchange& exchange) {
  std::shared_ptr<ProcessWorld> before;
  {
    const Lock lock(mutex_);
    before = std::exchange(world_, nullptr);
  }
  if (before) before->abort("the replicas connect again");
  before.reset();
  ExchangeStore store(*this, exchange);
  std::vector<int> local;
  for (int i = 0; i < count; ++i) local.push_back(place * count + i);
  const int size = static_cast<int>(view.members.size()) * count;
  std::shared_ptr<ProcessWorld> made;
  if (options_.transport == "shared" || (options_.transport == "auto" && one_host)) {
    SharedWorldOptions o;
    o.timeout = options_.timeout;
    made = make_shared_world(store, size, local, o);
  } else {
    GlooWorldOptions o;
    o.timeout = options_.timeout;
    o.address = options_.address;
    made = make_gloo_world(store, size, local, o);
  }
  const Lock lock(mutex_);
  WEFT_CHECK_AS(kAborted, closed_ < view_, cause_);
  world_ = made;
  world_view_ = view.number;
  world_count_ = count;
  world_place_ = place;
  ++worlds_;
}

void ViewGroups::close(int64_t number, const std::string& cause) {
  std::vector<Ref<Communicator>> groups;
  std::shared_ptr<ProcessWorld> world;
  {
    const Lock lock(mutex_);
    if (closed_ < number) closed_ = number, cause_ = cause;
    if (number < view_) return;
    groups = groups_;
    if (leaders_) groups.push_back(leaders_);
    if (is_forming_) world = world_;  // form() may wait for a communicator
  }
  for (const Ref<Communicator>& g : groups) g->abort(cause);
  if (world) world->abort(cause);
}

Ref<Communicator> ViewGroups::communicator(int i) const {
  const Lock lock(mutex_);
  return i < std::ssize(groups_) ? groups_[static_cast<size_t>(i)] : Ref<Communicator>();
}

Ref<Communicator> ViewGroups::leaders() const {
  const Lock lock(mutex_);
  return leaders_;
}

int64_t ViewGroups::view() const {
  const Lock lock(mutex_);
  return view_;
}

}  // namespace weft::dist
