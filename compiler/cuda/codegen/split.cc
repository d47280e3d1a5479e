// Sums that two kernels make: few long rows, a half warp to a block of 1024 (kSplit); and the kernel that combines the
// partial sums of these and of columns.cc, in place in scratch, by the tree of reduce_order.h.
#include <algorithm>

#include "compiler/cuda/codegen/writer.h"
#include "framework/base/cat.h"
#include "ops/scalar/reduce_order.h"

namespace weft::cuda {

using kir::Instr;
using kir::Op;
using kir::StrideKind;

namespace {

constexpr int kThreads = 256;

int64_t blocks_of(int64_t n) { return (n + kReduceBlock - 1) / kReduceBlock; }

class Split : Writer {
 public:
  explicit Split(const Job& job) : Writer(job) {
    narrow_ = is_narrow(job, k_.axes - 1, k_.axes);
    blocks_ = blocks_of(low_.lanes());
    units_ = blocks_ * low_.outer_points();
    few_ = is_narrow(job, units_);
    element = [this](const Instr& i) { return place(i); };
    position = [this](int axis) { return axis == k_.axes - 1 ? std::string("l") : cat("i", axis); };
  }

  CudaLaunch run() {
    const std::string type = few_ ? "i32" : "i64", at = narrow_ ? "i32" : "i64", cast = few_ ? "(i32)" : "(i64)";
    int64_t total = 0;
    const std::vector<int64_t> offsets = partial_offsets(job_, &total);
    const std::string units = few_ ? params.i32("units", units_) : params.i64("units", units_);
    line("const int lane = threadIdx.x % 16;");
    open(cat("for (", type, " u0 = ", cast, "blockIdx.x * 16; u0 < ", units, "; u0 += ", cast, "gridDim.x * 16) {"));
    line(cat("const ", type, " mine = u0 + threadIdx.x / 16, unit = mine < ", units, " ? mine : ", units, " - 1;"));
    const std::string blocks = few_ ? params.div("blocks", blocks_) : params.i64("blocks", blocks_);
    line(cat("const ", type, " ", point(), " = unit / ", blocks, ";"));
    line(cat("const ", at, " first = unit % ", blocks, " * (", at, ")1024;"));
    const std::string n = extent(k_.axes - 1, narrow_);
    line(cat("const ", at, " end = ", n, " < first + 1024 ? ", n, " : first + 1024;"));
    outer_positions(few_);
    outer_pointers(false, all_needed());
    values_before(0);
    for (size_t loop = 0; loop < form_.loops.size(); ++loop) {
      const Loop& l = form_.loops[loop];
      for (int r : l.reduces)
        line(cat(type_name(k_.instrs[r].type), " acc", r, " = identity<", op(r), ", ", type_name(k_.instrs[r].type),
                 ">();"));
      open(cat("_Pragma(\"unroll 16\") for (", at, " l = first + lane; l < end; l += 16) {"));
      values_of(form_.closure(static_cast<int>(loop), {}));
      for (int r : l.reduces) take(r);
      close();
      for (int r : l.reduces) {
        const int slot = k_.instrs[r].slot;
        line(cat("const ", type_name(k_.instrs[r].type), " ", name(r), " = fold16<", op(r), ">(acc", r, ");"));
        line(cat("if (lane == 0 && mine < ", units, ") ",
                 params.pointer(type_name(k_.instrs[r].type), cat("partial", slot),
                                {Pointer::kScratch, slot, offsets[slot]}),
                 "[unit] = ", name(r), ";"));
      }
    }
    close();
    Grid grid;
    grid.x = static_cast<uint32_t>(std::min<int64_t>((units_ + 15) / 16, job_.device.max_grid_x));
    return finish(kThreads, 0, grid,
                  cat(low_.outer_points(), " rows of ", low_.lanes(), ", a half warp to each block of 1024"));
  }

 private:
  std::string op(int r) const { return reduction_type(k_.instrs[r].rd); }
  std::string place(const Instr& i) {
    std::string index = "0";
    if (Form::in_loop(i.level)) {
      const StrideKind kind = k_.operands[i.slot].strides.back();
      if (kind == StrideKind::kUnit) index = "l";
      if (kind == StrideKind::kAny) index = cat("l * ", stride(i.slot, k_.axes - 1, narrow_));
    }
    return cat(pointer_name(i.slot), "[", index, index_term(i), "]");
  }
  bool narrow_, few_;
  int64_t blocks_, units_;
};

int bytes_of(kir::Type t) { return t == kir::Type::f64 || t == kir::Type::i64 ? 8 : 4; }

// The second kernel. Columns: partial[block][16 classes][lane]. Split: partial[point][block].
class Finish : Writer {
 public:
  explicit Finish(const Job& job) : Writer(job) { suffix = "_finish"; }

  CudaLaunch run() {
    const bool columns = !low_.columns.empty();
    const auto& sums = columns ? low_.columns : low_.partials;
    const int64_t n = columns ? low_.lanes() : low_.outer_points();
    const int64_t blocks = blocks_of(columns ? low_.outer_points() : low_.lanes());
    int64_t total = 0;
    const std::vector<int64_t> offsets = partial_offsets(job_, &total);
    const std::string all = columns ? params.i64("n", n) : "", count = params.i64("blocks", blocks);
    for (size_t s = 0; s < sums.size(); ++s) {
      const kir::Finish& f = sums[s];
      const std::string t = type_name(f.type);
      const DType to = job_.out[f.output].type.dtype;
      const std::string p = params.pointer(t, cat("partial", f.slot), {Pointer::kScratch, f.slot, offsets[f.slot]});
      const std::string y = params.pointer(memory_type(to), cat("out", f.output), {Pointer::kResult, f.output});
      const std::string to_type = type_name(read_type(to)),
                        sum = to_type == t ? "sum" : cat("to_", to_type, "(sum)");
      const std::string if_mine = sums.size() > 1 ? cat("if (blockIdx.y == ", s, ") ") : "";
      if (columns) {
        open(cat(if_mine, "for (i64 first = (i64)blockIdx.x * 32; first < ", all, "; first += (i64)gridDim.x * 32)"));
        line(cat("finish_columns<", reduction_type(f.rd), ">(", p, ", ", count, ", first, ", all, ", [&](i64 c, ", t,
                 " sum) { set(", y, "[c], ", sum, "); });"));
        depth_less();
      } else {
        line(cat(if_mine, "finish_row<", reduction_type(f.rd), ">(", p, " + blockIdx.x * ", count, ", ", count,
                 ", [&](", t, " sum) { set(", y, "[blockIdx.x], ", sum, "); });"));
      }
    }
    const int width = columns ? 32 : 1;
    Grid grid;
    grid.x = static_cast<uint32_t>(std::min<int64_t>((n + width - 1) / width, job_.device.max_grid_x));
    grid.y = static_cast<uint32_t>(sums.size());
    return finish(columns ? kThreads : 1024, 0, grid,
                  cat(n, columns ? " columns" : " rows", " of ", blocks, blocks == 1 ? " block" : " blocks", " each"));
  }
};

}  // namespace

std::vector<int64_t> partial_offsets(const Job& job, int64_t* total) {
  const kir::Lowered& low = job.low;
  const bool columns = !low.columns.empty();
  const auto& sums = columns ? low.columns : low.partials;
  const int64_t elements = columns ? blocks_of(low.outer_points()) * kReduceLanes * low.lanes()
                                   : blocks_of(low.lanes()) * low.outer_points();
  std::vector<int64_t> offsets(sums.size());
  *total = 0;
  for (const kir::Finish& f : sums) {
    offsets.at(f.slot) = *total;
    *total += (elements * bytes_of(f.type) + 255) / 256 * 256;
  }
  return offsets;
}

CudaLaunch print_split(const Job& job) { return Split(job).run(); }
CudaLaunch print_finish(const Job& job) { return Finish(job).run(); }

}  // namespace weft::cuda
