// Sums along rows that fit in shared memory. Each row is copied there once (stage.h). 16 threads, the logical lanes,
// take a block of 1024 elements: thread t takes elements t, t + 16, ... A row has one half warp per block, at most 32.
// A thread block has enough rows for 128 threads, or fewer if there are few rows or they are long.
#include <algorithm>

#include "compiler/targets/cuda/print/stage.h"
#include "framework/base/str_cat.h"
#include "ops/numerics/reduce_order.h"

namespace weft::cuda {
namespace {

constexpr int kThreads = 128, kMostHalves = 32;
constexpr int kLeastLanes = 64;
constexpr int64_t kManyBytes = 56 * 1024;  // per thread block with several rows

class StagedRows : StageWriter {
 public:
  explicit StagedRows(const PrintJob& job) : StageWriter(job, job.low.lanes()) {
    while (halves_ < kMostHalves && int64_t{halves_} * kReduceBlock < lanes_) halves_ *= 2;
    team_ = 16 * halves_;
    blocks_ = (lanes_ + kReduceBlock - 1) / kReduceBlock;
    long_ = blocks_ > halves_;
    few_ = is_narrow(job, points_);
    for (const bool keeps : {true, false}) {
      find_parts(keeps);
      if (fits(least())) break;
    }
    // Enough rows for the threads of a block, unless some multiprocessors would get no block or the rows need much
    // memory.
    for (rows_ = std::max(kThreads / team_, 1); rows_ > least(); rows_ /= 2)
      if (rows_ * row_bytes() <= kManyBytes && points_ >= int64_t{rows_} * job_.device.multiprocessors) break;
    threads_ = rows_ * team_;
    full_ = !long_ && lanes_ % (int64_t{halves_} * kReduceLanes) == 0 &&
            (halves_ == 1 || lanes_ == int64_t{halves_} * kReduceBlock) && points_ % rows_ == 0;
  }

  bool possible() const { return stages() && lanes_ >= kLeastLanes && fits(least()); }

  CudaLaunch run() {
    if (rows_ > 1 || !long_) line(str_cat("const int who = threadIdx.x % ", team_, ";"));
    if (long_) {
      line("const int who = threadIdx.x, half = threadIdx.x / 16, lane = threadIdx.x % 16;");
    } else if (halves_ == 1) {
      line("const int lane = who;");
    } else {
      line("int lane = who / 16 * 1024 + who % 16;");
      line("asm(\"\" : \"+r\"(lane));", "a number whose bits the compiler does not know: constants join the address");
    }
    if (!long_) line(str_cat("int turn", halves_ > 1 ? " = 0;" : ";"));
    line(str_cat("const int at = ", fold_bytes(),
                 rows_ > 1 ? str_cat(" + threadIdx.x / ", team_, " * ", row_bytes()) : "", ";"));
    declare_tiles("at");
    n_ = open_rows(rows_, team_, full_, few_, true);
    if (!full_ && halves_ > 1 && !long_)
      line(str_cat("const int edge = who / 16 * 1024 + 1024, end = ", n_, " < edge ? ", n_, " : edge;"));
    outer_positions(few_);
    outer_pointers(false, all_needed());
    copy_tiles(false, n_, "who", str_cat(team_));
    values_before(0);
    copy_tiles(true, n_, "who", str_cat(team_));
    if (copies()) {
      line("cp_async_commit();");
      line("cp_async_wait<0>();");
      line(sync());
    }
    int stage = 1;
    for (const StagePart& part : parts_) {
      for (; stage <= part.loop; ++stage) values_before(stage);
      if (part.stores) {
        if (!part.reads.empty()) line(sync());
        print_stores(part, n_, "who", str_cat(team_));
        if (&part != &parts_.back()) line(sync());
      } else if (long_) {
        long_sums(part);
      } else {
        sums(part);
      }
    }
    for (; stage <= static_cast<int>(form_.loops.size()); ++stage) values_before(stage);
    if (!form_.last.empty()) {
      if (overwrites_points()) line("__syncthreads();  // all have read the overwritten elements");
      open(str_cat("if (", has_row(rows_, full_, few_), "who == 0) {"));
      for (int id : form_.last) store(id);
      close();
    }
    line(sync(), "before the next rows come");
    close();
    return finish(threads_, static_cast<int>(fold_bytes() + rows_ * row_bytes()), (points_ + rows_ - 1) / rows_,
                  str_cat(points_, " rows of ", lanes_, ", ",
                          halves_ == 1 ? "a half warp" : str_cat(halves_, " half warps"), " each, in shared memory"));
  }

 private:
  std::string sync() const { return team_ == 16 ? "__syncwarp();" : "__syncthreads();"; }
  // Elements of shared memory for the blocks of a long row and the levels of their tree.
  int64_t area() const { return blocks_ + blocks_ / 16 + 4; }
  int64_t fold_bytes() const {
    size_t most = 1;
    for (const StagePart& part : parts_)
      if (!part.stores) most = std::max(most, part.sinks.size());
    const int64_t bytes = long_ ? 8 * area() * static_cast<int64_t>(most) : halves_ > 1 ? std::max(threads_, team_) : 0;
    return (bytes + 127) / 128 * 128;
  }
  int least() const { return team_ < 32 ? 2 : 1; }  // rows per whole warp
  bool fits(int rows) const { return fold_bytes() + rows * row_bytes() <= job_.device.max_shared_bytes; }

  void sums(const StagePart& part) {
    for (int r : part.sinks) line(str_cat(type(r), " acc", r, " = ", identity(r), ";"));
    const int64_t steps = (std::min<int64_t>(lanes_, kReduceBlock) + kReduceLanes - 1) / kReduceLanes;
    if (full_) {
      open(str_cat("_Pragma(\"unroll 8\") for (int i = 0; i < ", steps, "; ++i) {"));
      line("const int l = lane + 16 * i;");
    } else {
      open(str_cat("_Pragma(\"unroll 8\") for (int l = lane; l < ", halves_ > 1 ? "end" : n_, "; l += 16) {"));
    }
    lane_values(part);
    for (int r : part.sinks) take(r);
    close();
    for (int r : part.sinks)
      line(str_cat("const ", type(r), " ", name(r), " = fold_row<", op(r), ", ", halves_, ">(acc", r, ", turn);"));
  }

  void long_sums(const StagePart& part) {
    const std::string blocks = params.i32("blocks", blocks_);
    int64_t at = 0;
    for (int r : part.sinks) {
      line(str_cat("const Shared<", type(r), "> blocks", r, " = shared_at<", type(r), ">(", at, ");"));
      at += 8 * area();
    }
    // Both halves of a warp stay in the loop together.
    open(str_cat("for (int block = half; block - half % 2 < ", blocks, "; block += ", halves_, ") {"));
    for (int r : part.sinks) line(str_cat(type(r), " acc", r, " = ", identity(r), ";"));
    line(str_cat("const int end = ", n_, " < block * 1024 + 1024 ? ", n_, " : block * 1024 + 1024;"));
    open("_Pragma(\"unroll 8\") for (int l = block * 1024 + lane; l < end; l += 16) {");
    lane_values(part);
    for (int r : part.sinks) take(r);
    close();
    for (int r : part.sinks) {
      line(str_cat("acc", r, " = fold16<", op(r), ">(acc", r, ");"));
      line(str_cat("if (lane == 0 && block < ", blocks, ") blocks", r, "[block] = acc", r, ";"));
    }
    close();
    for (int r : part.sinks)
      line(str_cat("const ", type(r), " ", name(r), " = fold_blocks<", op(r), ">(blocks", r, ", ", blocks, ");"));
  }

  int halves_ = 1, team_ = 16, rows_ = 1, threads_ = kThreads;
  int64_t blocks_ = 0;
  bool long_ = false, few_ = false, full_ = false;
  std::string n_;
};

}  // namespace

bool print_staged_rows(const PrintJob& job, CudaLaunch* launch) {
  StagedRows rows(job);
  if (!rows.possible()) return false;
  *launch = rows.run();
  return true;
}

}  // namespace weft::cuda
