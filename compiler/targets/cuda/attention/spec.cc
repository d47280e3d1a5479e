#include "compiler/targets/cuda/attention/spec.h"

#include <algorithm>
#include <string_view>

#include "compiler/targets/cuda/attention/attention_texts.h"
#include "framework/base/error.h"
#include "ops/attention/mods/map_mod.h"

namespace weft::cuda {
namespace {

// 24 + 2 x 240 = 3 x 168: the registers per thread of three warpgroups.
constexpr int kHopperGradProducer = 24, kHopperGradConsumer = 240;

int padded(int n) { return (n + 15) / 16 * 16; }
int itemsize_of(const AttentionSpec& s) { return s.type == kFloat32 ? 4 : 2; }
int row_bytes(const AttentionSpec& s, int n) { return padded(n) * itemsize_of(s) + 16; }

const char* name_of(AttentionPart part) {
  constexpr const char* k[] = {"attention_forward",
                               "attention_merge",
                               "attention_delta",
                               "attention_key_grad",
                               "attention_query_grad",
                               "attention_table_grad",
                               "attention_finish_tables",
                               "attention_forward_hopper",
                               "attention_classify",
                               "attention_key_grad_hopper",
                               "attention_query_grad_hopper"};
  return k[static_cast<int>(part)];
}
/// The symbol in profilers, such as attention_forward_bf16_64.
std::string symbol_of(const AttentionSpec& s, AttentionPart part) {
  std::string symbol = str_cat(name_of(part), "_", to_string_view(s.type));
  if (part != AttentionPart::kFinishTables) symbol += str_cat("_", s.dim);
  if (part != AttentionPart::kFinishTables && s.value_dim != s.dim) symbol += str_cat("_", s.value_dim);
  return symbol;
}
bool is_hopper_grad(AttentionPart part) {
  return part == AttentionPart::kKeyGradHopper || part == AttentionPart::kQueryGradHopper;
}
bool is_hopper(AttentionPart part) { return part == AttentionPart::kForwardHopper || is_hopper_grad(part); }
/// The warpgroup that loads tiles precedes the warpgroups that compute.
int threads_of(const AttentionSpec& s, AttentionPart part) { return 32 * s.warps + (is_hopper(part) ? 128 : 0); }
bool is_backward(AttentionPart part) {
  return part == AttentionPart::kKeyGrad || part == AttentionPart::kQueryGrad || part == AttentionPart::kTableGrad ||
         is_hopper_grad(part);
}

/// The reads of learned tables as types: the place of their sums in a set, and the dims along which a tile's terms are
/// summed.
std::string reads_text(const ScoreGradText& grad) {
  std::string text = str_cat("constexpr int kReads = ", grad.reads.size(), ";\n"), all;
  for (size_t i = 0; i < grad.reads.size(); ++i) {
    const ModRead& r = grad.reads[i];
    const int along = r.diagonal ? 3 : r.rows && r.cols ? 4 : r.cols ? 2 : r.rows ? 1 : 0;
    text += str_cat("struct Read", i, " {\n  static constexpr int kRead = ", i, ", kAlong = ", along,
                    ";\n  int64 first(const AttentionParams& p) const { return p.score_first[", r.table,
                    "]; }\n  int64 at(const AttentionParams& p, int b, int h, int q, int kv) const { return table_at",
                    i, "(p, b, h, q, kv); }\n};\n");
    all += str_cat("  f(Read", i, "());\n");
  }
  return str_cat(text, "template <class F>\nW_WORD void for_reads(F f) {\n", all, "}\n");
}

class SpecWriter {
 public:
  explicit SpecWriter(bool bodies) : bodies_(bodies) {}
  void constant(const char* type, const char* name, const std::string& value, const char* note = "") {
    text +=
        str_cat("constexpr ", type, " ", name, " = ", value, ";", *note ? str_cat("  // ", note) : std::string(), "\n");
  }
  void flag(const char* name, bool value) { constant("bool", name, value ? "true" : "false"); }
  void number(const char* name, int value, const char* note = "") { constant("int", name, str_cat(value), note); }
  void body(const char* name) {
    if (bodies_) {
      text += attention_texts(name);
    } else {
      text += str_cat("// ... ", name, ".inc\n");
    }
  }
  std::string text;

 private:
  bool bodies_;
};

}  // namespace

int attention_shared_bytes(const AttentionSpec& s, AttentionPart part) {
  const int m = s.block_m(), n = s.block_n;
  // A row of k and one of v; if columns are cut into pieces, whole pieces.
  const auto pieces = [&](int wide) { return std::max(1, (wide + s.value_cols - 1) / s.value_cols); };
  const auto row = [&](int dim, int chunks) { return row_bytes(s, chunks * padded((dim + chunks - 1) / chunks)); };
  switch (part) {
    case AttentionPart::kForward:
      return m * row(s.dim, 1) + s.stages * n * (row(s.dim, 1) + row(s.value_cols, 1));
    case AttentionPart::kKeyGrad: {
      const int chunks = pieces(std::max(s.dim, s.value_dim));
      return (m + s.stages * n) * (row(s.dim, chunks) + row(s.value_dim, chunks)) + s.stages * n * 12;
    }
    case AttentionPart::kQueryGrad:
      return (m + s.stages * n) * (row(s.dim, pieces(s.dim)) + row(s.value_dim, 1));
    case AttentionPart::kTableGrad:
      return (m + s.stages * n) * (row(s.dim, pieces(s.dim)) + row(s.value_dim, 1)) + m * (n + 1) * 8 + 1024;
    case AttentionPart::kForwardHopper: {  // panels of 64 columns
      const int k = (s.dim + 63) / 64 * 128, v = (s.value_dim + 63) / 64 * 128;
      return 1024 + m * k + s.stages * n * (k + v);
    }
    case AttentionPart::kKeyGradHopper: {
      const int row = (s.dim + 63) / 64 * 128 + (s.value_dim + 63) / 64 * 128;
      return 1024 + (s.stages * n * 12 + 1023) / 1024 * 1024 + (m + s.stages * n) * row;
    }
    case AttentionPart::kQueryGradHopper:
      return 1024 + s.stages * n * ((s.dim + 63) / 64 * 128 + (s.value_dim + 63) / 64 * 128);
    case AttentionPart::kClassify:
      return 4 * s.warps;
    default:
      return 0;
  }
}

std::string internal::attention_text(const AttentionSpec& s, AttentionPart part, bool bodies) {
  SpecWriter w(bodies);
  w.body("params");
  w.text += "\n";
  w.number("kType", s.type == kFloat32 ? 0 : s.type == kBFloat16 ? 1 : 2, to_string_view(s.type).data());
  w.flag("kTf32", s.tf32);
  w.number("kHeadDim", s.dim), w.number("kValueDim", s.value_dim);
  w.number("kValueCols", s.value_cols);
  w.number("kThreads", threads_of(s, part)), w.number("kRowTiles", s.row_tiles);
  w.number("kBlockM", s.block_m()), w.number("kBlockN", s.block_n), w.number("kStages", s.stages);
  if (is_hopper_grad(part)) {
    // 128 threads with fewer and 256 with more registers need no more than the kernel has.
    w.number("kProducerRegisters", kHopperGradProducer), w.number("kConsumerRegisters", kHopperGradConsumer);
  }
  w.flag("kKeepRows", s.keep_rows), w.flag("kAligned", s.aligned);
  w.flag("kBlocks", s.blocks), w.flag("kClasses", s.classes), w.flag("kMasked", s.mask != nullptr),
      w.flag("kScored", s.score != nullptr);
  w.flag("kScaleFirst", s.scale_first);
  w.flag("kDropout", s.dropout), w.flag("kPlaces", s.places), w.flag("kPaged", s.paged);
  w.flag("kWideOut", s.wide), w.flag("kSplit", s.split), w.flag("kPackHeads", s.pack_heads);
  ScoreGradText grad;
  if (s.score && is_backward(part)) grad = score_grad_text(*s.score, s.score_tables, s.fixed_tables);
  w.text += "\n";
  w.body("tile");
  w.text += "\n";
  if (s.score && part != AttentionPart::kMerge) w.text += score_mod_text(*s.score, s.score_tables);
  w.text += grad.text;
  if (s.mask && part != AttentionPart::kMerge) w.text += mask_mod_text(*s.mask, s.mask_tables);
  w.text += "\n";
  w.body("softmax");
  switch (part) {
    case AttentionPart::kForward:
      w.body("finish");
      w.body("forward");
      break;
    case AttentionPart::kForwardHopper:
      w.body("finish");
      w.body("hopper");
      break;
    case AttentionPart::kClassify:
      w.body("classify");
      break;
    case AttentionPart::kMerge:
      w.body("merge");
      break;
    case AttentionPart::kKeyGrad:
      w.body("backward");
      w.body("query_walk");
      w.body("key_grad");
      break;
    case AttentionPart::kQueryGrad:
      w.body("backward");
      w.body("query_grad");
      break;
    case AttentionPart::kKeyGradHopper:
      w.body("backward");
      w.body("query_walk");
      w.body("hopper_grad");
      w.body("hopper_key_grad");
      break;
    case AttentionPart::kQueryGradHopper:
      w.body("backward");
      w.body("hopper_grad");
      w.body("hopper_query_grad");
      break;
    case AttentionPart::kTableGrad:
      w.body("backward");
      w.body("query_grad");
      w.text += "\n" + reads_text(grad) + "\n";
      w.body("table_grad");
      break;
    case AttentionPart::kFinishTables:
      w.body("finish_tables");
      break;
    default:
      w.body("backward");
  }
  w.text +=
      str_cat("\nextern \"C\" __global__ void __launch_bounds__(", threads_of(s, part), ", 1) ", symbol_of(s, part),
              "(const __grid_constant__ ", is_hopper(part) ? "AttentionTmaParams" : "AttentionParams", " p) {\n  ",
              name_of(part), "_block(p);\n}\n");
  return std::move(w.text);
}

Kernel attention_kernel(const AttentionSpec& s, AttentionPart part) {
  Kernel k;
  k.symbol = symbol_of(s, part);
  k.text = internal::attention_text(s, part, true);
  k.threads = threads_of(s, part);
  // A user's mod may be of any size. compile_test requires that ours do not spill.
  if (s.score || s.mask || s.dropout) k.max_spill_bytes = 1 << 16;
  if (is_hopper(part)) k.least_sm = 90, k.only_sm90a = true, k.max_registers = k.least_registers = 168;
  k.shared_bytes = attention_shared_bytes(s, part);
  return k;
}

}  // namespace weft::cuda
