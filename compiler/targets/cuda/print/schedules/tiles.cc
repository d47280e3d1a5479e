// Elementwise with operands transposed against the lanes: tiles of 64 x 64 (or 32 x 32) points (along the last outer
// axis) and lanes. A thread has a square of 4 x 4 (2 x 2) elements. It reads the squares of all operands before it uses
// any: squares of transposed operands along the points, the others along the lanes. It turns the transposed squares in
// registers and exchanges them through shared memory. Where an axis allows no vectors, the elements of a square are 16
// apart.
//
// A row of a tile in shared memory has 16 pieces, one per thread. Their order differs from row to row, so that neither
// writing down the rows nor reading along them has bank conflicts.
#include <algorithm>
#include <numeric>

#include "compiler/targets/cpu/print/choices.h"
#include "compiler/targets/cuda/print/writer.h"
#include "framework/base/str_cat.h"

namespace weft::cuda {
namespace {

using loop_ir::Instr;
using loop_ir::Op;
using loop_ir::StrideKind;

constexpr int kThreads = 256, kSide = 16;  // threads, and threads along one side of a tile
constexpr int64_t kReadBytes = 256;        // per thread, for its squares of all operands
constexpr int64_t kNear = 16;  // tiles along the points that run together: longer reads, and fewer pages of memory

class TilesWriter : KernelWriter {
 public:
  explicit TilesWriter(const PrintJob& job) : KernelWriter(job) {
    lane_ = k_.axes - 1;
    point_ = k_.axes - 2;
    narrow_ = is_narrow(job, 0, k_.axes);
    element = [this](const Instr& i) { return place(i); };
    find_packs();
    choose_square();
    vector_lanes_ = vector_points_ = true;
    for (int slot = 0; slot < slots(); ++slot) {
      if (transposed(slot)) vector_points_ &= even(slot, point_);
      if (pack_[slot]) vector_lanes_ &= even(slot, lane_);
    }
  }

  CudaLaunch run() {
    open_tiles();
    for (int slot = 0; slot < slots(); ++slot)
      if (!k_.operands[slot].output && (pack_[slot] || transposed(slot)) && !same_for_points(slot))
        line(str_cat(pack(slot), " v", slot, "[", w_, "];"));
    read_squares(true);
    read_squares(false);
    line("__syncthreads();");
    open(str_cat("UNROLL for (int j = 0; j < ", w_, "; ++j) {"));
    for (int slot = 0; slot < slots(); ++slot) {
      if (!transposed(slot)) continue;
      line(str_cat(pack(slot), " c", slot, ";"));
      line(str_cat("UNROLL for (int k = 0; k < ", w_, "; ++k) c", slot, "[k] = v", slot, "[k][j];"));
      line(str_cat("t", slot, "[", kSide, " * (", w_, " * x + j) + (x ^ y)] = c", slot, ".piece[0];"));
    }
    close();
    line("__syncthreads();");
    open(str_cat("UNROLL for (int k = 0; k < ", w_, "; ++k) {"));
    line(str_cat("const ", index_, " i", point_, " = ", at("p0", "y", "k", vector_points_), ", l1 = ", lane_start(),
                 ";"));
    open(str_cat("if (i", point_, " < ", extent(point_, narrow_), " && l1 < ", extent(lane_, narrow_), ") {"));
    compute();
    close();
    close();
    close();
    return finish(
        kThreads, static_cast<int>(shared_bytes(w_)), tiles(w_),
        str_cat(low_.outer_points(), " x ", low_.lanes(), " elements by tiles of ", edge(w_), " x ", edge(w_)));
  }

 private:
  int slots() const { return static_cast<int>(k_.operands.size()); }
  bool transposed(int slot) const { return codegen::is_transposed(k_, slot); }
  static int64_t edge(int w) { return int64_t{kSide} * w; }
  int64_t size(int slot) const { return static_cast<int64_t>(itemsize(k_.operands[slot].dtype)); }
  std::string pack(int slot) const { return str_cat("Pack<", memory_type(k_.operands[slot].dtype), ", ", w_, ">"); }
  bool same_for_points(int slot) const { return k_.operands[slot].strides[point_] == StrideKind::kZero; }

  // Finds loads and stores that are read and written as squares. The place of an index out of range is computed from
  // its address, so a kernel with indices has no squares.
  void find_packs() {
    pack_.assign(k_.operands.size(), false);
    for (const Instr& i : k_.instrs) {
      if (i.op == Op::kCheck) return pack_.assign(k_.operands.size(), false);
      if (Form::in_loop(i.level) && (i.op == Op::kStore || (i.op == Op::kLoad && i.a < 0)))
        pack_[i.slot] = k_.operands[i.slot].strides[lane_] == StrideKind::kUnit;
    }
  }

  int64_t tiles(int w) const {
    const int64_t points = low_.extents[point_];
    return tiles_along(lane_, w) * tiles_along(point_, w) *
           std::max<int64_t>(1, low_.outer_points() / std::max<int64_t>(1, points));
  }
  int64_t tiles_along(int axis, int w) const { return (low_.extents[axis] + edge(w) - 1) / edge(w); }
  int64_t shared_bytes(int w) const {
    int64_t bytes = 0;
    for (int slot = 0; slot < slots(); ++slot)
      if (transposed(slot)) bytes += edge(w) * edge(w) * size(slot);
    return bytes;
  }
  // The side of a thread's square: 4, or 2 if elements are large, operands are many or tiles are few.
  void choose_square() {
    int64_t widest = 0, read = 0;
    for (int slot = 0; slot < slots(); ++slot) {
      if (transposed(slot)) widest = std::max(widest, size(slot));
      if (!k_.operands[slot].output && (transposed(slot) || pack_[slot])) read += 16 * size(slot);
    }
    w_ = widest <= 4 && read <= kReadBytes && shared_bytes(4) <= job_.device.max_shared_bytes &&
                 std::min(low_.lanes(), low_.extents[point_]) > edge(2) && tiles(4) >= 2 * job_.device.multiprocessors
             ? 4
             : 2;
  }
  // Whether the operand can be accessed along this axis in vectors of w_ elements.
  bool even(int slot, int axis) const {
    const loop_ir::BoundOperand& b = low_.bound[slot];
    bool even = job_.options.alignment >= std::min<int64_t>(16, w_ * size(slot)) && b.offset % w_ == 0 &&
                low_.extents[axis] % w_ == 0;
    for (int a = 0; a < k_.axes; ++a) even = even && (a == axis || low_.extents[a] <= 1 || b.strides[a] % w_ == 0);
    return even;
  }

  // The position of element `e` of the square of thread `thread`.
  std::string at(const char* start, const char* thread, const char* e, bool vectors) const {
    return vectors ? str_cat(start, " + ", w_, " * ", thread, " + ", e)
                   : str_cat(start, " + ", thread, " + ", kSide, " * ", e);
  }
  std::string lane_start() const { return vector_lanes_ ? str_cat("l0 + ", w_, " * x") : std::string("l0 + x"); }

  // Declares the tile's start, l0 and p0, and the outer positions and addresses.
  void open_tiles() {
    index_ = narrow_ ? "i32" : "i64";
    auto count = [&](const char* name, int64_t n) { return narrow_ ? params.div(name, n) : params.i64(name, n); };
    line(str_cat("const int x = threadIdx.x % ", kSide, ", y = threadIdx.x / ", kSide, ";"));
    int64_t bytes = 0;
    for (int slot = 0; slot < slots(); ++slot) {
      if (!transposed(slot)) continue;
      line(str_cat("const Shared<", pack(slot), "::Piece> t", slot, " = shared_at<", pack(slot), "::Piece>(", bytes,
                   ");"));
      bytes += edge(w_) * edge(w_) * size(slot);
    }
    const std::string total = narrow_ ? params.i32("tiles", tiles(w_)) : params.i64("tiles", tiles(w_));
    open(str_cat("for (", index_, " tile = (", index_, ")blockIdx.x; tile < ", total, "; tile += (", index_,
                 ")gridDim.x) {"));
    const int64_t down = tiles_along(point_, w_), near = std::gcd(std::max<int64_t>(down, 1), kNear);
    const std::string across = count("lane_tiles", tiles_along(lane_, w_));
    std::string rest = "tile", turn;
    if (near > 1) {
      line(str_cat("const ", index_, " turn = tile / ", near, ";"));
      rest = "turn";
      turn = str_cat(" + tile % ", near);
    }
    line(str_cat("const ", index_, " l0 = ", rest, " % ", across, " * ", edge(w_), ";"));
    rest += " / " + across;
    std::string row = rest;
    if (point_ > 0) {
      const std::string downs = count("point_tiles", down / near);
      row += " % " + downs;
      line(str_cat("const ", index_, " o = ", rest, " / ", downs, ";"));
    }
    line(str_cat("const ", index_, " p0 = ", near > 1 ? str_cat("(", row, " * ", near, turn, ")") : row, " * ",
                 edge(w_), ";"));
    if (point_ > 0) {
      rest = "o";
      std::string s = str_cat("const ", index_, " ");
      for (int a = point_ - 1; a > 0; --a) {
        const std::string n = count(str_cat("n", a).c_str(), low_.extents[a]);
        s += str_cat("i", a, " = ", rest, " % ", n, ", ");
        rest = str_cat(rest, " / ", n);
      }
      line(str_cat(s, "i0 = ", rest, ";"));
    }
    for (int slot = 0; slot < slots(); ++slot) {
      const loop_ir::Operand& o = k_.operands[slot];
      if (!moves_before(slot)) continue;
      std::string at = operand_pointer(slot);
      for (int a = 0; a < point_; ++a)
        if (o.strides[a] != StrideKind::kZero) at += str_cat(" + i", a, " * ", stride(slot, a, narrow_));
      line(str_cat(o.output ? "" : "const ", memory_type(o.dtype), "* const ", base(slot), " = ", at, ";"));
    }
  }

  // " + POSITION * stride" of the axis across which the operand's vectors do not run.
  std::string terms(int slot, int axis, const std::string& position) {
    const StrideKind kind = k_.operands[slot].strides[axis];
    if (kind == StrideKind::kZero) return "";
    return str_cat(" + ", position, kind == StrideKind::kAny ? str_cat(" * ", stride(slot, axis, narrow_)) : "");
  }

  // Reads the squares of the transposed operands or of the others.
  void read_squares(bool across) {
    std::vector<int> each, once;
    for (int slot = 0; slot < slots(); ++slot) {
      if (k_.operands[slot].output || (across ? !transposed(slot) : !pack_[slot])) continue;
      (same_for_points(slot) ? once : each).push_back(slot);
    }
    const bool vectors = across ? vector_points_ : vector_lanes_;
    const std::string p = str_cat("i", point_), j = vectors ? "" : "[j]";
    auto read = [&](int slot, const std::string& to) {
      const std::string from =
          str_cat(base(slot), " + ", across ? p : "l", terms(slot, across ? lane_ : point_, across ? "l" : p));
      line(vectors ? str_cat(to, " = load<", w_, ">(", from, ");") : str_cat(to, "[j] = *(", from, ");"));
    };
    const std::string inside =
        str_cat("if (", p, " < ", extent(point_, narrow_), " && l < ", extent(lane_, narrow_), ") {");
    auto squares = [&](const std::vector<int>& list, bool rows) {
      if (list.empty()) return;
      if (!rows)
        for (int slot : list) line(str_cat(pack(slot), " v", slot, ";"));
      if (rows) open(str_cat("UNROLL for (int k = 0; k < ", w_, "; ++k) {"));
      if (!vectors) open(str_cat("UNROLL for (int j = 0; j < ", w_, "; ++j) {"));
      const std::string along = vectors ? "" : str_cat(" + ", kSide, " * j");
      const std::string near = str_cat(vectors ? str_cat(w_, " * x") : std::string("x"), along);
      if (across)
        line(str_cat("const ", index_, " l = ", at("l0", "y", "k", vector_lanes_), ", ", p, " = p0 + ", near, ";"));
      else if (rows)
        line(str_cat("const ", index_, " ", p, " = ", at("p0", "y", "k", vector_points_), ", l = l0 + ", near, ";"));
      else
        line(str_cat("const ", index_, " l = l0 + ", near, ";"));
      open(rows ? inside : str_cat("if (l < ", extent(lane_, narrow_), ") {"));
      for (int slot : list) read(slot, str_cat("v", slot, rows ? "[k]" : ""));
      close();
      if (!vectors) close();
      if (rows) close();
    };
    squares(each, true);
    squares(once, false);
  }

  // A thread's elements at point i and lanes l: one row of its squares.
  void compute() {
    values_before(0);
    for (int slot = 0; slot < slots(); ++slot) {
      if (transposed(slot)) {
        line(str_cat(pack(slot), " c", slot, ";"));
        line(str_cat("c", slot, ".piece[0] = t", slot, "[", kSide, " * (", w_, " * y + k) + (x ^ y)];"));
      } else if (pack_[slot] && k_.operands[slot].output) {
        line(str_cat(pack(slot), " r", slot, ";"));
      }
    }
    open(str_cat("UNROLL for (int j = 0; j < ", w_, "; ++j) {"));
    line(str_cat("const ", index_, " l = l1 + ", vector_lanes_ ? "j;" : str_cat(kSide, " * j;")));
    if (!vector_lanes_) open(str_cat("if (l < ", extent(lane_, narrow_), ") {"));
    for (size_t loop = 0; loop < form_.loops.size(); ++loop) {
      values_of(form_.closure(static_cast<int>(loop), {}));
      for (int id : form_.loops[loop].stores) store(id);
    }
    for (int slot = 0; slot < slots(); ++slot)
      if (!vector_lanes_ && pack_[slot] && k_.operands[slot].output)
        line(str_cat("*(", result(slot, "l"), ") = r", slot, "[j];"));
    if (!vector_lanes_) close();
    close();
    for (int slot = 0; slot < slots(); ++slot)
      if (vector_lanes_ && pack_[slot] && k_.operands[slot].output)
        line(str_cat("store<", w_, ">(", result(slot, "l1"), ", r", slot, ");"));
  }
  std::string result(int slot, const std::string& l) {
    return str_cat(base(slot), " + ", l, terms(slot, point_, str_cat("i", point_)));
  }

  // Whether the operand varies along an axis before the axis of the tile's points.
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
    if (in && i.op == Op::kLoad && transposed(i.slot)) return str_cat("c", i.slot, "[j]");
    if (in && pack_[i.slot] && i.op == Op::kStore) return str_cat("r", i.slot, "[j]");
    if (in && pack_[i.slot] && i.a < 0) return str_cat("v", i.slot, same_for_points(i.slot) ? "[j]" : "[k][j]");
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

  int lane_, point_, w_ = 2;
  bool vector_lanes_ = false, vector_points_ = false;
  std::string index_;
  std::vector<bool> pack_;
};

}  // namespace

CudaLaunch print_tiles(const PrintJob& job) { return TilesWriter(job).run(); }

}  // namespace weft::cuda
