// The epilogue of a product: the kernel reads each finished tile while it is in the cache.
#include "compiler/exec/fused_kernel.h"
#include "framework/base/error.h"
#include "ops/core/dot_product.h"
#include "ops/kernels/gemm.h"

namespace weft::internal {

struct FusedKernel::Dot {
  DotProduct product;
  int32_t a, b;  // operands of the node
  DType in, out;

  Dot(const Node& n, const Graph& body, std::span<const StridedView> operands, int32_t ia, int32_t ib)
      : product(n.attrs, std::array{operands[ia], operands[ib]}),
        a(ia),
        b(ib),
        in(body.type(n.inputs[0]).dtype),
        out(n.outputs[0].dtype) {}
};

int64_t FusedKernel::plan_dot(std::span<const StridedView> in) {
  const Node& n = body_->node(lowered_.dot);
  int32_t of[2];
  for (int i = 0; i < 2; ++i) {
    const Node& source = body_->node(n.inputs[i]);
    WEFT_BUG_IF(source.op != &input_op, "fused: operand ", i, " of the dot in ", name_, " is computed inside");
    of[i] = static_cast<int32_t>(source.attrs.i("index"));
  }
  dot_ = std::make_shared<Dot>(n, *body_, in, of[0], of[1]);
  const DotProduct& p = dot_->product;
  WEFT_BUG_IF(p.batch() * p.m() != points_ || p.n() != lanes_, "fused: ", name_, " walks ", points_, " x ", lanes_,
              "; its product has ", p.batch(), " x ", p.m(), " x ", p.n());
  return p.bytes() + kernels::gemm_workspace(dot_->in, dot_->out, p.batch(), p.m(), p.n(), p.k());
}

void FusedKernel::run_dot(const FusedOperands& x) const {
  struct Context {
    const FusedKernel* self;
    const FusedOperands* x;
    int64_t m;
  };
  const DotProduct& p = dot_->product;
  const Context context{this, &x, p.m()};
  const kernels::GemmEpilogue epilogue{
      [](const void* c, const kernels::GemmTile& t) {
        const auto& [self, x, m] = *static_cast<const Context*>(c);
        const kir::Kernel& k = self->lowered_.kernel;
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
        kir::Args a = self->args(*x, 0);
        a.ptr = ptr.data();
        a.stride = stride.data();
        self->call(a, first, first + t.rows, 1, t.col, t.col + t.cols);
      },
      &context};
  const kernels::GemmHooks hooks{.epilogue = &epilogue};
  char* scratch = static_cast<char*>(x.workspace) + dot_at_;
  const auto [a, b] = p.operands(x.in[dot_->a], x.in[dot_->b], scratch);
  const Shape shape{p.batch(), p.m(), p.n()};
  kernels::gemm(a, b, {nullptr, dot_->out, shape, contiguous_strides(shape)}, scratch + p.bytes(), &hooks);
}

}  // namespace weft::internal
