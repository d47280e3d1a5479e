#include "models/train/compute_check.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "framework/dispatch/rank/rank.h"

namespace weft::train {
namespace {

// Ranks in other places, and the sums of the operands that they send, until the end of the scope.
class InPlaces {
 public:
  InPlaces(dist::World& world, const std::string& dim, int by, std::vector<std::vector<uint64_t>>& sums)
      : world_(world), outer_(sums.size()) {
    for (const int r : world_.local()) outer_[r] = std::exchange(world_.rank(r).operand_sums, &sums[r]);
    world_.take_places(dim, by);
  }
  ~InPlaces() {
    world_.take_places("", 0);
    for (const int r : world_.local()) world_.rank(r).operand_sums = outer_[r];
  }
  InPlaces(const InPlaces&) = delete;

 private:
  dist::World& world_;
  std::vector<std::vector<uint64_t>*> outer_;
};

// Whether each rank has the shard of its neighbour, as of a replicated tensor.
bool neighbours_agree(const dist::ShardedCell& cell, const dist::Mesh& mesh, const std::string& dim) {
  std::vector<int> group(static_cast<size_t>(mesh.size()), -1);
  const std::vector<std::vector<int>> copies = cell.copies();
  for (size_t g = 0; g < copies.size(); ++g)
    for (const int r : copies[g]) group[r] = static_cast<int>(g);
  for (int r = 0; r < mesh.size(); ++r)
    if (group[r] != group[mesh.group(r, dim)[0]]) return false;
  return true;
}

StridedView flat(const Tensor& t) {
  const int64_t bytes = t.type().nbytes();
  return {t.view_for_kernel().data, kUInt8, {bytes}, {1}};
}

}  // namespace

ComputeCheck::ComputeCheck(NamedCells cells, int64_t every, const StateCheckOptions& options, dist::World& world,
                           dist::PlanReport& plan)
    : cells_(std::move(cells)), every_(every), options_(options), world_(world) {
  const dist::Mesh& mesh = world.mesh();
  // Ranks of one program have one list of collectives.
  const auto program = [&](int r) { return &plan.collectives(r); };
  for (const dist::Mesh::Dim& d : mesh.dims()) {
    bool equal = d.over.empty() && d.size > 1;
    for (int r = 0; equal && r < mesh.size(); ++r) equal = program(r) == program(mesh.group(r, d.name)[0]);
    // Ranks along dp have equal states, so that no shard moves.
    if (equal && (dim_.empty() || d.name == "dp")) dim_ = d.name, size_ = d.size;
  }
  if (size_ > 1)
    plan.keep_cells();
  else
    std::printf("--check_compute: no two ranks of %s run one program on parts of equal sizes: nothing to compare\n",
                mesh.to_string().c_str());
}

// The rank that is in a place when each rank is `by` places further.
int ComputeCheck::rank_at(int place, int by) const {
  const std::vector<int> line = world_.mesh().group(place, dim_);
  const auto at = static_cast<int>(world_.mesh().coordinate(place, dim_));
  return line[static_cast<size_t>(((at - by) % size_ + size_) % size_)];
}

// Keeps handles, which make the step write to other memory.
void ComputeCheck::keep() {
  kept_.clear();
  for (const auto& [name, handle] : cells_) {
    const Cell& cell = handle.cell();
    const internal::CellReader read(cell, "check_compute");
    Kept k{cell.value, cell.remote, {}};
    if (const dist::ShardedCell* const sharded = shards_of(cell, world_)) {
      if (sharded->gathered(k.value)) k.value = {};
      for (const Ref<Cell>& shard : sharded->shards) k.shards.push_back(shard->value);
    }
    kept_.push_back(std::move(k));
  }
}

void ComputeCheck::restore() {
  for (size_t c = 0; c < cells_.size(); ++c) {
    Cell& cell = cells_[c].second.cell();
    const internal::CellOwner own(cell, "check_compute");
    cell.value = kept_[c].value;
    cell.remote = kept_[c].remote;
    dist::ShardedCell* const sharded = shards_of(cell, world_);
    if (!sharded) continue;
    for (size_t r = 0; r < sharded->shards.size(); ++r) sharded->shards[r]->value = kept_[c].shards[r];
    sharded->forget();
  }
}

// Gives each rank the shards of the place that is `by` places further.
void ComputeCheck::move_shards(int by) {
  std::vector<dist::ShardedCell*> moved;
  for (const auto& [name, handle] : cells_) {
    Cell& cell = handle.cell();
    const internal::CellOwner own(cell, "check_compute");
    dist::ShardedCell* const sharded = shards_of(cell, world_);
    if (!sharded || neighbours_agree(*sharded, world_.mesh(), dim_)) continue;
    sharded->forget();
    cell.value = {};
    moved.push_back(sharded);
  }
  if (moved.empty()) return;
  world_.run([&](int r) {
    RankContext& rank = world_.rank(r);
    std::vector<uint64_t>* const sums = std::exchange(rank.operand_sums, nullptr);
    for (dist::ShardedCell* const cell : moved) {
      Tensor& shard = cell->shards[r]->value;
      if (!shard.defined() || shard.type().nbytes() == 0) continue;
      const Tensor next = Tensor::empty(shard.type());
      rank.run(dim_, {.kind = Collective::kPermute,
                      .in = flat(shard),
                      .out = flat(next),
                      .site = rank.new_site(),
                      .shift = size_ - by});
      shard = next;
    }
    rank.operand_sums = sums;
  });
}

ComputeCheck::Run ComputeCheck::run(int by, const std::function<void()>& make) {
  const auto n = static_cast<size_t>(world_.size());
  if (by != 0) move_shards(by);
  Run r{.by = by, .operands = 0, .bits = {}, .sums = std::vector<Bits>(n)};
  {
    const InPlaces places(world_, dim_, by, r.sums);
    make();
  }
  std::vector<uint64_t> counts(n);
  for (const int rank : world_.local()) counts[rank] = r.sums[rank].size();
  gather_words(counts);
  r.operands = *std::max_element(counts.begin(), counts.end());
  std::vector<uint64_t> all(n * r.operands);
  for (const int rank : world_.local())
    std::copy(r.sums[rank].begin(), r.sums[rank].end(), all.begin() + static_cast<ptrdiff_t>(rank * r.operands));
  gather_words(all);
  const std::vector<uint64_t> hashes = cell_hashes(cells_, &world_);
  for (size_t place = 0; place < n; ++place) {
    const auto rank = static_cast<size_t>(rank_at(static_cast<int>(place), by));
    const auto begin = all.begin() + static_cast<ptrdiff_t>(rank * r.operands);
    Bits bits(begin, begin + static_cast<ptrdiff_t>(r.operands));
    for (size_t c = 0; c < cells_.size(); ++c) bits.push_back(hashes[c * n + rank]);
    r.bits.push_back(std::move(bits));
  }
  return r;
}

// "rank 1 on host n7 has computed wrong bits in operand 5 of 31 of its collectives", and the ranks: the ranks that have
// computed other bits than most ranks, in the first operand that differs between the first two runs. All ranks that
// have computed it if no bits have the most ranks. Operands of pp's stages have no common order, so each stage whose
// operands differ has a first one.
std::string ComputeCheck::found(const std::vector<Run>& runs, std::set<int>& wrong) const {
  const auto n = static_cast<size_t>(world_.size());
  const size_t operands = runs[0].operands;
  const dist::Mesh& mesh = world_.mesh();
  const auto stage = [&](size_t place) { return mesh.find("pp") ? mesh.coordinate(static_cast<int>(place), "pp") : 0; };
  std::vector<uint64_t> at, of_stage(n, kNever);  // the first differences, by place and by stage
  for (size_t place = 0; place < n; ++place) {
    at.push_back(first_difference(runs[0].bits[place], runs[1].bits[place]));
    of_stage[stage(place)] = std::min(of_stage[stage(place)], at[place]);
  }
  const uint64_t first = *std::min_element(at.begin(), at.end());
  // Wrong operands of one stage also change the state of others.
  const uint64_t end = first < operands ? operands : first + 1;
  for (size_t place = 0; place < n; ++place) {
    if (at[place] != of_stage[stage(place)] || at[place] >= end) continue;
    std::map<uint64_t, std::set<int>> ranks;  // key: bits
    for (const Run& r : runs) ranks[r.bits[place][at[place]]].insert(rank_at(static_cast<int>(place), r.by));
    size_t most = 0;
    for (const auto& [bits, of] : ranks) most = std::max(most, of.size());
    const auto has_most = [&](const auto& entry) { return entry.second.size() == most; };
    const bool known = std::count_if(ranks.begin(), ranks.end(), has_most) == 1;
    for (const auto& entry : ranks)
      if (!known || !has_most(entry)) wrong.insert(entry.second.begin(), entry.second.end());
  }
  return str_cat(ranks_text({wrong.begin(), wrong.end()}), " has computed wrong bits in ",
                 first < operands ? str_cat("operand ", first + 1, " of ", operands, " of its collectives")
                                  : str_cat("'", cells_[first - operands].first, "'"));
}

bool ComputeCheck::make_step(int64_t step, const std::function<void()>& make,
                             const std::function<void(const std::string&)>& note,
                             const std::function<bool()>& went_back) {
  if (!due(step)) {
    make();
    return true;
  }
  for (bool again = false;; again = true) {
    keep();
    std::vector<Run> runs{run(1, make)};
    restore();
    runs.push_back(run(0, make));
    if (runs[0].bits == runs[1].bits) {
      for (const int r : world_.local())
        if (std::vector<uint64_t>* const outer = world_.rank(r).operand_sums)
          outer->insert(outer->end(), runs[1].sums[r].begin(), runs[1].sums[r].end());
      kept_.clear();
      return true;
    }
    restore();
    if (went_back()) {
      kept_.clear();
      return false;
    }
    // A third rank, or, of two ranks, both again.
    for (int by = 2; by <= (size_ == 2 ? 3 : 2); ++by) {
      runs.push_back(run(by % size_, make));
      restore();
    }
    std::set<int> wrong;
    const std::string text = str_cat("step ", step, ": ", found(runs, wrong));
    if (again || wrong.size() > 1 || !options_.continues) fail_check("check_compute", text, options_);
    note(text + "; the step is made again");
  }
}

}  // namespace weft::train
