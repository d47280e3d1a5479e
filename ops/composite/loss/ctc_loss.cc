#include "ops/composite/loss/ctc_loss.h"

#include <algorithm>
#include <limits>

#include "framework/autodiff/grad.h"
#include "ops/composite/layers/activation.h"
#include "ops/composite/layers/padded_rows.h"
#include "ops/composite/loss/loss_parts.h"
#include "ops/core/indexing/index.h"
#include "ops/core/indexing/view.h"

namespace weft {

using namespace internal;

namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

// Lengths as i64 [N], each looked up in 0 ... most, so that a length out of range throws in compiled functions too.
Tensor lengths_of(const Tensor& t, int64_t count, int64_t most, const char* what) {
  WEFT_CHECK(is_integral(t.dtype()) && t.numel() == count && t.dim() <= 1, "ctc_loss: ", what,
             " of each sequence: got ", t.type(), "; need ", count, " integers");
  const Tensor range = arange(most + 1, {.dtype = kInt64, .device = t.device()});
  return look_up(index_select_op, range, 0, reshape(t, {count}).to(kInt64),
                 weft::str_cat("ctc_loss: ", what, " is out of range"));
}

// The slices along dim 0. Their gradient is one stack, which is cheaper than a sum with a padded tensor for each slice.
std::vector<Tensor> slices(const Tensor& x) {
  const CustomGrad unbound([](std::span<const Tensor> in) { return unbind(in[0]); },
                           [](std::span<const Tensor>, std::span<const Tensor>, std::span<const Tensor> g) {
                             return std::vector<Tensor>{stack(std::vector<Tensor>(g.begin(), g.end()))};
                           });
  return x.size(0) > 0 ? unbound(std::vector<Tensor>{x}) : std::vector<Tensor>{};
}

// Targets in one piece as [N, S]; places after a target's end are 0.
Tensor in_rows(const Tensor& targets, const std::vector<int64_t>& lengths) {
  int64_t total = 0, most = 0;
  for (int64_t n : lengths) {
    WEFT_CHECK(n >= 0 && n <= targets.numel(), "ctc_loss: a target length is ", n, "; need 0 to ", targets.numel());
    total += n;
    most = std::max(most, n);
  }
  WEFT_CHECK(total == targets.numel(), "ctc_loss: targets have shape ", targets.shape(), " and target lengths sum to ",
             total, "; need the sum, or targets [N, S]");
  return padded_rows(targets, lengths, most);
}

// The losses [N] of log_probs [T, N, C], targets [N, S] and checked lengths [N].
Tensor losses(const Tensor& log_probs, const Tensor& targets, const Tensor& inputs, const Tensor& lengths,
              int64_t blank) {
  const int64_t batch = targets.size(0), most = targets.size(1), states = 2 * most + 1;
  const TensorOptions integers{.dtype = kInt64, .device = log_probs.device()};
  const Tensor own = where(lt(arange(most, integers), unsqueeze(lengths, 1)), targets.to(kInt64), blank);
  // Blank, target, blank, ..., target, blank.
  const Tensor blanks = full({batch, most, 1}, blank, integers);
  const Tensor labels =
      cat({reshape(cat({blanks, unsqueeze(own, 2)}, 2), {batch, 2 * most}), full({batch, 1}, blank, integers)}, 1);
  const Tensor at_each_time = expand(unsqueeze(labels, 0), {log_probs.size(0), batch, states});
  const Tensor scores = look_up(gather_op, log_probs, 2, at_each_time, "ctc_loss: a target is not a class");
  // A path may skip the blank between two different targets.
  const auto before = [&](const Tensor& x, int64_t n, double outside) {
    return slice(pad(x, {n, 0}, outside), 1, 0, states);
  };
  const Tensor skips = logical_and(ne(labels, blank), ne(labels, before(labels, 2, static_cast<double>(blank))));
  const Tensor place = arange(states, integers);
  // Logarithms of the probabilities of all paths that end in a state; before the first time, all are in state 0.
  Tensor paths = expand(where(eq(place, 0), full({}, 0.0).to(scores.dtype()), kNever), {batch, states});
  const std::vector<Tensor> at = slices(scores);
  for (size_t t = 0; t < at.size(); ++t) {
    const Tensor ways = stack({paths, before(paths, 1, kNever), where(skips, before(paths, 2, kNever), kNever)});
    const Tensor next = logsumexp(ways, 0) + at[t];
    paths = where(unsqueeze(gt(inputs, static_cast<int64_t>(t)), 1), next, paths);
  }
  // All paths that end in the last target or in the blank after it.
  const Tensor end = unsqueeze(lengths * 2, 1);
  const Tensor ends = logical_or(eq(place, end), eq(place, end - 1));
  return -logsumexp(where(ends, paths, kNever), 1);
}

// `read` gives the target lengths as numbers.
template <class F>
Tensor loss_of(const Arg& log_probs, const Arg& targets, const Arg& input_lengths, const Arg& target_lengths,
               const CtcLossOptions& o, const F& read) {
  const char* op = "ctc_loss";
  Tensor x = widened(floating_of(log_probs, op)), t = tensor_of(targets, op);
  check_reduction(o.reduction, op);
  const bool one = x.dim() == 2;
  WEFT_CHECK(x.dim() == 3 || one, op, ": log_probs are ", x.type(), "; need [time, batch, classes] or [time, classes]");
  WEFT_CHECK(is_integral(t.dtype()) && (t.dim() == 1 || t.dim() == 2), op, ": targets are ", t.type(),
             "; need integers [batch, length], or one dim with all targets");
  if (one) x = unsqueeze(x, 1);
  const int64_t time = x.size(0), batch = x.size(1), classes = x.size(2);
  WEFT_CHECK(batch > 0, op, ": log_probs are ", x.type(), "; need a batch of one or more");
  WEFT_CHECK(o.blank >= 0 && o.blank < classes, op, ": blank is ", o.blank, "; need 0 to ", classes - 1);
  if (one && t.dim() == 1) t = unsqueeze(t, 0);
  if (t.dim() == 1) t = in_rows(t, read());
  WEFT_CHECK(t.size(0) == batch, op, ": targets have shape ", t.shape(), " and log_probs ", x.shape(), "; need ", batch,
             " rows of targets");
  const Tensor inputs = lengths_of(tensor_of(input_lengths, op), batch, time, "an input length"),
               lengths = lengths_of(tensor_of(target_lengths, op), batch, t.size(1), "a target length");
  Tensor loss = losses(x, t, inputs, lengths, o.blank);
  if (o.zero_infinity) loss = where(eq(loss, std::numeric_limits<double>::infinity()), 0.0, loss);
  if (o.reduction == "mean") loss = loss / clamp_min(lengths, 1).to(loss.dtype());
  if (one && o.reduction == "none") return squeeze(loss, 0);
  return reduced(loss, o.reduction);
}

}  // namespace

Tensor ctc_loss(const Arg& log_probs, const Arg& targets, const Arg& input_lengths, const Arg& target_lengths,
                const CtcLossOptions& options) {
  LineScope line(log_probs.line());
  return loss_of(log_probs, targets, input_lengths, target_lengths, options, [&] {
    const Tensor& t = tensor_of(target_lengths, "ctc_loss");
    WEFT_CHECK(!t.is_traced(),
               "ctc_loss: targets have one dim and target_lengths no values inside a compiled "
               "function; need targets [batch, length] or lengths as std::vector<int64_t>");
    return t.to_vector<int64_t>();
  });
}

Tensor ctc_loss(const Arg& log_probs, const Arg& targets, const std::vector<int64_t>& input_lengths,
                const std::vector<int64_t>& target_lengths, const CtcLossOptions& options) {
  LineScope line(log_probs.line());
  const auto tensor = [&](const std::vector<int64_t>& v) {
    return Tensor::from_vector(v, {static_cast<int64_t>(v.size())}).to(tensor_of(log_probs, "ctc_loss").device());
  };
  return loss_of(log_probs, targets, tensor(input_lengths), tensor(target_lengths), options,
                 [&] { return target_lengths; });
}

}  // namespace weft
