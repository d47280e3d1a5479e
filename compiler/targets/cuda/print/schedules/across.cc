// Sums along an axis K other than the lane axis: 16 classes of steps x 32 lanes. So the 16 logical lanes of a sum are
// threads, and neighbouring threads read neighbouring elements. Each class takes steps k, k + 16, ...; blocks of 1024
// steps as in rows. If there are at most 16 steps, each logical lane takes one step, and one thread computes a whole
// sum.
#include <algorithm>

#include "compiler/targets/cuda/print/writer.h"
#include "framework/base/str_cat.h"
#include "ops/numerics/reduce_order.h"

namespace weft::cuda {
namespace {

using loop_ir::Instr;
using loop_ir::Level;
using loop_ir::Op;
using loop_ir::StrideKind;

constexpr int kThreads = 512, kLanes = 32;
constexpr int kThreadsOfFew = 256;
constexpr int kArrayRegisters = 48;
constexpr int kUnrolledWork = 8000;

class AcrossWriter : KernelWriter {
 public:
  explicit AcrossWriter(const PrintJob& job) : KernelWriter(job) {
    steps_axis_ = k_.axes - 2;
    extent_ = low_.extents[steps_axis_];
    tiles_ = (lanes_ + kLanes - 1) / kLanes;
    narrow_ = is_narrow(job, steps_axis_, k_.axes);
    few_ = is_narrow(job, points_ * tiles_);
    one_ = extent_ <= kReduceBlock;
    few_steps_ = extent_ <= kReduceLanes;
    const int64_t n = (std::min<int64_t>(extent_, kReduceBlock) + kReduceLanes - 1) / kReduceLanes;
    steps_ = static_cast<int>(n <= 4 ? std::max<int64_t>(n, 1) : n <= 16 ? (n + 3) / 4 * 4 : (n + 7) / 8 * 8);
    if (few_steps_)
      for (steps_ = 1; steps_ < extent_;) steps_ *= 2;
    arrays_ = choose_arrays(form_, steps_, !one_ || operations(form_) * steps_ > kUnrolledWork ? 0 : kArrayRegisters);
    held_ = std::find(arrays_.kept.begin(), arrays_.kept.end(), true) != arrays_.kept.end();
    element = [this](const Instr& i) { return place(i); };
    marks_unwritten = true;
    position = [this](int axis) {
      return axis == k_.axes - 1 ? std::string("l") : axis == steps_axis_ ? "k" : str_cat("i", axis);
    };
  }

  CudaLaunch run() { return few_steps_ ? run_few() : run_many(); }

 private:
  // Each thread takes one outer point and one lane.
  CudaLaunch run_few() {
    const bool narrow = is_narrow(job_, points_ * lanes_);
    const std::string type = narrow ? "i32" : "i64", cast = str_cat("(", type, ")");
    const std::string units = narrow ? params.i32("units", points_ * lanes_) : params.i64("units", points_ * lanes_);
    const std::string n = narrow ? params.div("lanes", lanes_) : params.i64("lanes", lanes_);
    open(str_cat("for (", type, " unit = ", cast, "blockIdx.x * ", kThreadsOfFew, " + threadIdx.x; unit < ", units,
                 "; unit += ", cast, "gridDim.x * ", kThreadsOfFew, ") {"));
    line(str_cat("const ", type, " ", point(), " = unit / ", n, ", l = unit % ", n, ";"));
    few_ = narrow;
    array_index = "k";
    loops_at_point(few_, [this](int l) { few_loop(l); });
    for (int id : form_.last) store(id);
    close();
    return finish(kThreadsOfFew, 0, (points_ * lanes_ + kThreadsOfFew - 1) / kThreadsOfFew,
                  str_cat(points_ == 1 ? "" : str_cat(points_, " x "), "sums of ", extent_, " steps for ", lanes_,
                          " lanes, each a thread's"));
  }

  void few_loop(int number) {
    const Loop& l = form_.loops[number];
    for (int id : arrays_.compute[number])
      if (arrays_.kept[id]) line(str_cat(type(id), " ", name(id), "[", steps_, "];"));
    in_array = arrays_.kept;
    for (int r : l.reduces) {
      line(str_cat(type(r), " acc", r, "[16];"));
      line(str_cat("UNROLL for (int k = 0; k < 16; ++k) acc", r, "[k] = ", identity(r), ";"));
    }
    open(str_cat("UNROLL for (int k = 0; k < ", steps_, "; ++k) {"));
    if (steps_ != extent_) {
      line(str_cat("const bool in = k < ", extent(steps_axis_, narrow_), ";"));
      guard = "in";
    }
    loop_step(number, arrays_.compute[number], "[k]");
    close();
    for (int r : l.reduces) line(str_cat("const ", type(r), " ", name(r), " = fold_lanes<", op(r), ">(acc", r, ");"));
  }

  CudaLaunch run_many() {
    const std::string type = few_ ? "i32" : "i64", at = narrow_ ? "i32" : "i64";
    line("const int x = threadIdx.x % 32, y = threadIdx.x / 32;");
    line("int turn = 0;");
    const std::string units = few_ ? params.i32("units", points_ * tiles_) : params.i64("units", points_ * tiles_);
    const std::string tiles = few_ ? params.div("tiles", tiles_) : params.i64("tiles", tiles_);
    open_units(units, few_);
    const std::string n = extent(k_.axes - 1, narrow_);
    line(str_cat("const ", type, " ", point(), " = unit / ", tiles, ";"));
    line(str_cat("const ", at, " mine = unit % ", tiles, " * 32 + x, l = mine < ", n, " ? mine : ", n, " - 1;"));
    line(str_cat("const ", at, " n = mine < ", n, " ? ", extent(steps_axis_, narrow_), " : 0;"));
    loops_at_point(few_, [this](int l) { loop(l); });
    if (!form_.last.empty()) {
      open(str_cat("if (y == 0 && mine < ", n, ") {"));
      for (int id : form_.last) store(id);
      close();
    }
    close();
    const std::string how =
        str_cat(points_ == 1 ? "" : str_cat(points_, " x "), "sums of ", extent_, " steps for ", lanes_, " lanes",
                held_                    ? ", kept in registers"
                : form_.loops.size() > 1 ? ", read by each loop"
                                         : "");
    return finish(kThreads, 2 * kThreads * 8, points_ * tiles_, how);
  }

  std::string place(const Instr& i) {
    std::string index;
    const auto& strides = k_.operands[i.slot].strides;
    auto term = [&](int axis, const char* at) {
      if (strides[axis] == StrideKind::kZero) return;
      index += str_cat(index.empty() ? "" : " + ", at);
      if (strides[axis] == StrideKind::kAny) index += str_cat(" * ", stride(i.slot, axis, narrow_));
    };
    if (Form::in_loop(i.level)) term(steps_axis_, "k");
    if (i.level == Level::kBoth || i.level == Level::kLane) term(k_.axes - 1, "l");
    if (index.empty()) index = "0";
    return str_cat(pointer_name(i.slot), "[", index, index_term(i), "]");
  }

  void loop(int number) {
    const Loop& l = form_.loops[number];
    const std::string at = narrow_ ? "i32" : "i64";
    for (int id : arrays_.compute[number])
      if (arrays_.kept[id]) line(str_cat(type(id), " ", name(id), "[", steps_, "];"));
    in_array = arrays_.kept;
    const bool blocks = !one_ && !l.reduces.empty();
    for (int r : l.reduces) {
      const std::string t = type(r);
      if (blocks) line(str_cat("Counter<", op(r), ", ", t, "> r", r, ";"));
    }
    if (blocks) open(str_cat("for (", at, " k0 = 0; k0 < ", extent(steps_axis_, narrow_), "; k0 += 1024) {"));
    for (int r : l.reduces) line(str_cat(type(r), " acc", r, " = ", identity(r), ";"));
    const std::string start = blocks ? "k0 + y" : "y", stop = blocks ? "end" : "n";
    if (blocks && !held_) line(str_cat("const ", at, " end = n < k0 + 1024 ? n : k0 + 1024;"));
    if (const int together = held_ ? 0 : together_of(number, arrays_.compute[number])) {
      open(str_cat("for (", at, " k1 = ", start, "; k1 < ", stop, "; k1 += ", 16 * together, ") {"));
      read_together(number, arrays_.compute[number], together, [&] {
        line(str_cat("const ", at, " k = k1 + 16 * j;"));
        line(str_cat("const bool in = k < ", stop, ";"));
      });
      close();
    } else {
      one_by_one(number, start, stop);
    }
    for (int r : l.reduces) {
      const std::string fold = str_cat("fold_across<", op(r), ">(acc", r, ", turn)");
      line(blocks ? str_cat("r", r, ".add(", fold, ");") : str_cat("const ", type(r), " ", name(r), " = ", fold, ";"));
    }
    if (!blocks) return;
    close();
    for (int r : l.reduces) line(str_cat("const ", type(r), " ", name(r), " = r", r, ".result();"));
  }

  // Prints the loop's body for each of its steps.
  void one_by_one(int number, const std::string& start, const std::string& stop) {
    const std::string at = narrow_ ? "i32" : "i64";
    if (held_) {
      open(str_cat("UNROLL for (int i = 0; i < ", steps_, "; ++i) {"));
      line(str_cat("const ", at, " k = y + 16 * i;"));
      line("const bool in = k < n;");
      guard = "in";
    } else {
      open(str_cat("_Pragma(\"unroll 4\") for (", at, " k = ", start, "; k < ", stop, "; k += 16) {"));
    }
    loop_step(number, arrays_.compute[number]);
    if (const int most = held_ ? steps_at_once(form_, arrays_, number, steps_) : 0)
      line(str_cat("if (i % ", most, " == ", most - 1, ") __syncwarp();"), "no more loads at once");
    close();
  }

  int steps_axis_, steps_;
  int64_t extent_, tiles_;
  bool few_, one_, few_steps_, held_;
  Arrays arrays_;
};

}  // namespace

CudaLaunch print_across(const PrintJob& job) { return AcrossWriter(job).run(); }

}  // namespace weft::cuda
