// ShardedCell: the value of a cell as shards of the ranks; GatheredCells: the whole values on the first process.
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "distributed/placement/spec.h"
#include "framework/dispatch/parameter.h"
#include "framework/dispatch/state/stored_value.h"

namespace weft::dist {

/// Joins parts into the whole value. This process has the parts of its own ranks: in a job it is a collective. `place`:
/// by rank, the rank of `mesh` whose part it has, or -1.
Tensor joined(const Mesh& mesh, const Spec& spec, const TensorType& type, const std::vector<int>& place,
              std::vector<Tensor> mine);

/// The shards of a cell. A read of the cell gathers them. If a process lacks shards, the read is a collective, and only
/// the thread of the job's steps makes it. Another thread may read a value that is in each process, or was gathered
/// since the last step. Only the thread of the steps sets the cell in a job: otherwise processes would take the new
/// value in different steps.
class ShardedCell final : public PartedValue {
 public:
  /// Which ranks have a shard, and which one.
  struct ShardLayout {
    Mesh mesh;               // without pp
    std::vector<int> place;  // rank -> the rank of `mesh` whose shard it has; -1: none
    Spec rest;
    friend bool operator==(const ShardLayout&, const ShardLayout&) = default;
  };
  ShardedCell(ShardLayout layout, const TensorType& type);
  Tensor gather(const Cell& cell) override;
  std::optional<Own> own_parts(const Cell& cell, double share, bool each_host) const override;
  const ShardLayout& layout() const { return layout_; }
  bool has_layout(const ShardLayout& layout) const { return layout == layout_; }
  bool has_shard(int rank) const { return layout_.place[static_cast<size_t>(rank)] >= 0; }
  /// The placement on the mesh, as text.
  std::string placement() const { return to_string(layout_.mesh, layout_.rest); }
  /// The ranks that have a shard, grouped: the ranks of a group have equal shards.
  const std::vector<std::vector<int>>& copies() const;
  /// Splits a whole value into the shards.
  void scatter(const Tensor& whole);
  /// Makes each shard alone by an initialiser (Cell::init).
  void initialise(const Graph& init);
  /// Reads each shard alone.
  void read(StoredValue& stored, const Cell& cell);
  /// Whether `value` is the last result of gather(), and so not newer than the shards. This object also holds this
  /// value, so a step on one device replaces it and does not write it in place.
  bool gathered(const Tensor& value) const;
  /// Call before the shards are written: the gathered value is then out of date.
  void forget() { gathered_ = {}; }
  /// Cells by rank; ranks of other processes have cells without values.
  std::vector<Ref<Cell>> shards;
  /// How often whole values were scattered and gathered, and their bytes.
  struct MovedValues {
    int64_t scatters = 0, gathers = 0, bytes = 0;
  } moved;

 private:
  bool in_each_process() const;
  void make_shards(const std::function<void(int place, const Tensor& shard)>& make);

  ShardLayout layout_;
  // Made at the first use, and kept because each save reads them.
  mutable std::string placement_;
  mutable std::vector<std::vector<int>> copies_;
  TensorType type_;
  Tensor gathered_;
};

/// The cells of a step with their shards.
using CellShards = std::vector<std::pair<Ref<Cell>, Ref<ShardedCell>>>;

/// The whole values of cells on the first process of a job, while this object exists. The other processes send their
/// shards and keep nothing. Its constructor is a collective if cells are sharded over the job; without a job it does
/// nothing.
class GatheredCells {
 public:
  explicit GatheredCells(std::vector<std::pair<std::string, CellHandle>> cells);
  ~GatheredCells();
  GatheredCells(const GatheredCells&) = delete;

 private:
  std::vector<Ref<Cell>> gathered_;
};

}  // namespace weft::dist
