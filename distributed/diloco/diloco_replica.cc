#include "distributed/diloco/diloco_replica.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <utility>

#include "distributed/diloco/exchange.h"
#include "distributed/launch/processes.h"
#include "framework/base/error.h"
#include "framework/base/failure_report.h"
#include "framework/base/one_line.h"
#include "framework/base/parse_number.h"
#include "framework/base/saturate.h"

namespace weft::dist {

static constexpr int64_t kMostRows = 1'000'000'000;  // the limit of --outer_rows

std::function<int64_t(int64_t)> DilocoReplica::made_before(const OuterOptions& options) {
  return [options](int64_t step) { return options.ends_after(step / 2 - 1 + step % 2); };
}

int64_t DilocoReplica::group_step(const OuterOptions& o, int64_t steps) {
  o.check();
  // Several exchanges may end with the run: its state is after all of them.
  const int64_t x = steps >= o.steps ? o.exchanges() : std::max<int64_t>(0, (steps - o.delay) / o.between());
  WEFT_CHECK_AS(kFailedPrecondition, o.ends_after(x - 1) == steps, "diloco: the state is of step ", steps,
                ", and exchanges end after the steps ", o.ends_after(x - 1), " and ", o.ends_after(x),
                "; need a checkpoint of a run with the same exchanges");
  return 2 * x;
}

DilocoReplica::DilocoReplica(const OuterOptions& options, DilocoStep step, int64_t rows)
    : options_(options), step_(std::move(step)), rows_(rows), outer_(options, step_.parameters), block_rows_(rows) {
  WEFT_CHECK(rows >= 1 && rows <= kMostRows, "diloco: got ", rows, " rows in a step; need 1 to ", kMostRows);
}

void DilocoReplica::check_replay(const Replay& replay, const OuterOptions& o, const std::string& own, bool exact) {
  const control::ViewMember here{.own = own};
  const bool scales = o.wire == OuterWire::kInt8 || o.wire == OuterWire::kInt4;
  for (const control::ReplicaView& view : replay.views())
    for (const control::ViewMember& m : view.members) {
      bool same = true;
      for (const char* name : {control::kMeshValue, kInstructionsValue})
        same &= own_value(m, name) == own_value(here, name);
      const bool depends = !exact || (scales && control::has_equal_ranks(view) &&
                                      own_value(m, control::kMeshValue) != own_value(here, control::kMeshValue));
      const auto text = [](const control::ViewMember& of) {
        const std::string mesh = own_value(of, control::kMeshValue), isa = own_value(of, kInstructionsValue);
        return str_cat("the mesh ", mesh.empty() ? "none" : mesh, " and ", isa.empty() ? "no instruction set" : isa);
      };
      WEFT_CHECK_AS(kFailedPrecondition, m.own.empty() || same || !depends, "replay: replica '", one_line(m.name, 80),
                    "' of view ", view.number, " had ", text(m), ", and this process has ", text(here),
                    exact ? "; need the mesh of the replicas, because the scales of the outer wire depend on it"
                          : "; need equal ones, or a run and its replay with --verify_numerics, whose bits depend on "
                            "neither");
    }
}

void DilocoReplica::begin(const RunPosition& at, ReplicaRun* run, std::shared_ptr<const Replay> replay) {
  position_ = at;
  run_ = run;
  replay_ = std::move(replay);
  group_ = group_step(options_, at.step);
}

DilocoReplica::~DilocoReplica() { drop_averages(); }

// ---- the step of this replica ----
World* DilocoReplica::prepare() {
  World* const world = step_.prepare();
  ranks_ = world ? world->local() : std::vector<int>{0};
  return world;
}

CellShards DilocoReplica::bind(bool made) {
  (void)prepare();
  return outer_.bind(step_.shards(made), ranks_, made);
}

bool DilocoReplica::enter() {
  NamedCells healed = step_.others;
  healed.insert(healed.end(), outer_.cells().begin(), outer_.cells().end());
  const ReplicaState state{
      .prepare = [this](int64_t) -> World& {
        if (World* const world = prepare()) return *world;
        if (!alone_) alone_ = std::make_unique<World>(Mesh(), WorldOptions{.threads = 1});
        return *alone_;
      },
      .shards = [this](int64_t, bool made) { return bind(made); },
      .cells = healed,
      .record =
          [this] { return str_cat(position_.step, " ", position_.samples, " ", position_.view, " ", step_.record()); },
      .adopt =
          [this](const std::string& record) {
            char* rest = nullptr;
            const int64_t step = std::strtoll(record.c_str(), &rest, 10), samples = std::strtoll(rest, &rest, 10);
            const int64_t view = std::strtoll(rest, &rest, 10);
            WEFT_CHECK_AS(kDataLoss, *rest == ' ' && step >= 0 && step <= options_.steps && samples >= 0 && view >= 0,
                          "diloco: got the record '", one_line(record, 80),
                          "' from another replica; need a step up to ", options_.steps, ", rows, a view and a state");
            position_.step = step, position_.samples = samples, position_.view = view;
            outer_.take_anchors();
            since_ = block_begin_ = position_.step;
            flights_.clear();
            step_.adopt(rest + 1);
          }};
  if (!run_->has_view()) drop_averages();
  if (!run_->enter(state)) return false;
  group_ = run_->member().step();
  (void)bind(true);  // the anchors of a new run are its first parameters
  take_gradients();
  return true;
}

bool DilocoReplica::ready() {
  if (begins_block()) return false;
  take_gradients();
  return position_.step < options_.ends_after(exchange_number());
}

void DilocoReplica::made() { ++position_.step, ++steps_; }

int64_t DilocoReplica::rows_of(const control::ViewMember& m) const {
  const std::string text = own_value(m, kRowsValue);
  if (text.empty()) return rows_;
  const std::optional<int64_t> rows = parse_number<int64_t>(text, 1, kMostRows);
  WEFT_CHECK_AS(kDataLoss, rows, "diloco: got '", one_line(text, 40), "' rows of replica '", one_line(m.name, 80),
                "'; need 1 to ", kMostRows);
  return *rows;
}

// The blocks of rows of the members follow each other. The position in the data after the first `count` blocks, which
// begin after `begin` steps.
int64_t DilocoReplica::after_blocks(const control::ReplicaView& view, size_t count, int64_t begin) const {
  const int64_t steps = options_.ends_after(exchange_number()) - begin;
  int64_t at = position_.samples;
  for (size_t p = 0; p < count; ++p) at = saturating_add(at, saturating_mul(steps, rows_of(view.members[p])));
  WEFT_CHECK_AS(kDataLoss, at < INT64_MAX, "diloco: the rows of the replicas of view ", view.number,
                " have numbers above ", INT64_MAX, "; need fewer rows");
  return at;
}

void DilocoReplica::begin_block(const control::ReplicaView& view, size_t place) {
  block_begin_ = position_.step;
  block_rows_ = rows_of(view.members[place]);
  first_row_ = after_blocks(view, place, block_begin_);
}

// Begins all exchanges that are due. If the state is from a checkpoint or another replica, several may be.
void DilocoReplica::take_gradients() {
  for (int64_t x = exchange_number() + std::ssize(flights_);
       x < options_.exchanges() && options_.begins_after(x) <= position_.step; ++x) {
    bind(true);
    const int64_t steps = std::clamp<int64_t>(options_.begins_after(x) - since_, 0, options_.steps_in(x));
    flights_.push_back({.weight = steps * block_rows_, .d = outer_.gradients(x)});
  }
  if (run_ && run_->has_view()) start_exchanges();
}

// ---- with other replicas ----
void DilocoReplica::start_exchanges() {
  ReplicaMember& member = run_->member();
  const bool whole = !control::has_equal_ranks(member.live().view);
  for (size_t i = 0; i < flights_.size(); ++i) {
    Flight& f = flights_[i];
    if (std::exchange(f.under_way, true)) continue;
    if (whole) f.whole = outer_.whole(exchange_number() + static_cast<int64_t>(i), f.d);
    if (whole && !is_first()) continue;  // the leader exchanges for all ranks
    for (size_t r = 0; r < (whole ? 1 : f.d.size()); ++r)
      f.averages.push_back(std::async(std::launch::async, [this, &member, &f, &d = whole ? f.whole : f.d[r],
                                                           before = i > 0 ? flights_[i - 1].averages[r] : Average(),
                                                           others = member.communicator(ranks_[r])]() mutable {
        try {
          // All replicas start the same collectives in the same order. The earlier average is freed here, because
          // this function lives as long as its own average.
          if (before.valid()) std::exchange(before, {}).wait();
          const Work::Deadline deadline = std::chrono::steady_clock::now() + run_->timeout();
          int64_t sent = 0;
          auto average = exchange(*others, options_.wire, d, f.weight, deadline, sent);
          sent_ += sent;
          return average;
        } catch (const std::exception& e) {
          member.close(e.what());
          throw;
        }
      }));
  }
}

// The view is over, or this replica ends.
void DilocoReplica::drop_averages() {
  for (Flight& f : flights_) {
    if (!std::exchange(f.under_way, false)) continue;
    run_->member().close("this replica needs no exchange of this view any more");
    for (const Average& one : std::exchange(f.averages, {})) one.wait();
    f.whole = {};
  }
}

std::vector<std::vector<float>> DilocoReplica::finish_exchange(bool& good) {
  std::vector<std::vector<float>> averages;
  good = true;
  for (const Average& one : std::exchange(flights_.front().averages, {})) {
    try {
      averages.push_back(one.get());
    } catch (const Error& e) {
      good = false;  // another view follows
      if (!follows(e.code())) internal::warn(str_cat("diloco: an exchange is made again: ", e.what()));
    } catch (const std::exception& e) {
      good = false;
      internal::warn(str_cat("diloco: an exchange is made again: ", e.what()));
    }
  }
  return averages;
}

void DilocoReplica::advance() {
  if (replay_) return begins_block() ? replay_block() : replay_exchange();
  const LiveView live = run_->member().live();
  if (begins_block()) {
    if (!run_->vote(true)) return;
    begin_block(live.view, static_cast<size_t>(live.place));
    position_.samples = after_blocks(live.view, live.view.members.size(), position_.step);
    ++group_;
    return;
  }
  bool good = false;
  std::vector<std::vector<float>> averages = finish_exchange(good);
  if (!run_->vote(good)) return;
  bind(true);
  if (!control::has_equal_ranks(live.view))
    averages = outer_.by_rank(exchange_number(), is_first() ? std::move(averages[0]) : std::vector<float>());
  outer_.move_anchors(exchange_number(), averages);
  outer_.move_parameters(exchange_number());
  flights_.pop_front();
  committed(live.view.number);
}

void DilocoReplica::committed(int64_t view) {
  position_.view = view;
  ++group_;
}

// ---- a replay ----
std::vector<Tensor> DilocoReplica::values_now() {
  std::vector<Tensor> all;
  for (const NamedCells* cells : {&step_.parameters, &step_.others}) {
    const RankValues values(*cells, step_.shards(true));
    for (size_t i = 0; i < values.size(); ++i)
      for (const int rank : ranks_) all.push_back(values.get(i, rank));
  }
  return all;
}

void DilocoReplica::set_values(const std::vector<Tensor>& all) {
  size_t next = 0;
  for (const NamedCells* cells : {&step_.parameters, &step_.others}) {
    const RankValues values(*cells, step_.shards(true));
    for (size_t i = 0; i < values.size(); ++i)
      for (const int rank : ranks_)
        if (const Tensor& t = all[next++]; t.defined()) values.set(i, rank, t);
  }
}

// The cells have the state of this replica.
void DilocoReplica::keep(const std::string& name, int64_t incarnation) {
  members_[name] = {incarnation, since_, values_now(), std::exchange(flights_, {})};
}

DilocoReplica::Member& DilocoReplica::member_of(const control::ReplicaView& view, const std::string& name) {
  const auto at = members_.find(name);
  WEFT_CHECK_AS(kDataLoss, at != members_.end(), "replay: replica '", one_line(name, 80), "' of view ", view.number,
                " has no state; need an undamaged journal, in which it heals first");
  return at->second;
}

// The replicas that join before the next step of the group. The cells have the state of a checkpoint here.
void DilocoReplica::join(const control::ReplicaView& view) {
  const std::vector<Tensor> now = values_now();
  const auto donor = std::ranges::find(view.members, false, &control::ViewMember::heals);
  for (const bool heals : {false, true})
    for (const control::ViewMember& m : view.members) {
      if (m.heals != heals || (!heals && members_[m.name].incarnation == m.incarnation)) continue;
      bind(true);
      WEFT_CHECK_AS(kDataLoss, !heals || donor != view.members.end(), "replay: view ", view.number,
                    " has no replica that the others can heal from; need an undamaged journal");
      set_values(heals ? member_of(view, donor->name).values : now);
      if (heals) outer_.take_anchors();
      since_ = heals ? position_.step : 0;
      block_rows_ = rows_of(m);
      flights_.clear();
      take_gradients();
      keep(m.name, m.incarnation);
    }
  set_values(now);
}

void DilocoReplica::replay_block() {
  bind(true);
  for (const control::ReplicaView& view : replay_->views_from(group_)) join(view);
  const control::ReplicaView &now = replay_->view_at(group_), &next = replay_->view_at(group_ + 1);
  active_.clear();
  std::vector<int64_t> places;
  for (const control::ViewMember& m : now.members)
    if (control::find(next, m.name, m.incarnation)) {
      active_.push_back(m.name);
      places.push_back(control::find(now, m.name, m.incarnation) - now.members.data());
    }
  // A replica that is lost heals before it takes part again.
  std::erase_if(members_, [&](const auto& m) { return std::ranges::find(active_, m.first) == active_.end(); });
  WEFT_CHECK_AS(kFailedPrecondition, !active_.empty(), "replay: no replica of view ", now.number, " is in view ",
                next.number);
  ++group_;
  const int64_t begin = position_.step;
  // The training steps of the first one follow.
  for (size_t i = active_.size(); i-- > 0;) {
    Member& m = member_of(now, active_[i]);
    position_.step = begin;
    set_values(m.values);
    since_ = m.since;
    flights_ = m.flights;
    begin_block(now, static_cast<size_t>(places[i]));
    if (i == 0) break;
    for (; ready(); made()) step_.make(position_.step, row(), rows());
    keep(active_[i], m.incarnation);
  }
  position_.samples = after_blocks(now, now.members.size(), begin);
}

void DilocoReplica::replay_exchange() {
  bind(true);
  keep(active_[0], members_.at(active_[0]).incarnation);
  for (const control::ReplicaView& view : replay_->views_from(group_)) join(view);
  const control::ReplicaView& view = replay_->view_at(group_);
  const bool whole = !control::has_equal_ranks(view);
  std::vector<std::vector<std::vector<float>>> d(whole ? 1 : ranks_.size());  // indices: rank, member
  std::vector<int64_t> weights;
  for (const control::ViewMember& m : view.members) {
    const std::deque<Flight>& flights = member_of(view, m.name).flights;
    WEFT_CHECK_AS(kDataLoss, !flights.empty(), "replay: replica '", one_line(m.name, 80), "' of view ", view.number,
                  " has no outer gradient; need an undamaged journal, in which it heals first");
    const Flight& f = flights.front();
    weights.push_back(f.weight);
    if (whole) d[0].push_back(outer_.whole(exchange_number(), f.d));
    for (size_t r = 0; !whole && r < d.size(); ++r) d[r].push_back(f.d[r]);
  }
  std::vector<std::vector<float>> averages;
  for (const auto& of_rank : d) averages.push_back(average_of(options_.wire, of_rank, weights));
  if (whole) averages = outer_.by_rank(exchange_number(), std::move(averages[0]));
  outer_.move_anchors(exchange_number(), averages);
  for (auto m = view.members.rbegin(); m != view.members.rend(); ++m) {  // the first one stays
    Member& own = members_.at(m->name);
    set_values(own.values);
    outer_.move_parameters(exchange_number());
    own.values = values_now();
    own.flights.pop_front();
  }
  committed(view.number);
}

}  // namespace weft::dist
