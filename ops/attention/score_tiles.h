// A score_mod on the tiles that the attention kernels hand over: forward,
// and backward with the gradients of its tables.
#pragma once
#include <memory>
#include <vector>

#include "framework/ir/graph.h"
#include "framework/tensor/view.h"
#include "ops/kernels/attention.h"

namespace weft::internal {

/// Runs one mod on one tile at a time; may be called by many tasks at once.
class TileMod {
 public:
  virtual ~TileMod() = default;
  virtual void forward(const kernels::ScoreTile& t, float* scores) const = 0;
  /// grad becomes that of `raw`; table_grad[i] (null: not wanted), of table i's numel, is added to.
  virtual void backward(const kernels::ScoreTile& t, const float* raw, float* grad, float* const* table_grad) const = 0;
};

/// By the interpreter, op by op. The tables (contiguous) must outlive it.
std::unique_ptr<TileMod> interpreted_tile_mod(const Ref<Graph>& mod, std::span<const StridedView> tables);
/// Makes TileMods instead of the interpreter where it can, else gives null (compiler/exec sets it).
using MakeTileMod = std::unique_ptr<TileMod> (*)(const Ref<Graph>& mod, std::span<const StridedView> tables);
extern MakeTileMod make_tile_mod;
/// What it makes counts batch entries, heads, queries and keys in 32 bits: all positions are below this.
inline constexpr int64_t kGeneratedPositions = int64_t{1} << 30;
/// What runs for a mod over tables of these types, a line for a report and one for each file that WEFT_DUMP asks for;
/// set with make_tile_mod.
using DescribeTileMod = std::string (*)(const Ref<Graph>& mod, std::span<const TensorType> tables);
extern DescribeTileMod describe_tile_mod;

/// The hook of a mod for one call of attention or attention_backward, with the gradients of its tables: each group of
/// tasks (kernels::Attention::score_groups) adds to sums of its own, which are then added up in order.
class ScoreTiles {
 public:
  /// positions: the most batch entries, heads, queries or keys of the call.
  ScoreTiles(const Ref<Graph>& mod, std::span<const StridedView> tables, int64_t positions);
  ~ScoreTiles();
  const kernels::ScoreHook& hook() const { return hook_; }
  /// Before attention_backward: where each table's sums go (by group, then the table's numel).
  void start_gradients(int64_t groups, float* sums);
  /// After it: the sum over groups of table i.
  void finish_gradient(int table, const StridedView& out) const;
  static int64_t gradient_bytes(std::span<const StridedView> tables, int64_t groups);

 private:
  std::unique_ptr<TileMod> mod_;
  std::vector<int64_t> offsets_;  // of each table's sums inside a group's; -1: has none
  int64_t per_group_ = 0, groups_ = 0;
  float* sums_ = nullptr;
  kernels::ScoreHook hook_;
};

}  // namespace weft::internal
