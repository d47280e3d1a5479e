// Sums over rows, without sums along rows. The rows of a block of 1024 fall into 16 classes (row % 16), the logical
// lanes of the sums. A thread takes the 64 rows of one class in order, for neighbouring columns that form vectors of 16
// bytes. It reads several rows before it uses the first. It writes the sum of each column to partial[block][class], and
// the finishing kernel combines these.
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
constexpr int kLeastThreads = 64;     // per multiprocessor; with fewer threads, vectors become narrower
constexpr int kUnderWay = 22 * 1024;  // bytes in flight per multiprocessor: 4.3 TB/s x 0.65 us / 132
constexpr int kReadRegisters = 64;    // per thread, for reads before the first use
constexpr int kUnrolledWork = 1000;   // operations of loops that are unrolled

class ColumnSums : KernelWriter {
 public:
  explicit ColumnSums(const PrintJob& job) : KernelWriter(job) {
    units_ = row_classes();
    last_ = static_cast<int>(form_.loops.size()) - 1;
    values_ = form_.closure(last_, {});
    choose_width();
    element = [this](const Instr& i) { return place(i); };
    at_ = narrow_ ? "i32" : "i64";
  }

  CudaLaunch run() {
    const int64_t vectors = (lanes_ + width_ - 1) / width_;
    // The number of threads along the columns that leaves the fewest idle.
    int columns = 32;
    if (vectors < 32) {
      for (columns = 1; columns < vectors;) columns *= 2;
    } else {
      for (int c = 64; c <= kThreads; c += 32)
        if ((vectors + c - 1) / c * c <= (vectors + columns - 1) / columns * columns) columns = c;
    }
    // Use fewer threads per block if some multiprocessors would get no block.
    const int64_t enough = int64_t{2} * job_.device.multiprocessors;
    int classes = kThreads / columns;
    auto blocks = [&] { return (units_ + classes - 1) / classes * ((vectors + columns - 1) / columns); };
    while (classes > 1 && blocks() < enough) classes /= 2;
    if (blocks() < enough) columns = std::min(columns, 32);
    const int64_t tiles = (vectors + columns - 1) / columns;
    const std::string n = extent(k_.axes - 1, narrow_), units = params.i64("units", units_),
                      rows = params.i64("rows", points_), w = width_ > 1 ? str_cat(width_, " * ") : "";
    line(str_cat("const i64 unit = (i64)blockIdx.x",
                 classes > 1 ? str_cat(" * ", classes, " + threadIdx.x / ", columns) : "", ";"));
    open(str_cat("for (", at_, " l0 = ", w, "((", at_, ")blockIdx.y * ", columns, " + threadIdx.x % ", columns,
                 "); l0 < ", n, " && unit < ", units, "; l0 += ", w, "(", at_, ")gridDim.y * ", columns, ") {"));
    line("const i64 first = unit / 16 * 1024 + unit % 16, stop = unit / 16 * 1024 + 1024;");
    line(str_cat("const i64 end = ", rows, " < stop ? ", rows, " : stop;"));
    const std::vector<int>& sums = form_.loops[last_].columns;
    for (int c : sums) {
      line(str_cat("Pack<", type(c), ", ", width_, "> sum", k_.instrs[c].slot, ";"));
      line(str_cat("UNROLL for (int j = 0; j < ", width_, "; ++j) sum", k_.instrs[c].slot, "[j] = ", identity(c), ";"));
    }
    for (int id : values_)
      if (packed(id) && !moves(k_.instrs[id].slot))
        line(str_cat("const ", pack(id), " v", id, " = load", is_unwritten(k_.instrs[id].slot) ? "_unwritten<" : "<",
                     width_, ">(", pointer_name(k_.instrs[id].slot), " + l0);"));
    std::vector<int> moving;
    for (int id : values_)
      if (packed(id) && moves(k_.instrs[id].slot)) moving.push_back(id);
    const int together = rows_together(width_);
    open(str_cat("for (i64 r0 = first; r0 < end; r0 += ", 16 * together, ") {"));
    if (!moving.empty()) {
      for (int id : moving) line(str_cat(pack(id), " v", id, "[", together, "];"));
      open_row(together, moving);
      for (int id : moving)
        line(str_cat("v", id, "[u] = load", is_unwritten(k_.instrs[id].slot) ? "_unwritten<" : "<", width_, ">(",
                     pointer_name(k_.instrs[id].slot), " + l0);"));
      close();
      close();
    }
    std::vector<int> used;
    for (int id : needed(0, last_ + 1, true))
      if (std::find(moving.begin(), moving.end(), id) == moving.end()) used.push_back(id);
    open_row(together, used);
    values_before(0);
    std::vector<int> outs;
    for (int id : form_.loops[last_].stores) {
      if (!packed(id)) continue;
      outs.push_back(k_.instrs[id].slot);
      line(str_cat(pack(id), " r", k_.instrs[id].slot, ";"));
    }
    open(str_cat("UNROLL for (int j = 0; j < ", width_, "; ++j) {"));
    line(str_cat("const ", at_, " l = l0 + j;"));
    values_of(values_);
    for (int c : sums) take_column(c);
    for (int id : form_.loops[last_].stores) store(id);
    close();
    for (int slot : outs) line(str_cat("store<", width_, ">(", pointer_name(slot), " + l0, r", slot, ");"));
    close();
    close();
    close();
    for (int c : sums) {
      line(str_cat("store<", width_, ">(", partial(c), " + unit * ", n, " + l0, sum", k_.instrs[c].slot, ");"));
    }
    close();
    Grid grid;
    grid.x = static_cast<uint32_t>((units_ + classes - 1) / classes);
    grid.y = static_cast<uint32_t>(std::min<int64_t>(tiles, 65535));
    return finish(columns * classes, 0, grid,
                  str_cat("sums of ", points_, " rows for ", lanes_, " columns, ", width_, " at a time"));
  }

 private:
  std::string pack(int id) const {
    return str_cat("Pack<", memory_type(k_.operands[k_.instrs[id].slot].dtype), ", ", width_, ">");
  }
  // Opens a loop over the rows that are read together, and the condition that a row exists.
  void open_row(int together, const std::vector<int>& used) {
    open(str_cat("UNROLL for (int u = 0; u < ", together, "; ++u) {"));
    line(str_cat("const i64 ", point(), " = r0 + 16 * u;"));
    open(str_cat("if (", point(), " < end) {"));
    outer_positions(false);
    outer_pointers(false, used);
  }

  // Loads and stores of neighbouring elements.
  bool packed(int id) const {
    const Instr& i = k_.instrs[id];
    return (i.op == Op::kStore || (i.op == Op::kLoad && i.a < 0)) && Form::in_loop(i.level) &&
           k_.operands[i.slot].strides.back() == StrideKind::kUnit;
  }

  void choose_width() {
    std::vector<int> all = values_;
    all.insert(all.end(), form_.loops[last_].stores.begin(), form_.loops[last_].stores.end());
    int64_t together = lanes_;  // the starts of vectors are multiples of this
    int narrowest = 0;
    for (int id : all) {
      if (!packed(id)) continue;
      const int slot = k_.instrs[id].slot;
      const auto size = static_cast<int>(itemsize(k_.operands[slot].dtype));
      const loop_ir::BoundOperand& b = low_.bound[slot];
      narrowest = narrowest == 0 ? size : std::min(narrowest, size);
      auto multiple = [&](int64_t elements) {
        // Vectors are read in pieces of at most 16 bytes.
        if (elements * size % 16 != 0) together = std::gcd(together, elements);
      };
      if (job_.options.alignment < 16) together = std::gcd(together, std::max(1, job_.options.alignment / size));
      multiple(b.offset);
      for (int a = 0; a < k_.outer_axes(); ++a)
        if (low_.extents[a] > 1) multiple(b.strides[a]);
    }
    width_ = narrowest == 0 ? 1 : std::min(8, std::max(1, 16 / narrowest));
    while (width_ > 1 && together % width_ != 0) width_ /= 2;
    // Use narrower vectors, and so more threads, if too few threads or bytes would be in flight.
    const double least = double{kUnderWay} * job_.device.multiprocessors;
    while (width_ > 1 && (threads(width_) < int64_t{kLeastThreads} * job_.device.multiprocessors ||
                          (under_way(width_) < least && under_way(width_ / 2) > 1.4 * under_way(width_))))
      width_ /= 2;
  }

  int64_t threads(int width) const { return units_ * ((lanes_ + width - 1) / width); }
  // The bytes of a row that a thread reads.
  int bytes_read(int width) const {
    int bytes = 0;
    for (int id : values_)
      if (packed(id) && moves(k_.instrs[id].slot))
        bytes += std::max(4, static_cast<int>(itemsize(k_.operands[k_.instrs[id].slot].dtype)) * width);
    return bytes;
  }
  double under_way(int width) const {
    return static_cast<double>(threads(width)) * bytes_read(width) * rows_together(width);
  }
  int rows_together(int width) const {
    int rows = 16;
    while (rows > 2 &&
           (rows * bytes_read(width) > 4 * kReadRegisters || operations(form_) * width * rows > kUnrolledWork))
      rows /= 2;
    return rows;
  }

  std::string place(const Instr& i) {
    const int id = static_cast<int>(&i - k_.instrs.data());
    if (packed(id))
      return i.op == Op::kStore ? str_cat("r", i.slot, "[j]") : str_cat("v", id, moves(i.slot) ? "[u][j]" : "[j]");
    const std::string index = lane_index(i);
    const std::string at = str_cat(pointer_name(i.slot), "[", index, index_term(i), "]");
    return i.op == Op::kLoad && is_unwritten(i.slot) ? str_cat("unwritten(", at, ")") : at;
  }

  int64_t units_;
  int last_, width_ = 1;
  std::string at_;
  std::vector<int> values_;
};

}  // namespace

CudaLaunch print_column_sums(const PrintJob& job) { return ColumnSums(job).run(); }

}  // namespace weft::cuda
