// Sums over rows together with sums along them, for rows that are not copied to shared memory (staged_columns.cc). The
// rows of a block of 1024 fall into 16 classes (row % 16), the logical lanes of the sums. A thread block takes the 64
// rows of one class in order and writes the sum of each column to partial[block][class]; the finishing kernel combines
// these. It processes the class in batches: first each half warp sums along its own rows and puts the results into
// shared memory, then threads sum down the columns of the batch.
#include <algorithm>

#include "compiler/targets/cuda/print/writer.h"
#include "framework/base/error.h"
#include "framework/base/str_cat.h"
#include "ops/numerics/reduce_order.h"

namespace weft::cuda {
namespace {

using loop_ir::Instr;
using loop_ir::Op;
using loop_ir::StrideKind;

// A thread block has one class of rows. If classes are few, the block is large; with 1024 threads, each has 64
// registers.
constexpr int kThreadsOfBoth = 512, kManyThreadsOfBoth = 1024, kValuesOfMany = 24;

class ColumnsWriter : KernelWriter {
 public:
  explicit ColumnsWriter(const PrintJob& job) : KernelWriter(job) {
    units_ = row_classes();
    element = [this](const Instr& i) { return place(i); };
    marks_unwritten = true;
    at_ = narrow_ ? "i32" : "i64";
  }

  CudaLaunch run() {
    const int last = static_cast<int>(form_.loops.size()) - 1;
    const std::vector<int> row_values = this->row_values(last);
    size_t values = row_values.size();
    for (size_t loop = 0; loop < form_.loops.size(); ++loop)
      values = std::max(values, form_.closure(static_cast<int>(loop), {}).size());
    const bool many = units_ < 2 * job_.device.multiprocessors && values <= kValuesOfMany;
    const int threads = many ? kManyThreadsOfBoth : kThreadsOfBoth;
    int halves = 1;
    while (halves < 16 && int64_t{halves} * kReduceBlock < lanes_) halves *= 2;
    const int rows = threads / 16 / halves;  // per batch
    WEFT_BUG_IF(int64_t{halves} * kReduceBlock < lanes_, "cuda: ", lanes_, " columns");
    const std::string n = extent(k_.axes - 1, narrow_), points = params.i64("rows", points_),
                      units = params.i64("units", units_);
    line(str_cat("const int lane = threadIdx.x % ", 16 * halves, halves > 1 ? " / 16 * 1024 + threadIdx.x % 16" : "",
                 ";"));
    line("int turn = 0;");
    int bytes = halves > 1 ? threads : 0;
    for (int id : row_values) {
      line(str_cat("const Shared<", type(id), "> row_", name(id), " = shared_at<", type(id), ">(", bytes, ");"));
      bytes += 8 * rows;
    }
    open_units(units, false);
    line("const i64 first = unit / 16 * 1024;");
    line(str_cat("const i64 end = ", points, " < first + 1024 ? ", points, " : first + 1024;"));
    for (int c : form_.loops[last].columns)
      line(str_cat("for (", at_, " l = threadIdx.x; l < ", n, "; l += ", threads, ") ", partial(c), "[unit * ", n,
                   " + l] = ", identity(c), ";"));
    open(str_cat("for (i64 batch = first + unit % 16; batch < end; batch += ", 16 * rows, ") {"));
    open("{  // along the rows");
    line(str_cat("const i64 mine = batch + 16 * (i64)(threadIdx.x / ", 16 * halves, "), ", point(),
                 " = mine < end ? mine : batch;"));
    line(str_cat("const ", at_, " m = mine < end ? ", n, " : 0;"));
    outer_positions(false);
    outer_pointers(false, needed(0, last, true));
    for (int loop = 0; loop < last; ++loop) {
      values_before(loop);
      const Loop& l = form_.loops[loop];
      for (int r : l.reduces) line(str_cat(type(r), " acc", r, " = ", identity(r), ";"));
      if (halves > 1)
        line(
            str_cat("const ", at_, " stop", loop, " = m < lane - lane % 1024 + 1024 ? m : lane - lane % 1024 + 1024;"));
      open(str_cat("_Pragma(\"unroll 8\") for (", at_, " l = lane; l < ", halves > 1 ? str_cat("stop", loop) : "m",
                   "; l += 16) {"));
      values_of(form_.closure(loop, {}));
      for (int r : l.reduces) take(r);
      close();
      for (int r : l.reduces)
        line(str_cat("const ", type(r), " ", name(r), " = fold_row<", op(r), ", ", halves, ">(acc", r, ", turn);"));
    }
    for (int stage = last; stage <= last + 1; ++stage) values_before(stage);
    open("if (lane == 0) {");
    for (int id : row_values) line(str_cat("row_", name(id), "[threadIdx.x / ", 16 * halves, "] = ", name(id), ";"));
    if (!form_.last.empty()) {
      open("if (mine < end) {");
      for (int id : form_.last) store(id);
      close();
    }
    close();
    close();
    line("__syncthreads();");
    open(str_cat("for (", at_, " l = threadIdx.x; l < ", n, "; l += ", threads, ") {  // down the columns"));
    for (int c : form_.loops[last].columns)
      line(str_cat(type(c), " sum", k_.instrs[c].slot, " = ", partial(c), "[unit * ", n, " + l];"));
    // Read several rows before writing any: results may overwrite operands, so no compiler would reorder these.
    const int together = std::min(4, rows);
    std::vector<int> first, reads, rest;
    in_array.assign(k_.instrs.size(), false);
    for (int id : form_.closure(last, {})) {
      const Instr& i = k_.instrs[id];
      const bool load = i.op == Op::kLoad && i.a < 0;
      (!load ? rest : moves(i.slot) ? reads : first).push_back(id);
      in_array[id] = load && moves(i.slot);
    }
    values_of(first);
    open(str_cat("for (int r = 0; r < ", rows, " && batch + 16 * r < end; r += ", together, ") {"));
    for (int id : reads) line(str_cat(type(id), " ", name(id), "[", together, "];"));
    array_index = "j";
    looping = true;
    guard = "in";
    for (const bool writes : {false, true}) {
      if (!writes && reads.empty()) continue;
      open(str_cat("UNROLL for (int j = 0; j < ", together, "; ++j) {"));
      line(str_cat("const i64 ", point(), " = batch + 16 * (r + j);"));
      line(str_cat("const bool in = ", point(), " < end;"));
      outer_positions(false);
      std::vector<int> used = writes ? rest : reads;
      if (writes) used.insert(used.end(), form_.loops[last].stores.begin(), form_.loops[last].stores.end());
      outer_pointers(false, used);
      if (!writes) {
        values_of(reads);
      } else {
        for (int id : row_values) line(str_cat("const ", type(id), " ", name(id), " = row_", name(id), "[r + j];"));
        values_of(rest);
        take_columns(last);
      }
      close();
    }
    guard.clear();
    looping = false;
    in_array.clear();
    close();
    for (int c : form_.loops[last].columns)
      line(str_cat(partial(c), "[unit * ", n, " + l] = sum", k_.instrs[c].slot, ";"));
    close();
    line("__syncthreads();");
    close();
    close();
    return finish(threads, bytes, units_,
                  str_cat(points_, " rows of ", lanes_, " in batches of ", rows, ", and their columns"));
  }

 private:
  std::string place(const Instr& i) {
    const std::string index = lane_index(i);
    return str_cat(pointer_name(i.slot), "[", index, index_term(i), "]");
  }

  void take_columns(int loop) {
    for (int c : form_.loops[loop].columns)
      line(str_cat(guard.empty() ? "" : str_cat("if (", guard, ") "), "sum", k_.instrs[c].slot, " = ", op(c), "::f(sum",
                   k_.instrs[c].slot, ", ", use(k_.instrs[c].a), ");"),
           k_.instrs[c].note);
    for (int id : form_.loops[loop].stores) store(id);
  }

  int64_t units_;
  std::string at_;
};

}  // namespace

CudaLaunch print_columns(const PrintJob& job) {
  if (!job.form.has_reduces() && job.form.last.empty()) return print_column_sums(job);
  CudaLaunch launch;
  return print_staged_columns(job, &launch) ? launch : ColumnsWriter(job).run();
}

}  // namespace weft::cuda
