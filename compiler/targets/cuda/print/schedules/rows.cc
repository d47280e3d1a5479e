// Sums along rows. 16 threads, the logical lanes, take a block of 1024 elements of a row: thread t takes elements t, t
// + 16, ... A row has one half warp per block, at most 32. A thread block has enough rows for 128 threads. In rows up
// to 16384, values that several loops need stay in registers (kSteps per thread); longer rows are read again.
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

constexpr int kMostHalves = 32;       // per row: 512 threads
constexpr int kArrayRegisters = 96;   // per thread, for values that later loops need
constexpr int kUnrolledWork = 12000;  // operations of a kernel whose loops are unrolled

int halves_of(int64_t lanes) {
  int halves = 1;
  while (halves < kMostHalves && int64_t{halves} * kReduceBlock < lanes) halves *= 2;
  return halves;
}

// Steps of a half warp, rounded to few sizes so that rows of similar length share a kernel.
int steps_of(int64_t lanes) {
  const int64_t n = (std::min<int64_t>(lanes, kReduceBlock) + kReduceLanes - 1) / kReduceLanes;
  if (n <= 4 || lanes % kReduceLanes == 0) return static_cast<int>(std::max<int64_t>(n, 1));
  return static_cast<int>(n <= 16 ? (n + 3) / 4 * 4 : (n + 7) / 8 * 8);
}

class RowsWriter : KernelWriter {
 public:
  explicit RowsWriter(const PrintJob& job) : KernelWriter(job) {
    halves_ = halves_of(lanes_);
    blocks_ = (lanes_ + kReduceBlock - 1) / kReduceBlock;
    long_ = blocks_ > halves_;
    threads_ = std::max(128, 16 * halves_);
    rows_ = threads_ / 16 / halves_;
    few_ = is_narrow(job, points_);
    steps_ = long_ ? 64 : steps_of(lanes_);
    // 512 threads have 128 registers each, too few for arrays.
    const bool arrays = !long_ && halves_ < kMostHalves && operations(form_) * steps_ <= kUnrolledWork;
    arrays_ = choose_arrays(form_, steps_, arrays ? kArrayRegisters : 0);
    held_ = std::find(arrays_.kept.begin(), arrays_.kept.end(), true) != arrays_.kept.end();
    // Every step has all its elements, and every thread block all its rows.
    full_ = !long_ && lanes_ == int64_t{halves_} * 16 * steps_ && points_ % rows_ == 0;
    element = [this](const Instr& i) { return place(i); };
    marks_unwritten = true;
  }

  CudaLaunch run() {
    if (held_ || !long_) line(str_cat("constexpr int kSteps = ", steps_, ";"));
    if (halves_ == 1) {
      line("const int lane = threadIdx.x % 16;");
    } else if (!long_) {
      line(str_cat("const int lane = threadIdx.x % ", 16 * halves_, " / 16 * 1024 + threadIdx.x % 16;"));
    } else {
      line("const int half = threadIdx.x / 16, lane = threadIdx.x % 16;");
    }
    if (halves_ > 1 && !long_) line("int turn = 0;");
    if (halves_ == 1) line("int turn;");
    n_ = open_rows(rows_, 16 * halves_, full_, few_, narrow_);
    loops_at_point(few_, [this](int l) { loop(l); });
    if (!form_.last.empty()) {
      // Other threads, also in rows after the last one, may not yet have read the elements that are overwritten now.
      if (overwrites_points()) line("__syncthreads();  // all have read the overwritten elements");
      const std::string first = long_ ? "threadIdx.x == 0" : "lane == 0";
      open(str_cat("if (", has_row(rows_, full_, few_), first, ") {"));
      for (int id : form_.last) store(id);
      close();
    }
    close();
    const int64_t blocks = (points_ + rows_ - 1) / rows_;
    int shared = halves_ > 1 && !long_ ? threads_ : 0;
    if (long_) shared = most_sums_ * 8 * static_cast<int>(area());
    WEFT_CHECK(shared <= job_.device.max_shared_bytes, "cuda: ", k_.name, ": a row of ", lanes_, " elements needs ",
               shared, " bytes of shared memory; there are ", job_.device.max_shared_bytes);
    return finish(threads_, shared, blocks, how());
  }

 private:
  std::string how() const {
    std::string s = str_cat(points_, " rows of ", lanes_, ", ",
                            halves_ == 1 ? "a half warp" : str_cat(halves_, " half warps"), " each");
    return s + (held_ ? ", kept in registers" : form_.loops.size() > 1 ? ", read by each loop" : "");
  }
  // Elements of shared memory for the blocks of a long row and the levels of their tree.
  int64_t area() const { return blocks_ + blocks_ / 16 + 4; }

  std::string place(const Instr& i) {
    const std::string at = pointer_name(i.slot);
    const std::string index = lane_index(i);
    const std::string indexed = index_term(i);
    return str_cat(at, "[", index, indexed, "]");
  }

  void loop(int number) {
    const Loop& l = form_.loops[number];
    for (int id : arrays_.compute[number])
      if (arrays_.kept[id]) line(str_cat(type(id), " ", name(id), "[kSteps];"));
    in_array = arrays_.kept;
    const std::string index = narrow_ ? "int" : "i64";
    if (long_) {
      most_sums_ = std::max(most_sums_, static_cast<int>(l.reduces.size()));
      int at = 0;
      for (int r : l.reduces)
        line(str_cat("const Shared<", type(r), "> blocks", r, " = shared_at<", type(r), ">(", 8 * area() * at++, ");"));
      // Both halves of a warp stay in the loop together.
      open(str_cat("for (int block = half; block - half % 2 < ", params.i32("blocks", blocks_), "; block += ", halves_,
                   ") {"));
    }
    for (int r : l.reduces) line(str_cat(type(r), " acc", r, " = ", identity(r), ";"));
    if (long_) {
      line(str_cat("const ", index, " end = ", n_, " < block * (", index, ")1024 + 1024 ? ", n_, " : block * (", index,
                   ")1024 + 1024;"));
    }
    const std::string start = long_ ? str_cat("block * (", index, ")1024 + lane") : "lane";
    if (const int together = held_ ? 0 : together_of(number, arrays_.compute[number])) {
      std::string stop = long_ ? "end" : n_;
      if (!long_ && halves_ > 1) {
        line(str_cat("const ", index, " edge = lane - lane % 1024 + 1024, end", number, " = ", n_, " < edge ? ", n_,
                     " : edge;"));
        stop = str_cat("end", number);
      }
      open(str_cat("for (", index, " l0 = ", start, "; l0 < ", stop, "; l0 += ", 16 * together, ") {"));
      read_together(number, arrays_.compute[number], together, [&] {
        line(str_cat("const ", index, " l = l0 + 16 * j;"));
        line(str_cat("const bool in = l < ", stop, ";"));
      });
    } else {
      one_by_one(number, index, start);
    }
    close();
    if (long_) {
      for (int r : l.reduces) {
        line(str_cat("acc", r, " = fold16<", op(r), ">(acc", r, ");"));
        line(str_cat("if (lane == 0 && block < ", params.i32("blocks", blocks_), ") blocks", r, "[block] = acc", r,
                     ";"));
      }
      close();
    }
    for (int r : l.reduces) {
      const std::string sum =
          long_ ? str_cat("fold_blocks<", op(r), ">(blocks", r, ", ", params.i32("blocks", blocks_), ")")
                : str_cat("fold_row<", op(r), ", ", halves_, ">(acc", r, ", turn)");
      line(str_cat("const ", type(r), " ", name(r), " = ", sum, ";"));
    }
  }
  // Prints the loop's body for each of its positions; leaves the loop open.
  void one_by_one(int number, const std::string& index, const std::string& start) {
    if (long_) {
      open(str_cat("_Pragma(\"unroll 8\") for (", index, " l = ", start, "; l < end; l += 16) {"));
    } else {
      open(str_cat(held_ ? "UNROLL " : "_Pragma(\"unroll 8\") ", "for (int i = 0; i < kSteps; ++i) {"));
      line(str_cat("const ", index, " l = lane + 16 * i;"));
      if (!full_ && held_) line(str_cat("const bool in = l < ", n_, ";"));
      if (!full_ && !held_) open(str_cat("if (l < ", n_, ") {"));
      if (!full_ && held_) guard = "in";
    }
    loop_step(number, arrays_.compute[number]);
    if (!long_ && !full_ && !held_) close();
    if (const int most = held_ ? steps_at_once(form_, arrays_, number, steps_) : 0)
      line(str_cat("if (i % ", most, " == ", most - 1, ") __syncwarp();"), "no more loads at once");
  }

  int64_t blocks_;
  int halves_, threads_, rows_, steps_;
  bool long_, few_, held_, full_;
  int most_sums_ = 1;
  std::string n_;
  Arrays arrays_;
};

}  // namespace

CudaLaunch print_rows(const PrintJob& job) {
  CudaLaunch launch;
  return print_staged_rows(job, &launch) ? launch : RowsWriter(job).run();
}

}  // namespace weft::cuda
