// Sums that two kernels compute. First, few long rows (kSplit): thread blocks take neighbouring blocks of 1024, one
// half warp each, through shared memory (stage.h). Second, the kernel that combines these partial sums, or the partial
// sums of sums over rows, in place in scratch, by the tree of reduce_order.h.
#include <algorithm>

#include "compiler/targets/cuda/print/stage.h"
#include "framework/base/str_cat.h"
#include "ops/numerics/reduce_order.h"

namespace weft::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int64_t kManyBytes = 66 * 1024;  // shared memory per thread block

int64_t blocks_of(int64_t n) { return (n + kReduceBlock - 1) / kReduceBlock; }

// The number of neighbouring blocks of a row that one thread block takes, a half warp each. It is a power of two, so
// that the tree over them is a part of the row's tree.
int together(const PrintJob& job, int64_t bytes) {
  int halves = 16;
  const int64_t blocks = blocks_of(job.low.lanes()), points = job.low.outer_points();
  while (halves > 2 && (halves * bytes > kManyBytes ||
                        points * ((blocks + halves - 1) / halves) < int64_t{2} * job.device.multiprocessors))
    halves /= 2;
  while (job.low.joined > 1 && blocks % halves != 0) halves /= 2;  // the next lane continues the row
  return halves;
}

class SplitWriter : StageWriter {
 public:
  explicit SplitWriter(const PrintJob& job) : StageWriter(job, std::min<int64_t>(job.low.lanes(), kReduceBlock)) {
    find_parts(false);
    halves_ = together(job, row_bytes());
    groups_ = (blocks_of(lanes_) + halves_ - 1) / halves_;
    few_ = is_narrow(job, groups_ * points_);
    origin = " + first";
    tile_index = "i";
  }
  int64_t groups() const { return groups_; }

  CudaLaunch run() {
    const std::string at = narrow_ ? "i32" : "i64", index = few_ ? "i32" : "i64";
    const int64_t all = groups_ * points_;
    const std::string units = few_ ? params.i32("units", all) : params.i64("units", all),
                      groups = few_ ? params.div("groups", groups_) : params.i64("groups", groups_),
                      n = extent(k_.axes - 1, narrow_);
    line("const int lane = threadIdx.x % 16;");
    line("int turn = 0;");
    declare_tiles(str_cat(fold_bytes(), " + threadIdx.x / 16 * ", row_bytes()));
    open_units(units, few_);
    line(str_cat("const ", index, " ", point(), " = unit / ", groups, ";"));
    line(str_cat("const ", at, " first = (", at, ")(unit % ", groups, " * ", halves_, " + threadIdx.x / 16) * 1024;"));
    line(str_cat("const int m = first >= ", n, " ? 0 : ", n, " - first < 1024 ? (int)(", n, " - first) : 1024;"));
    outer_positions(few_);
    outer_pointers(false, all_needed());
    copy_tiles(false, "m", "lane", "16");
    values_before(0);
    copy_tiles(true, "m", "lane", "16");
    line("cp_async_commit();");
    line("cp_async_wait<0>();");
    line("__syncwarp();");
    for (const StagePart& part : parts_) {
      for (int r : part.sinks) line(str_cat(type(r), " acc", r, " = ", identity(r), ";"));
      open("_Pragma(\"unroll 16\") for (int i = lane; i < m; i += 16) {");
      line(str_cat("const ", at, " l = first + i;"));
      lane_values(part);
      for (int r : part.sinks) take(r);
      close();
      for (int r : part.sinks) {
        line(str_cat("const ", type(r), " ", name(r), " = fold_row<", op(r), ", ", halves_, ">(acc", r, ", turn);"));
        line(str_cat("if (threadIdx.x == 0) ", partial(r), "[unit] = ", name(r), ";"));
      }
    }
    line("__syncwarp();", "before the next come");
    close();
    return finish(
        16 * halves_, static_cast<int>(fold_bytes() + halves_ * row_bytes()), all,
        str_cat(points_, " rows of ", lanes_, ", a half warp to each block of 1024, ", halves_, " of them together"));
  }

 private:
  int fold_bytes() const { return 256; }
  bool few_;
  int halves_;
  int64_t groups_;
};

int bytes_of(loop_ir::Type t) { return t == loop_ir::Type::f64 || t == loop_ir::Type::i64 ? 8 : 4; }

// The second kernel. Columns: partial[block][16 classes][lane]. Split: partial[point][thread blocks].
class FinishWriter : KernelWriter {
 public:
  explicit FinishWriter(const PrintJob& job) : KernelWriter(job) { suffix = "_finish"; }

  CudaLaunch run() {
    const bool columns = !low_.columns.empty();
    const auto& sums = columns ? low_.columns : low_.partials;
    const int64_t n = columns ? low_.lanes() : low_.outer_points() / low_.joined;
    const int64_t blocks = columns ? blocks_of(low_.outer_points()) : SplitWriter(job_).groups() * low_.joined;
    const std::string all = columns ? params.i64("n", n) : "", count = params.i64("blocks", blocks);
    for (size_t s = 0; s < sums.size(); ++s) {
      const loop_ir::Finish& f = sums[s];
      const std::string t = type_name(f.type);
      const DType to = job_.out[f.output].type.dtype;
      const std::string p = partial(f.slot, t);
      const std::string y = params.pointer(memory_type(to), str_cat("out", f.output), {Pointer::kResult, f.output});
      const std::string to_type = type_name(read_type(to)),
                        sum = to_type == t ? "sum" : str_cat("to_", to_type, "(sum)");
      const std::string if_mine = sums.size() > 1 ? str_cat("if (blockIdx.y == ", s, ") ") : "";
      if (columns) {
        open(str_cat(if_mine, "for (i64 first = (i64)blockIdx.x * 32; first < ", all,
                     "; first += (i64)gridDim.x * 32)"));
        line(str_cat("finish_columns<", reduction_type(f.rd), ">(", p, ", ", count, ", first, ", all, ", [&](i64 c, ",
                     t, " sum) { set(", y, "[c], ", sum, "); });"));
        depth_less();
      } else {
        line(str_cat(if_mine, "finish_row<", reduction_type(f.rd), ">(", p, " + blockIdx.x * ", count, ", ", count,
                     ", [&](", t, " sum) { set(", y, "[blockIdx.x], ", sum, "); });"));
      }
    }
    const int width = columns ? 32 : 1;
    const Grid grid{grid_blocks((n + width - 1) / width), static_cast<uint32_t>(sums.size())};
    return finish(
        columns && blocks <= 8 ? kThreads : 1024, 0, grid,
        str_cat(n, columns ? " columns" : " rows", " of ", blocks, blocks == 1 ? " block" : " blocks", " each"));
  }
};

}  // namespace

std::vector<int64_t> partial_offsets(const PrintJob& job, int64_t* total) {
  const loop_ir::Lowered& low = job.low;
  const bool columns = !low.columns.empty();
  const auto& sums = columns ? low.columns : low.partials;
  const int64_t elements = columns ? blocks_of(low.outer_points()) * kReduceLanes * low.lanes()
                                   : SplitWriter(job).groups() * low.outer_points();
  std::vector<int64_t> offsets(sums.size());
  *total = 0;
  for (const loop_ir::Finish& f : sums) {
    offsets.at(f.slot) = *total;
    *total += (elements * bytes_of(f.type) + 255) / 256 * 256;
  }
  return offsets;
}

CudaLaunch print_split(const PrintJob& job) { return SplitWriter(job).run(); }
CudaLaunch print_finish(const PrintJob& job) { return FinishWriter(job).run(); }

}  // namespace weft::cuda
