#include "compiler/targets/cuda/run/dot_operation.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>

#include "compiler/loop_ir/fused.h"
#include "compiler/loop_ir/prologue.h"
#include "compiler/targets/cuda/gemm/dot.h"
#include "compiler/targets/cuda/gemm/epilogue.h"
#include "compiler/targets/cuda/gemm/fused_product.h"
#include "compiler/targets/cuda/gemm/gemm.h"
#include "compiler/targets/cuda/run/fused_operation.h"
#include "compiler/targets/cuda/run/graph_operation.h"
#include "compiler/targets/cuda/run/operation_blas.h"
#include "framework/base/error.h"
#include "framework/base/hash.h"
#include "framework/cuda/libraries/driver_error.h"
#include "framework/dispatch/capture.h"
#include "framework/dispatch/dispatch.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"
#include "ops/core/products/dot.h"
#include "ops/core/products/dot_product.h"

namespace weft::cuda::internal {
namespace {

// Workspace limit of cuBLASLt, which needs it to split sums. It is proportional to the result, because more is useless.
int64_t blas_workspace(const MatmulShape& s) {
  return std::clamp<int64_t>(round_to_256(s.batch * s.m * s.n * 32), int64_t{1} << 20, int64_t{32} << 20);
}

// The memory of a value in one run: an operand of the node, or part of the workspace.
struct ProductBuffer {
  int operand = -1;
  int64_t scratch = 0;
  void* in(const Addresses& at) const {
    return operand >= 0 ? at.in[operand] : static_cast<char*>(at.workspace) + scratch;
  }
};

class ProductOperation final : public DeviceOperation {
 public:
  ProductOperation(const char* name, const GpuProperties& gpu, int alignment, const OperationOptions& options)
      : name_(name), properties_(gpu), alignment_(alignment), options_(options) {}

  std::span<const Kernel> kernels() const override { return kernels_; }
  void bind(std::span<const Function> functions) override {
    for (Computed& c : computed_) c.launches.bind(functions);
    for (Copied& c : copied_) c.operation->bind(functions.subspan(c.first, c.operation->kernels().size()));
    if (epilogue_) epilogue_->bind(functions);
    if (gemm_) function_.assign(1, functions[gemm_kernel_]);
  }
  std::string remark() const override {
    return lt_ ? "epilogue in cuBLASLt" : epilogue_ && !fused_ ? "through an f32 tile" : "";
  }
  int64_t workspace_bytes() const override { return workspace_; }
  bool checks_indices() const override { return checks_; }
  void enqueue(const Addresses& at, Stream& stream, SourceLine line) const override;

  // ---- construction ----

  /// Adds a computed operand.
  ProductBuffer compute(const loop_ir::Prologue& p, std::span<const StridedView> in) {
    std::vector<loop_ir::ValueLayout> layouts;
    std::vector<int> inputs;
    for (int32_t i : p.inputs) {
      layouts.push_back(layout_of(in[i]));
      inputs.push_back(i);
    }
    loop_ir::LowerOptions lower;
    lower.round_like_eager = options_.round_like_eager;
    const loop_ir::ValueLayout out{p.type, contiguous_strides(p.type.shape)};
    const loop_ir::Lowered low = loop_ir::lower_group(*p.body, layouts, std::array{out}, lower);
    const ProductBuffer to = scratch(p.type.nbytes());
    GroupLaunches launches(low, std::array{out}, properties_, alignment_, options_.approximate, &kernels_);
    const ProductBuffer own = scratch(launches.scratch_bytes());
    checks_ |= launches.checks_indices();
    computed_.push_back({std::move(launches), std::move(inputs), to, own});
    return to;
  }

  /// Sets the product to a dot of these operands with results of type `out`.
  void dot(const Attrs& attrs, std::span<const StridedView> operands, ProductBuffer a, ProductBuffer b, DType out) {
    Dot d = plan_dot(attrs, operands, out);
    a_ = copy_if_needed(d.a, operands[0], a);
    b_ = copy_if_needed(d.b, operands[1], b);
    shape_ = d.product;
    has_work_ = d.has_work();
    if (!has_work_) return;
    if (!cublaslt_takes(shape_.in)) return gemm(dense(), "dot");
    shape_.align_a = a_.operand >= 0 ? alignment_ : 256;
    shape_.align_b = b_.operand >= 0 ? alignment_ : 256;
    shape_.tf32 = options_.tf32 && shape_.in == kFloat32;
  }

  /// Sets the product to a grouped_dot of these operands with a contiguous result.
  void grouped(const Attrs& attrs, std::span<const StridedView> operands, std::array<ProductBuffer, 3> places,
               DType out, const Shape& out_shape) {
    StridedView y{nullptr, out, out_shape, contiguous_strides(out_shape)};
    GroupedGemm g = grouped_problem(attrs, operands, y);
    a_ = places[0];
    b_ = places[1];
    offsets_ = places[2];
    checks_ = true;
    has_work_ = out_shape.numel() > 0;
    if (has_work_) gemm(g, "grouped_dot");
  }

  /// Sets the product to a grouped_dot, and computes the group of its users in the same kernel. Returns false if the
  /// group does not use the product's sums element by element.
  bool fused(const loop_ir::Lowered& low, std::span<const loop_ir::ValueLayout> out, const Attrs& attrs,
             std::span<const StridedView> operands, std::array<ProductBuffer, 3> places, const Shape& product) {
    if (product.numel() == 0) return false;
    const StridedView y{nullptr, kFloat32, product, contiguous_strides(product)};
    GroupedGemm g = grouped_problem(attrs, operands, y);
    const bool aligned = alignment_ >= 16;
    g.aligned_a = places[0].operand < 0 || aligned;
    g.aligned_b = places[1].operand < 0 || aligned;
    DeviceLimits limits;
    limits.multiprocessors = properties_.multiprocessors;
    limits.max_shared_bytes = properties_.shared_per_block_optin;
    KernelTextOptions plan;
    plan.alignment = alignment_;
    plan.notes = false;
    plan.approximate = options_.approximate;
    plan.symbol = GroupLaunches::symbol();
    std::optional<CudaLaunch> launch = fused_product(low, out, g, properties_.kernel_sm(), limits, plan);
    if (!launch) return false;
    epilogue_.emplace(low, std::move(*launch), &kernels_);
    a_ = places[0];
    b_ = places[1];
    offsets_ = places[2];
    checks_ = fused_ = true;
    return true;
  }

  /// Stores the product in the node's result. Returns false if that is not rows at equal distances.
  bool into_result(const StridedView& out) {
    const std::optional<int64_t> row = row_distance_of(out);
    if (!row) return false;
    set_row(*row);
    result_ = 0;
    shape_.align_out = alignment_;
    finish();
    return true;
  }
  /// Stores the product in scratch memory, from which the group's kernel reads it: `rows` rows, `row` elements apart.
  void into_tile(const loop_ir::Lowered& low, std::span<const loop_ir::ValueLayout> out, int64_t rows, int64_t row) {
    tile_ = scratch(std::max<int64_t>(1, rows * row) * 4);
    if (offsets_.operand < 0) set_row(row);
    shape_.align_out = 256;
    epilogue_.emplace(low, out, properties_, alignment_, options_.approximate, &kernels_);
    epilogue_scratch_ = scratch(epilogue_->scratch_bytes());
    checks_ |= epilogue_->checks_indices();
    finish();
  }
  /// Stores the product in scratch memory, and copies it to a result that is not contiguous.
  void into_copy(const StridedView& out) {
    StridedView dense{nullptr, out.dtype, out.shape, contiguous_strides(out.shape)};
    tile_ = scratch(std::max<int64_t>(1, dense.numel()) * itemsize(dense.dtype));
    shape_.align_out = 256;
    const StridedView results[] = {out}, operands[] = {dense};
    copied_.push_back(copy_of(operands, results, tile_, {}));
    copied_.back().to_result = true;
    finish();
  }
  /// Lets cuBLASLt compute the epilogue too. False if it does not support this one, or not for these layouts: values of
  /// the result's shape must all have the same rows. `in`, `out`: the node's operands and results.
  bool into_epilogue(const LtEpilogue& e, std::span<const StridedView> in, std::span<const StridedView> out) {
    if (!has_work_ || gemm_) return false;
    const std::optional<int64_t> row = row_distance_of(out[e.output]);
    if (!row || (e.aux_output >= 0 && row_distance_of(out[e.aux_output]) != row)) return false;
    for (int i : {e.c, e.aux_input})
      if (i >= 0 && row_distance_of(in[i]) != row) return false;
    if ((e.bias >= 0 && !in[e.bias].contiguous()) || (e.bias_output >= 0 && !out[e.bias_output].contiguous()))
      return false;
    set_row(*row);
    shape_.epilogue = e.kind;
    shape_.alpha = e.alpha;
    shape_.beta = e.c >= 0 ? e.beta : 0;
    shape_.align_out = alignment_;
    if (options_.gpu && !blas_of(*options_.gpu).plan(shape_, blas_workspace(shape_))) {
      shape_.epilogue = MatmulEpilogue::none;
      shape_.alpha = 1;
      shape_.beta = 0;
      return false;
    }
    lt_ = e;
    result_ = e.output;
    if (e.bias >= 0) {
      bias_.operand = e.bias;
      const StridedView& given = in[static_cast<size_t>(e.bias)];
      StridedView cast = given;
      cast.dtype = out[e.output].dtype;
      if (given.dtype != cast.dtype) {
        bias_ = scratch(cast.nbytes());
        copied_.push_back(copy_of(std::array{given}, std::array{cast}, {e.bias}, bias_));
      }
    }
    finish();
    return true;
  }

 private:
  struct Computed {
    GroupLaunches launches;
    std::vector<int> inputs;  // operands of the node
    ProductBuffer to, scratch;
  };
  struct Copied {
    std::unique_ptr<DeviceOperation> operation;
    size_t first = 0;  // index of its first kernel
    ProductBuffer from, to;
    bool to_result = false;
  };

  // The distance between the rows of a value of the result's shape; none if cuBLASLt cannot take these strides.
  std::optional<int64_t> row_distance_of(const StridedView& v) const {
    if (!has_work_ || gemm_) return v.contiguous() ? std::optional(shape_.n) : std::nullopt;
    return weft::internal::row_distance(v, shape_.n);
  }
  void set_row(int64_t row) {
    shape_.out_row = row;
    shape_.out_batch = shape_.m * row;
  }
  ProductBuffer scratch(int64_t bytes) {
    const ProductBuffer p{-1, workspace_};
    workspace_ += round_to_256(bytes);
    return p;
  }
  Copied copy_of(std::span<const StridedView> from, std::span<const StridedView> to, ProductBuffer source,
                 ProductBuffer target) {
    // As in a plan, a copy is a cast to the same type.
    Copied c{prepare(cast_op, Attrs{{"dtype", to[0].dtype}}, from, to, properties_, alignment_), kernels_.size(),
             source, target, false};
    WEFT_BUG_IF(c.operation->workspace_bytes() > 0, name_, ": a copy needs scratch memory");
    kernels_.insert(kernels_.end(), c.operation->kernels().begin(), c.operation->kernels().end());
    return c;
  }
  ProductBuffer copy_if_needed(const DotOperand& o, const StridedView& v, ProductBuffer from) {
    if (!o.copy) return from;
    StridedView permuted = v, dense = v;
    for (int d = 0; d < o.order.size(); ++d) {
      permuted.shape[d] = v.shape[static_cast<int>(o.order[d])];
      permuted.strides[d] = v.strides[static_cast<int>(o.order[d])];
    }
    dense.shape = permuted.shape;
    dense.strides = contiguous_strides(dense.shape);
    const ProductBuffer to = scratch(o.bytes);
    copied_.push_back(copy_of(std::array{permuted}, std::array{dense}, from, to));
    return to;
  }
  // The product as a problem for our own kernel.
  GroupedGemm dense() const {
    GroupedGemm g;
    g.mode = GroupedGemm::GroupedBy::dense;
    g.in = shape_.in;
    g.out = shape_.out;
    g.groups = shape_.batch;
    g.m = shape_.m;
    g.n = shape_.n;
    g.k = shape_.k;
    g.a_e = shape_.a.batch;
    g.a_m = shape_.a.row;
    g.a_k = shape_.a.col;
    g.b_e = shape_.b.batch;
    g.b_k = shape_.b.row;
    g.b_n = shape_.b.col;
    g.y_row = shape_.out_row;
    return g;
  }
  void gemm(GroupedGemm g, const char* name) {
    const bool aligned = alignment_ >= 16;
    g.aligned_a = a_.operand < 0 || aligned;
    g.aligned_b = b_.operand < 0 || aligned;
    g.aligned_y = aligned;
    const std::string text = gemm_kernel(g, name, nullptr, properties_.kernel_sm()).kernel.text;
    gemm_ = gemm_kernel(g, str_cat(name, "_", hash_text(text)), nullptr, properties_.kernel_sm());
    if (gemm_->most_tiles == 0) return;
    gemm_kernel_ = kernels_.size();
    kernels_.push_back(gemm_->kernel);
  }
  void finish() {
    if (!has_work_ || gemm_) return;
    const int64_t limit = blas_workspace(shape_);
    int64_t bytes = limit;
    if (options_.gpu) {
      const PreparedMatmul* p = blas_of(*options_.gpu).plan(shape_, limit);
      // Our own kernel computes products that cuBLASLt refuses.
      if (!p && !lt_) return gemm(dense(), "dot");
      if (p) bytes = p->workspace;
    }
    blas_scratch_ = scratch(bytes);
  }
  const PreparedMatmul* plan_of(CublasLt& blas) const;
  void run_blas(const Addresses& at, void* out, Stream& stream) const;
  void run_gemm(const Addresses& at, void* out, Stream& stream, SourceLine line) const;

  const char* name_;
  const GpuProperties properties_;
  const int alignment_;
  const OperationOptions options_;
  std::vector<Kernel> kernels_;
  std::vector<Computed> computed_;
  std::vector<Copied> copied_;
  ProductBuffer a_, b_, offsets_, tile_, bias_, blas_scratch_, epilogue_scratch_;
  MatmulShape shape_;
  bool has_work_ = true, checks_ = false;
  bool fused_ = false;  // the epilogue computes the product
  std::optional<GroupedGemmKernel> gemm_;
  size_t gemm_kernel_ = 0;
  std::vector<Function> function_;
  int result_ = -1;  // -1: the tile
  std::optional<GroupLaunches> epilogue_;
  std::optional<LtEpilogue> lt_;
  int64_t workspace_ = 0;
  // The plan from the cuBLASLt that ran it last, so that it is looked up once.
  mutable std::atomic<const PreparedMatmul*> plan_{nullptr};
  mutable std::atomic<uint64_t> plan_serial_{0};
};

const PreparedMatmul* ProductOperation::plan_of(CublasLt& blas) const {
  if (plan_serial_.load(std::memory_order_acquire) != blas.serial()) {
    plan_.store(blas.plan(shape_, blas_workspace(shape_)), std::memory_order_relaxed);
    plan_serial_.store(blas.serial(), std::memory_order_release);
  }
  return plan_.load(std::memory_order_relaxed);
}

void ProductOperation::enqueue(const Addresses& at, Stream& stream, SourceLine line) const {
  char* const memory = static_cast<char*>(at.workspace);
  for (const Computed& c : computed_) {
    SmallVec<void*, 8> in;
    for (int i : c.inputs) in.push_back(at.in[i]);
    void* const out[] = {c.to.in(at)};
    c.launches.enqueue({{in.data(), static_cast<size_t>(in.size())}, out, nullptr, memory + c.scratch.scratch, at.bad},
                       stream, name_, line);
  }
  auto copy = [&](const Copied& c, void* to) {
    void* const from[] = {c.from.in(at)};
    void* const out[] = {to};
    c.operation->enqueue({from, out}, stream, line);
  };
  for (const Copied& c : copied_)
    if (!c.to_result) copy(c, c.to.in(at));
  if (fused_) {
    GroupLaunches::GroupAddresses all{at.in, at.out, nullptr, nullptr, at.bad, {}};
    const ProductBuffer* const of[] = {&a_, &b_, &offsets_};
    for (int i = 0; i < 3; ++i) all.product[i] = of[i]->in(at);
    return epilogue_->enqueue(all, stream, name_, line);
  }
  void* out = result_ >= 0 ? at.out[result_] : tile_.in(at);
  if (!has_work_) {
    const int64_t n =
        shape_.batch * shape_.m * shape_.out_row * itemsize(result_ >= 0 || !epilogue_ ? shape_.out : kFloat32);
    if (n > 0) {
      stream.gpu().make_current();
      check(driver().cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(out), 0, n, stream.handle()), "clearing a product");
    }
  } else if (gemm_) {
    if (gemm_->most_tiles > 0) run_gemm(at, out, stream, line);
  } else {
    run_blas(at, out, stream);
  }
  for (const Copied& c : copied_)
    if (c.to_result) copy(c, at.out[0]);
  if (epilogue_)
    epilogue_->enqueue({at.in, at.out, out, memory + epilogue_scratch_.scratch, at.bad}, stream, name_, line);
}

void ProductOperation::run_blas(const Addresses& at, void* out, Stream& stream) const {
  CublasLt& blas = blas_of(stream.gpu());
  stream.gpu().make_current();
  const PreparedMatmul* plan = plan_of(blas);
  WEFT_CHECK_AS(kUnimplemented, plan, name_, ": cuBLASLt has no product of ", shape_.in, " [", shape_.batch, ", ",
                shape_.m, ", ", shape_.k, "] x [", shape_.k, ", ", shape_.n, "] into ", shape_.out, " on ",
                stream.gpu().properties().name);
  MatmulPointers p;
  p.a = a_.in(at);
  p.b = b_.in(at);
  p.out = out;
  p.workspace = blas_scratch_.in(at);
  if (lt_) {
    if (lt_->c >= 0) p.c = at.in[lt_->c];
    if (lt_->bias >= 0) p.bias = bias_.in(at);
    if (lt_->bias_output >= 0) p.bias = at.out[lt_->bias_output];
    if (lt_->aux_input >= 0) p.aux = at.in[lt_->aux_input];
    if (lt_->aux_output >= 0) p.aux = at.out[lt_->aux_output];
  }
  blas.run(*plan, p, stream.handle());
}

void ProductOperation::run_gemm(const Addresses& at, void* out, Stream& stream, SourceLine line) const {
  GemmParams p;
  p.a = a_.in(at);
  p.b = b_.in(at);
  p.y = out;
  p.offsets = offsets_.operand >= 0 ? at.in[offsets_.operand] : nullptr;
  p.bad = at.bad;
  const Grid grid = gemm_->grid(properties_.multiprocessors);
  const Kernel& k = gemm_->kernel;
  function_.at(0).launch(stream, {grid.x, grid.y, grid.z, k.threads, k.shared_bytes, &p, sizeof p, name_, line});
}

}  // namespace

std::unique_ptr<DeviceOperation> product_operation(const OpDef& op, const Attrs& attrs, std::span<const StridedView> in,
                                                   std::span<const StridedView> out, const GpuProperties& gpu,
                                                   int alignment, const OperationOptions& options) {
  // Small integers wrap: compute the product in 32 bits and truncate it.
  if (is_small_integer(in[0].dtype)) {
    std::vector<TensorType> types;
    for (const StridedView& v : in) types.push_back({v.dtype, Device::cpu(), v.shape});
    const Ref<Graph> wide = capture_graph(
        [&](std::span<const Tensor> x) {
          const Tensor a = cast(x[0], kInt32), b = cast(x[1], kInt32);
          const Tensor y = x.size() > 2 ? dispatch(op, {&a, &b, &x[2]}, attrs) : dispatch(op, {&a, &b}, attrs);
          return std::vector{cast(y, out[0].dtype)};
        },
        types);
    return graph_operation(op.name, *wide, in, out, gpu, alignment, options);
  }
  auto p = std::make_unique<ProductOperation>(op.name, gpu, alignment, options);
  if (&op == &grouped_dot_op) {
    p->grouped(attrs, in, {ProductBuffer{0}, ProductBuffer{1}, ProductBuffer{2}}, out[0].dtype, out[0].shape);
  } else {
    p->dot(attrs, in, {0}, {1}, out[0].dtype);
  }
  if (!p->into_result(out[0])) p->into_copy(out[0]);
  return p;
}

std::unique_ptr<DeviceOperation> fused_product_operation(const char* name, const Graph& body,
                                                         std::span<const StridedView> in,
                                                         std::span<const StridedView> out, const GpuProperties& gpu,
                                                         int alignment, const OperationOptions& options) {
  auto p = std::make_unique<ProductOperation>(name, gpu, alignment, options);
  const std::optional<loop_ir::DotParts> parts = loop_ir::take_apart(body);
  const Graph& main = parts ? *parts->main : body;
  loop_ir::LowerOptions lower;
  lower.round_like_eager = options.round_like_eager;
  int32_t dot = 0;
  while (dot < main.size() && !loop_ir::is_product(main.node(dot))) ++dot;
  WEFT_BUG_IF(dot == main.size(), name, ": the body has no product");
  const Node& n = main.node(dot);

  // The product's operands; and all inputs of `main`, which are the node's operands and then the computed ones.
  std::vector<StridedView> operands, inputs(in.begin(), in.end());
  std::array<ProductBuffer, 3> places;
  for (size_t i = 0; i < n.inputs.size(); ++i) {
    const Node& source = main.node(n.inputs[i]);
    WEFT_BUG_IF(!is_argument(source), name, ": operand ", i, " of the product is not an input of the body");
    if (parts && i < 2 && parts->operand[i].body) {
      const TensorType& t = parts->operand[i].type;
      operands.push_back({nullptr, t.dtype, t.shape, contiguous_strides(t.shape)});
      inputs.push_back(operands.back());
      places[i] = p->compute(parts->operand[i], in);
    } else {
      places[i].operand = static_cast<int>(source.attrs.i("index"));
      operands.push_back(in[places[i].operand]);
    }
  }
  const DType result = n.outputs[0].dtype;
  const bool by_library = n.op == &dot_op && cublaslt_takes(operands[0].dtype);
  std::optional<LtEpilogue> lt;
  if (options.lt_epilogues && by_library) lt = match_epilogue(main, dot, options.round_like_eager);
  if (lt)
    for (int i : {lt->bias, lt->c, lt->aux_input})
      if (i >= static_cast<int>(in.size())) lt.reset();
  if (lt) {
    p->dot(n.attrs, operands, places[0], places[1], out[lt->output].dtype);
    if (p->into_epilogue(*lt, in, out)) return p;
    // Start again without this epilogue.
    OperationOptions without = options;
    without.lt_epilogues = false;
    return fused_product_operation(name, body, in, out, gpu, alignment, without);
  }
  std::vector<loop_ir::ValueLayout> in_layouts, out_layouts;
  for (const StridedView& v : inputs) in_layouts.push_back(layout_of(v));
  for (const StridedView& v : out) out_layouts.push_back(layout_of(v));
  const Shape& product = n.outputs[0].shape;
  int64_t row = loop_ir::row_elements(main, n);  // row of the tile
  const int64_t rows = product.numel() / std::max<int64_t>(1, row);
  if (by_library) lower.tile_row = row = weft::internal::padded_distance(row, itemsize(kFloat32), kTensorCoreAlignment);
  const loop_ir::Lowered low = loop_ir::lower_group(main, in_layouts, out_layouts, lower);
  WEFT_BUG_IF(result == kFloat64 || low.tile < 0, name, ": a product of ", result, " without a tile");
  if (n.op == &dot_op) {
    p->dot(n.attrs, operands, places[0], places[1], kFloat32);
  } else {
    if (p->fused(low, out_layouts, n.attrs, operands, places, product)) return p;
    p->grouped(n.attrs, operands, places, kFloat32, product);
  }
  p->into_tile(low, out_layouts, rows, row);
  return p;
}

}  // namespace weft::cuda::internal
