// score_mods as generated kernels: a mod is written over a tile of scores and lowered once, extents and line lengths
// being arguments, so that tiles of any size, and calls of any length, run the same code.
#include "compiler/targets/cpu/mods/tile_mod.h"

#include <algorithm>
#include <list>
#include <optional>

#include "compiler/loop_ir/fused.h"
#include "compiler/loop_ir/interpret.h"
#include "compiler/passes/lower.h"
#include "compiler/passes/pass.h"
#include "compiler/passes/pipeline.h"
#include "compiler/targets/cpu/mods/narrow_indices.h"
#include "compiler/targets/cpu/target.h"
#include "framework/autodiff/grad.h"
#include "framework/base/mutex.h"
#include "framework/base/switches.h"
#include "framework/dispatch/capture.h"
#include "framework/ir/rewrite.h"
#include "ops/attention/mods/map_mod.h"
#include "ops/attention/mods/score_tiles.h"
#include "ops/core/core.h"

namespace weft::internal {
namespace {

using kernels::ScoreTile;

// The tile for which kernels are lowered. No extent is 1 and lines have gaps, so no axis is removed or merged.
constexpr int64_t kRows = 32, kCols = 96, kLine = 1009;
// The operands of a tile's graph before the tables: q k^T, gradients, b, h, q0, kv0, the scale.
constexpr int kTables = 7;

/// Some outputs of a tile's graph, as one kernel.
struct TileKernel {
  std::shared_ptr<FusedKernel> kernel;  // null: every output is an unchanged operand
  std::vector<int32_t> inputs;          // operand of the kernel -> operand of the tile's graph
  std::vector<int32_t> source;          // output -> result of the kernel, or -1 - operand of the tile's graph
  bool overwrites = false;              // result 0 may overwrite the scores (forward) or the gradients
};

/// How the gradient of one table read reaches the table.
struct ReadGradient {
  int table = 0;
  TileKernel at;                  // positions (i64)
  bool rows = true, cols = true;  // whether the position differs between rows, between columns
};

/// The kernels of a mod, for tables of these types. `fixed` adds the kernels of backward.
struct ModProgram {
  Ref<Graph> mod;
  std::vector<TensorType> tables;
  std::optional<int64_t> fixed;  // as of MakeTileMod
  TileKernel forward, gradient;  // gradient: of the score, then of each read
  std::vector<ReadGradient> reads;
  std::string interpreted;  // why it cannot be a kernel
};

/// The graph of these outputs only, and the inputs that it kept.
Ref<Graph> part_of(const Graph& g, std::span<const Value> outputs, std::vector<int32_t>* inputs) {
  std::vector<char> used(static_cast<size_t>(g.size()), 0);
  for (Value v : outputs) used[static_cast<size_t>(v.node)] = 1;
  for (int32_t id = g.size() - 1; id >= 0; --id)
    if (used[static_cast<size_t>(id)])
      for (Value v : g.node(id).inputs) used[static_cast<size_t>(v.node)] = 1;
  Ref<Graph> part = make_ref<Graph>();
  NodeCopier now(g, *part);
  for (size_t i = 0; i < g.inputs.size(); ++i) {
    if (!used[static_cast<size_t>(g.inputs[i].node)]) continue;
    now.map(g.inputs[i], part->add_input(g.type(g.inputs[i])));
    inputs->push_back(static_cast<int32_t>(i));
  }
  for (int32_t id = 0; id < g.size(); ++id) {
    if (!used[static_cast<size_t>(id)] || is_argument(g.node(id))) continue;
    if (g.node(id).op == &barrier_op) {  // its only purpose was to keep gradients apart
      now.map({id, 0}, now(g.node(id).inputs[0]));
    } else {
      now.copy(id);
    }
  }
  for (Value v : outputs) part->outputs.push_back(now(v));
  return part;
}

/// Throws CannotLower if they are not one kernel. `in_place`: the operand whose memory result 0 gets.
TileKernel lowered(const Graph& g, std::span<const Value> outputs, int32_t in_place = -1) {
  TileKernel part;
  std::vector<Value> computed;
  for (Value v : outputs) {
    const auto input = std::find(g.inputs.begin(), g.inputs.end(), v);
    part.source.push_back(input != g.inputs.end() ? -1 - static_cast<int32_t>(input - g.inputs.begin())
                                                  : static_cast<int32_t>(computed.size()));
    if (input == g.inputs.end()) computed.push_back(v);
  }
  if (computed.empty()) return part;
  const Ref<Graph> body = part_of(g, computed, &part.inputs);
  if (std::string why = loop_ir::cannot_lower(*body); !why.empty()) throw CannotLower{body, why};
  auto view = [](const TensorType& t) {
    return StridedView{nullptr, t.dtype, t.shape,
                       t.shape == Shape{kRows, kCols} ? Shape{kLine, 1} : contiguous_strides(t.shape)};
  };
  std::vector<StridedView> in, out;
  for (Value v : body->inputs) in.push_back(view(body->type(v)));
  for (Value v : body->outputs) out.push_back(view(body->type(v)));
  part.kernel = make_fused_kernel(body, in, out);
  for (auto [i, o] : part.kernel->lowered().overwrites)
    part.overwrites |= o == 0 && part.inputs[static_cast<size_t>(i)] == in_place;
  return part;
}

/// The arguments of map_mod, from the operands of a tile's graph.
std::vector<Tensor> mapped(const ModProgram& p, std::span<const Tensor> in, const Tensor& score) {
  const TensorOptions i64{.dtype = kInt64};
  std::vector<Tensor> args{score, reshape(in[2], {1, 1}), reshape(in[3], {1, 1}),
                           reshape(arange(kRows, i64), {kRows, 1}) + in[4],
                           reshape(arange(kCols, i64), {1, kCols}) + in[5]};
  for (size_t i = 0; i < p.tables.size(); ++i) args.push_back(reshape(in[kTables + i], p.tables[i].shape));
  return args;
}

std::vector<const FusedKernel*> kernels_of(const ModProgram& p) {
  std::vector<const FusedKernel*> all{p.forward.kernel.get(), p.gradient.kernel.get()};
  for (const ReadGradient& r : p.reads) all.push_back(r.at.kernel.get());
  all.erase(std::remove(all.begin(), all.end(), nullptr), all.end());
  return all;
}

void make_kernels(ModProgram* p) {
  const Graph& mod = *p->mod;
  const TensorType tile{kFloat32, Device::cpu(), {kRows, kCols}}, index{kInt64, Device::cpu(), {}};
  std::vector<TensorType> types{tile, tile, index, index, index, index, {kFloat32, Device::cpu(), {}}};
  // Tables are flattened, so a position in one is a single number.
  for (const TensorType& t : p->tables) types.push_back({t.dtype, t.device, {t.shape.numel()}});
  std::vector<MaskRange> ranges;
  for (const TensorType& t : types)
    ranges.push_back(t == index ? MaskRange::between(0, kGeneratedPositions) : MaskRange::any(t.dtype));
  auto trace = [&](const TensorFn& fn) {
    return narrow_indices(
        *lower(*run_passes(capture_body(fn, types).graph, passes_of(PassStage::kJoint), {.known = all_passes()})),
        ranges);
  };

  const Ref<Graph> forward = trace([&](std::span<const Tensor> in) {
    return std::vector<Tensor>{broadcast_to(map_mod(mod, 5, mapped(*p, in, in[0] * in[6])), tile.shape)};
  });
  p->forward = lowered(*forward, forward->outputs, 0);
  if (!p->fixed) {
    load_kernels(kernels_of(*p), {});
    return;
  }

  TableReads reads{.spread = tile.shape, .fixed = *p->fixed};
  const Ref<Graph> backward = trace([&](std::span<const Tensor> in) {
    reads.all.clear();
    const Tensor score = own_tape(in[0] * in[6]);
    const Tensor out = broadcast_to(map_mod(mod, 5, mapped(*p, in, score), &reads), tile.shape);
    std::vector<Tensor> wrt{score};
    for (const TableRead& r : reads.all) wrt.push_back(r.value);
    std::vector<Tensor> result = own_gradients(out, wrt, in[1]);
    for (const TableRead& r : reads.all) result.push_back(r.at);
    return result;
  });
  const std::span<const Value> outputs = backward->outputs;
  const size_t n = reads.all.size();
  p->gradient = lowered(*backward, outputs.first(1 + n), 1);
  for (size_t i = 0; i < n; ++i) {
    const Value at = outputs[1 + n + i];
    const Shape& s = backward->type(at).shape;
    p->reads.push_back({.table = reads.all[i].input - 5,
                        .at = lowered(*backward, {&at, 1}),
                        .rows = s.size() == 2 && s[0] > 1,
                        .cols = s.size() == 2 && s[1] > 1});
  }
  load_kernels(kernels_of(*p), {});
}

/// Runs a part on one tile. `operands`: the addresses of the tile graph's operands. Results go to `out`.
void launch(const TileKernel& part, const ScoreTile& t, std::span<void* const> operands, std::span<void* const> out) {
  const FusedKernel& k = *part.kernel;
  const loop_ir::Lowered& low = k.lowered();
  const size_t axes = static_cast<size_t>(low.kernel.axes);
  SmallVec<void*, 16> ptr;
  SmallVec<int64_t, 64> stride;
  SmallVec<int64_t, 16> index_stride;
  SmallVec<int64_t, 4> extent;
  for (size_t i = 0; i < low.bound.size(); ++i) {
    const loop_ir::BoundOperand& b = low.bound[i];
    const size_t index = static_cast<size_t>(b.index);
    const DType type = low.kernel.operands[i].dtype;
    ptr.push_back(static_cast<char*>(b.output ? out[index] : operands[static_cast<size_t>(part.inputs[index])]) +
                  b.offset * itemsize(type));
    index_stride.push_back(b.index_stride);
    for (size_t a = 0; a < axes; ++a) stride.push_back(b.strides[a] == kLine ? t.ld : b.strides[a]);
  }
  for (int64_t e : low.extents) extent.push_back(e == kRows ? t.rows : e == kCols ? t.cols : e);
  int32_t bad = 0;  // never set: map_mod keeps indices inside their tables
  const loop_ir::Args args{ptr.data(), stride.data(),       extent.data(), low.params.data(), nullptr, nullptr,
                           nullptr,    index_stride.data(), &bad};
  const int64_t lanes = extent[extent.size() - 1];
  int64_t points = 1;
  for (int a = 0; a < low.kernel.outer_axes(); ++a) points *= extent[a];
  if (k.fn()) {
    k.fn()(&args, 0, points, 1, 0, lanes);
  } else {
    loop_ir::interpret(low.kernel, args, 0, points, 1, 0, lanes);
  }
}

/// Scratch memory of this thread.
float* scratch(int64_t floats) {
  thread_local std::vector<float> memory;
  if (static_cast<int64_t>(memory.size()) < floats) memory.resize(static_cast<size_t>(floats));
  return memory.data();
}

class Generated final : public TileMod {
 public:
  Generated(std::shared_ptr<const ModProgram> p, std::span<const StridedView> tables) : p_(std::move(p)) {
    for (const StridedView& t : tables) tables_.push_back(t.data);
  }

  void forward(const ScoreTile& t, float* scores) const override {
    ModOperands o(*this, t, scores, nullptr);
    float* to = p_->forward.overwrites ? scores : scratch(t.rows * t.ld);
    launch(p_->forward, t, o.all, {{to}});
    if (to != scores) copy(t, to, scores);
  }

  void backward(const ScoreTile& t, const float* raw, float* grad, float* const* table_grad) const override {
    ModOperands o(*this, t, const_cast<float*>(raw), grad);
    const TileKernel& g = p_->gradient;
    const int64_t tile = t.rows * t.ld;
    float* memory = scratch((static_cast<int64_t>(g.source.size()) + 2) * tile);
    SmallVec<void*, 8> out;
    for (int32_t s : g.source)
      if (s >= 0) {
        const bool here = s == 0 && g.source[0] == 0 && g.overwrites && p_->reads.empty();
        out.push_back(here ? grad : memory + s * tile);
      }
    if (g.kernel) launch(g, t, o.all, out);
    auto result = [&](size_t i) {
      const int32_t s = g.source[i];
      return static_cast<const float*>(s >= 0 ? out[s] : o.all[static_cast<size_t>(-1 - s)]);
    };
    int64_t* at = reinterpret_cast<int64_t*>(memory + static_cast<int64_t>(g.source.size()) * tile);
    for (size_t i = 0; i < p_->reads.size(); ++i) {
      const ReadGradient& r = p_->reads[i];
      float* sums = table_grad[r.table];
      if (!sums) continue;
      launch(r.at, t, o.all, {{at}});
      add(t, r, at, result(i + 1), sums);
    }
    if (result(0) != grad) copy(t, result(0), grad);
  }

 private:
  struct ModOperands {
    int64_t b, h, q, kv;
    float scale;
    SmallVec<void*, 12> all;
    ModOperands(const Generated& g, const ScoreTile& t, void* raw, void* grad)
        : b(t.batch), h(t.head), q(t.q0), kv(t.kv0), scale(t.scale) {
      for (void* p : {raw, grad, static_cast<void*>(&b), static_cast<void*>(&h), static_cast<void*>(&q),
                      static_cast<void*>(&kv), static_cast<void*>(&scale)})
        all.push_back(p);
      for (void* p : g.tables_) all.push_back(p);
    }
    ModOperands(const ModOperands&) = delete;
  };

  static void copy(const ScoreTile& t, const float* from, float* to) {
    for (int64_t i = 0; i < t.rows; ++i) std::copy_n(from + i * t.ld, t.cols, to + i * t.ld);
  }

  /// sums[at] += the gradient at each position, row by row.
  static void add(const ScoreTile& t, const ReadGradient& r, const int64_t* at, const float* g, float* sums) {
    // Positions that vary along both dims use the tile's line length; others are contiguous.
    const int64_t line = r.rows && r.cols ? t.ld : 1;
    if (r.cols) {
      for (int64_t i = 0; i < t.rows; ++i, g += t.ld)
        for (int64_t j = 0; j < t.cols; ++j) sums[at[(r.rows ? i * line : 0) + j]] += g[j];
      return;
    }
    float all = 0;
    for (int64_t i = 0; i < t.rows; ++i, g += t.ld) {
      // Sixteen partial sums, then their sum.
      float part[16] = {}, sum = 0;
      for (int64_t j = 0; j < t.cols; ++j) part[j % 16] += g[j];
      for (float x : part) sum += x;
      if (r.rows) {
        sums[at[i]] += sum;
      } else {
        all += sum;
      }
    }
    if (!r.rows) sums[at[0]] += all;
  }

  std::shared_ptr<const ModProgram> p_;
  std::vector<void*> tables_;
};

/// The programs made so far, the most recently used first.
struct Programs {
  static constexpr size_t kMost = 128;
  Mutex mutex;
  std::list<std::shared_ptr<ModProgram>> all WEFT_GUARDED_BY(mutex);
};

std::shared_ptr<ModProgram> program_of(const Ref<Graph>& mod, std::span<const TensorType> tables,
                                       std::optional<int64_t> fixed) {
  static Programs* programs = new Programs;
  auto fits = [&](const ModProgram& p) {
    if (p.fixed != fixed || p.tables.size() != tables.size()) return false;
    for (size_t i = 0; i < tables.size(); ++i)
      if (p.tables[i].dtype != tables[i].dtype || p.tables[i].shape != tables[i].shape) return false;
    return p.mod == mod || structurally_equal(*p.mod, *mod);
  };
  MutexLock lock(programs->mutex);
  auto& all = programs->all;
  auto at = std::find_if(all.begin(), all.end(), [&](const auto& p) { return fits(*p); });
  if (at != all.end()) {
    all.splice(all.begin(), all, at);
  } else {
    auto made = std::make_shared<ModProgram>();
    made->mod = mod;
    made->fixed = fixed;
    for (const TensorType& t : tables) made->tables.push_back({t.dtype, Device::cpu(), t.shape});
    try {
      make_kernels(made.get());
      if (const std::string folder = switch_value("WEFT_DUMP"); !folder.empty())
        for (const FusedKernel* k : kernels_of(*made)) dump_kernel(*k, folder);
    } catch (const CannotLower& e) {
      made->interpreted = e.why;
    }
    all.push_front(made);
    if (all.size() > Programs::kMost) all.pop_back();
  }
  return all.front();
}

std::unique_ptr<TileMod> generated_tile_mod(const Ref<Graph>& mod, std::span<const StridedView> tables,
                                            std::optional<int64_t> fixed) {
  std::vector<TensorType> types;
  for (const StridedView& t : tables) types.push_back({t.dtype, Device::cpu(), t.shape});
  std::shared_ptr<ModProgram> p = program_of(mod, types, fixed);
  if (!p->interpreted.empty()) return nullptr;
  return std::make_unique<Generated>(std::move(p), tables);
}

std::string describe(const Ref<Graph>& mod, std::span<const TensorType> tables, std::optional<int64_t> fixed) {
  const std::shared_ptr<ModProgram> p = program_of(mod, tables, fixed);
  if (!p->interpreted.empty()) return str_cat("interpreted: ", p->interpreted);
  auto name = [](const TileKernel& part) {
    return !part.kernel ? std::string("no kernel")
                        : str_cat(part.kernel->name(), part.kernel->fn() ? "" : " (interpreted)");
  };
  std::string s = str_cat("forward ", name(p->forward));
  if (fixed) s += str_cat(", backward ", name(p->gradient));
  if (!p->reads.empty())
    s += str_cat(", ", p->reads.size(), p->reads.size() == 1 ? " read" : " reads", " of learned tables");
  if (const std::string folder = switch_value("WEFT_DUMP"); !folder.empty())
    for (const FusedKernel* k : kernels_of(*p)) {
      dump_kernel(*k, folder);
      s += str_cat("\n    source: ", folder, "/", dump_name(*k), ".cc");
    }
  return s;
}

}  // namespace

void install_generated_mods() {
  make_tile_mod = &generated_tile_mod;
  describe_tile_mod = &describe;
}

}  // namespace weft::internal
