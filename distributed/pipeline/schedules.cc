#include "distributed/pipeline/schedules.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/nearest.h"
#include "framework/base/one_line.h"

namespace weft::dist::pipeline {
namespace {

/// Writes the actions of one rank. A chunk is the rank's 0th, 1st, ... stage. Each call uses the chunk's next
/// microbatch, so all schedules have one order of microbatches.
class RankWriter {
 public:
  RankWriter(const ScheduleOptions& o, int rank_number, std::vector<int> stages)
      : ranks(o.ranks),
        chunks(o.stages_per_rank),
        microbatches(o.microbatches),
        rank(rank_number),
        pairs(o.pairs),
        stages_(std::move(stages)),
        forward_(stages_.size()),
        backward_(stages_.size()),
        weight_(stages_.size()) {}

  void forward(int chunk = 0) { add(ActionKind::kForward, chunk, forward_); }
  void input(int chunk = 0) { add(ActionKind::kInput, chunk, backward_); }
  void weight(int chunk = 0) { add(ActionKind::kWeight, chunk, weight_); }
  void backward(int chunk = 0) {
    ++weight_[chunk];
    add(ActionKind::kBackward, chunk, backward_);
  }
  /// Writes an adjacent forward and backward.
  void forward_and_backward(int forward_chunk, int backward_chunk) {
    forward(forward_chunk);
    actions.back().with_next = pairs;
    backward(backward_chunk);
  }
  /// The numbers of actions written so far.
  int forwards(int chunk = 0) const { return forward_[chunk]; }
  int inputs(int chunk = 0) const { return backward_[chunk]; }
  int weights(int chunk = 0) const { return weight_[chunk]; }

  const int ranks, chunks, microbatches, rank;
  const bool pairs;
  std::vector<Action> actions;

 private:
  /// Adds an action. Ignores actions beyond the last microbatch.
  void add(ActionKind kind, int chunk, std::vector<int>& next) {
    const int microbatch = next[chunk]++;
    if (microbatch < microbatches) actions.push_back({.kind = kind, .stage = stages_[chunk], .microbatch = microbatch});
  }

  std::vector<int> stages_;
  std::vector<int> forward_, backward_, weight_;  // index: chunk
};

/// Writes all forwards, then all backwards.
void gpipe(RankWriter& w) {
  for (int i = 0; i < w.microbatches; ++i) w.forward();
  for (int i = 0; i < w.microbatches; ++i) w.backward();
}

/// Writes a backward after each forward as soon as the first microbatch comes back, so at most `ranks` microbatches are
/// alive.
void one_f_one_b(RankWriter& w) {
  const int ahead = std::min(w.microbatches, w.ranks - 1 - w.rank);
  for (int i = 0; i < ahead; ++i) w.forward();
  for (int i = ahead; i < w.microbatches; ++i) {
    w.forward();
    w.backward();
  }
  for (int i = 0; i < ahead; ++i) w.backward();
}

/// The microbatches go through the chunks in groups of at least `ranks`, so that a group's first microbatch is back
/// from the last rank before its last microbatch leaves. The groups are as equal as possible, so any number of
/// microbatches is equally good.
void interleaved(RankWriter& w) {
  const int groups = std::max(1, w.microbatches / w.ranks);
  std::vector<int> chunk_of;  // index: forward
  std::vector<int> back_chunk_of;
  for (int g = 0; g < groups; ++g) {
    const int size = w.microbatches / groups + (g < w.microbatches % groups ? 1 : 0);
    for (int c = 0; c < w.chunks; ++c) {
      chunk_of.insert(chunk_of.end(), static_cast<size_t>(size), c);
      back_chunk_of.insert(back_chunk_of.end(), static_cast<size_t>(size), w.chunks - 1 - c);
    }
  }
  const int largest = (w.microbatches + groups - 1) / groups;
  const int64_t ahead_wanted = int64_t{2} * (w.ranks - 1 - w.rank) + int64_t{w.chunks - 1} * largest;
  const size_t ahead = std::min(chunk_of.size(), static_cast<size_t>(ahead_wanted));
  for (size_t i = 0; i < chunk_of.size() + ahead; ++i) {
    if (i < chunk_of.size()) w.forward(chunk_of[i]);
    if (i >= ahead) w.backward(back_chunk_of[i - ahead]);
  }
}

/// Writes forwards ahead, then I and F in turn; W follows its I after `delay` others.
void split_backward(RankWriter& w, int ahead, int delay, bool forward_first) {
  for (int i = 0; i < std::min(w.microbatches, ahead); ++i) w.forward();
  while (w.inputs() < w.microbatches) {
    if (forward_first && w.forwards() < w.microbatches) w.forward();
    w.input();
    if (w.inputs() - w.weights() > delay) w.weight();
    if (!forward_first && w.forwards() < w.microbatches) w.forward();
  }
  while (w.weights() < w.microbatches) w.weight();
}

/// 1f1b with W as late as the activations of rank 0 allow on every rank.
void zb_h1(RankWriter& w) { split_backward(w, w.ranks - 1 - w.rank, w.rank, true); }

/// ZB-H2 of the paper: more forwards ahead fill the start, at twice the activations of zb_h1.
void zb_2p(RankWriter& w) { split_backward(w, 2 * (w.ranks - w.rank) - 1, 2 * w.rank, false); }

/// Two chunks per rank in a V, with the activations of 1f1b. The code is for at least 2 ranks - 1 microbatches; for
/// fewer, excess actions are ignored.
void zb_v(RankWriter& w) {
  const int p = w.ranks, r = w.rank;
  const int microbatches = std::max(w.microbatches, 2 * p - 1);
  auto input_and_weight = [&](int chunk) {
    w.input(chunk);
    w.weight(chunk);
  };
  for (int i = 0; i < 2 * (p - r) - 1; ++i) w.forward(0);
  for (int i = 0; i < r; ++i) {
    w.forward(1);
    w.forward(0);
  }
  for (int i = 0; i < p - r; ++i) {
    w.forward(1);
    input_and_weight(1);
  }
  while (w.forwards(1) < microbatches) {
    if (w.forwards(0) < microbatches) w.forward(0);
    input_and_weight(0);
    w.forward(1);
    input_and_weight(1);
  }
  for (int i = 0; i < r; ++i) {
    w.input(0);
    w.input(1);
  }
  for (int i = 0; i < p - r; ++i) input_and_weight(0);
  while (w.weights(1) < w.inputs(1)) w.weight(1);
  while (w.weights(0) < w.inputs(0)) w.weight(0);
}

/// DualPipe without the second copy of the weights: the eight steps of the published schedule.
void dualpipe_v(RankWriter& w) {
  const int after = w.ranks - 1 - w.rank;  // number of ranks after this one
  const int self = w.rank + 1;
  std::deque<int> late;  // chunks whose W has not come yet
  auto next_weight = [&] {
    w.weight(late.front());
    late.pop_front();
  };
  auto input = [&](int chunk) {
    w.input(chunk);
    late.push_back(chunk);
  };
  for (int i = 0; i < 2 * after; ++i) w.forward(0);
  for (int i = 0; i < self; ++i) {
    w.forward(0);
    w.forward(1);
  }
  for (int i = 0; i < after; ++i) {
    input(1);
    next_weight();
    w.forward(1);
  }
  for (int i = 0; i < w.microbatches - 2 * w.ranks + self; ++i) {
    if (i == 0 && after == 0) {  // on the last rank the chunks are neighbours: this B awaits the F before it
      w.forward(0);
      w.backward(1);
    } else {
      w.forward_and_backward(0, 1);
    }
    w.forward_and_backward(1, 0);
  }
  for (int i = 0; i < after; ++i) {
    w.backward(1);
    w.forward_and_backward(1, 0);
  }
  for (int i = 0; i < 2 * self; ++i) {  // backwards of both chunks; in the second half without W
    const int chunk = 1 - i % 2;
    if (i < self) {
      w.backward(chunk);
    } else {
      input(chunk);
    }
  }
  for (int i = 0; i < after; ++i) {
    next_weight();
    input(0);
  }
  while (!late.empty()) next_weight();
}

struct ScheduleRow {
  const char* name;
  void (*write)(RankWriter&);
  int least_stages, most_stages;  // per rank
  bool v_shape;
  int least_microbatches_per_rank;
};

constexpr int kAny = 1 << 20;
constexpr ScheduleRow kSchedules[] = {
    {"gpipe", gpipe, 1, 1, false, 0},
    {"1f1b", one_f_one_b, 1, 1, false, 0},
    {"interleaved_1f1b", interleaved, 2, kAny, false, 0},
    {"zb_h1", zb_h1, 1, 1, false, 0},
    {"zb_2p", zb_2p, 1, 1, false, 0},
    {"zb_v", zb_v, 2, 2, true, 0},
    {"dualpipe_v", dualpipe_v, 2, 2, true, 2},
};

const ScheduleRow& find(std::string_view name) {
  for (const ScheduleRow& s : kSchedules)
    if (s.name == name) return s;
  std::string known;
  for (const std::string& n : schedule_names()) known += (known.empty() ? "" : ", ") + n;
  const std::string near = nearest_name(name, schedule_names());
  WEFT_CHECK(false, "pipeline: no schedule has the name '", one_line(name, 100), "'; need one of ", known,
             near.empty() ? "" : str_cat("; did you mean ", near, "?"));
  return kSchedules[0];
}

}  // namespace

const std::vector<std::string>& schedule_names() {
  static const auto* names = [] {
    auto* all = new std::vector<std::string>;
    for (const ScheduleRow& s : kSchedules) all->push_back(s.name);
    return all;
  }();
  return *names;
}

Table make_schedule(std::string_view name, const ScheduleOptions& given) {
  const ScheduleRow& schedule = find(name);
  ScheduleOptions o = given;
  if (o.stages_per_rank == 0) o.stages_per_rank = schedule.least_stages;
  WEFT_CHECK(o.ranks >= 1 && o.microbatches >= 1, name, ": got ", o.ranks, " ranks and ", o.microbatches,
             " microbatches; need 1 or more of each");
  WEFT_CHECK(o.stages_per_rank >= schedule.least_stages && o.stages_per_rank <= schedule.most_stages, name, ": got ",
             o.stages_per_rank, " stages per rank; need ",
             schedule.most_stages == kAny ? str_cat("2 to ", kAny, "; 1f1b has one stage per rank")
                                          : str_cat(schedule.least_stages),
             o.stages_per_rank > 1 && schedule.most_stages == 1 ? "; interleaved_1f1b has more" : "");
  // In this order the product does not overflow; a table has at most 3 actions for each stage and microbatch.
  const int64_t most = kMostActions / 3;
  WEFT_CHECK(
      o.ranks <= most && o.stages_per_rank <= most / o.ranks && o.microbatches <= most / o.ranks / o.stages_per_rank,
      name, ": ", o.ranks, " ranks with ", o.stages_per_rank, " stages each and ", o.microbatches,
      " microbatches are too many; need a product of at most ", most);
  const int64_t least = int64_t{schedule.least_microbatches_per_rank} * o.ranks;
  WEFT_CHECK(o.microbatches >= least, name, ": got ", o.microbatches, " microbatches for ", o.ranks,
             " ranks; need 2 for each rank, ", least, " or more; zb_v accepts fewer");

  Table table;
  table.microbatches = o.microbatches;
  std::vector<std::vector<int>> stages(static_cast<size_t>(o.ranks));
  for (int s = 0; s < o.ranks * o.stages_per_rank; ++s) {
    const int rank = schedule.v_shape && s >= o.ranks ? 2 * o.ranks - 1 - s : s % o.ranks;
    table.rank_of_stage.push_back(rank);
    stages[rank].push_back(s);
  }
  for (int r = 0; r < o.ranks; ++r) {
    RankWriter w(o, r, std::move(stages[r]));
    schedule.write(w);
    table.ranks.push_back(std::move(w.actions));
  }
  return table;
}

}  // namespace weft::dist::pipeline
