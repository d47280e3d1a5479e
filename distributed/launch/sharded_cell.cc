#include "distributed/launch/sharded_cell.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "distributed/launch/initial_shard.h"
#include "distributed/launch/processes.h"
#include "framework/base/hash.h"
#include "framework/dispatch/state/cell_access.h"

namespace weft::dist {
namespace {

// Ranks of a mesh that have the same part, because their coordinates along the axes of the spec are equal.
struct EqualParts {
  std::vector<int> same;     // ranks of the mesh
  std::vector<int> rank_in;  // for each process, one of these ranks, as a rank of the job; -1: none
};

std::vector<EqualParts> equal_parts(const Processes& job, const Mesh& mesh, const Spec& spec,
                                    const std::vector<int>& place) {
  Axes axes;
  for (const Pending& p : spec.pending) axes.push_back(p.axis);
  for (const DimSpec& d : spec.dims)
    for (const Seg& s : d)
      for (auto axis : s.axes) axes.push_back(axis);
  std::map<int64_t, std::vector<int>> equal;  // key: coordinate
  for (int at = 0; at < mesh.size(); ++at) equal[mesh.coordinate(at, axes)].push_back(at);
  std::vector<EqualParts> all;
  for (auto& [coordinate, same] : equal) {
    std::vector<int> rank_in(static_cast<size_t>(job.size() / job.count()), -1);
    for (size_t r = 0; r < place.size(); ++r)
      if (std::find(same.begin(), same.end(), place[r]) != same.end()) {
        int& found = rank_in[job.process_of(static_cast<int>(r))];
        if (found < 0) found = static_cast<int>(r);
      }
    all.push_back({std::move(same), std::move(rank_in)});
  }
  return all;
}

}  // namespace

Tensor joined(const Mesh& mesh, const Spec& spec, const TensorType& type, const std::vector<int>& place,
              std::vector<Tensor> mine) {
  std::vector<Tensor> parts(static_cast<size_t>(mesh.size()));
  for (size_t r = 0; r < place.size(); ++r)
    if (place[r] >= 0) parts[place[r]] = mine[r];
  Processes* const job = Processes::current();
  if (!job) return unshard(mesh, spec, type, parts);
  for (const auto& [same, rank_in] : equal_parts(*job, mesh, spec, place)) {
    const auto root = std::find_if(rank_in.begin(), rank_in.end(), [](int r) { return r >= 0; });
    const int own = rank_in[job->process()];
    Tensor part = own >= 0 ? mine[own] : Tensor();
    if (std::find(rank_in.begin(), rank_in.end(), -1) != rank_in.end()) {
      TensorType local = type;
      local.device = Device::cpu();
      local.shape = local_shape(mesh, spec, same[0]);
      part = own >= 0 ? part.contiguous() : Tensor::empty(local);
      job->broadcast(static_cast<int>(root - rank_in.begin()), part.view_for_kernel());
    }
    for (int at : same) parts[at] = part;
  }
  return unshard(mesh, spec, type, parts);
}

ShardedCell::ShardedCell(ShardLayout layout, const TensorType& type) : layout_(std::move(layout)), type_(type) {
  for (size_t r = 0; r < layout_.place.size(); ++r) {
    auto c = make_ref<Cell>();
    c->type = type;
    c->type.device = Device::cpu(static_cast<int>(r));
    c->type.shape = local_shape(layout_.mesh, layout_.rest, std::max(0, layout_.place[r]));
    shards.push_back(c);
  }
}

void ShardedCell::scatter(const Tensor& whole) {
  ++moved.scatters;
  moved.bytes += type_.nbytes();
  for (size_t r = 0; r < shards.size(); ++r) {
    const int at = layout_.place[r];
    if (at >= 0 && is_local(static_cast<int>(r))) shards[r]->value = shard(layout_.mesh, layout_.rest, whole, at);
    shards[r]->torn = false;
  }
}

// Calls make(place, shard) for shards of this process that differ, and copies them to the shards that equal them.
void ShardedCell::make_shards(const std::function<void(int place, const Tensor& shard)>& make) {
  std::map<int64_t, Tensor> made;  // key: coordinate; ranks with equal coordinates have equal shards
  const Axes axes = layout_.rest.split_axes();
  for (size_t r = 0; r < shards.size(); ++r) {
    const int at = layout_.place[r];
    shards[r]->torn = false;
    if (at < 0 || !is_local(static_cast<int>(r))) continue;
    const Tensor own = Tensor::empty(shards[r]->type);
    Tensor& equal = made[layout_.mesh.coordinate(at, axes)];
    if (!equal.defined())
      make(at, equal = own);
    else if (own.type().nbytes() > 0)
      std::memcpy(own.get().storage->data(), equal.get().storage->data(), static_cast<size_t>(own.type().nbytes()));
    shards[r]->value = own;
  }
}

void ShardedCell::initialise(const Graph& init) {
  make_shards([&](int place, const Tensor& shard) {
    const Tensor part = initial_shard(layout_.mesh, layout_.rest, init, place);
    if (part.type().nbytes() > 0)
      std::memcpy(shard.get().storage->data(), part.view_for_kernel().data, static_cast<size_t>(part.type().nbytes()));
  });
}

void ShardedCell::read(StoredValue& stored, const Cell& cell) {
  make_shards([&](int place, const Tensor& shard) {
    stored.read(cell, part_of(layout_.mesh, layout_.rest, place), shard.get().storage->data());
  });
}

// Whether each process has all parts, as it has of a replicated value. A read is then no collective.
bool ShardedCell::in_each_process() const {
  const Processes* const job = Processes::current();
  if (!job) return true;
  const std::vector<EqualParts> all = equal_parts(*job, layout_.mesh, layout_.rest, layout_.place);
  return std::ranges::all_of(all,
                             [](const EqualParts& p) { return std::ranges::find(p.rank_in, -1) == p.rank_in.end(); });
}

Tensor ShardedCell::gather(const Cell& cell) {
  std::vector<Tensor> parts;
  for (const Ref<Cell>& c : shards) parts.push_back(c->value);
  const auto read = [&] {
    ++moved.gathers;
    moved.bytes += type_.nbytes();
    gathered_ = joined(layout_.mesh, layout_.rest, type_, layout_.place, parts);
  };
  if (!in_each_process())
    Processes::current()->collective(str_cat("reading the sharded ", cell.is_parameter ? "parameter " : "buffer ",
                                             cell.name.empty() ? str_cat(type_) : str_cat("'", cell.name, "'")),
                                     read);
  else
    read();
  return gathered_;
}

std::optional<PartedValue::Own> ShardedCell::own_parts(const Cell& cell, double share, bool each_host) const {
  if (cell.value.defined() && !gathered(cell.value)) return {};
  const auto& [mesh, place, rest] = layout_;
  if (placement_.empty()) {
    std::string places;
    for (const int at : place) places += str_cat(" ", at);
    // The ranks select the writers. Facts are short, so a hash stands for many ranks.
    const std::string ranks = place.size() <= 16 ? places : str_cat(" hash ", hash_text(places));
    placement_ = str_cat(to_string(mesh, rest), ", places of the ranks", ranks);
  }
  Own own{.placement = placement_, .parts = {}};
  const Processes* const job = each_host ? Processes::current() : nullptr;
  for (std::vector<int> equal : copies()) {
    if (job) std::erase_if(equal, [&](int r) { return !job->is_on_this_host(r); });
    WEFT_CHECK_AS(kFailedPrecondition, !equal.empty(), "the ranks on the host of rank ", job ? job->first() : 0,
                  " lack a part of '", cell.name,
                  "'; need all parts on each host, such as with dp alone between hosts");
    const int r = equal[static_cast<size_t>(share * static_cast<double>(equal.size()))];
    if (is_local(r)) own.parts.push_back({part_of(mesh, rest, place[r]), shards[r]->value});
  }
  return own;
}

const std::vector<std::vector<int>>& ShardedCell::copies() const {
  if (!copies_.empty()) return copies_;
  std::map<int64_t, std::vector<int>> by_coordinate;
  const Axes axes = layout_.rest.split_axes();
  for (size_t r = 0; r < layout_.place.size(); ++r)
    if (layout_.place[r] >= 0)
      by_coordinate[layout_.mesh.coordinate(layout_.place[r], axes)].push_back(static_cast<int>(r));
  for (auto& [coordinate, ranks] : by_coordinate) copies_.push_back(std::move(ranks));
  return copies_;
}

bool ShardedCell::gathered(const Tensor& value) const {
  return gathered_.defined() && value.get().storage.get() == gathered_.get().storage.get();
}

// Drops the copy of a cell's shards, so that all processes gather at the next read.
static void drop_gathered(Cell& c) {
  auto* const sharded = dynamic_cast<ShardedCell*>(c.remote.get());
  const internal::CellOwner own(c, "GatheredCells");
  if (!sharded || !sharded->gathered(c.value)) return;
  sharded->forget();
  c.value = {};
}

GatheredCells::GatheredCells(std::vector<std::pair<std::string, CellHandle>> cells) {
  if (!Processes::current()) return;
  for (const auto& [name, handle] : cells) {
    if (!handle.cell().remote) continue;
    static_cast<void>(handle.value());
    if (is_first()) {
      gathered_.emplace_back(&handle.cell());
    } else {
      drop_gathered(handle.cell());
      Allocator::of(Device::cpu()).empty_cache();
    }
  }
}

GatheredCells::~GatheredCells() {
  for (const Ref<Cell>& c : gathered_) drop_gathered(*c);
}

}  // namespace weft::dist
