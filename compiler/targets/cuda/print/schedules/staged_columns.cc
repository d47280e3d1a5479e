// Sums along rows together with sums over them, if batches of rows fit in shared memory (stage.h). As in columns.cc, a
// thread block takes one of 16 classes of a block of 1024 rows and writes the sum of each column to
// partial[block][class]. It copies its rows in batches, the next one while threads work on the current one: half warps
// sum along rows, then threads sum down the columns and store results, two neighbouring columns each. Batches are so
// small that a multiprocessor has two thread blocks: sums along rows use few threads and mostly wait, and the other
// block then works down its columns.
#include <algorithm>
#include <utility>

#include "compiler/targets/cuda/print/stage.h"
#include "framework/base/str_cat.h"
#include "ops/numerics/reduce_order.h"

namespace weft::cuda {
namespace {

using loop_ir::Op;

constexpr int kRowsOfClass = kReduceBlock / kReduceLanes;
constexpr int kLeastRows = 4;
constexpr int kManyValues = 40;  // per point; with more values, the registers suffice for at most 512 threads
constexpr int kPairs = 512;      // columns from which a thread takes two

class StagedColumns : StageWriter {
 public:
  explicit StagedColumns(const PrintJob& job) : StageWriter(job, job.low.lanes()) {
    last_ = static_cast<int>(form_.loops.size()) - 1;
    units_ = row_classes();
    while (halves_ < 32 && int64_t{halves_} * kReduceBlock < lanes_) halves_ *= 2;
    team_ = 16 * halves_;
    find_parts(false);
    row_values_ = row_values(last_);
    merged_ = even_ && !parts_.empty() && parts_.back().stores;
    columns_ = even_ && lanes_ >= kPairs ? 2 : 1;
    choose_threads();
    // Two thread blocks per multiprocessor, or one if a batch would have too few rows.
    const int64_t all = job_.device.max_shared_bytes, half = (all - 1024) / 2;
    auto choose_rows = [&](int64_t bytes) {
      for (rows_ = kRowsOfClass; rows_ > kLeastRows && shared_bytes() > bytes;) rows_ /= 2;
      return shared_bytes() <= bytes;
    };
    if (!choose_rows(half)) choose_rows(all);
    find_ahead();
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
      for (int id : ahead_) line(str_cat(type(id), " next_", name(id), " = ", type(id), "(0);"));
      open(str_cat("for (int batch = -", rows_, "; batch < count; batch += ", rows_, ", at = ", 2 * at + batch_bytes(),
                   " - at) {"));
      for (int id : ahead_) line(str_cat("const ", type(id), " ", name(id), " = next_", name(id), ";"));
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
    if (!merged_) store_rows(n);
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
      const int64_t each = (lanes_ + columns_ - 1) / columns_;
      const double used = static_cast<double>(each) / static_cast<double>((each + t - 1) / t * t);
      if (used >= best) best = used, threads_ = t;
    }
  }

  std::string row(const std::string& r) const { return str_cat("first + 16 * (i64)(batch + ", r, ")"); }

  // Numbers of a row that half warps read from memory at the beginning of their work. They are read with the rows.
  void find_ahead() {
    if (rows_ == kRowsOfClass || threads_ / team_ < rows_) return;
    for (int id = 0; id < static_cast<int>(k_.instrs.size()); ++id) {
      const loop_ir::Instr& i = k_.instrs[id];
      if (i.op == Op::kLoad && i.a < 0 && !form_.in_loop(id) && form_.same[id] == id && form_.outside[id] &&
          moves(i.slot) && is_unwritten(i.slot))
        ahead_.push_back(id);
    }
  }

  // Copies the rows of the class, starting at `from`, to shared memory, all at once.
  void copy(const std::string& from, const std::string& at) {
    const std::string n = params.i32("n", lanes_);
    const int team = std::max(16, threads_ / rows_), teams = threads_ / team;
    line(str_cat("const int next = ", from, ", to = ", at, ";"));
    open(str_cat("for (int r = threadIdx.x / ", team, "; r < ", rows_, " && next + r < count; r += ", teams, ") {"));
    line(str_cat("const i64 ", point(), " = first + 16 * (i64)(next + r);"));
    outer_positions(false);
    outer_pointers(false, staged());
    declare_tiles(str_cat("to + r * ", row_bytes()));
    copy_tiles(false, n, str_cat("(int)threadIdx.x % ", team), str_cat(team));
    close();
    line("cp_async_commit();");
    if (ahead_.empty()) return;
    open(str_cat("if (team < ", rows_, " && next + team < count) {"));
    line(str_cat("const i64 ", point(), " = first + 16 * (i64)(next + team);"));
    outer_positions(false);
    outer_pointers(false, ahead_);
    for (int id : ahead_) line(str_cat("next_", name(id), " = ", expression(k_.instrs[id]), ";"));
    close();
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
    auto is_ahead = [&](int id) { return std::find(ahead_.begin(), ahead_.end(), id) != ahead_.end(); };
    std::erase_if(used, is_ahead);
    outer_pointers(false, unstaged(used));
    declare_tiles(str_cat("at + r * ", row_bytes()));
    if (halves_ > 1) line("const int edge = who / 16 * 1024 + 1024, stop = m < edge ? m : edge;");
    int stage = 0;
    for (const StagePart& part : parts_) {
      if (part.stores) continue;
      for (; stage <= part.loop; ++stage) values_before(stage, is_ahead);
      for (int r : part.sinks) line(str_cat(type(r), " acc", r, " = ", identity(r), ";"));
      open(str_cat("_Pragma(\"unroll 8\") for (int l = lane; l < ", halves_ > 1 ? "stop" : "m", "; l += 16) {"));
      lane_values(part);
      for (int r : part.sinks) take(r);
      close();
      for (int r : part.sinks)
        line(str_cat("const ", type(r), " ", name(r), " = fold_row<", op(r), ", ", halves_, ">(acc", r, ", turn);"));
    }
    for (; stage <= last_ + 1; ++stage) values_before(stage, is_ahead);
    open("if (mine && who == 0) {");
    for (int id : row_values_) line(str_cat("row_", name(id), "[r] = ", name(id), ";"));
    for (int id : form_.last) store(id);
    close();
    close();
    line("__syncthreads();");
  }

  // Sums down the columns of a batch, and stores the results if merged_.
  void down(const std::string& n) {
    const std::vector<int>& columns = form_.loops[last_].columns;
    std::vector<int> sinks = columns, first, rest, outs;
    if (merged_) sinks.insert(sinks.end(), parts_.back().sinks.begin(), parts_.back().sinks.end());
    for (int id : form_.closure_of(sinks, {})) {
      const loop_ir::Instr& i = k_.instrs[id];
      (i.op == Op::kLoad && i.a < 0 && !moves(i.slot) ? first : rest).push_back(id);
    }
    const std::string w = str_cat(columns_), step = columns_ > 1 ? w + " * " : "";
    const int width = std::exchange(width_, columns_);
    in_vectors_ = even_;
    auto pack = [&](const std::string& e) { return str_cat("Pack<", e, ", ", w, ">"); };
    open(str_cat("for (int l0 = ", step, "(int)threadIdx.x; l0 < ", n, "; l0 += ", step, threads_,
                 ") {  // down the columns"));
    for (int c : columns) {
      const int slot = k_.instrs[c].slot;
      line(str_cat(pack(type(c)), " sum", slot, " = load_tile<", w, ">(sums", slot, ", l0);"));
    }
    load_vectors(first);
    open(str_cat("_Pragma(\"unroll 4\") for (int r = 0; r < ", rows_, " && batch + r < count; ++r) {"));
    line(str_cat("const i64 ", point(), " = ", row("r"), ";"));
    outer_positions(false);
    std::vector<int> used = unstaged(rest);
    if (merged_) used.insert(used.end(), parts_.back().sinks.begin(), parts_.back().sinks.end());
    outer_pointers(false, used);
    declare_tiles(str_cat("at + r * ", row_bytes()));
    declare_row_values("r", rest, sinks);
    load_vectors(rest);
    if (merged_)
      for (int id : parts_.back().sinks)
        if (packed(id)) outs.push_back(k_.instrs[id].slot);
    for (int slot : outs) line(str_cat(pack(memory_type(k_.operands[slot].dtype)), " r", slot, ";"));
    open(str_cat("UNROLL for (int j = 0; j < ", w, "; ++j) {"));
    line("const int l = l0 + j;");
    values_of(first);
    values_of(rest);
    for (int c : columns) take_column(c);
    if (merged_)
      for (int id : parts_.back().sinks) store(id);
    close();
    for (int slot : outs) line(str_cat("store<", w, ">(", pointer_name(slot), " + l0, r", slot, ");"));
    close();
    for (int c : columns)
      line(str_cat("store_tile<", w, ">(sums", k_.instrs[c].slot, ", l0, sum", k_.instrs[c].slot, ");"));
    close();
    in_vectors_ = false;
    width_ = width;
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

  int last_ = 0, halves_ = 1, team_ = 16, threads_ = 512, rows_ = 1, columns_ = 1;
  bool merged_ = false;     // the threads that sum down the columns also store
  std::vector<int> ahead_;  // loads
  int64_t units_;
  std::vector<int> row_values_;
};

}  // namespace

bool print_staged_columns(const PrintJob& job, CudaLaunch* launch) {
  StagedColumns columns(job);
  if (!columns.possible()) return false;
  *launch = columns.run();
  return true;
}

}  // namespace weft::cuda
