// Runs a score_mod on the tiles of the attention kernels: forward, and backward with the gradients of its tables.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "framework/ir/graph.h"
#include "framework/tensor/view.h"
#include "ops/attention/record.h"
#include "ops/kernels/attention/attention.h"

namespace weft::internal {

/// Runs one mod on one tile at a time; many tasks may call it at once.
class TileMod {
 public:
  virtual ~TileMod() = default;
  virtual void forward(const kernels::ScoreTile& t, float* scores) const = 0;
  /// Replaces grad by the gradient of `raw`, and adds to table_grad[i], of table i's numel (null: not wanted, as for
  /// the tables that MakeTileMod got as fixed).
  virtual void backward(const kernels::ScoreTile& t, const float* raw, float* grad, float* const* table_grad) const = 0;
};

/// A TileMod that interprets the mod op by op. The tables (contiguous) must outlive it.
std::unique_ptr<TileMod> interpreted_tile_mod(const Ref<Graph>& mod, std::span<const StridedView> tables);
/// Makes a TileMod without the interpreter if possible, otherwise returns null (set by compiler/targets/cpu/mods).
/// `fixed`: the tables whose gradients backward() does not compute, as bits; without a value there is no backward().
using MakeTileMod = std::unique_ptr<TileMod> (*)(const Ref<Graph>& mod, std::span<const StridedView> tables,
                                                 std::optional<int64_t> fixed);
extern MakeTileMod make_tile_mod;
/// A generated TileMod uses 32 bits for batch entries, heads, queries and keys: all positions are below this.
inline constexpr int64_t kGeneratedPositions = int64_t{1} << 30;
/// Describes the implementation of a mod over tables of these types: a line for a report, and a line for each file that
/// WEFT_DUMP requests. Set with make_tile_mod.
using DescribeTileMod = std::string (*)(const Ref<Graph>& mod, std::span<const TensorType> tables,
                                        std::optional<int64_t> fixed);
extern DescribeTileMod describe_tile_mod;

/// The hook of a mod for one call of attention or attention_backward, with the gradients of its tables. Each group of
/// tasks (kernels::Attention::score_groups) adds to its own sums, which are then added in order.
class ScoreTiles {
 public:
  /// positions: the largest number of batch entries, heads, queries or keys of the call. backward: the operands of
  /// attention_backward; null: of attention.
  ScoreTiles(const Ref<Graph>& mod, std::span<const StridedView> tables, int64_t positions,
             const AttentionOperands* backward = nullptr);
  ~ScoreTiles();
  const kernels::ScoreHook& hook() const { return hook_; }
  /// Sets the memory of each table's sums (by group, then the table's numel). Call it before attention_backward.
  void start_gradients(int64_t groups, float* sums);
  /// Writes the sum over groups of table i. Call it after attention_backward.
  void finish_gradient(int table, const StridedView& out) const;
  static int64_t gradient_bytes(const AttentionOperands& at, std::span<const StridedView> tables, int64_t groups);

 private:
  std::unique_ptr<TileMod> mod_;
  std::vector<int64_t> offsets_;  // offset of each table's sums inside a group's; -1: it has none
  int64_t per_group_ = 0, groups_ = 0;
  float* sums_ = nullptr;
  kernels::ScoreHook hook_;
};

}  // namespace weft::internal
