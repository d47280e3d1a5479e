// A product with computed operands and an epilogue. Kernels write pieces of the operands just before they are packed,
// and the epilogue's kernel reads each finished tile while it is in the cache.
#include <algorithm>
#include <optional>

#include "compiler/loop_ir/fused.h"
#include "compiler/targets/cpu/run/fused_kernel.h"
#include "framework/base/error.h"
#include "framework/base/thread_pool.h"
#include "ops/core/products/dot.h"
#include "ops/core/products/dot_product.h"
#include "ops/kernels/products/gemm.h"

namespace weft::internal {

struct FusedKernel::PreparedDot {
  std::optional<DotProduct> product;  // none: grouped_dot of rows
  int32_t of[3];                      // operands of the node, -1: computed; the last are a grouped product's offsets
  StridedView computed[2];
  DType in, out;
  int64_t zeros_at = 0;  // grouped: a row of zeros in the scratch
};

/// GemmFill::cost of a computed operand: packing an element takes about as long as a few operations, fewer for 16-bit
/// elements, because kernels compute in f32.
int FusedKernel::fill_cost(int operand) const {
  const loop_ir::Prologue& p = parts_.prologue[operand];
  const double per_element = loop_ir::body_cost(*p.body).flops / static_cast<double>(p.type.shape.numel());
  const double packing = is_16bit(p.type.dtype) ? 2 : 8;
  return static_cast<int>(std::clamp(per_element / packing, 1.0, 4.0));
}

int64_t FusedKernel::plan_dot(std::span<const StridedView> in) {
  const Graph& g = *parts_.main;
  const Node& n = g.node(lowered_.dot);
  if (n.op == &grouped_dot_op) return plan_grouped(in);
  int32_t of[2];
  StridedView operands[2];
  for (int i = 0; i < 2; ++i) {
    const Node& source = g.node(n.inputs[i]);
    WEFT_BUG_IF(!is_argument(source), "fused: operand ", i, " of the dot in ", name_, " is computed inside");
    of[i] = parts_.kernel[i] ? -1 : static_cast<int32_t>(source.attrs.i("index"));
    const TensorType& t = g.type(n.inputs[i]);
    operands[i] = of[i] < 0 ? StridedView{nullptr, t.dtype, t.shape, contiguous_strides(t.shape)} : in[of[i]];
  }
  dot_ = std::make_shared<PreparedDot>(PreparedDot{DotProduct(n.attrs, operands),
                                                   {of[0], of[1], -1},
                                                   {operands[0], operands[1]},
                                                   operands[0].dtype,
                                                   n.outputs[0].dtype});
  const DotProduct& p = *dot_->product;
  WEFT_BUG_IF(p.batch() * p.m() != points_ || p.n() != lanes_, "fused: ", name_, " walks ", points_, " x ", lanes_,
              "; its product has ", p.batch(), " x ", p.m(), " x ", p.n());
  const kernels::GemmFilled gathered = p.gathered();
  return p.gemm_bytes() + kernels::gemm_workspace(dot_->in, dot_->out, p.batch(), p.m(), p.n(), p.k(),
                                                  {parts_.kernel[0] ? fill_cost(0) : gathered.a,
                                                   parts_.kernel[1] ? fill_cost(1) : gathered.b});
}

int64_t FusedKernel::plan_grouped(std::span<const StridedView> in) {
  const Graph& g = *parts_.main;
  const Node& n = g.node(lowered_.dot);
  PreparedDot d{{}, {}, {}, g.type(n.inputs[0]).dtype, n.outputs[0].dtype};
  for (int i = 0; i < 3; ++i) d.of[i] = static_cast<int32_t>(g.node(n.inputs[i]).attrs.i("index"));
  const StridedView &a = in[d.of[0]], &b = in[d.of[1]];
  WEFT_BUG_IF(a.shape[0] != points_ || b.shape[2] != lanes_, "fused: ", name_, " walks ", points_, " x ", lanes_,
              "; its product has ", a.shape[0], " x ", b.shape[2]);
  const int64_t bytes =
      kernels::grouped_gemm_workspace(kernels::GroupedMode::rows, d.in, d.out, b.shape[0], points_, a.shape[1], lanes_);
  d.zeros_at = (bytes + 63) / 64 * 64;
  dot_ = std::make_shared<PreparedDot>(std::move(d));
  return dot_->zeros_at + lanes_ * 4;
}

/// Writes a piece of a computed operand.
struct FusedKernel::OperandFill {
  const FusedKernel* kernel;
  const loop_ir::Prologue* prologue;
  const FusedOperands* x;  // ptr: of this kernel

  static void run(const void* context, int64_t batch, int64_t row, int64_t col, int64_t rows, int64_t cols, void* out,
                  int64_t ld) {
    const OperandFill& f = *static_cast<const OperandFill*>(context);
    const loop_ir::Prologue& p = *f.prologue;
    // Along and across the lines of the operand.
    const int64_t along = p.transposed ? row : col, length = p.transposed ? rows : cols;
    const int64_t first = p.transposed ? col : row, lines = p.transposed ? cols : rows;
    f.write(batch * p.batch_stride + first * p.line_stride + along, length, lines, static_cast<char*>(out), ld);
  }

  void write(int64_t at, int64_t length, int64_t lines, char* out, int64_t ld) const {
    const loop_ir::Kernel& k = kernel->lowered_.kernel;
    const int64_t lanes = kernel->lanes_, size = itemsize(prologue->type.dtype);
    const int outer = k.outer_axes(), slot = static_cast<int>(k.operands.size()) - 1;
    SmallVec<void*, 16> ptr(k.operands.size());
    for (size_t i = 0; i < ptr.size(); ++i) ptr[i] = x->ptr[i];
    SmallVec<int64_t, 48> stride(kernel->strides_.size());
    for (size_t i = 0; i < stride.size(); ++i) stride[i] = kernel->strides_[i];
    loop_ir::Args a = kernel->args(*x, 0);
    a.ptr = ptr.data();
    a.stride = stride.data();
    // Seen from position 0 of all axes.
    auto call = [&](int64_t o, int64_t points, int64_t l, int64_t n, char* to, int64_t step) {
      for (int axis = outer - 1; axis >= 0; --axis) {
        stride[slot * k.axes + axis] = step;
        step *= kernel->lowered_.extents[axis];
      }
      const int64_t before = (o * (outer ? stride[slot * k.axes + outer - 1] : 0) + l) * size;
      ptr[slot] = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(to) - static_cast<uintptr_t>(before));
      kernel->call(a, o, o + points, 1, l, l + n);
    };
    if (prologue->line_stride == lanes && at % lanes + length <= lanes)
      return call(at / lanes, lines, at % lanes, length, out, ld);
    for (int64_t i = 0; i < lines; ++i, at += prologue->line_stride, out += ld * size)
      for (int64_t done = 0; done < length;) {
        const int64_t l = (at + done) % lanes, n = std::min(length - done, lanes - l);
        call((at + done) / lanes, 1, l, n, out + done * size, 0);
        done += n;
      }
  }
};

/// Takes finished tiles.
struct FusedKernel::TileEpilogue {
  const FusedKernel* self;
  const FusedOperands* x;
  int64_t m;  // rows of a batch

  static void run(const void* context, const kernels::GemmTile& t) {
    const auto& [self, x, m] = *static_cast<const TileEpilogue*>(context);
    const loop_ir::Kernel& k = self->lowered_.kernel;
    const int outer = k.outer_axes(), tile = self->lowered_.tile;
    const int64_t first = t.batch * m + t.row;
    SmallVec<void*, 16> ptr(k.operands.size());
    for (size_t i = 0; i < ptr.size(); ++i) ptr[i] = x->ptr[i];
    SmallVec<int64_t, 48> stride(self->strides_.size());
    for (size_t i = 0; i < stride.size(); ++i) stride[i] = self->strides_[i];
    // Seen from position 0 of all axes, so that flat point o and lane l are at (o - first) * ld + l - col.
    int64_t step = t.ld;
    for (int a = outer - 1; a >= 0; --a) {
      stride[tile * k.axes + a] = step;
      step *= self->lowered_.extents[a];
    }
    stride[tile * k.axes + outer] = 1;
    ptr[tile] = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(t.data) -
                                        static_cast<uintptr_t>((first * t.ld + t.col) * 4));
    loop_ir::Args a = self->args(*x, 0);
    a.ptr = ptr.data();
    a.stride = stride.data();
    self->call(a, first, first + t.rows, 1, t.col, t.col + t.cols);
  }
};

void FusedKernel::run_grouped(const FusedOperands& x) const {
  char* const scratch = static_cast<char*>(x.workspace) + dot_at_;
  const StridedView &a = x.in[dot_->of[0]], &b = x.in[dot_->of[1]], &offsets = x.in[dot_->of[2]];
  const TileEpilogue context{this, &x, 0};  // tiles name rows of the whole
  const kernels::GemmEpilogue epilogue{&TileEpilogue::run, &context};
  kernels::grouped_gemm(kernels::GroupedMode::rows, a, b, offsets, {nullptr, dot_->out, {points_, lanes_}, {lanes_, 1}},
                        scratch, &epilogue);
  // Rows outside all groups belong to no tile: the epilogue computes them from zeros.
  auto offset = [&](int64_t i) {
    return offsets.dtype == kInt64 ? offsets.as<int64_t>()[i * offsets.strides[0]]
                                   : int64_t{offsets.as<int32_t>()[i * offsets.strides[0]]};
  };
  float* const zeros = reinterpret_cast<float*>(scratch + dot_->zeros_at);
  const int64_t parts[][2] = {{0, offset(0)}, {offset(offsets.shape[0] - 1), points_}};
  for (const auto& [begin, end] : parts) {
    if (begin == end) continue;
    std::fill_n(zeros, lanes_, 0.0f);
    const int64_t first = begin, rows = end - begin, tasks = tasks_wanted(rows);
    parallel_for(tasks, [&](int64_t i) {
      const int64_t r0 = first + rows * i / tasks, r1 = first + rows * (i + 1) / tasks;
      TileEpilogue::run(&context, {0, r0, 0, r1 - r0, lanes_, zeros, 0});
    });
  }
}

/// Operands and results of the epilogue with the layout of the product's result, row by row.
int FusedKernel::touches(const FusedOperands& x, std::span<kernels::GemmEpilogue::Touch> to) const {
  const loop_ir::Kernel& k = lowered_.kernel;
  const int outer = k.outer_axes();
  size_t n = 0;
  for (int i = 0; i < static_cast<int>(k.operands.size()) && n < to.size(); ++i) {
    const int64_t* stride = strides_.data() + i * k.axes;
    if (i == lowered_.tile || k.operands[i].indexed || stride[outer] != 1 || outer == 0) continue;
    bool rows = stride[outer - 1] >= lanes_;
    for (int a = 0; a + 1 < outer; ++a) rows &= stride[a] == stride[a + 1] * lowered_.extents[a + 1];
    const int64_t size = itemsize(k.operands[i].dtype);
    const bool seen = std::any_of(to.begin(), to.begin() + n, [&](const auto& t) { return t.data == x.ptr[i]; });
    if (rows && !seen && size >= 2) to[n++] = {x.ptr[i], stride[outer - 1] * size, size};
  }
  return static_cast<int>(n);
}

void FusedKernel::run_dot(const FusedOperands& x) const {
  if (!dot_->product) return run_grouped(x);
  const DotProduct& p = *dot_->product;
  const TileEpilogue context{this, &x, p.m()};
  kernels::GemmEpilogue::Touch touched[8];
  const kernels::GemmEpilogue epilogue{&TileEpilogue::run, &context, touched, touches(x, touched)};
  FusedOperands own[2];
  OperandFill fill[2];
  kernels::GemmFill computed[2];
  StridedView operands[2];
  void* const* ptr = x.ptr + lowered_.bound.size();
  for (int i = 0; i < 2; ++i) {
    if (dot_->of[i] >= 0) {
      operands[i] = x.in[dot_->of[i]];
      continue;
    }
    operands[i] = dot_->computed[i];
    own[i].ptr = ptr;
    own[i].workspace = x.workspace;
    own[i].bad = x.bad;
    ptr += parts_.kernel[i]->lowered_.bound.size();
    fill[i] = {parts_.kernel[i].get(), &parts_.prologue[i], &own[i]};
    computed[i] = {&OperandFill::run, &fill[i], parts_.prologue[i].transposed, fill_cost(i)};
  }
  char* scratch = static_cast<char*>(x.workspace) + dot_at_;
  const DotProduct::GemmOperands from(p, operands[0], operands[1], scratch);
  kernels::GemmHooks hooks{.epilogue = &epilogue};
  from.add_to(hooks);
  if (computed[0].run) hooks.a = &computed[0];
  if (computed[1].run) hooks.b = &computed[1];
  const Shape shape{p.batch(), p.m(), p.n()};
  kernels::gemm(from.a, from.b, {nullptr, dot_->out, shape, contiguous_strides(shape)}, scratch + p.gemm_bytes(),
                &hooks);
}

}  // namespace weft::internal
