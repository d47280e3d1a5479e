// Sums along rows together with sums over them, if batches of rows fit in shared memory (stage.h). As in columns.cc, a
// thread block takes one of 16 classes of a block of 1024 rows and writes the sum of each column to
// partial[block][class]. It copies its rows in batches, the next one while threads work on the current one: half warps
// sum along rows, then threads sum down the columns, then all threads store results in vectors.
#include <algorithm>

#include "compiler/targets/cuda/print/stage.h"
#include "framework/base/str_cat.h"
#include "ops/numerics/reduce_order.h"

namespace weft::cuda {
namespace {

using loop_ir::Op;

constexpr int kRowsOfClass = kReduceBlock / kReduceLanes;
constexpr int kLeastRows = 4;
constexpr int kManyValues = 40;  // per point; with more values, the registers suffice for at most 512 threads

class StagedColumns : Stage {
 public:
  explicit StagedColumns(const Job& job) : Stage(job, job.low.lanes()) {
    last_ = static_cast<int>(form_.loops.size()) - 1;
    units_ = row_classes();
    while (halves_ < 32 && int64_t{halves_} * kReduceBlock < lanes_) halves_ *= 2;
    team_ = 16 * halves_;
    find_parts(false);
    row_values_ = row_values(last_);
    choose_threads();
    for (rows_ = kRowsOfClass; rows_ > kLeastRows && shared_bytes() > job_.device.max_shared_bytes;) rows_ /= 2;
  }

  bool possible() const {
    return copies() && !has_gathered() && tiles_even() && int64_t{halves_} * kReduceBlock >= lanes_ &&
           shared_bytes() <= job_.device.max_shared_bytes;
  }

  CudaLaunch run() {
    const std::string n = params.i32("n", lanes_), points = params.i64("rows", points_),
                      units = params.i64("units", units_);
    const std::vector<int>& columns = form_.loops[last_].columns;
    line(str_cat("const int team = threadIdx.x / ", team_, ", who = threadIdx.x % ", team_,
                 ", lane = ", halves_ > 1 ? "who / 16 * 1024 + who % 16;" : "who;"));
    line("int turn = 0;");
    int64_t at = fold_bytes();
    for (int id : row_values_) {
      line(str_cat("const Shared<", type(id), "> row_", name(id), " = shared_at<", type(id), ">(", at, ");"));
      at += 8 * rows_;
    }
    for (int c : columns) {
      line(str_cat("const Shared<", type(c), "> sums", k_.instrs[c].slot, " = shared_at<", type(c), ">(", at, ");"));
      at += sum_bytes();
    }
    open_units(units, false);
    line("const i64 first = unit / 16 * 1024 + unit % 16, stop = unit / 16 * 1024 + 1024;");
    line(str_cat("const i64 end = ", points, " < stop ? ", points, " : stop;"));
    line("const int count = first < end ? (int)((end - first + 15) / 16) : 0;", "rows");
    for (int c : columns) line(str_cat(each_column(n), " sums", k_.instrs[c].slot, "[l] = ", identity(c), ";"));
    const bool twice = rows_ < kRowsOfClass;
    if (twice) {
      line(str_cat("int at = ", at, ";"));
      open(str_cat("for (int batch = -", rows_, "; batch < count; batch += ", rows_, ", at = ", 2 * at + batch_bytes(),
                   " - at) {"));
      open(str_cat("{  // the next one"));
      copy(str_cat("batch + ", rows_), str_cat(2 * at + batch_bytes(), " - at"));
      close();
      line("if (batch < 0) continue;");
      line("cp_async_wait<1>();");
    } else {
      line(str_cat("const int at = ", at, ", batch = 0;"));
      open("if (count > 0) {");
      copy("batch", "at");
      line("cp_async_wait<0>();");
    }
    line("__syncthreads();");
    if (!row_values_.empty() || !form_.last.empty()) along(n);
    down(n);
    store_rows(n);
    line("__syncthreads();");
    close();
    for (int c : columns) {
      const int slot = k_.instrs[c].slot;
      line(str_cat(each_column(n), " ", partial(c), "[unit * ", n, " + l] = sums", slot, "[l];"));
    }
    close();
    return finish(
        threads_, static_cast<int>(shared_bytes()), units_,
        str_cat(points_, " rows of ", lanes_, " in batches of ", rows_, " in shared memory, and their columns"));
  }

 private:
  std::string each_column(const std::string& n) const {
    return str_cat("for (int l = threadIdx.x; l < ", n, "; l += ", threads_, ")");
  }
  int64_t fold_bytes() const { return halves_ > 1 ? threads_ : 0; }
  int64_t sum_bytes() const { return (8 * lanes_ + 15) / 16 * 16; }
  int64_t batch_bytes() const { return rows_ * row_bytes(); }
  int64_t shared_bytes() const {
    return fold_bytes() + 8 * rows_ * static_cast<int64_t>(row_values_.size()) +
           sum_bytes() * static_cast<int64_t>(form_.loops[last_].columns.size()) +
           batch_bytes() * (rows_ < kRowsOfClass ? 2 : 1);
  }

  void choose_threads() {
    size_t values = 0;
    for (size_t loop = 0; loop < form_.loops.size(); ++loop)
      values = std::max(values, form_.closure(static_cast<int>(loop), {}).size());
    double best = 0;
    for (int t = 256; t <= (values > kManyValues ? 512 : 768); t += 128) {
      if (t % team_ != 0) continue;
      const double used = static_cast<double>(lanes_) / static_cast<double>((lanes_ + t - 1) / t * t);
      if (used >= best) best = used, threads_ = t;
    }
  }

  std::string row(const std::string& r) const { return str_cat("first + 16 * (i64)(batch + ", r, ")"); }

  // Copies the rows of the class, starting at `from`, to shared memory, one per team.
  void copy(const std::string& from, const std::string& at) {
    const std::string n = params.i32("n", lanes_);
    line(str_cat("const int next = ", from, ", to = ", at, ";"));
    open(str_cat("for (int r = team; r < ", rows_, " && next + r < count; r += ", threads_ / team_, ") {"));
    line(str_cat("const i64 ", point(), " = first + 16 * (i64)(next + r);"));
    outer_positions(false);
    outer_pointers(false, staged());
    declare_tiles(str_cat("to + r * ", row_bytes()));
    copy_tiles(false, n, "who", str_cat(team_));
    close();
    line("cp_async_commit();");
  }

  // Sums along the rows of a batch, one row per team.
  void along(const std::string& n) {
    const int teams = threads_ / team_;
    open(str_cat("for (int r0 = 0; r0 < ", rows_, "; r0 += ", teams, ") {  // along the rows"));
    line(str_cat("const bool mine = r0 + team < ", rows_, " && batch + r0 + team < count;"));
    line(str_cat("const int r = mine ? r0 + team : 0, m = mine ? ", n, " : 0;"));
    line(str_cat("const i64 ", point(), " = ", row("r"), ";"));
    outer_positions(false);
    std::vector<int> used = form_.last;
    for (size_t id = 0; id < k_.instrs.size(); ++id)
      if (form_.outside[id] && form_.same[id] == static_cast<int>(id)) used.push_back(static_cast<int>(id));
    for (const StagePart& part : parts_)
      if (!part.stores) used.insert(used.end(), part.compute.begin(), part.compute.end());
    outer_pointers(false, unstaged(used));
    declare_tiles(str_cat("at + r * ", row_bytes()));
    if (halves_ > 1) line("const int edge = who / 16 * 1024 + 1024, stop = m < edge ? m : edge;");
    int stage = 0;
    for (const StagePart& part : parts_) {
      if (part.stores) continue;
      for (; stage <= part.loop; ++stage) values_before(stage);
      for (int r : part.sinks) line(str_cat(type(r), " acc", r, " = ", identity(r), ";"));
      open(str_cat("_Pragma(\"unroll 8\") for (int l = lane; l < ", halves_ > 1 ? "stop" : "m", "; l += 16) {"));
      lane_values(part);
      for (int r : part.sinks) take(r);
      close();
      for (int r : part.sinks)
        line(str_cat("const ", type(r), " ", name(r), " = fold_row<", op(r), ", ", halves_, ">(acc", r, ", turn);"));
    }
    for (; stage <= last_ + 1; ++stage) values_before(stage);
    open("if (mine && who == 0) {");
    for (int id : row_values_) line(str_cat("row_", name(id), "[r] = ", name(id), ";"));
    for (int id : form_.last) store(id);
    close();
    close();
    line("__syncthreads();");
  }

  void down(const std::string& n) {
    const std::vector<int>& columns = form_.loops[last_].columns;
    open(str_cat(each_column(n), " {  // down the columns"));
    for (int c : columns) line(str_cat(type(c), " sum", k_.instrs[c].slot, " = sums", k_.instrs[c].slot, "[l];"));
    std::vector<int> all = form_.closure_of(columns, {}), first, rest;
    for (int id : all) {
      const loop_ir::Instr& i = k_.instrs[id];
      (i.op == Op::kLoad && i.a < 0 && !moves(i.slot) ? first : rest).push_back(id);
    }
    values_of(first);
    open(str_cat("_Pragma(\"unroll 4\") for (int r = 0; r < ", rows_, " && batch + r < count; ++r) {"));
    line(str_cat("const i64 ", point(), " = ", row("r"), ";"));
    outer_positions(false);
    outer_pointers(false, unstaged(rest));
    declare_tiles(str_cat("at + r * ", row_bytes()));
    declare_row_values("r", rest, columns);
    values_of(rest);
    for (int c : columns)
      line(str_cat("sum", k_.instrs[c].slot, " = ", op(c), "::f(sum", k_.instrs[c].slot, ", ", use(k_.instrs[c].a),
                   ");"),
           k_.instrs[c].note);
    close();
    for (int c : columns) line(str_cat("sums", k_.instrs[c].slot, "[l] = sum", k_.instrs[c].slot, ";"));
    close();
  }

  void store_rows(const std::string& n) {
    if (parts_.empty() || !parts_.back().stores) return;
    const StagePart& part = parts_.back();
    const int team = std::max(1, threads_ / rows_);
    open(str_cat("for (int r = threadIdx.x / ", team, "; r < ", rows_, " && batch + r < count; r += ", threads_ / team,
                 ") {  // along them again"));
    line(str_cat("const i64 ", point(), " = ", row("r"), ";"));
    outer_positions(false);
    std::vector<int> used = unstaged(part.compute);
    used.insert(used.end(), part.sinks.begin(), part.sinks.end());
    outer_pointers(false, used);
    declare_tiles(str_cat("at + r * ", row_bytes()));
    declare_row_values("r", part.compute, part.sinks);
    print_stores(part, n, str_cat("(int)threadIdx.x % ", team), str_cat(team));
    close();
  }

  // Declares the per-row values of row r that `values` and `sinks` use.
  void declare_row_values(const std::string& r, const std::vector<int>& values, const std::vector<int>& sinks) {
    std::vector<bool> used(k_.instrs.size());
    for (const std::vector<int>* list : {&values, &sinks})
      for (int id : *list)
        for (int x : {k_.instrs[id].a, k_.instrs[id].b, k_.instrs[id].c})
          if (x >= 0) used[form_.same[x]] = true;
    for (int id : row_values_)
      if (used[id]) line(str_cat("const ", type(id), " ", name(id), " = row_", name(id), "[", r, "];"));
  }

  int last_ = 0, halves_ = 1, team_ = 16, threads_ = 512, rows_ = 1;
  int64_t units_;
  std::vector<int> row_values_;
};

}  // namespace

bool print_staged_columns(const Job& job, CudaLaunch* launch) {
  StagedColumns columns(job);
  if (!columns.possible()) return false;
  *launch = columns.run();
  return true;
}

}  // namespace weft::cuda
