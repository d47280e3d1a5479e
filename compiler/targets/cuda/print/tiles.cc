// Elementwise with operands transposed against the lanes: tiles of 32 points (along the last outer axis) x 32 lanes.
// Such operands are read along the points into shared memory. Its lines are one element longer, so that reading across
// them has no bank conflicts. Everything else is read and written along the lanes.
#include <algorithm>

#include "compiler/targets/cpu/print/choices.h"
#include "compiler/targets/cuda/print/writer.h"
#include "framework/base/str_cat.h"

namespace weft::cuda {
namespace {

using loop_ir::Instr;
using loop_ir::Op;
using loop_ir::StrideKind;

constexpr int kThreads = 256, kTile = 32, kLines = kThreads / kTile;

class Tiles : Writer {
 public:
  explicit Tiles(const Job& job) : Writer(job) {
    lane_ = k_.axes - 1;
    point_ = k_.axes - 2;
    narrow_ = is_narrow(job, 0, k_.axes);
    element = [this](const Instr& i) { return place(i); };
  }

  CudaLaunch run() {
    const std::string t = narrow_ ? "i32" : "i64";
    const int64_t lane_tiles = (low_.lanes() + kTile - 1) / kTile,
                  point_tiles = (low_.extents[point_] + kTile - 1) / kTile;
    const int64_t tiles = lane_tiles * point_tiles *
                          std::max<int64_t>(1, low_.outer_points() / std::max<int64_t>(1, low_.extents[point_]));
    auto count = [&](const char* name, int64_t n) { return narrow_ ? params.div(name, n) : params.i64(name, n); };
    line("const int x = threadIdx.x % 32, y = threadIdx.x / 32;");
    int bytes = 0;
    for (size_t slot = 0; slot < k_.operands.size(); ++slot) {
      if (!codegen::is_transposed(k_, slot)) continue;
      const std::string e = memory_type(k_.operands[slot].dtype);
      line(str_cat("const Shared<", e, "> t", slot, " = shared_at<", e, ">(", bytes, ");"));
      bytes += kTile * (kTile + 1) * static_cast<int>(itemsize(k_.operands[slot].dtype));
      bytes = (bytes + 15) / 16 * 16;
    }
    const std::string total = narrow_ ? params.i32("tiles", tiles) : params.i64("tiles", tiles);
    open(str_cat("for (", t, " tile = ", narrow_ ? "(i32)" : "(i64)", "blockIdx.x; tile < ", total,
                 "; tile += ", narrow_ ? "(i32)" : "(i64)", "gridDim.x) {"));
    const std::string across = count("lane_tiles", lane_tiles);
    line(str_cat("const ", t, " l0 = tile % ", across, " * 32;"));
    if (point_ == 0) {
      line(str_cat("const ", t, " p0 = tile / ", across, " * 32;"));
    } else {
      const std::string down = count("point_tiles", point_tiles);
      line(str_cat("const ", t, " p0 = tile / ", across, " % ", down, " * 32, o = tile / ", across, " / ", down, ";"));
      std::string rest = "o", s = str_cat("const ", t, " ");
      for (int a = point_ - 1; a > 0; --a) {
        const std::string n = count(str_cat("n", a).c_str(), low_.extents[a]);
        s += str_cat("i", a, " = ", rest, " % ", n, ", ");
        rest = str_cat(rest, " / ", n);
      }
      line(str_cat(s, "i0 = ", rest, ";"));
    }
    const std::string lanes = extent(lane_, narrow_), points = extent(point_, narrow_);
    for (int slot = 0; slot < static_cast<int>(k_.operands.size()); ++slot) {
      const loop_ir::Operand& o = k_.operands[slot];
      if (!moves_before(slot)) continue;
      std::string at = operand_pointer(slot);
      for (int a = 0; a < point_; ++a)
        if (o.strides[a] != StrideKind::kZero) at += str_cat(" + i", a, " * ", stride(slot, a, narrow_));
      line(str_cat(o.output ? "" : "const ", memory_type(o.dtype), "* const ", base(slot), " = ", at, ";"));
    }
    line("__syncthreads();");
    open(str_cat("UNROLL for (int r = y; r < 32; r += ", kLines, ") {"));
    open(str_cat("if (l0 + r < ", lanes, " && p0 + x < ", points, ") {"));
    for (size_t slot = 0; slot < k_.operands.size(); ++slot)
      if (codegen::is_transposed(k_, slot))
        line(str_cat("t", slot, "[33 * r + x] = ", base(static_cast<int>(slot)), "[(l0 + r) * ",
                     stride(static_cast<int>(slot), lane_, narrow_), " + p0 + x];"));
    close();
    close();
    line("__syncthreads();");
    open(str_cat("UNROLL for (int r = y; r < 32; r += ", kLines, ") {"));
    line(str_cat("const ", t, " i", point_, " = p0 + r, l = l0 + x;"));
    open(str_cat("if (l < ", lanes, " && i", point_, " < ", points, ") {"));
    values_before(0);
    for (size_t loop = 0; loop < form_.loops.size(); ++loop) {
      values_of(form_.closure(static_cast<int>(loop), {}));
      for (int id : form_.loops[loop].stores) store(id);
    }
    close();
    close();
    close();
    return finish(kThreads, bytes, tiles,
                  str_cat(low_.outer_points(), " x ", low_.lanes(), " elements by tiles of 32 x 32"));
  }

 private:
  // Whether the operand varies along an axis before that of the tile's points.
  bool moves_before(int slot) const {
    for (int a = 0; a < point_; ++a)
      if (k_.operands[slot].strides[a] != StrideKind::kZero) return true;
    return false;
  }
  std::string base(int slot) {
    return moves_before(slot) ? str_cat(k_.operands[slot].output ? "y" : "x", slot) : operand_pointer(slot);
  }

  std::string place(const Instr& i) {
    const bool in = Form::in_loop(i.level);
    if (in && i.op == Op::kLoad && codegen::is_transposed(k_, i.slot))
      return str_cat(memory_type(k_.operands[i.slot].dtype), "(t", i.slot, "[33 * x + r])");
    std::string index;
    auto term = [&](int axis, const std::string& at) {
      const StrideKind kind = k_.operands[i.slot].strides[axis];
      if (kind == StrideKind::kZero) return;
      index += str_cat(index.empty() ? "" : " + ", at);
      if (kind == StrideKind::kAny) index += str_cat(" * ", stride(i.slot, axis, narrow_));
    };
    term(point_, str_cat("i", point_));
    if (in) term(lane_, "l");
    if (index.empty()) index += '0';
    return str_cat(base(i.slot), "[", index, index_term(i), "]");
  }

  int lane_, point_;
};

}  // namespace

CudaLaunch print_tiles(const Job& job) { return Tiles(job).run(); }

}  // namespace weft::cuda
