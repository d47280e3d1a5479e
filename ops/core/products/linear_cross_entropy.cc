#include "ops/core/products/linear_cross_entropy.h"

#include <limits>

#include "framework/dispatch/dispatch.h"
#include "ops/core/core.h"
#include "ops/core/record_parts.h"
#include "ops/core/reductions/log_sum_exp.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/products/linear_cross_entropy.h"

namespace weft {
namespace {

using namespace internal;

bool is_grad(const OpDef& op) { return &op == &linear_cross_entropy_grad_op; }
/// Position of the bias among the operands.
size_t bias_at(const OpDef& op) { return is_grad(op) ? 4 : 3; }

// ---- types ----

Types infer(const InferCall& c) {
  const char* op = c.op.name;
  const size_t least = bias_at(c.op);
  WEFT_CHECK(c.in.size() == least || c.in.size() == least + 1, op, ": ", c.in.size(), " operands; need ", least, " or ",
             least + 1);
  const TensorType &x = c.in[0], &w = c.in[1], &t = c.in[2];
  WEFT_CHECK(is_computed_float(x.dtype) && w.dtype == x.dtype, op, ": x and w are ", x.dtype, " and ", w.dtype,
             "; need one of f64, f32, bf16, f16");
  WEFT_CHECK(x.shape.size() == 2 && w.shape.size() == 2 && x.shape[1] == w.shape[1] && w.shape[0] > 0, op, ": x is ",
             x.shape, " and w ", w.shape, "; need [N, D] and [V, D], V at least 1");
  WEFT_CHECK(is_index(t.dtype) && t.shape == Shape{x.shape[0]}, op, ": targets are ", t, "; need i64 or i32 [",
             x.shape[0], "]");
  const TensorType loss{wide_of(x.dtype), x.device, {x.shape[0]}};
  Types out{loss};
  if (is_grad(c.op)) {
    WEFT_CHECK(is_computed_float(c.in[3].dtype) && c.in[3].shape == loss.shape, op, ": g is ", c.in[3],
               "; need a floating-point dtype and shape ", loss.shape);
    out.push_back(x);
    out.push_back(w);
  }
  if (c.in.size() > least) {
    const TensorType& bias = c.in[least];
    WEFT_CHECK(bias.dtype == x.dtype && bias.shape == Shape{w.shape[0]}, op, ": bias is ", bias, "; need ", x.dtype,
               " [", w.shape[0], "]");
    if (is_grad(c.op)) out.push_back(bias);
  }
  return out;
}

// Rows pass: a shard of rows gives partial sums of the gradients of w and bias. Each row needs all of d and v.
DimMap dims(const Attrs&, std::span<const TensorType> in, std::span<const TensorType> out) {
  std::string text = "n d?, v? d?, n";
  const bool grad = out.size() > 1;
  if (grad) text += ", n";
  const bool bias = in.size() > (grad ? 4 : 3);
  if (bias) text += ", v?";
  text += " -> n";
  if (grad) text += ", n d?, v? d?";
  if (grad && bias) text += ", v?";
  return DimMap::parse(text, in, out);
}

Cost cost(const Attrs&, std::span<const TensorType> in, std::span<const TensorType> out) {
  const double n = static_cast<double>(in[0].shape[0]), d = static_cast<double>(in[0].shape[1]),
               v = static_cast<double>(in[1].shape[0]);
  const double products = (out.size() > 1 ? 6 : 2) * n * d * v;
  return {products + 8 * n * v, bytes_of(in) + bytes_of(out), products};
}

// ---- kernel ----

int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

/// Operands made contiguous (w may have any layout; g in the accumulation dtype), each copy at its offset in the
/// workspace.
struct ContiguousOperands {
  std::vector<StridedView> from, to;
  std::vector<int64_t> at;
  int64_t bytes = 0;
  ContiguousOperands(const OpDef& op, std::span<const StridedView> in) {
    for (size_t i = 0; i < in.size(); ++i) {
      const bool g = is_grad(op) && i == 3;
      const DType t = g ? wide_of(in[0].dtype) : in[i].dtype;
      from.push_back(in[i]);
      to.push_back(in[i]);
      at.push_back(-1);
      if ((i == 1 || in[i].contiguous()) && t == in[i].dtype) continue;
      to[i].dtype = t;
      to[i].strides = contiguous_strides(in[i].shape);
      at[i] = bytes;
      bytes += aligned(in[i].numel() * itemsize(t));
    }
  }
  void place(char* workspace) {
    for (size_t i = 0; i < from.size(); ++i) {
      if (at[i] < 0) continue;
      to[i].data = workspace + at[i];
      kernels::cast_copy(from[i], to[i]);
    }
  }
};

int64_t workspace_of(const OpDef& op, std::span<const StridedView> in) {
  return ContiguousOperands(op, in).bytes + kernels::linear_cross_entropy_workspace(in[0].dtype, in[0].shape[0],
                                                                                    in[1].shape[0], in[0].shape[1],
                                                                                    is_grad(op));
}

void run(const KernelCall& c) {
  ContiguousOperands in(c.op, c.in);
  char* workspace = static_cast<char*>(c.workspace);
  in.place(workspace);
  kernels::LinearCrossEntropy call{.x = in.to[0], .w = in.to[1], .targets = in.to[2], .loss = c.out[0]};
  if (const size_t b = bias_at(c.op); in.to.size() > b) call.bias = in.to[b];
  if (is_grad(c.op)) {
    call.gradients = true;
    call.g = in.to[3];
    call.dx = c.out[1];
    call.dw = c.out[2];
    if (c.out.size() > 3) call.dbias = c.out[3];
  }
  call.ignore_index = c.attrs.i("ignore_index");
  call.smoothing = c.attrs.f("label_smoothing");
  call.z_loss = c.attrs.f("z_loss");
  kernels::linear_cross_entropy(call, workspace + in.bytes);
}

// ---- the same function in primitives ----

/// The terms of loss and gradients, in the accumulation dtype: [N, V], or [N, 1] for one value per row.
struct LossTerms {
  DType wide;
  double s, z;
  Tensor x, w, logits, counts, classes, shift, log_sum;
  LossTerms(const Attrs& attrs, const Tensor& x_in, const Tensor& w_in, const Tensor& targets, const Tensor& bias)
      : wide(wide_of(x_in.dtype())), s(attrs.f("label_smoothing")), z(attrs.f("z_loss")) {
    x = cast(x_in, wide);
    w = cast(w_in, wide);
    logits = matmul(x, t(w));
    if (bias.defined()) logits = logits + cast(bias, wide);
    const Tensor counted = ne(targets, attrs.i("ignore_index"));
    counts = cast(unsqueeze(counted, -1), wide);
    classes = unsqueeze(where(counted, targets, 0), -1);
    const LogSumExp parts = log_sum_exp(logits, -1, true);
    shift = parts.shift, log_sum = parts.log_sum;
  }
  Tensor loss() const {
    Tensor y = log_sum + (shift - gather(logits, 1, classes));
    if (s > 0) y = y * (1 - s) + (log_sum + mean(shift - logits, -1, true)) * s;
    if (z != 0) y = y + square(lse()) * z;
    return squeeze(where(cast(counts, kBool), y, 0.0), -1);
  }
  Tensor lse() const { return log_sum + shift; }
  Tensor softmax() const { return exp((logits - shift) - log_sum); }
  /// d (terms of lse) / d lse: 1 + 2 z lse.
  Tensor weight() const { return lse() * (2 * z) + 1.0; }
  /// The gradient of a counted row's loss by its logits.
  Tensor slope() const {
    const Tensor hit = cast(eq(arange(w.shape()[0], {.dtype = classes.dtype()}), classes), wide);
    Tensor even = hit * (1 - s);
    if (s > 0) even = even + s / static_cast<double>(w.shape()[0]);
    return softmax() * weight() - even;
  }
};

Tensor at(std::span<const Tensor> in, size_t i) { return i < in.size() ? in[i] : Tensor(); }

std::vector<Tensor> decompose(const Attrs& attrs, std::span<const Tensor> in) {
  return {LossTerms(attrs, in[0], in[1], in[2], at(in, 3)).loss()};
}

std::vector<Tensor> decompose_grad(const Attrs& attrs, std::span<const Tensor> in) {
  const LossTerms p(attrs, in[0], in[1], in[2], at(in, 4));
  const DType t = in[0].dtype();
  const Tensor dl = cast(unsqueeze(cast(in[3], p.wide), -1) * p.counts * p.slope(), t);
  std::vector<Tensor> out{p.loss(), matmul(dl, in[1]), matmul(weft::t(dl), in[0])};
  if (in.size() > 4) out.push_back(sum(dl, 0));
  return out;
}

Grads vjp(const VjpCall& c) {
  SmallVec<const Tensor*, 5> in;
  for (int i = 0; i < 3; ++i) in.push_back(&c.in[i]);
  in.push_back(&c.grad[0]);
  if (c.in.size() > 3) in.push_back(&c.in[3]);
  const std::vector<Tensor> out = dispatch_multi(linear_cross_entropy_grad_op, TensorPtrs(in), c.attrs);
  Grads r{out[1], out[2], Tensor()};
  if (c.in.size() > 3) r.push_back(out[3]);
  return r;
}

// Derivative of the gradient of L' = sum(g loss) by the logits, dl = g (k p - q), with p = softmax, k = 1 + 2 z lse and
// q the smoothed targets. Let m be the incoming gradient of dl, and h the incoming gradient of the loss. Then the
// logits get g p (k (m - sum p m) + 2 z sum p m) + h (k p - q).
Grads vjp_grad(const VjpCall& c) {
  const LossTerms p(c.attrs, c.in[0], c.in[1], c.in[2], at(c.in, 4));
  const Tensor g = unsqueeze(cast(c.in[3], p.wide), -1) * p.counts, slope = p.slope(), soft = p.softmax();
  const Tensor dl = g * slope;
  Tensor dx, dw, m, dlogits, dg;
  auto add_to = [](Tensor& sum, const Tensor& v) { sum = sum.defined() ? sum + v : v; };
  if (c.grad[1].defined()) {
    const Tensor u = cast(c.grad[1], p.wide);
    add_to(m, matmul(u, t(p.w)));
    add_to(dw, matmul(t(dl), u));
  }
  if (c.grad[2].defined()) {
    const Tensor u = cast(c.grad[2], p.wide);
    add_to(m, matmul(p.x, t(u)));
    add_to(dx, matmul(dl, u));
  }
  if (c.grad.size() > 3 && c.grad[3].defined()) add_to(m, broadcast_to(cast(c.grad[3], p.wide), p.logits.shape()));
  if (m.defined()) {
    dg = sum(m * slope, -1) * squeeze(p.counts, -1);
    const Tensor pm = sum(soft * m, -1, true);
    Tensor back = p.weight() * (m - pm);
    if (p.z != 0) back = back + pm * (2 * p.z);
    add_to(dlogits, g * soft * back);
  }
  if (c.grad[0].defined()) add_to(dlogits, unsqueeze(cast(c.grad[0], p.wide), -1) * p.counts * slope);
  Grads r(c.in.size());
  if (!dlogits.defined()) return r;
  add_to(dx, matmul(dlogits, p.w));
  add_to(dw, matmul(t(dlogits), p.x));
  r[0] = cast(dx, c.in[0].dtype());
  r[1] = cast(dw, c.in[1].dtype());
  if (dg.defined()) r[3] = cast(dg, c.in[3].dtype());
  if (c.in.size() > 4) r[4] = cast(sum(dlogits, 0), c.in[4].dtype());
  return r;
}

// ---- samples ----

std::vector<Sample> samples_of(bool grad) {
  auto attrs = [](int64_t ignored, double s, double z) {
    return Attrs{{"ignore_index", ignored}, {"label_smoothing", s}, {"z_loss", z}};
  };
  auto sample = [&](int64_t n, int64_t d, int64_t v, bool bias, const Attrs& a, std::string error = "") {
    Sample s{{{Shape{n, d}}, {Shape{v, d}}, {Shape{n}, kInt64, 0, static_cast<double>(v - 1)}}, a, error};
    if (grad) s.in.push_back({Shape{n}});
    if (bias) s.in.push_back({Shape{v}});
    return s;
  };
  std::vector<Sample> all = {
      sample(5, 3, 7, false, attrs(-100, 0, 0)),
      sample(4, 3, 17, true, attrs(2, 0, 0)),  // some targets are ignored
      sample(3, 2, 5, true, attrs(-100, 0.25, 0.125)),
      sample(3, 4, 33, false, attrs(1, 0.1, 0)),
      sample(1, 1, 1, false, attrs(-100, 0, 0)),
      sample(0, 3, 4, true, attrs(-100, 0, 0)),
      sample(6, 3, 7, false, attrs(-100, 0, 0), "need [N, D] and [V, D]"),
      sample(6, 3, 7, true, attrs(-100, 0, 0), "bias is f32[6]; need f32 [7]"),
      sample(6, 3, 7, false, attrs(-100, 0, 0), "targets are f32[6]; need i64 or i32 [6]"),
      sample(6, 3, 2, false, attrs(-100, 0, 0), "a target is not a class"),
  };
  all[3].in[2].dtype = kInt32;
  all[6].in[1].shape = Shape{7, 4};
  all[7].in.back().shape = Shape{6};
  all[8].in[2] = {Shape{6}};
  all[9].in[2].lo = all[9].in[2].hi = 5;
  return all;
}

}  // namespace

const OpDef linear_cross_entropy_op = {
    .name = "linear_cross_entropy",
    .doc = "Cross-entropy of each row of a linear layer's logits, which exist a chunk of rows at a time.",
    .traits = kContraction | kLinearLoss | kMayThrow,
    .num_inputs = -1,
    .infer = infer,
    .vjp = vjp,
    .dims = dims,
    .cost = cost,
    .kernel = run,
    .workspace = [](const Attrs&, std::span<const StridedView> in,
                    std::span<const StridedView>) { return workspace_of(linear_cross_entropy_op, in); },
    .decompose = decompose,
    .samples = [] { return samples_of(false); },
    .vjp_reads_out = 0,
};
const OpDef linear_cross_entropy_grad_op = {
    .name = "linear_cross_entropy_grad",
    .doc = "Loss of linear_cross_entropy with the gradients of x, w and bias for weights g of the rows' losses.",
    .traits = kContraction | kLinearLoss | kMayThrow,
    .num_inputs = -1,
    .num_outputs = -1,
    .infer = infer,
    .vjp = vjp_grad,
    .dims = dims,
    .cost = cost,
    .kernel = run,
    .workspace = [](const Attrs&, std::span<const StridedView> in,
                    std::span<const StridedView>) { return workspace_of(linear_cross_entropy_grad_op, in); },
    .decompose = decompose_grad,
    .samples = [] { return samples_of(true); },
    .vjp_reads_out = 0,
};

std::span<const OpDef* const> linear_cross_entropy_ops() {
  static const OpDef* const all[] = {&linear_cross_entropy_op, &linear_cross_entropy_grad_op};
  return all;
}

}  // namespace weft
