#include "compiler/targets/cuda/gemm/gemm.h"

#include <algorithm>

#include "compiler/targets/cuda/gemm/gemm_texts.h"
#include "framework/base/error.h"

namespace weft::cuda {
namespace {

constexpr int64_t kMostGroups = 4096;

// Extents of tiles, and numbers derived from them.
struct Tiling {
  bool mma = false, wgmma = false;  // for 16-bit floats
  int bm = 128, bn = 128, bk = 32, threads = 256;
  int warps_m = 2, stages = 3;  // for mma
  int micro = 8;                // for fma
  int min_blocks = 2;
  int shared = 0, starts_at = 0;
};

const char* text_type(DType t) {
  switch (t) {
    case kFloat64:
      return "f64";
    case kFloat32:
      return "f32";
    case kBFloat16:
      return "bf16";
    case kFloat16:
      return "f16";
    case kInt64:
      return "int64";
    case kInt32:
      return "int32_t";
    default:
      WEFT_BUG_IF(true, "cuda: no product kernel for ", t);
  }
}

std::string replaced(std::string text, const std::string& word, const std::string& by) {
  for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += by.size())
    text.replace(at, word.size(), by);
  return text;
}

Tiling tiling_of(const GroupedGemm& g, bool vectors, int sm, bool hooked) {
  Tiling t;
  t.mma = is_16bit(g.in);
  // Groups of few rows leave most of a tall tile empty.
  const int64_t rows = g.mode == GroupedGemm::GroupedBy::rows ? g.m / std::max<int64_t>(g.groups, 1) : g.m;
  t.wgmma = t.mma && sm == 90 && vectors && rows > 64;
  if (t.wgmma) {
    // Wide tiles read fewer bytes per product, if there are enough of them for 132 multiprocessors. The values of a
    // hook need registers besides the sums.
    const int64_t wide = (g.mode == GroupedGemm::GroupedBy::rows ? (g.m + 127) / 128 : g.groups * ((g.m + 127) / 128)) *
                         ((g.n + 255) / 256);
    t.bn = g.n > 128 && !hooked && wide >= 132 ? 256 : 128;
    t.bk = 64;
    t.stages = 4;
    t.min_blocks = 1;
    t.shared = t.stages * (t.bm + t.bn) * t.bk * 2;
  } else if (t.mma) {
    if (rows <= 64) t.bm = 64;
    if (hooked && t.bm > 64) {  // one block, with twice the registers and more pieces in flight
      t.min_blocks = 1;
      t.stages = 4;
    }
    t.shared = t.stages * (t.bm + t.bn) * t.bk * 2;
    const int warp_n = t.bn / (t.threads / 32 / t.warps_m);
    t.shared = std::max(t.shared, t.threads / 32 * 16 * (warp_n + 8) * 4);
  } else {
    t.micro = itemsize(g.in) == 8 ? 4 : 8;
    t.bm = t.bn = 16 * t.micro;
    t.bk = 16;
    t.min_blocks = 1;
    t.shared = static_cast<int>(2 * (t.bm + 4 + t.bn + 4) * t.bk * itemsize(g.in));
  }
  t.starts_at = (t.shared + 15) / 16 * 16;
  if (g.mode == GroupedGemm::GroupedBy::rows) t.shared = t.starts_at + static_cast<int>(g.groups + 3) * 4;
  // Two blocks must fit on the smallest multiprocessor (100 KiB, of which 1 KiB is reserved for each block).
  if (t.shared > 49 * 1024) t.min_blocks = 1;
  return t;
}

// How pieces of a matrix of x by terms are laid out: lines run along terms if terms are contiguous, and can be copied
// 16 bytes at a time if nothing splits them.
struct PieceLayout {
  bool along_terms = false, vector = false;
};
PieceLayout lines_of(int64_t x, int64_t x_stride, int64_t terms, int64_t term_stride, int64_t group_stride,
                     bool ragged_x, bool ragged_terms, bool aligned) {
  PieceLayout l;
  l.along_terms = term_stride == 1 && x_stride != 1;
  const int64_t along = l.along_terms ? terms : x, across = l.along_terms ? x_stride : term_stride;
  const bool side_by_side = (l.along_terms ? term_stride : x_stride) == 1;
  const bool split = l.along_terms ? ragged_terms : ragged_x;
  l.vector = aligned && side_by_side && !split && along % 8 == 0 && across % 8 == 0 && group_stride % 8 == 0;
  return l;
}

// Writes sums to y, 16 bytes at a time if rows allow it.
std::string plain_finish(const GroupedGemm& g, bool mma) {
  const char* sums = mma ? "f32" : text_type(g.in);
  std::string s =
      str_cat("static inline void finish(const P& p, int64 row, int col, int count, const ", sums, " (&v)[8]) {\n",
              "  ", text_type(g.out), "* y = (", text_type(g.out), "*)p.y + row * kY_row + col;\n");
  const int64_t per16 = 16 / itemsize(g.out);
  const bool vector = mma && g.aligned_y && g.n % 8 == 0 && g.y_row % per16 == 0;
  if (vector && is_16bit(g.out)) {
    const char* pack = g.out == kBFloat16 ? "pack_bf16" : "pack_f16";
    s += str_cat("  store_global(y, make_uint4(", pack, "(v[0], v[1]), ", pack, "(v[2], v[3]), ", pack,
                 "(v[4], v[5]), ", pack, "(v[6], v[7])));\n}\n");
  } else if (vector) {
    s += "  store_global(y, make_float4(v[0], v[1], v[2], v[3]));\n";
    s += "  store_global(y + 4, make_float4(v[4], v[5], v[6], v[7]));\n}\n";
  } else {
    const std::string element = g.out == kBFloat16 ? "to_bf16(v[i])" : g.out == kFloat16 ? "to_f16(v[i])" : "v[i]";
    const std::string target = is_16bit(g.out) ? "((u16*)y)[i]" : "y[i]";
    s +=
        str_cat("#pragma unroll\n  for (int i = 0; i < 8; ++i)\n    if (i < count) ", target, " = ", element, ";\n}\n");
  }
  return s;
}

}  // namespace

Grid GroupedGemmKernel::grid(int multiprocessors) const {
  return {
      static_cast<uint32_t>(std::max<int64_t>(1, std::min<int64_t>(most_tiles, int64_t{multiprocessors} * blocks)))};
}

GroupedGemmKernel gemm_kernel(const GroupedGemm& g, const std::string& symbol, const GemmHook* hook, int sm) {
  WEFT_CHECK_AS(kUnimplemented, g.mode != GroupedGemm::GroupedBy::rows || g.groups <= kMostGroups,
                "grouped_dot: ", g.groups, " groups; at most ", kMostGroups, " on CUDA");
  WEFT_BUG_IF(g.n > INT32_MAX / 2 || g.groups > INT32_MAX, "cuda: a product of ", g.n, " columns in ", g.groups,
              " groups");
  const bool ragged_m = g.mode == GroupedGemm::GroupedBy::rows,
             ragged_k = g.mode == GroupedGemm::GroupedBy::contraction;
  const PieceLayout a = lines_of(g.m, g.a_m, g.k, g.a_k, g.a_e, ragged_m, ragged_k, g.aligned_a);
  const PieceLayout b = lines_of(g.n, g.b_n, g.k, g.b_k, g.b_e, false, ragged_k, g.aligned_b);
  const Tiling t = tiling_of(g, a.vector && b.vector, sm, hook != nullptr);
  const int64_t tiles_m = (g.m + t.bm - 1) / t.bm, tiles_n = (g.n + t.bn - 1) / t.bn;

  std::string s =
      str_cat("// ",
              g.mode == GroupedGemm::GroupedBy::rows          ? "Groups of rows"
              : g.mode == GroupedGemm::GroupedBy::contraction ? "Groups of terms"
                                                              : "A batch",
              ": ", g.groups, " products of ", g.m, " x ", g.k, " x ", g.n, ", ", g.in, " to ", g.out, ".\n");
  if (hook) s = hook->prelude + s;
  s += hook && !hook->structure.empty()
           ? hook->structure
           : str_cat("struct P {\n  const void *a, *b, *offsets;\n  void* y;\n  int* bad;\n", hook ? hook->fields : "",
                     "};\n");
  auto constant = [&](const char* type, const char* name, int64_t value) {
    s += str_cat("constexpr ", type, " ", name, " = ", value, ";\n");
  };
  s += str_cat("typedef ", text_type(g.offsets), " kOffset;\n");
  constant("int64", "kRows", g.mode == GroupedGemm::GroupedBy::rows ? g.m : g.k);
  constant("int", "kGroups", g.groups);
  constant("int64", "kM", g.m);
  constant("int", "kN", g.n);
  constant("int64", "kK", g.k);
  constant("int64", "kA_e", g.a_e);
  constant("int64", "kA_m", g.a_m);
  constant("int64", "kA_k", g.a_k);
  constant("int64", "kB_e", g.b_e);
  constant("int64", "kB_k", g.b_k);
  constant("int64", "kB_n", g.b_n);
  constant("int64", "kY_row", g.y_row);
  constant("int", "kThreads", t.threads);
  constant("int", "kMinBlocks", t.min_blocks);
  constant("int", "kBM", t.bm);
  constant("int", "kBN", t.bn);
  constant("int", "kBK", t.bk);
  constant("int", "kTilesM", tiles_m);
  constant("int", "kTilesN", tiles_n);
  if (g.mode == GroupedGemm::GroupedBy::rows)
    constant("int", "kStartsAt", t.starts_at);
  else
    constant("bool", "kRaggedTerms", ragged_k);
  if (t.mma) {
    if (!t.wgmma) constant("int", "kWarpsM", t.warps_m);
    constant("int", "kStages", t.stages);
    constant("bool", "kLinesA_m", a.along_terms);
    constant("bool", "kLinesB_n", b.along_terms);
    constant("bool", "kVectorA", a.vector);
    constant("bool", "kVectorB", b.vector);
  } else {
    constant("int", "kMicro", t.micro);
    s += str_cat("typedef ", text_type(g.in), " T;\n");
  }
  auto text = [](const char* name) { return std::string(gemm_texts(name)); };
  s += text("tiles") + (g.mode == GroupedGemm::GroupedBy::rows ? text("tiles_rows") : text("tiles_even"));
  s += hook ? hook->text : plain_finish(g, t.mma);
  std::string product;
  if (t.mma) product = (t.wgmma ? text("wgmma_places") : text("mma_places")) + text("pieces");
  product += t.wgmma ? text("wgmma") : t.mma ? text("mma") : text("fma");
  product = replaced(product, "kSymbol", symbol);
  product = replaced(product, "kMma", g.in == kBFloat16 ? "mma_bf16" : "mma_f16");
  s += replaced(product, "kWgmma", g.in == kBFloat16 ? "wgmma_bf16" : "wgmma_f16");

  GroupedGemmKernel out;
  Kernel& k = out.kernel;
  k.symbol = symbol;
  k.text = std::move(s);
  k.threads = t.threads;
  k.min_blocks = t.min_blocks;
  k.shared_bytes = t.shared;
  k.max_registers = t.min_blocks == 2 ? 128 : 255;
  k.only_sm90a = t.wgmma;
  if (t.wgmma) k.least_sm = 90;
  // The rows of a group may end in the middle of a tile. So may those before the first and after the last group.
  out.most_tiles = g.mode == GroupedGemm::GroupedBy::rows ? (g.m == 0 ? 0 : (tiles_m + g.groups + 2) * tiles_n)
                                                          : g.groups * tiles_m * tiles_n;
  out.blocks = t.min_blocks;
  return out;
}

GroupedGemm grouped_problem(const Attrs& attrs, std::span<const StridedView> in, const StridedView& out) {
  const StridedView &a = in[0], &b = in[1], &offsets = in[2];
  GroupedGemm g;
  g.in = a.dtype;
  g.out = out.dtype;
  g.offsets = offsets.dtype;
  g.groups = offsets.shape[0] - 1;
  WEFT_BUG_IF(offsets.shape[0] > 1 && offsets.strides[0] != 1, "grouped_dot: offsets are strided");
  const bool rows = attrs.get<std::string>("mode") == "rows";
  const int m = rows ? 0 : 1, k = 1 - m, b_k = rows ? 1 : 0, b_n = b_k + 1;  // dims of a and b
  g.mode = rows ? GroupedGemm::GroupedBy::rows : GroupedGemm::GroupedBy::contraction;
  g.m = a.shape[m];
  g.k = a.shape[k];
  g.n = b.shape[b_n];
  g.a_m = a.strides[m];
  g.a_k = a.strides[k];
  if (rows) g.b_e = b.strides[0];
  g.b_k = b.strides[b_k];
  g.b_n = b.strides[b_n];
  g.y_row = g.n;
  auto aligned = [](const StridedView& v) { return reinterpret_cast<uintptr_t>(v.data) % 16 == 0; };
  g.aligned_a = aligned(a);
  g.aligned_b = aligned(b);
  g.aligned_y = aligned(out);
  return g;
}

}  // namespace weft::cuda
