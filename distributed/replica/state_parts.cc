#include "distributed/replica/state_parts.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "distributed/launch/processes.h"
#include "framework/dispatch/state/cell_access.h"

namespace weft::dist {
namespace {

// The parts of a rank. Without values on a joiner.
std::vector<StatePart> parts_of(const RankValues& values, int rank, bool with_values) {
  std::vector<StatePart> all;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!values.has(i, rank)) continue;
    StatePart part{.name = values.name(i), .layout = str_cat(values.type(i)), .type = values.type(i)};
    if (const Ref<ShardedCell>& s = values.shards(i)) {
      part.layout += " as " + s->placement();
      part.type = s->shards[rank]->type;
    }
    if (with_values) part.value = values.get(i, rank);
    WEFT_BUG_IF(with_values && (!part.value.defined() || !part.value.view_for_kernel().contiguous()),
                "heal: the shard of '", part.name, "' has no row-major value");
    all.push_back(std::move(part));
  }
  return all;
}

// The parts of the leaders. Without values on a joiner; `with_values`: a collective.
std::vector<StatePart> whole_parts(const RankValues& values, bool with_values) {
  std::vector<StatePart> all;
  for (size_t i = 0; i < values.size(); ++i) {
    const Tensor value = with_values ? values.whole(i) : Tensor();
    all.push_back({values.name(i), str_cat(values.type(i)), values.type(i), is_first() ? value : Tensor()});
  }
  return all;
}

}  // namespace

RankValues::RankValues(const NamedCells& cells, const CellShards& shards) : cells_(cells) {
  std::map<const Cell*, Ref<ShardedCell>> of;
  for (const auto& [cell, sharded] : shards) of[cell.get()] = sharded;
  for (const auto& [name, handle] : cells) shards_.push_back(of[&handle.cell()]);
}

Tensor RankValues::get(size_t i, int rank) const {
  Cell& cell = cells_[i].second.cell();
  const internal::CellOwner own(cell, "replicas");
  if (!shards_[i]) return internal::owned_value(cell).contiguous();
  return has(i, rank) ? shards_[i]->shards[rank]->value : Tensor();
}

void RankValues::set(size_t i, int rank, const Tensor& value) const {
  if (const Ref<ShardedCell>& s = shards_[i]) {
    use_shards(i);
    s->shards[rank]->value = value;
    s->shards[rank]->torn = false;
    return;
  }
  Cell& cell = cells_[i].second.cell();
  const internal::CellOwner own(cell, "replicas");
  cell.value = value;
  cell.remote = {};
  cell.torn = false;
}

void RankValues::use_shards(size_t i) const {
  if (!shards_[i]) return;
  Cell& cell = cells_[i].second.cell();
  const internal::CellOwner own(cell, "replicas");
  shards_[i]->forget();
  cell.remote = shards_[i];
  cell.value = {};
  cell.torn = false;
}

Tensor RankValues::whole(size_t i) const {
  const Ref<ShardedCell>& s = shards_[i];
  if (!s) return get(i, 0);
  std::vector<Tensor> parts;
  for (const Ref<Cell>& shard : s->shards) parts.push_back(shard->value);
  return joined(s->layout().mesh, s->layout().rest, type(i), s->layout().place, parts);
}

void RankValues::set_whole(size_t i, const Tensor& value) const {
  const Tensor all = is_first() ? value : Tensor::empty(type(i));
  if (Processes* const job = Processes::current()) job->broadcast(0, all.view_for_kernel());
  if (!shards_[i]) return set(i, 0, all);
  use_shards(i);
  shards_[i]->scatter(all);
}

HealedCells heal_cells(World& world, const NamedCells& cells, const CellShards& shards,
                       const std::function<Ref<Communicator>(int rank)>& replicas, const std::vector<bool>& heals,
                       int place, const std::string& record, Work::Deadline deadline, bool from_first, bool whole) {
  const auto all = std::make_shared<const RankValues>(cells, shards);
  const auto healed = std::make_shared<std::vector<HealedState>>(static_cast<size_t>(world.size()));
  std::vector<std::optional<Error>> errors(static_cast<size_t>(world.size()));
  const bool takes = heals[place], first = std::ranges::find(heals, false) - heals.begin() == place;
  const std::vector<StatePart> parts = whole ? whole_parts(*all, first) : std::vector<StatePart>();
  // An error must not leave world.run(), which would end all collectives of the replica.
  world.run([&](int rank) {
    try {
      if (!whole || rank == 0)
        (*healed)[rank] =
            heal(*replicas(rank), heals, whole ? parts : parts_of(*all, rank, !takes), record, deadline, from_first);
    } catch (const Error& e) {
      errors[rank] = e;
    } catch (const std::exception& e) {
      errors[rank] = Error(Code::kInternal, e.what());
    }
  });
  std::optional<Error> error;
  for (const int rank : world.local())
    if (errors[rank] && !error) error = errors[rank];
  Processes* const job = Processes::current();
  const bool failed = job ? job->any("healing a replica", error.has_value()) : error.has_value();
  if (error) throw *error;
  WEFT_CHECK_AS(kUnavailable, !failed, "healing: another process of this replica failed");
  if (!takes) return {};
  const std::vector<int> ranks = world.local();
  const std::string& got = (*healed)[ranks[0]].record;
  if (whole)
    return {job ? job->from_first(got) : got, [=] {
              for (size_t i = 0; i < all->size(); ++i)
                all->set_whole(i, is_first() ? (*healed)[0].values[i] : Tensor());
            }};
  return {got, [=] {
            for (size_t i = 0; i < all->size(); ++i) all->use_shards(i);
            for (const int rank : ranks)
              for (size_t i = 0, next = 0; i < all->size(); ++i)
                if (all->has(i, rank)) all->set(i, rank, (*healed)[rank].values[next++]);
          }};
}

}  // namespace weft::dist
