#include "models/train/state_check.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "framework/base/thread_pool.h"
#include "framework/dispatch/rank/flight.h"

namespace weft::train {
namespace {

constexpr const char* kFlag = "check_state";

// Copies values in parallel.
void copy_all(const std::vector<std::pair<Tensor, Tensor>>& from_to) {
  parallel_for(static_cast<int64_t>(from_to.size()), [&](int64_t i) {
    const auto from = bytes_of(from_to[i].first);
    if (!from.empty()) std::memcpy(from_to[i].second.view_for_kernel().data, from.data(), from.size());
  });
}

}  // namespace

StateCheck::StateCheck(NamedCells cells, const StateCheckOptions& options, dist::World* world, dist::PlanReport* plan)
    : cells_(std::move(cells)), options_(options), world_(world), kept_(cells_.size()) {
  if (!world) return;
  int64_t all = 0, copied = 0;
  bool pairs = false;
  for (const dist::PlannedCell& c : plan->cells())
    if (c.type.shape.numel() > 1) ++all, copied += c.copies > 1, pairs |= c.copies == 2;
  compares_ = copied > 0;
  const std::string mesh = plan->mesh().to_string();
  if (copied == 0)
    std::printf("--check_state: no tensor of the state has a copy on another rank of %s: nothing to compare\n",
                mesh.c_str());
  else if (copied < all)
    std::printf(
        "--check_state: %ld of %ld tensors of the state have no copy on another rank of %s: nothing to compare\n",
        all - copied, all, mesh.c_str());
  if (!compares_) return;
  plan->keep_cells();
  operands_.resize(static_cast<size_t>(ranks()));
  if (!pairs) return;  // the odd one of three needs no operands
  for (const int r : world->local()) world->rank(r).operand_sums = &operands_[r];
}

StateCheck::~StateCheck() {
  if (world_ && compares_)
    for (const int r : world_->local()) world_->rank(r).operand_sums = nullptr;
}

bool StateCheck::due(int64_t step, bool always) const {
  if (!compares_) return false;
  if (!world_) return step % options_.every == 0 || (step + 1) % options_.every == 0;
  return always || step % options_.every == 0 || step == options_.first || (suspect_ && step == suspect_->step);
}

void StateCheck::add(std::optional<Difference>& all, size_t cell, const std::vector<int>& ranks) {
  if (all)
    ++all->others;
  else
    all = {.cell = cell, .ranks = ranks};
  all->suspects.insert(ranks.begin(), ranks.end());
}

std::optional<StateCheck::Difference> StateCheck::difference(const std::vector<uint64_t>& now) const {
  std::optional<Difference> first;
  for (size_t c = 0; c < cells_.size(); ++c) {
    const dist::ShardedCell* const sharded = shards_of(cells_[c].second.cell(), *world_);
    if (!sharded) continue;
    const std::vector<std::vector<int>> copies = sharded->copies();
    const auto hash = [&](int r) { return now[c * ranks() + r]; };
    const auto differs = [&](const std::vector<int>& equal) {
      return std::any_of(equal.begin(), equal.end(), [&](int r) { return hash(r) != hash(equal[0]); });
    };
    const auto found = std::find_if(copies.begin(), copies.end(), differs);
    if (found != copies.end()) add(first, c, *found);
  }
  return first;
}

// The rank whose bits were wrong in `s`, if the steps were made again and now give `now`; -1: not known.
int StateCheck::wrong_rank(const Suspect& s, const std::vector<uint64_t>& now) const {
  std::vector<uint64_t> at(ranks());  // the first operand of a rank that differs from an earlier one; the state is last
  for (const int r : world_->local()) at[r] = first_difference(s.operands[r], operands_[r]);
  gather_words(at);
  for (size_t c = 0; c < cells_.size(); ++c) {
    const auto differs = [&](size_t r) { return s.hashes[c * ranks() + r] != now[c * ranks() + r]; };
    size_t differing = 0;
    for (size_t r = 0; r < ranks(); ++r) differing += differs(r);
    // The program sets some cells before each step, such as the learning rate. If the step then fails, they are newer.
    for (size_t r = 0; r < ranks() && differing < ranks(); ++r)
      if (at[r] == kNever && differs(r)) --at[r];
  }
  const auto& [cell, equal, suspects, others] = s.difference;
  const int first = *std::min_element(suspects.begin(), suspects.end(), [&](int a, int b) { return at[a] < at[b]; });
  if (std::count_if(suspects.begin(), suspects.end(), [&](int r) { return at[r] == at[first]; }) == 1) return first;
  const auto hash = [&](int r) { return s.hashes[cell * ranks() + static_cast<size_t>(r)]; };
  const auto count = [&](int r) {
    return std::count_if(equal.begin(), equal.end(), [&](int o) { return hash(o) == hash(r); });
  };
  const int common = *std::max_element(equal.begin(), equal.end(), [&](int a, int b) { return count(a) < count(b); });
  if (2 * static_cast<size_t>(count(common)) <= equal.size()) return -1;
  return *std::find_if(equal.begin(), equal.end(), [&](int r) { return hash(r) != hash(common); });
}

// "step 40: rank 1 on host n7 has wrong bits in 'w' and 2 other tensors". Rank -1: any of the ranks with this shard.
std::string StateCheck::sentence(const Suspect& s, int rank) const {
  const auto& [cell, equal, suspects, others] = s.difference;
  return str_cat("step ", s.step, ": ", ranks_text(rank >= 0 ? std::vector{rank} : equal), " has wrong bits in '",
                 cells_[cell].first, "'",
                 others > 0 ? str_cat(" and ", others, " other tensor", others > 1 ? "s" : "") : "");
}

bool StateCheck::passes(TrainState& state, const Note& note) {
  if (!compares_ || state.step < options_.first) return true;
  const flight::HostPhase phase(flight::Phase::kCheckpoint);
  return world_ ? copies_agree(state, note) : runs_agree(state, note);
}

bool StateCheck::copies_agree(TrainState& state, const Note& note) {
  const std::vector<uint64_t> now = cell_hashes(cells_, world_);
  const std::optional<Difference> differs = difference(now);
  if (!differs && suspect_ && state.step != suspect_->step) return true;  // on the way to the step of the difference
  if (differs && !suspect_ && good_) {
    note(str_cat("step ", state.step, ": the copies of '", cells_[differs->cell].first,
                 "' differ; the run goes back to step ", good_->step, " to find the wrong rank"));
    return go_back(state, Suspect{state.step, *differs, now, operands_});
  }
  if (differs || suspect_) {
    const Suspect s = suspect_ ? *suspect_ : Suspect{state.step, *differs, now, operands_};
    const std::string found = sentence(s, wrong_rank(s, now));
    if (differs || !options_.continues)
      fail_check(kFlag,
                 found + (suspect_ && differs ? str_cat(", and the copies differ again at step ", state.step) : ""),
                 options_);
    note(found + "; the run continues from the right state");
    suspect_.reset();
  }
  keep(state);
  return true;
}

bool StateCheck::runs_agree(TrainState& state, const Note& note) {
  if (suspect_ ? state.step != suspect_->step : good_ && state.step != good_->step + 1) return true;
  if (good_) {
    const std::vector<uint64_t> now = cell_hashes(cells_, world_);
    std::optional<Difference> differs;
    for (size_t c = 0; suspect_ && c < cells_.size(); ++c)
      if (now[c] != suspect_->hashes[c]) add(differs, c, {0});
    if (differs) {
      const std::string found =
          sentence({state.step, *differs, now, {}}, 0) + " after one of two runs of the step from one state";
      if (!options_.continues || std::exchange(repeated_, true)) fail_check(kFlag, found, options_);
      note(found + "; both are made again");
      return go_back(state, {});
    }
    if (!suspect_) return go_back(state, Suspect{state.step, {}, now, {}});
  }
  repeated_ = false;
  suspect_.reset();
  good_.reset();
  kept_.assign(cells_.size(), {});
  if ((state.step + 1) % options_.every == 0) keep(state);
  return true;
}

// Keeps copies on a mesh: a bit that changes later in the memory of a cell must not change the kept value. One device
// keeps handles, which make the next step write to other memory.
void StateCheck::keep(const TrainState& state) {
  std::vector<std::pair<Tensor, Tensor>> from_to;
  for (size_t c = 0; c < cells_.size(); ++c) {
    const Cell& cell = cells_[c].second.cell();
    if (world_) kept_[c].shards = Ref(shards_of(cell, *world_));
    kept_[c].values.resize(ranks());
    each_value(cell, world_, [&](size_t rank, const Tensor& value) {
      Tensor& kept = kept_[c].values[rank];
      if (!world_)
        kept = value;
      else if (!kept.defined() || kept.type() != value.type())
        kept = Tensor::empty(value.type());
      if (world_) from_to.emplace_back(value, kept);
    });
  }
  copy_all(from_to);
  good_ = state;
  for (std::vector<uint64_t>& s : operands_) s.clear();
}

// Sets the cells to copies of the kept state, which keeps its own memory. Returns false.
bool StateCheck::go_back(TrainState& state, std::optional<Suspect> suspect) {
  std::vector<std::pair<Tensor, Tensor>> from_to;
  for (size_t c = 0; c < cells_.size(); ++c) {
    const auto& [shards, values] = kept_[c];
    Cell& cell = cells_[c].second.cell();
    if (!world_ && values[0].defined()) cells_[c].second.set(values[0]);
    if (!world_ || !shards) continue;
    const internal::CellOwner own(cell, "check_state");
    for (size_t r = 0; r < values.size(); ++r)
      if (values[r].defined()) {
        from_to.emplace_back(values[r], Tensor::empty(values[r].type()));
        shards->shards[r]->value = from_to.back().second;
      }
    shards->forget();
    cell.remote = shards;
    cell.value = {};
  }
  copy_all(from_to);
  state = *good_;
  for (std::vector<uint64_t>& s : operands_) s.clear();
  suspect_ = std::move(suspect);
  return false;
}

}  // namespace weft::train
