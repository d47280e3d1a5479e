// Moves of elements by index arithmetic: exact, except sums of windows.
#include <cmath>

#include "ops/testing/reference.h"

namespace weft::testing {
namespace {

std::vector<RefResult> same(const RefCall& c) { return {{c.in[0].v, {}}}; }

std::vector<RefResult> permute(const RefCall& c) {
  const Shape& dims = c.attrs.ints("dims");
  RefResult r;
  for (Index i(c.out[0].shape); i.valid(); i.next()) {
    Shape from = i.at();
    for (int d = 0; d < dims.size(); ++d) from[static_cast<int>(dims[d])] = i[d];
    r.v.push_back(c.in[0].v[flat_of(c.in[0].type.shape, from)]);
  }
  return {r};
}

std::vector<RefResult> broadcast(const RefCall& c) {
  const Shape& in = c.in[0].type.shape;
  RefResult r;
  for (Index i(c.out[0].shape); i.valid(); i.next()) {
    Shape from = in;
    for (int d = 0; d < in.size(); ++d) from[d] = in[d] == 1 ? 0 : i[c.out[0].shape.size() - in.size() + d];
    r.v.push_back(c.in[0].v[flat_of(in, from)]);
  }
  return {r};
}

std::vector<RefResult> slice(const RefCall& c) {
  const Shape &begin = c.attrs.ints("begin"), &step = c.attrs.ints("step");
  RefResult r;
  for (Index i(c.out[0].shape); i.valid(); i.next()) {
    Shape from = i.at();
    for (int d = 0; d < from.size(); ++d) from[d] = begin[d] + i[d] * step[d];
    r.v.push_back(c.in[0].v[flat_of(c.in[0].type.shape, from)]);
  }
  return {r};
}

std::vector<RefResult> pad(const RefCall& c) {
  const Shape& lo = c.attrs.ints("lo");
  const Shape interior = c.attrs.has("interior") ? c.attrs.ints("interior") : Shape::filled(lo.size(), 0);
  const AttrValue* given = c.attrs.find("value");
  Real value = !given                                    ? 0
               : std::holds_alternative<double>(*given)  ? static_cast<Real>(std::get<double>(*given))
               : std::holds_alternative<int64_t>(*given) ? static_cast<Real>(std::get<int64_t>(*given))
                                                         : 0;
  const Shape& in = c.in[0].type.shape;
  RefResult r;
  for (Index i(c.out[0].shape); i.valid(); i.next()) {
    Shape from = i.at();
    bool inside = true;
    for (int d = 0; d < in.size(); ++d) {
      int64_t at = i[d] - lo[d], pitch = interior[d] + 1;
      inside = inside && at >= 0 && at % pitch == 0 && at / pitch < in[d];
      from[d] = at / pitch;
    }
    r.v.push_back(inside ? c.in[0].v[flat_of(in, from)] : rounded(value, c.out[0].dtype));
  }
  return {r};
}

std::vector<RefResult> concat(const RefCall& c) {
  const int dim = static_cast<int>(c.attrs.i("dim"));
  RefResult r;
  for (Index i(c.out[0].shape); i.valid(); i.next()) {
    Shape from = i.at();
    size_t k = 0;
    while (from[dim] >= c.in[k].type.shape[dim]) from[dim] -= c.in[k++].type.shape[dim];
    r.v.push_back(c.in[k].v[flat_of(c.in[k].type.shape, from)]);
  }
  return {r};
}

// The element of the whole tensor that is at `i` of its windows.
Shape window_origin(const RefCall& c, const Shape& i, int rank) {
  const Shape &dims = c.attrs.ints("dims"), &stride = c.attrs.ints("stride"), &dilation = c.attrs.ints("dilation");
  Shape at = Shape::filled(rank, 0);
  for (int d = 0; d < rank; ++d) at[d] = i[d];
  for (int k = 0; k < dims.size(); ++k) {
    int64_t& x = at[static_cast<int>(dims[k])];
    x = x * stride[k] + i[rank + k] * dilation[k];
  }
  return at;
}

std::vector<RefResult> window(const RefCall& c) {
  const Shape& in = c.in[0].type.shape;
  RefResult r;
  for (Index i(c.out[0].shape); i.valid(); i.next())
    r.v.push_back(c.in[0].v[flat_of(in, window_origin(c, i.at(), in.size()))]);
  return {r};
}

// Integers wrap.
std::vector<RefResult> window_sum(const RefCall& c) {
  const Shape& out = c.out[0].shape;
  const DType type = c.out[0].dtype, computed = c.computed();
  std::vector<Real> magnitude(out.numel()), terms(out.numel());
  RefResult r;
  r.v.resize(out.numel());
  for (Index i(c.in[0].type.shape); i.valid(); i.next()) {
    const int64_t at = flat_of(out, window_origin(c, i.at(), out.size()));
    r.v[at] += c.in[0].v[i.flat()];
    magnitude[at] += std::fabs(c.in[0].v[i.flat()]);
    terms[at] += 1;
  }
  for (size_t k = 0; k < r.v.size(); ++k) {
    r.bound.push_back(rounding_bound(r.v[k], terms[k] * unit_roundoff(computed) * magnitude[k], computed, type));
    if (!is_floating(type)) r.v[k] = rounded(r.v[k], type);
  }
  return {r};
}

}  // namespace

std::span<const RefRow> view_references() {
  static const RefRow rows[] = {
      {"reshape", same},     {"contiguous", same}, {"barrier", same},        {"stop_gradient", same},
      {"debug_print", same}, {"permute", permute}, {"broadcast", broadcast}, {"slice", slice},
      {"pad", pad},          {"concat", concat},   {"window", window},       {"window_sum", window_sum},
  };
  return rows;
}

}  // namespace weft::testing
