#include "compiler/targets/cuda/attention/mod_text.h"

#include "compiler/passes/pass.h"
#include "compiler/passes/pipeline.h"
#include "compiler/targets/cuda/attention/scalar_print.h"
#include "framework/autodiff/grad.h"
#include "framework/base/error.h"
#include "framework/dispatch/capture.h"
#include "ops/attention/mods/map_mod.h"
#include "ops/attention/mods/score_tiles.h"
#include "ops/core/core.h"

namespace weft::cuda {
namespace {

using internal::MaskRange;

constexpr const char* kIndices = "int b, int h, int q, int kv";

TensorType scalar(DType t) { return {t, Device::cpu(), {}}; }

/// How many extents of a table are parameters of the launch: all of them if params.inc has space for them, otherwise
/// none.
size_t extents_of(const TensorType& t) {
  bool small = t.shape.size() <= 4;
  for (int64_t n : t.shape) small &= n <= internal::kGeneratedPositions;
  return small ? t.shape.size() : 0;
}

/// Inputs: `first`, the tables, their extents.
Ref<Graph> traced(const TensorFn& fn, std::span<const TensorType> first, std::span<const TensorType> tables) {
  std::vector<TensorType> types(first.begin(), first.end());
  // Tables are flattened, so a position in one is a single number.
  for (const TensorType& t : tables) types.push_back({t.dtype, Device::cpu(), {t.shape.numel()}});
  for (const TensorType& t : tables) types.insert(types.end(), extents_of(t), scalar(kInt64));
  return run_passes(capture_body(fn, types).graph, passes_of(PassStage::kJoint), {.known = all_passes()});
}

std::vector<ScalarInput> inputs(bool score, bool grad, const char* of, std::span<const TensorType> tables) {
  std::vector<ScalarInput> in;
  if (score) in.push_back({.text = "score"});
  if (grad) in.push_back({.text = "grad"});
  const MaskRange position = MaskRange::between(0, internal::kGeneratedPositions);
  in.push_back({.text = "b", .range = position, .deps = kOnBatch});
  in.push_back({.text = "h", .range = position, .deps = kOnHead});
  in.push_back({.text = "q", .range = position, .deps = kOnQuery});
  in.push_back({.text = "kv", .range = position, .deps = kOnKey});
  for (size_t i = 0; i < tables.size(); ++i)
    in.push_back({.text = str_cat("p.", of, "_table[", i, "]"), .table = true, .range = MaskRange::any(kInt64)});
  for (size_t i = 0; i < tables.size(); ++i)
    for (size_t d = 0; d < extents_of(tables[i]); ++d)
      in.push_back({.text = str_cat("p.", of, "_extent[", i, "][", d, "]"), .range = position});
  return in;
}

/// The arguments of map_mod after the score: the indices, and the tables in their shapes. Returns the extents of all
/// arguments.
internal::TableExtents add_operands(std::vector<Tensor>* to, std::span<const Tensor> in,
                                    std::span<const TensorType> tables) {
  for (size_t i = 0; i < 4; ++i) to->push_back(in[i]);
  internal::TableExtents extents(to->size());
  in = in.subspan(4);
  for (size_t i = 0; i < tables.size(); ++i) to->push_back(reshape(in[i], tables[i].shape));
  in = in.subspan(tables.size());
  for (const TensorType& t : tables) {
    const size_t n = extents_of(t);
    extents.emplace_back(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(n));
    in = in.subspan(n);
  }
  return extents;
}

}  // namespace

std::string score_mod_text(const Graph& mod, std::span<const TensorType> tables) {
  const TensorType first[] = {scalar(kFloat32), scalar(kInt64), scalar(kInt64), scalar(kInt64), scalar(kInt64)};
  const Ref<Graph> g = traced(
      [&](std::span<const Tensor> in) {
        std::vector<Tensor> args{in[0]};
        const internal::TableExtents extents = add_operands(&args, in.subspan(1), tables);
        return std::vector<Tensor>{internal::map_mod(mod, 5, args, nullptr, nullptr, &extents)};
      },
      first, tables);
  ScalarPrinter printer(*g, inputs(true, false, "score", tables), 0, 1, "score_mod");
  const std::string result = printer.output(0);
  return str_cat("/// The modified score.\nW_WORD float score_mod(const AttentionParams& p, float score, ", kIndices,
                 ") {\n", printer.statements(), "  return ", result, ";\n}\n");
}

std::string mask_mod_text(const Graph& mask, std::span<const TensorType> tables, MaskDeps* deps) {
  const TensorType first[] = {scalar(kInt64), scalar(kInt64), scalar(kInt64), scalar(kInt64)};
  const Ref<Graph> g = traced(
      [&](std::span<const Tensor> in) {
        std::vector<Tensor> args;
        const internal::TableExtents extents = add_operands(&args, in, tables);
        return std::vector<Tensor>{internal::map_mod(mask, 4, args, nullptr, nullptr, &extents)};
      },
      first, tables);
  ScalarPrinter printer(*g, inputs(false, false, "mask", tables), 0, 1, "mask_mod");
  const std::string result = printer.output(0);
  if (deps) *deps = {(printer.deps(0) & kOnBatch) != 0, (printer.deps(0) & kOnHead) != 0};
  return str_cat("/// Whether the query sees the key.\nW_WORD bool mask_mod(const AttentionParams& p, ", kIndices,
                 ") {\n", printer.statements(), "  return ", result, ";\n}\n");
}

ScoreGradText score_grad_text(const Graph& mod, std::span<const TensorType> tables, int64_t fixed) {
  const TensorType first[] = {scalar(kFloat32), scalar(kFloat32), scalar(kInt64),
                              scalar(kInt64),   scalar(kInt64),   scalar(kInt64)};
  internal::TableReads reads{.spread = {}, .fixed = fixed};
  const Ref<Graph> g = traced(
      [&](std::span<const Tensor> in) {
        reads.all.clear();
        const Tensor score = internal::own_tape(in[0]);
        std::vector<Tensor> args{score}, wrt{score};
        const internal::TableExtents extents = add_operands(&args, in.subspan(2), tables);
        // A mod that reads rows of tables may give shape [1].
        const Tensor out = reshape(internal::map_mod(mod, 5, args, &reads, nullptr, &extents), {});
        for (const internal::TableRead& r : reads.all) wrt.push_back(r.value);
        std::vector<Tensor> result = internal::own_gradients(out, wrt, in[1]);
        for (const internal::TableRead& r : reads.all) result.push_back(r.at);
        return result;
      },
      first, tables);
  const std::vector<ScalarInput> in = inputs(true, true, "score", tables);
  const int n = static_cast<int>(reads.all.size());
  ScoreGradText r;
  {
    ScalarPrinter printer(*g, in, 0, 1, "score_mod");
    const std::string result = printer.output(0);
    r.text = str_cat(
        "/// The gradient of the score, from the gradient of the modified score.\nW_WORD float score_mod_grad(const "
        "AttentionParams& p, float score, float grad, ",
        kIndices, ") {\n", printer.statements(), "  return ", result, ";\n}\n");
  }
  if (n == 0) return r;
  {
    ScalarPrinter printer(*g, in, 1, 1 + n, "score_mod");
    std::string all;
    for (int i = 0; i < n; ++i) {
      const std::string x = printer.output(1 + i);
      all += str_cat("  to[", i, "] = ", x, ";\n");
    }
    r.text += str_cat(
        "/// The gradient at each place where a learned table was read.\nW_WORD void table_grads(const "
        "AttentionParams& p, float score, float grad, ",
        kIndices, ", float (&to)[", n, "]) {\n", printer.statements(), all, "}\n");
  }
  for (int i = 0; i < n; ++i) {
    ScalarPrinter printer(*g, in, 1 + n + i, 2 + n + i, "score_mod");
    const std::string at = printer.output(1 + n + i);
    const uint8_t deps = printer.deps(1 + n + i);
    r.reads.push_back({.table = reads.all[static_cast<size_t>(i)].input - 5,
                       .rows = (deps & (kOnQuery | kOnDistance)) != 0,
                       .cols = (deps & (kOnKey | kOnDistance)) != 0,
                       .diagonal = (deps & (kOnQuery | kOnKey | kOnDistance)) == kOnDistance});
    r.text += str_cat("W_WORD int64 table_at", i, "(const AttentionParams& p, ", kIndices, ") {\n",
                      printer.statements(), "  return ", at, ";\n}\n");
  }
  return r;
}

}  // namespace weft::cuda
