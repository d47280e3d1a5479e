#include "distributed/replica/state_parts.h"

#include <map>
#include <memory>
#include <optional>

#include "distributed/launch/processes.h"
#include "framework/dispatch/state/cell_access.h"

namespace weft::dist {
namespace {

using NamedCells = std::vector<std::pair<std::string, CellHandle>>;

class CellParts {
 public:
  CellParts(const NamedCells& cells, const CellShards& shards) : cells_(cells) {
    std::map<const Cell*, Ref<ShardedCell>> of;
    for (const auto& [cell, sharded] : shards) of[cell.get()] = sharded;
    for (const auto& [name, handle] : cells) shards_.push_back(of[&handle.cell()]);
  }

  // The parts of a rank. Without values on a joiner.
  std::vector<StatePart> parts(int rank, bool with_values) const {
    std::vector<StatePart> all;
    each(rank, [&](size_t i) {
      Cell& cell = cells_[i].second.cell();
      StatePart part{.name = cells_[i].first, .layout = str_cat(cell.type), .type = cell.type};
      if (const Ref<ShardedCell>& s = shards_[i]) {
        part.layout += " as " + s->placement();
        part.type = s->shards[rank]->type;
        if (with_values) part.value = s->shards[rank]->value;
      } else if (with_values) {
        const internal::CellOwner own(cell, "heal");
        part.value = internal::owned_value(cell).contiguous();
      }
      WEFT_BUG_IF(with_values && (!part.value.defined() || !part.value.view_for_kernel().contiguous()),
                  "heal: the shard of '", part.name, "' has no row-major value");
      all.push_back(std::move(part));
    });
    return all;
  }

  // Gives the cells their new values. healed[rank]: values by part, for the ranks of this process.
  void adopt(const std::vector<int>& ranks, const std::vector<HealedState>& healed) const {
    std::vector<Ref<Cell>> all;
    for (const auto& [name, handle] : cells_) all.emplace_back(&handle.cell());
    const std::vector<Ref<Cell>> ordered = internal::in_gate_order(all);
    const internal::CellsOwner own(ordered, "heal");
    for (const int rank : ranks) {
      size_t next = 0;
      each(rank, [&](size_t i) {
        const Tensor& value = healed[rank].values[next++];
        if (!shards_[i]) {
          all[i]->value = value;
          all[i]->remote = {};
          all[i]->torn = false;
          return;
        }
        shards_[i]->shards[rank]->value = value;
        shards_[i]->shards[rank]->torn = false;
      });
    }
    for (size_t i = 0; i < all.size(); ++i) {
      if (!shards_[i]) continue;
      shards_[i]->forget();
      all[i]->remote = shards_[i];
      all[i]->value = {};
      all[i]->torn = false;
    }
  }

 private:
  // Calls f(i) for the cells that a rank has.
  template <class F>
  void each(int rank, F&& f) const {
    for (size_t i = 0; i < cells_.size(); ++i)
      if (!shards_[i] || shards_[i]->has_shard(rank)) f(i);
  }

  const NamedCells cells_;
  std::vector<Ref<ShardedCell>> shards_;  // index: cell; null: whole
};

}  // namespace

HealedCells heal_cells(World& world, const NamedCells& cells, const CellShards& shards,
                       const std::function<Ref<Communicator>(int rank)>& replicas, const std::vector<bool>& heals,
                       int place, const std::string& record, Work::Deadline deadline, bool from_first) {
  const auto all = std::make_shared<const CellParts>(cells, shards);
  const auto healed = std::make_shared<std::vector<HealedState>>(static_cast<size_t>(world.size()));
  std::vector<std::optional<Error>> errors(static_cast<size_t>(world.size()));
  // An error must not leave world.run(), which would end all collectives of the replica.
  world.run([&](int rank) {
    try {
      (*healed)[rank] = heal(*replicas(rank), heals, all->parts(rank, !heals[place]), record, deadline, from_first);
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
  if (!heals[place]) return {};
  const std::vector<int> ranks = world.local();
  return {(*healed)[ranks[0]].record, [=] { all->adopt(ranks, *healed); }};
}

}  // namespace weft::dist
