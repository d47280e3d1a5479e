#include "ops/composite/arrange.h"

#include <algorithm>
#include <limits>

#include "framework/base/called.h"
#include "framework/base/saturate.h"
#include "ops/composite/host_list.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/index.h"

namespace weft {

using internal::FirstOperand;
using internal::LineScope;
using internal::tensor_of;

namespace {

Tensor at_least(const Arg& arg, int dims, const char* op) {
  const FirstOperand x(arg, op);
  Shape to = x.shape();
  if (dims >= 1 && to.size() == 0) to = {1};
  if (dims >= 2 && to.size() == 1) to = {1, to[0]};
  if (dims >= 3 && to.size() == 2) to = {to[0], to[1], 1};
  return reshape(x, to);
}

template <class F>
std::vector<Tensor> each(const std::vector<Tensor>& xs, const char* op, const F& f) {
  WEFT_CHECK(!xs.empty(), op, ": no tensors; need one or more");
  std::vector<Tensor> r;
  for (const Tensor& x : xs) r.push_back(f(tensor_of(x, op)));
  return r;
}

Tensor repeated(Tensor x, const Shape& times, const char* op) {
  for (int64_t n : times) WEFT_CHECK(n >= 0, op, ": times ", times, "; need 0 or more");
  Shape shape = x.shape();
  while (shape.size() < times.size()) shape.insert(0, 1);
  x = reshape(x, shape);
  for (int d = 0; d < times.size(); ++d) {
    if (times[d] == 1) continue;
    Shape to = x.shape();
    if (to[d] == 1) {
      to[d] = times[d];
      x = broadcast_to(x, to);
      continue;
    }
    // Other dims are merged, because a shape of kMaxDims dims has no room for a new one.
    int64_t before = 1, after = 1;
    for (int k = 0; k < d; ++k) before *= to[k];
    for (int k = d + 1; k < to.size(); ++k) after *= to[k];
    const Tensor pieces = reshape(x, {before, 1, to[d], after});
    to[d] = saturating_mul(to[d], times[d]);
    x = reshape(broadcast_to(pieces, {before, times[d], x.shape()[d], after}), to);
  }
  return x;
}

}  // namespace

Tensor atleast_1d(const Arg& x) { return at_least(x, 1, "atleast_1d"); }
Tensor atleast_2d(const Arg& x) { return at_least(x, 2, "atleast_2d"); }
Tensor atleast_3d(const Arg& x) { return at_least(x, 3, "atleast_3d"); }

Tensor vstack(const std::vector<Tensor>& xs, std::source_location loc) {
  LineScope here(loc);
  const internal::Called name("vstack");
  return concat(each(xs, "vstack", [](const Tensor& x) { return atleast_2d(x); }), 0, loc);
}
Tensor hstack(const std::vector<Tensor>& xs, std::source_location loc) {
  LineScope here(loc);
  const internal::Called name("hstack");
  const std::vector<Tensor> parts = each(xs, "hstack", [](const Tensor& x) { return atleast_1d(x); });
  return concat(parts, parts[0].dim() == 1 ? 0 : 1, loc);
}
Tensor dstack(const std::vector<Tensor>& xs, std::source_location loc) {
  LineScope here(loc);
  const internal::Called name("dstack");
  return concat(each(xs, "dstack", [](const Tensor& x) { return atleast_3d(x); }), 2, loc);
}
Tensor column_stack(const std::vector<Tensor>& xs, std::source_location loc) {
  LineScope here(loc);
  const internal::Called name("column_stack");
  auto columns = [](const Tensor& x) { return x.dim() <= 1 ? reshape(x, {x.numel(), 1}) : x; };
  return concat(each(xs, "column_stack", columns), 1, loc);
}

Tensor block_diag(const std::vector<Tensor>& xs, std::source_location loc) {
  LineScope here(loc);
  const internal::Called name("block_diag");
  int64_t width = 0, before = 0;
  const std::vector<Tensor> blocks = each(xs, "block_diag", [&](const Tensor& x) {
    WEFT_CHECK(x.dim() <= 2, "block_diag: got ", x.type(), "; need at most two dims");
    const Tensor block = atleast_2d(x);
    width = saturating_add(width, block.size(1));
    return block;
  });
  std::vector<Tensor> rows;
  for (const Tensor& block : blocks) {
    rows.push_back(pad(block, {before, width - before - block.size(1)}));
    before += block.size(1);
  }
  return concat(rows, 0, loc);
}

Tensor repeat(const Arg& arg, const Shape& times) {
  const FirstOperand x(arg, "repeat");
  WEFT_CHECK(times.size() >= x.dim(), "repeat: times ", times, " for ", x.shape(),
             "; need a number for each dim, or tile()");
  return repeated(x, times, "repeat");
}
Tensor tile(const Arg& arg, const Shape& times) {
  const FirstOperand x(arg, "tile");
  Shape all = times;
  while (all.size() < x.dim()) all.insert(0, 1);
  return repeated(x, all, "tile");
}

Tensor swapaxes(const Arg& x, int64_t a, int64_t b) {
  const internal::Called name("swapaxes");
  return transpose(x, a, b);
}
Tensor swapdims(const Arg& x, int64_t a, int64_t b) {
  const internal::Called name("swapdims");
  return transpose(x, a, b);
}

Tensor moveaxis(const Arg& arg, const Shape& from, const Shape& to) {
  const FirstOperand x(arg, "moveaxis");
  WEFT_CHECK(from.size() == to.size(), "moveaxis: dims ", from, " and positions ", to, "; need equal numbers");
  Shape dims = Shape::filled(x.dim(), -1);
  std::vector<bool> moved(static_cast<size_t>(x.dim()));
  for (int k = 0; k < from.size(); ++k) {
    const int i = normalize_dim(from[k], x.dim(), "moveaxis"), j = normalize_dim(to[k], x.dim(), "moveaxis");
    if (x.dim() == 0) return x;
    WEFT_CHECK(!moved[static_cast<size_t>(i)] && dims[j] < 0, "moveaxis: dims ", from, " and positions ", to,
               "; need each once");
    moved[static_cast<size_t>(i)] = true;
    dims[j] = i;
  }
  for (int i = 0, j = 0; i < x.dim(); ++i) {
    if (moved[static_cast<size_t>(i)]) continue;
    while (dims[j] >= 0) ++j;
    dims[j] = i;
  }
  return permute(x, dims);
}

Tensor ravel(const Arg& x) { return flatten(x); }

Tensor unflatten(const Arg& arg, int64_t dim, const Shape& sizes) {
  const FirstOperand x(arg, "unflatten");
  WEFT_CHECK(x.dim() > 0, "unflatten: got a scalar; need a dim to split");
  const int d = normalize_dim(dim, x.dim(), "unflatten");
  const int64_t n = x.shape()[d];
  int64_t known = 1;
  int unknown = -1;
  bool ok = !sizes.empty();
  for (int k = 0; k < sizes.size(); ++k) {
    if (sizes[k] != -1) {
      ok = ok && sizes[k] >= 0;
      known = saturating_mul(known, sizes[k]);
    } else {
      ok = ok && unknown < 0;
      unknown = k;
    }
  }
  Shape split = sizes;
  if (unknown >= 0 && known > 0) split[unknown] = n / known;
  WEFT_CHECK(ok && (unknown < 0 || known > 0) && split.numel() == n, "unflatten: sizes ", sizes, " of dim ", d, " of ",
             x.shape(), "; need a product of ", n, ", with one -1 at most");
  Shape to;
  for (int k = 0; k < x.dim(); ++k) {
    if (k != d) to.push_back(x.shape()[k]);
    for (int j = 0; k == d && j < split.size(); ++j) to.push_back(split[j]);
  }
  return reshape(x, to);
}

Tensor fliplr(const Arg& arg) {
  const FirstOperand x(arg, "fliplr");
  WEFT_CHECK(x.dim() >= 2, "fliplr: got ", x.type(), "; need two dims or more");
  return flip(x, 1);
}
Tensor flipud(const Arg& arg) {
  const FirstOperand x(arg, "flipud");
  WEFT_CHECK(x.dim() >= 1, "flipud: got ", x.type(), "; need one dim or more");
  return flip(x, 0);
}

Tensor rot90(const Arg& arg, int64_t k, const Shape& dims) {
  const FirstOperand x(arg, "rot90");
  WEFT_CHECK(x.dim() >= 2 && dims.size() == 2, "rot90: dims ", dims, " of ", x.shape(), "; need two dims");
  const int a = normalize_dim(dims[0], x.dim(), "rot90"), b = normalize_dim(dims[1], x.dim(), "rot90");
  WEFT_CHECK(a != b, "rot90: dims ", dims, " of ", x.shape(), "; need two different dims");
  switch ((k % 4 + 4) % 4) {
    case 1:
      return transpose(flip(x, b), a, b);
    case 2:
      return flip(x, {a, b});
    case 3:
      return transpose(flip(x, a), a, b);
    default:
      return x;
  }
}

Tensor pad(const Arg& arg, const std::vector<int64_t>& pads, std::string_view mode) {
  LineScope here(arg.line());
  if (mode == "constant") return pad(arg, pads, 0.0);
  const bool reflect = mode == "reflect", circular = mode == "circular";
  WEFT_CHECK(reflect || circular || mode == "replicate", "pad: mode is '", mode,
             "'; need constant, reflect, replicate or circular");
  Tensor x = tensor_of(arg, "pad");
  WEFT_CHECK(pads.size() % 2 == 0 && static_cast<int>(pads.size()) <= 2 * x.dim(), "pad: ", pads.size(), " widths for ",
             x.shape(), "; need a pair per dim, from the last");
  for (size_t k = 0; k < pads.size() / 2; ++k) {
    const int d = x.dim() - 1 - static_cast<int>(k);
    const int64_t before = std::max<int64_t>(pads[2 * k], 0), after = std::max<int64_t>(pads[2 * k + 1], 0);
    // Negative widths cut: before the copies if circular, and after them otherwise, so that the edges are x's.
    const auto cut = [&] {
      const int64_t n = x.size(d), begin = -std::clamp<int64_t>(pads[2 * k], -n, 0),
                    end = n + std::clamp<int64_t>(pads[2 * k + 1], -n, 0);
      if (end - begin == n) return;
      WEFT_CHECK(begin < end, "pad: widths ", pads[2 * k], " and ", pads[2 * k + 1], " for dim ", d, " of ",
                 tensor_of(arg, "pad").shape(), " leave nothing; need one element or more");
      x = slice(x, d, begin, end);
    };
    if (circular) cut();
    const int64_t n = x.size(d);
    const int64_t most = n == 0 || reflect ? std::max<int64_t>(n - 1, 0)
                         : circular        ? n
                                           : std::numeric_limits<int64_t>::max();
    WEFT_CHECK(std::max(before, after) <= most, "pad: widths ", before, " and ", after, " for dim ", d, " of ",
               x.shape(), " with mode ", mode, "; need at most ", most);
    const auto part = [&](int64_t begin, int64_t width) {
      if (reflect) return flip(slice(x, d, begin, begin + width), d);
      if (circular) return slice(x, d, begin, begin + width);
      Shape shape = x.shape();
      shape[d] = width;
      return expand(slice(x, d, begin, begin + 1), shape);
    };
    std::vector<Tensor> parts;
    if (before > 0) parts.push_back(part(reflect ? 1 : circular ? n - before : 0, before));
    parts.push_back(x);
    if (after > 0) parts.push_back(part(reflect ? n - 1 - after : circular ? 0 : n - 1, after));
    if (parts.size() > 1) x = cat(parts, d);
    if (!circular) cut();
  }
  return x;
}

Tensor narrow(const Arg& arg, int64_t dim, int64_t start, int64_t length) {
  const FirstOperand x(arg, "narrow");
  WEFT_CHECK(x.dim() > 0, "narrow: got a scalar; need a dim to cut");
  const int d = normalize_dim(dim, x.dim(), "narrow");
  const int64_t n = x.shape()[d], begin = start < 0 ? start + n : start;
  WEFT_CHECK_AS(kOutOfRange, begin >= 0 && begin <= n && length >= 0 && length <= n - begin, "narrow: start ", start,
                " and length ", length, " of dim ", d, " of ", x.shape(), "; need a part of 0 to ", n);
  return slice(x, d, begin, begin + length);
}

std::vector<Tensor> tensor_split(const Arg& arg, const std::vector<int64_t>& positions, int64_t dim) {
  const FirstOperand x(arg, "tensor_split");
  WEFT_CHECK(x.dim() > 0, "tensor_split: got a scalar; need a dim to cut");
  const int d = normalize_dim(dim, x.dim(), "tensor_split");
  const int64_t n = x.shape()[d];
  std::vector<Tensor> pieces;
  int64_t begin = 0;
  for (size_t k = 0; k <= positions.size(); ++k) {
    int64_t end = k < positions.size() ? positions[k] : n;
    end = std::clamp<int64_t>(end < 0 ? end + n : end, 0, n);
    pieces.push_back(slice(x, d, begin, std::max(begin, end)));
    begin = end;
  }
  return pieces;
}

std::vector<Tensor> internal::equal_pieces(const Arg& arg, int64_t n, int64_t dim) {
  LineScope here(arg.line());
  WEFT_CHECK(n > 0, "tensor_split: ", n, " pieces; need 1 or more");
  const Tensor& x = tensor_of(arg, "tensor_split");
  WEFT_CHECK(x.dim() > 0, "tensor_split: got a scalar; need a dim to cut");
  const int64_t extent = x.size(dim);
  std::vector<int64_t> positions;
  for (int64_t k = 1; k < n; ++k) positions.push_back(k * (extent / n) + std::min(k, extent % n));
  return tensor_split(x, positions, dim);
}

std::vector<Tensor> broadcast_tensors(const std::vector<Tensor>& xs, std::source_location loc) {
  LineScope here(loc);
  Shape shape;
  for (const Tensor& x : xs)
    shape = broadcast_shapes(shape, tensor_of(x, "broadcast_tensors").shape(), "broadcast_tensors");
  std::vector<Tensor> r;
  for (const Tensor& x : xs) r.push_back(broadcast_to(x, shape));
  return r;
}

Tensor repeat_interleave(const Arg& arg, const Tensor& repeats, int64_t dim) {
  LineScope here(arg.line());
  const Tensor &x = tensor_of(arg, "repeat_interleave"), &times = tensor_of(repeats, "repeat_interleave");
  WEFT_CHECK(is_integral(times.dtype()) && times.dim() <= 1, "repeat_interleave: repeats are ", times.type(),
             "; need integers in one dim");
  WEFT_CHECK(x.dim() > 0, "repeat_interleave: got a scalar; need a dim");
  const int d = normalize_dim(dim, x.dim(), "repeat_interleave");
  const int64_t n = x.shape()[d];
  WEFT_CHECK(times.numel() == n || times.numel() == 1, "repeat_interleave: ", times.numel(), " repeats for dim ", d,
             " of ", x.shape(), "; need ", n, " or 1");
  internal::require_values(times, "repeat_interleave", "a number instead of a tensor");
  const std::vector<int64_t> counts = times.to_vector<int64_t>();
  const auto count = [&](int64_t i) { return counts[times.numel() == 1 ? 0 : static_cast<size_t>(i)]; };
  Shape to = x.shape();
  to[d] = 0;
  for (int64_t i = 0; i < n; ++i) {
    WEFT_CHECK(count(i) >= 0, "repeat_interleave: ", count(i), " repeats; need 0 or more");
    to[d] = saturating_add(to[d], count(i));
  }
  checked_numel(to, "repeat_interleave");
  const Tensor positions = internal::host_list<int64_t>(to[d], x.device(), [&](std::span<int64_t> out) {
    auto end = out.begin();
    for (int64_t i = 0; i < n; ++i) end = std::fill_n(end, count(i), i);
  });
  return index_select(x, d, positions);
}
Tensor repeat_interleave(const Arg& arg, const Tensor& repeats) {
  LineScope here(arg.line());
  return repeat_interleave(flatten(arg), repeats, 0);
}

}  // namespace weft
