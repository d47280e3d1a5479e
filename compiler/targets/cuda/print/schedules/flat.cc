// Elementwise: each thread processes a vector of up to 16 bytes of each operand at a time, in a grid-stride loop over
// the vectors of all outer points.
#include <algorithm>
#include <numeric>

#include "compiler/targets/cuda/print/writer.h"
#include "framework/base/str_cat.h"

namespace weft::cuda {
namespace {

using loop_ir::Instr;
using loop_ir::Op;
using loop_ir::StrideKind;

constexpr int kThreads = 256;
constexpr int kThreadsOfMultiprocessor = 2048;
constexpr int kLight = 40;       // most operations per point for which a thread may take several vectors at once
constexpr int kBlocksEach = 32;  // thread blocks per multiprocessor in a grid

class Flat : KernelWriter {
 public:
  explicit Flat(const PrintJob& job) : KernelWriter(job) {
    narrow_ = is_narrow(job, 0, k_.axes);
    find_packs();
    width_ = choose_width();
    for (const Instr& i : k_.instrs)
      guards_ |= i.op == Op::kCheck || ((i.op == Op::kLoad || i.op == Op::kStore) && lane(i) && !packed(i));
    full_ = lanes_ % width_ == 0;
    // If there are few operands and operations, each thread takes two vectors, so that enough bytes are in flight to
    // hide the latency of memory.
    const int64_t vectors = (lanes_ + width_ - 1) / width_;
    int64_t reads = 0;
    for_packs(false, [&](int, const std::string&) { ++reads; });
    several_ = k_.outer_axes() == 0 && width_ > 1 && !guards_ && form_.last.empty() && reads >= 1 && reads <= 2 &&
               operations(form_) <= kLight &&
               vectors >= int64_t{2} * kThreadsOfMultiprocessor * job_.device.multiprocessors;
    type_ = narrow_ ? "i32" : "i64";
    element = [this](const Instr& i) { return place(i); };
    position = [this](int axis) {
      return axis == k_.axes - 1 ? (width_ == 1 ? std::string("l") : "(l + j)") : str_cat("i", axis);
    };
  }

  CudaLaunch run() {
    const int outer = k_.outer_axes();
    const int64_t vectors = (lanes_ + width_ - 1) / width_, all = vectors * points_;
    const std::string thread = str_cat(narrow_ ? "(i32)" : "(i64)", "blockIdx.x * ", kThreads, " + threadIdx.x");
    const std::string n = extent(k_.axes - 1, narrow_);
    const std::string grid_step = str_cat(narrow_ ? "" : "(i64)", "gridDim.x * ", kThreads);
    if (outer == 0) {
      const std::string w = width_ == 1 ? "" : str_cat(width_, " * ");
      const std::string first =
          several_ ? str_cat(narrow_ ? "(i32)" : "(i64)", "blockIdx.x * ", 2 * kThreads, " + threadIdx.x") : thread;
      open(str_cat("for (", type_, several_ ? " l0 = " : " l = ", w, width_ == 1 ? first : str_cat("(", first, ")"),
                   several_ ? "; l0 < " : "; l < ", n, several_ ? "; l0 += 2 * " : "; l += ", w, grid_step, ") {"));
    } else {
      const std::string total = narrow_ ? params.i32("vectors", all) : params.i64("vectors", all);
      open(str_cat("for (", type_, " v = ", thread, "; v < ", total, "; v += ", grid_step, ") {"));
      const std::string row = narrow_ ? params.div("row", vectors) : params.i64("row", vectors);
      line(str_cat("const ", type_, " ", point(), " = v / ", row, ", l = v % ", row,
                   width_ == 1 ? "" : str_cat(" * ", width_), ";"));
      outer_positions(narrow_);
      outer_pointers(narrow_, all_needed());
    }
    values_before(0);
    const std::string left = full_ && !several_ ? "" : str_cat(", ", n, " - l");
    const std::string turn = str_cat("UNROLL for (int u = 0; u < 2; ++u) {"),
                      here = str_cat("const ", type_, " l = l0 + u * ", width_ * kThreads, ";");
    if (several_) {
      for_packs(false, [&](int slot, const std::string& pack) { line(str_cat(pack, " v", slot, "[2];")); });
      open(turn);
      line(here);
      for_packs(false, [&](int slot, const std::string&) {
        line(str_cat("v", slot, "[u] = load<", width_, ">(", base(slot), " + l", left, ");"));
      });
      close();
      open(turn);
      line(here);
    } else {
      for_packs(false, [&](int slot, const std::string& pack) {
        line(str_cat("const ", pack, " v", slot, " = load<", width_, ">(", base(slot), " + l", left, ");"));
      });
    }
    for_packs(true, [&](int slot, const std::string& pack) { line(str_cat(pack, " v", slot, ";")); });
    // Rows chosen by a single index are contiguous too.
    for (size_t id = 0; id < k_.instrs.size(); ++id) {
      const Instr& i = k_.instrs[id];
      if (i.op == Op::kLoad && lane(i) && gathers_rows(i) && width_ > 1 && form_.same[id] == static_cast<int>(id))
        line(str_cat("const Pack<", memory_type(k_.operands[i.slot].dtype), ", ", width_, "> v", i.slot, "_", id,
                     " = load<", width_, ">(", base(i.slot), " + l", index_term(i), left, ");"));
    }
    if (width_ > 1) open(str_cat("UNROLL for (int j = 0; j < ", width_, "; ++j) {"));
    const bool guarded = width_ > 1 && !full_ && guards_;
    if (guarded) open(str_cat("if (l + j < ", n, ") {"));
    for (const Loop& loop : form_.loops) {
      const int number = static_cast<int>(&loop - form_.loops.data());
      values_of(form_.closure(number, {}));
      for (int id : loop.stores) store(id);
    }
    if (guarded) close();
    if (width_ > 1) close();
    for_packs(true, [&](int slot, const std::string&) {
      line(str_cat("store<", width_, ">(", base(slot), " + l, v", slot, left, ");"));
    });
    if (several_) close();
    if (!form_.last.empty()) {
      open("if (l == 0) {");
      for (int id : form_.last) store(id);
      close();
    }
    close();
    const int64_t each = several_ ? 2 * kThreads : kThreads, blocks = (all + each - 1) / each;
    const std::string how = str_cat(points_ == 1 ? "" : str_cat(points_, " x "), lanes_, " elements, ", width_,
                                    " at a time", several_ ? ", twice" : "");
    return finish(kThreads, 0, std::min<int64_t>(blocks, job_.device.multiprocessors * kBlocksEach), how);
  }

 private:
  // Calls f(slot, the vector's type) for operands that are read, or results that are written, in vectors.
  template <class F>
  void for_packs(bool output, F f) {
    for (size_t slot = 0; slot < k_.operands.size(); ++slot)
      if (pack_[slot] && width_ > 1 && k_.operands[slot].output == output)
        f(static_cast<int>(slot), str_cat("Pack<", memory_type(k_.operands[slot].dtype), ", ", width_, ">"));
  }
  bool lane(const Instr& i) const { return Form::in_loop(i.level); }
  bool gathers_rows(const Instr& i) const {
    return i.a >= 0 && !form_.in_loop(i.a) && k_.operands[i.slot].strides.back() == StrideKind::kUnit;
  }
  bool packed(const Instr& i) const {
    if (k_.operands[i.slot].strides.back() != StrideKind::kUnit)
      return k_.operands[i.slot].strides.back() == StrideKind::kZero && i.op == Op::kLoad && i.a < 0;
    return i.op == Op::kStore || i.a < 0 || gathers_rows(i);
  }

  void find_packs() {
    pack_.assign(k_.operands.size(), false);
    for (const Instr& i : k_.instrs)
      if (lane(i) && (i.op == Op::kStore || (i.op == Op::kLoad && i.a < 0)))
        pack_[i.slot] = k_.operands[i.slot].strides.back() == StrideKind::kUnit;
  }

  // Elements per vector: 16 bytes of the narrowest contiguous operand, halved until all vectors start at multiples of
  // it.
  int choose_width() const {
    int narrowest = 0;
    int64_t together = 0;  // the starts of vectors are multiples of this, in elements
    for (const Instr& i : k_.instrs) {
      if ((i.op != Op::kLoad && i.op != Op::kStore) || !lane(i)) continue;
      const loop_ir::Operand& o = k_.operands[i.slot];
      if (o.strides.back() != StrideKind::kUnit || !packed(i)) continue;
      const int size = static_cast<int>(itemsize(o.dtype));
      const loop_ir::BoundOperand& b = low_.bound[i.slot];
      if (size > job_.options.alignment) return 1;
      narrowest = narrowest == 0 ? size : std::min(narrowest, size);
      // Vectors are read in pieces of at most 16 bytes, so starts at multiples of 16 bytes suit all widths.
      auto multiple = [&](int64_t elements) {
        together = std::gcd(together, std::gcd<int64_t>(elements * size, 16) == 16 ? 0 : elements);
      };
      if (job_.options.alignment < 16) together = std::gcd(together, job_.options.alignment / size);
      multiple(b.offset);
      for (int a = 0; a + 1 < k_.axes; ++a)
        if (low_.extents[a] > 1) multiple(b.strides[a]);
      if (o.indexed) multiple(b.index_stride);
    }
    if (narrowest == 0) return 1;
    int width = std::min(8, std::max(1, 16 / narrowest));
    while (width > 1 && ((together != 0 && together % width != 0) || width > 2 * lanes_)) width /= 2;
    return width;
  }

  std::string base(int slot) { return pointer_name(slot); }

  std::string place(const Instr& i) {
    if (!lane(i)) {
      const std::string at = index_term(i);
      return str_cat(base(i.slot), "[0", at, "]");
    }
    const StrideKind kind = k_.operands[i.slot].strides.back();
    if (width_ > 1 && pack_[i.slot] && packed(i) && !(i.op == Op::kLoad && i.a >= 0))
      return str_cat("v", i.slot, several_ && i.op == Op::kLoad ? "[u]" : "", "[j]");
    if (width_ > 1 && i.op == Op::kLoad && gathers_rows(i)) {
      const auto same = std::find_if(k_.instrs.begin(), k_.instrs.end(), [&](const Instr& x) { return &x == &i; });
      return str_cat("v", i.slot, "_", same - k_.instrs.begin(), "[j]");
    }
    const std::string l = width_ == 1 ? "l" : "(l + j)";
    std::string index = kind == StrideKind::kUnit   ? l
                        : kind == StrideKind::kZero ? "0"
                                                    : str_cat(l, " * ", stride(i.slot, k_.axes - 1, narrow_));
    if (kind == StrideKind::kUnit && width_ > 1) index = "l + j";
    return str_cat(base(i.slot), "[", index, index_term(i), "]");
  }

  bool guards_ = false, full_, several_ = false;
  int width_;
  std::string type_;
  std::vector<bool> pack_;
};

}  // namespace

CudaLaunch print_flat(const PrintJob& job) { return Flat(job).run(); }

}  // namespace weft::cuda
