#include "distributed/diagnose/testing/simulated_job.h"

#include <algorithm>
#include <limits>
#include <map>

#include "framework/mesh/mesh.h"

namespace weft::dist::diagnose {
namespace {

using flight::Event;
using flight::Record;

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr int64_t kNotice = 1'000'000;  // time until others see that a rank has failed or died

struct Meeting {
  std::map<int, std::pair<int64_t, PlannedRow>> starts;  // key: rank
  size_t members = 0;
  int64_t failed = kNever;  // time since which the kinds differ
};

class Simulation {
 public:
  Simulation(const std::vector<std::vector<Action>>& scripts, const PlannedStep& plan, const SimulationOptions& o)
      : scripts_(scripts), options_(o), mesh_(Mesh::parse(o.mesh)) {
    job_.size = mesh_.size();
    const auto shared = std::make_shared<const PlannedStep>(plan);
    for (int r = 0; r < job_.size; ++r) {
      RankTrace t;
      t.rank = r, t.size = job_.size, t.pid = 1000 + r;
      t.host = "simulated", t.boot = "x", t.mesh = o.mesh;
      job_.ranks.push_back(std::move(t));
      job_.plans[{plan.number, r}] = shared;
    }
    ranks_.resize(static_cast<size_t>(job_.size));
  }

  TracedJob run() {
    for (;;) {
      int next = -1;
      int64_t time = kNever;
      for (int r = 0; r < job_.size; ++r) {
        const int64_t t = ready(r);
        if (t < time) time = t, next = r;
      }
      if (next < 0 || (options_.look && time > *options_.look)) break;
      advance(next, time);
    }
    finish();
    return std::move(job_);
  }

 private:
  struct Rank {
    size_t at = 0;
    int64_t clock = 1'000'000'000;
    bool over = false, stopped = false, died = false;
    std::map<std::string, uint32_t> numbers;
    std::vector<std::pair<uint64_t, Record>> open;  // site and record
    uint32_t run = 0, position = 0;
    std::map<uint16_t, uint32_t> calls;  // key: plan
    int64_t ended = kNever;
  };

  using Key = std::tuple<std::string, int, uint32_t>;
  Key key_of(int r, const std::string& axes, uint32_t number) { return {axes, mesh_.group(r, axes)[0], number}; }

  RankTrace& trace(int r) { return job_.ranks[static_cast<size_t>(r)]; }
  Rank& rank(int r) { return ranks_[static_cast<size_t>(r)]; }

  // When the rank can do its next action; kNever: it waits for other ranks forever.
  int64_t ready(int r) {
    Rank& me = rank(r);
    if (me.over || me.at == scripts_[static_cast<size_t>(r)].size()) return kNever;
    const Action& a = scripts_[static_cast<size_t>(r)][me.at];
    if (a.kind == Action::kCompute) return me.clock + a.ns;
    if (a.kind != Action::kWait) return me.clock;
    const Record& w = open(me, a.row.site);
    if (!waiting_.contains(r)) return me.clock;  // the rank records its wait
    const Meeting& c = all_[key_of(r, a.row.axes, w.number)];
    int64_t done = kNever;
    if (c.starts.size() == c.members) {
      done = 0;
      for (const auto& [other, start] : c.starts) done = std::max(done, start.first);
    }
    return std::max(me.clock, std::min({done, c.failed, waiting_[r] + options_.timeout, failure_, death_}));
  }

  Record& open(Rank& me, uint64_t site) {
    for (auto& [s, r] : me.open)
      if (s == site) return r;
    return me.open.emplace_back(site, Record{}).second;
  }

  void write(int r, Record record, Event event, int64_t time, Code* outcome = nullptr) {
    RankTrace& t = trace(r);
    record.event = event;
    record.time = time;
    record.outcome = outcome ? static_cast<uint8_t>(*outcome) : 0;
    record.sequence = t.lost + t.records.size() + 1;
    t.records.push_back(record);
    if (t.records.size() > options_.capacity) t.records.erase(t.records.begin()), ++t.lost;
  }

  void fail(int r, int64_t time) {
    rank(r).over = true;
    rank(r).ended = time + kNotice;
    write(r, {}, Event::kFailed, time + 1000);
    trace(r).records.back().outcome = trace(r).records[trace(r).records.size() - 2].outcome;
    failure_ = std::min(failure_, time + kNotice);
  }

  void advance(int r, int64_t time) {
    Rank& me = rank(r);
    const Action& a = scripts_[static_cast<size_t>(r)][me.at];
    me.clock = time;
    switch (a.kind) {
      case Action::kCompute:
        break;
      case Action::kStart:
        start(r, a, time);
        break;
      case Action::kWait:
        if (!wait(r, a, time)) return;
        break;
      case Action::kBegin:
      case Action::kEnd: {
        const bool begins = a.kind == Action::kBegin;
        Record p{.plan = a.plan, .phase = a.phase};
        if (a.phase == flight::Phase::kStep && begins) ++me.run, me.position = 0, p.number = ++me.calls[a.plan];
        if (a.phase == flight::Phase::kStep) p.run = me.run, p.position = me.position;
        write(r, p, begins ? Event::kPhaseBegin : Event::kPhaseEnd, time);
        break;
      }
      case Action::kDie:
        me.over = me.died = true;
        me.ended = time;
        death_ = std::min(death_, time + kNotice);
        break;
      case Action::kStop:
        me.over = me.stopped = true;
        me.ended = time;
        break;
      case Action::kThrow: {
        Code code = Code::kInternal;
        write(r, {}, Event::kFailed, time, &code);
        trace(r).failure = "no such thing";
        failure_ = std::min(failure_, time + kNotice);
        me.over = true, me.ended = time + kNotice;
        break;
      }
      case Action::kExit:
        me.over = true, me.ended = time;
        trace(r).ended = true, trace(r).code = 3;
        death_ = std::min(death_, time + kNotice);
        break;
    }
    ++me.at;
  }

  void start(int r, const Action& a, int64_t time) {
    Rank& me = rank(r);
    RankTrace& t = trace(r);
    auto row = std::find(t.communicators.begin(), t.communicators.end(), a.row.axes);
    if (row == t.communicators.end()) row = t.communicators.insert(row, a.row.axes), t.started.push_back(0);
    Record record{.site = a.row.site, .bytes = a.row.bytes};
    record.communicator = static_cast<uint16_t>(row - t.communicators.begin());
    record.number = ++me.numbers[a.row.axes];
    t.started[record.communicator] = record.number;
    record.kind = a.row.kind, record.dtype = a.row.dtype, record.op = a.row.op;
    if (a.plan) record.plan = a.plan, record.run = me.run, record.position = me.position++;
    open(me, a.row.site) = record;
    write(r, record, Event::kStart, time);
    Meeting& c = all_[key_of(r, a.row.axes, record.number)];
    c.members = mesh_.group(r, a.row.axes).size();
    for (const auto& [other, s] : c.starts)
      if (s.second.kind != a.row.kind || s.second.dtype != a.row.dtype) c.failed = std::min(c.failed, time);
    c.starts[r] = {time, a.row};
  }

  // False if the rank has not ended the action.
  bool wait(int r, const Action& a, int64_t time) {
    Rank& me = rank(r);
    const Record w = open(me, a.row.site);
    if (!waiting_.contains(r)) {
      waiting_[r] = time;
      write(r, w, Event::kWait, time);
      return false;
    }
    const Meeting& c = all_[key_of(r, a.row.axes, w.number)];
    const bool done = c.starts.size() == c.members && c.failed > time;
    const int64_t began = waiting_[r];
    waiting_.erase(r);
    std::erase_if(me.open, [&](const auto& o) { return o.first == a.row.site; });
    if (done) {
      write(r, w, Event::kEnd, time);
      return true;
    }
    Code code = c.failed <= time                   ? Code::kInvalidArgument
                : time >= began + options_.timeout ? Code::kDeadlineExceeded
                : death_ <= time                   ? Code::kUnavailable
                                                   : Code::kAborted;
    write(r, w, Event::kEnd, time, &code);
    fail(r, time);
    return false;
  }

  void finish() {
    int64_t last = 0;
    for (const Rank& me : ranks_) last = std::max(last, me.ended == kNever ? me.clock : me.ended);
    const int64_t end = options_.look.value_or(last);
    const bool runs = options_.look && !options_.killed;
    if (runs) job_.now = end;
    for (int r = 0; r < job_.size; ++r) {
      Rank& me = rank(r);
      RankTrace& t = trace(r);
      t.alive = std::min(end, me.ended);
      t.alive -= t.alive % flight::kHeartbeat;
      const bool finished = me.at == scripts_[static_cast<size_t>(r)].size();
      if (!me.died && !me.stopped && !t.ended && (finished || me.over)) {
        t.ended = true, t.code = finished ? 0 : 1;
        t.alive = finished ? me.clock : me.ended;
      }
      t.state = t.ended || me.died || options_.killed || !options_.look ? ProcessState::kGone : ProcessState::kRuns;
      if (me.stopped && !options_.killed && options_.look) t.state = ProcessState::kStopped, job_.now = end;
    }
  }

  const std::vector<std::vector<Action>>& scripts_;
  const SimulationOptions options_;
  const Mesh mesh_;
  TracedJob job_;
  std::vector<Rank> ranks_;
  std::map<Key, Meeting> all_;
  std::map<int, int64_t> waiting_;
  int64_t failure_ = kNever, death_ = kNever;
};

}  // namespace

TracedJob simulate(const std::vector<std::vector<Action>>& scripts, const PlannedStep& plan,
                   const SimulationOptions& o) {
  return Simulation(scripts, plan, o).run();
}

}  // namespace weft::dist::diagnose
