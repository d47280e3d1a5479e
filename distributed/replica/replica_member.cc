#include "distributed/replica/replica_member.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "distributed/comm/self.h"
#include "distributed/control/address.h"
#include "distributed/control/group/group_client.h"
#include "distributed/launch/processes.h"
#include "distributed/replica/view_groups.h"
#include "framework/base/error.h"
#include "framework/base/one_line.h"
#include "framework/dispatch/rank/flight.h"

namespace weft::dist {
namespace {

using control::GroupClient;
using control::MemberAction;
using control::MemberStage;
using control::MemberState;
using Kind = control::MemberEvent::Kind;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLook(200);  // how often a process looks whether the leader has closed a view
constexpr std::string_view kSpare = "spare";     // the leader of a spare has no view yet
constexpr std::string_view kEnded = "ended ";    // the run has ended; the note of the end follows

ViewGroupsOptions groups_of(const ReplicaOptions& o) {
  WEFT_CHECK(!o.job || o.job->size() == o.job->count() || o.store,
             "replica: got a job of several processes and no store; need the store of the job");
  const char* const given = std::getenv("JOB_ADDRESS");
  return {
      .process = o.job ? o.job->process() : 0,
      .count = o.job ? o.job->count() : o.ranks,
      .transport = o.transport,
      .address = given ? given : control::address_towards(control::parse_address(o.address, "replica, REPLICAS").host),
      .timeout = o.timeout};
}

std::string closed_key(int64_t view) { return str_cat("replicas/closed_view_", view); }

}  // namespace

struct ReplicaMember::Impl {
  explicit Impl(const ReplicaOptions& o)
      : options(o), several(o.job && o.job->size() > o.job->count()), groups(groups_of(o)) {
    step = o.step, state_view = o.state_view;
    if (leads())
      client = std::make_unique<GroupClient>(control::GroupClientOptions{
          .address = o.address,
          .token = o.token,
          .name = o.name,
          .incarnation = o.incarnation,
          .facts = o.facts,
          .own = o.own,
          .replicas = o.replicas,
          .step = o.step,
          .state_view = o.state_view,
          .report_every = o.report_every,
          .close = [this](int64_t number, const std::string& cause) { close_all(number, cause); }});
    if (several) closer = std::thread([this] { pass_closes_on(); });
  }

  ~Impl() {
    client.reset();
    stopping = true;
    closed = INT64_MAX;  // wakes the thread
    closed.notify_all();
    if (closer.joinable()) closer.join();
  }

  bool leads() const { return !options.job || options.job->process() == 0; }

  // ---- closing, on all processes of the replica ----
  void close_all(int64_t number, const std::string& cause) {
    groups.close(number, cause);
    for (int64_t now = closed; now < number && !closed.compare_exchange_weak(now, number);) {
    }
    closed.notify_all();
  }

  /// The leader learns from the service that a view is over, and the other processes learn it from the store of the
  /// job: their ranks may wait for a replica that is stopped.
  void pass_closes_on() {
    for (int64_t done = 0; !stopping;) {
      const int64_t number = leads() ? closed.load() : groups.view();
      try {
        if (number <= done && leads()) closed.wait(number);
        if (number <= done && !leads()) std::this_thread::sleep_for(kLook / 10);
        if (number <= done || stopping) continue;
        if (leads()) {
          // The view of the groups may have ended, too, before this thread ran. The other processes are in it.
          for (const int64_t n : {std::min(number, groups.view()), number}) {
            if (n > done) options.store->set(closed_key(n), "over");
            done = std::max(done, n);
          }
        } else {
          (void)options.store->get(closed_key(number), Clock::now() + kLook);
          groups.close(number, str_cat("view ", number, " of the replicas is over"));
        }
        done = number;
      } catch (const Error& e) {
        if (e.code() == Code::kDeadlineExceeded) continue;
        groups.close(number, e.what());  // the job has ended
        return;
      }
    }
  }

  // ---- the processes of the replica together ----
  /// The result of `fn` on the leader, which all processes get, or its error.
  std::string lead(const std::function<std::string()>& fn) {
    std::string text;
    if (leads()) {
      const std::string failure = failure_of([&] { text = "+" + fn(); });
      if (!failure.empty()) text = failure;
    }
    if (several) text = options.job->from_first(text);
    if (text.starts_with('+')) return text.substr(1);
    throw error_in(text);
  }

  /// A round of all processes of all replicas while they form a view. In the last round, only the processes of the
  /// replica agree that they have formed it: `mine` is the error, or empty. An error ends the round on all of them.
  std::vector<std::vector<std::string>> meet(bool last, const std::string& mine) {
    const std::string own = (last ? "l" : "v") + mine;
    const std::vector<std::string> all = several ? options.job->gather(own) : std::vector<std::string>{own};
    const auto text = [&] {
      for (const std::string& value : all)
        if (value[0] == 'l' && value.size() > 1) internal::fail(Code::kAborted, value.substr(1));
      for (const std::string& value : all)
        WEFT_CHECK_AS(kAborted, value[0] == own[0], "another process of the replica has formed the view");
      if (last) return std::string();
      return join_values(client->exchange(groups.view(), join_values(all), Clock::now() + options.timeout));
    };
    std::string result;
    try {
      result = lead(text);
    } catch (const Error&) {
      settled = true;
      throw;
    }
    std::vector<std::vector<std::string>> values;
    for (const std::string& replica : split_values(result)) {
      values.push_back(split_values(replica));
      WEFT_CHECK_AS(kUnavailable, values.back().size() == all.size(), "replicas: place ", values.size() - 1, " has ",
                    values.back().size(), " processes, and this replica ", all.size(),
                    "; need equal numbers of processes in all replicas");
      for (std::string& value : values.back()) value.erase(0, 1);
    }
    return values;
  }

  /// A round of the leaders alone.
  std::vector<std::vector<std::string>> meet_leaders(const std::string& mine, Clock::time_point deadline) {
    std::vector<std::vector<std::string>> values;
    for (const std::string& leader : client->exchange(groups.view(), mine, deadline)) values.push_back({leader});
    return values;
  }

  /// A replica without own values ignores the own values of others: its sums are for equal ranks alone.
  bool leaders_only() const { return !options.own.empty() && !control::has_equal_ranks(live.view); }

  /// Forms the groups of the view `live`; false, on all processes, if one of them has failed.
  bool form() {
    settled = false;
    std::string failure;
    try {
      const bool whole = leaders_only();
      const auto deadline = Clock::now() + options.timeout / 2;  // the other processes wait in one collective meanwhile
      groups.form(
          live.view, live.place,
          [&](const std::string& mine) { return whole ? meet_leaders(mine, deadline) : meet(false, mine); }, whole);
    } catch (const Error& e) {
      failure = e.what();
    }
    if (settled) return false;
    try {
      (void)meet(true, failure);
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  const LiveView& next_view() {
    while (!has_view && !live.ended) {
      const int64_t number = groups.view();
      const std::string text = lead([&] {
        const auto begin = Clock::now();
        // A spare may wait for days. The other processes of the replica wait in a collective, which has a deadline.
        const MemberState m = client->await(
            [&](const MemberState& now) {
              return now.view.number > number &&
                     (now.stage == MemberStage::kComputing || now.stage == MemberStage::kHealing);
            },
            begin + options.timeout, begin + options.timeout / 2);
        if (m.stage == MemberStage::kEnded) return str_cat(kEnded, m.group_note);
        if (m.stage == MemberStage::kJoining) return std::string(kSpare);
        const control::ViewMember* self = find(m.view, m.name, m.incarnation);
        return str_cat(self - m.view.members.data(), " ", m.step, " ", record_of(m.view));
      });
      if (text.starts_with(kEnded)) {
        live.ended = true;  // the place stays: the first replica writes the last files
        group_note = std::atoll(text.c_str() + kEnded.size());
        break;
      }
      if (text == kSpare) continue;
      char* rest = nullptr;
      live = {.place = static_cast<int>(std::strtol(text.c_str(), &rest, 10))};
      step = std::strtoll(rest, &rest, 10);
      live.view = control::view_of(rest + 1, {});
      live.heals = live.view.members.at(static_cast<size_t>(live.place)).heals;
      has_view = form();
      if (has_view)
        flight::set_view({.replica = options.name,
                          .view = live.view.number,
                          .place = static_cast<uint32_t>(live.place),
                          .members = static_cast<uint32_t>(live.view.members.size())});
      if (has_view && !live.heals) state_view = live.view.number;
      if (!has_view && client) client->apply(Kind::kFailed, live.view.number);
    }
    return live;
  }

  VoteResult vote(bool sums, int64_t note, Work::Deadline deadline) {
    const int64_t view = live.view.number, before = step;
    if (!sums) client->apply(Kind::kFailed, view);
    if (sums && client->apply(Kind::kSums, view, MemberAction::kEnterAck, false, note)) {
      std::array<int64_t, 2> words{client->member().stop, note};
      const StridedView data(words.data(), kInt64, {2}, {1});
      const Ref<Work> ack = groups.leaders()->start(
          {.kind = Collective::kAllReduce, .op = ReduceOp::kMax, .in = data, .out = data, .site = kOwnSites});
      const bool failed = ack->wait(deadline).has_value();
      client->apply(failed ? Kind::kAckFailed : Kind::kAckComplete, view, MemberAction::kCommit, words[0] != 0,
                    words[1]);
    }
    // A step in doubt waits for the next view.
    const auto is_decided = [&](const MemberState& m) { return !sums || m.step > before || m.view.number != view; };
    const MemberState m = client->await(is_decided, deadline);
    const bool committed = m.step > before;
    const bool over = m.view.number != view || m.stage != MemberStage::kComputing;
    return {committed, 2 * m.group_note + over};
  }

  const ReplicaOptions options;
  const bool several;  // the replica has several processes
  ViewGroups groups;
  LiveView live;
  std::atomic<bool> has_view{false};
  std::atomic<int64_t> step{0}, state_view{0}, group_note{0}, note{0};
  bool settled = false;            // the processes of the replica know that form() has failed
  std::atomic<int64_t> closed{0};  // the latest view that the leader has closed
  std::atomic<bool> stopping{false};
  std::unique_ptr<GroupClient> client;  // the leader's connection
  std::thread closer;                   // if the replica has several processes
};

ReplicaMember::ReplicaMember(const ReplicaOptions& options) : impl_(std::make_unique<Impl>(options)) {}
ReplicaMember::~ReplicaMember() = default;

bool ReplicaMember::has_view() const { return impl_->has_view; }
const LiveView& ReplicaMember::next_view() { return impl_->next_view(); }
const LiveView& ReplicaMember::live() const { return impl_->live; }

bool ReplicaMember::leaders_only() const { return impl_->leaders_only(); }

bool ReplicaMember::healed(bool good) {
  Impl& i = *impl_;
  const int64_t view = i.live.view.number;
  WEFT_CHECK_AS(kFailedPrecondition, i.has_view && i.live.heals, "replica '", one_line(i.options.name, 80),
                "': got the end of a healing; need a view in which it heals");
  const std::string text = i.lead([&] {
    i.client->apply(good ? Kind::kHealed : Kind::kFailed, view);
    const MemberState m = i.client->member();
    return good && m.stage == MemberStage::kComputing && m.view.number == view ? "healed" : "";
  });
  i.has_view = !text.empty();
  if (!i.has_view) return false;
  i.live.heals = false;
  i.step = i.live.view.start;
  i.state_view = view;
  i.group_note = 0;
  return true;
}

void ReplicaMember::finish() {
  if (impl_->client) impl_->client->apply(Kind::kFinished, impl_->live.view.number);
  impl_->has_view = false;
}

void ReplicaMember::leave() {
  if (impl_->client) impl_->client->apply(Kind::kLeave, impl_->live.view.number);
}

int64_t ReplicaMember::step() const { return impl_->step; }
int64_t ReplicaMember::state_view() const { return impl_->state_view; }
int64_t ReplicaMember::group_note() const { return impl_->group_note; }
void ReplicaMember::set_note(int64_t note) { impl_->note = note; }

int ReplicaMember::count() const { return static_cast<int>(impl_->live.view.members.size()); }
int ReplicaMember::place() const { return impl_->live.place; }

Ref<Communicator> ReplicaMember::communicator(int rank) {
  const int first = impl_->options.job ? impl_->options.job->first() : 0;
  Ref<Communicator> group = impl_->has_view ? impl_->groups.communicator(rank - first) : Ref<Communicator>();
  if (group) return group;
  group = make_self_communicator();
  group->abort(impl_->has_view ? "the leaders alone exchange in this view" : "this replica has no view");
  return group;
}

void ReplicaMember::close(const std::string& cause) { impl_->groups.close(impl_->live.view.number, cause); }
int64_t ReplicaMember::note() { return impl_->note; }

VoteResult ReplicaMember::vote(bool sums, int64_t note, Work::Deadline deadline) {
  return impl_->vote(sums, note, deadline);
}

void ReplicaMember::decided(const VoteResult& result) {
  impl_->has_view = (result.note & 1) == 0;
  if (!result.committed) return;
  ++impl_->step;
  impl_->group_note = result.note >> 1;
}

}  // namespace weft::dist
