#include "compiler/loop_ir/index_map.h"

#include <algorithm>

#include "framework/ir/op_def.h"

namespace weft::loop_ir {

static void sort_terms(DimIndex& d) {
  std::sort(d.terms.begin(), d.terms.end(), [](const Term& a, const Term& b) { return a.axis < b.axis; });
}

// The map of the operand, of shape `in`, of a window op.
static std::optional<IndexMap> window_map(const Node& n, const Shape& in, const IndexMap& result) {
  const Shape &dims = n.attrs.ints("dims"), &stride = n.attrs.ints("stride"), &dilation = n.attrs.ints("dilation");
  IndexMap map(result.begin(), result.begin() + in.size());
  for (int k = 0; k < dims.size(); ++k) {
    DimIndex& at = map[static_cast<size_t>(dims[k])];
    const DimIndex& element = result[static_cast<size_t>(in.size() + k)];
    if (at.dynamic >= 0 || element.dynamic >= 0) return {};
    for (Term& t : at.terms) t.coeff *= stride[k];
    at.offset = at.offset * stride[k] + element.offset * dilation[k];
    for (const Term& t : element.terms) {
      const auto same = std::find_if(at.terms.begin(), at.terms.end(), [&](const Term& u) { return u.axis == t.axis; });
      if (same == at.terms.end()) {
        at.terms.push_back({t.axis, t.coeff * dilation[k]});
      } else {
        same->coeff += t.coeff * dilation[k];
      }
    }
    sort_terms(at);
  }
  return map;
}

bool is_index_map(const Node& n) { return n.op->placing != Placing::kNone; }

std::optional<IndexMap> reshape_map(const IndexMap& map, const Shape& from, const Shape& to,
                                    const std::vector<int64_t>& extents, SplitAxis* split) {
  IndexMap result(to.size());
  int i = 0, j = 0;
  const int n = from.size(), m = to.size();
  while (true) {
    while (i < n && from[i] == 1) {
      if (map[i].dynamic >= 0) return {};
      ++i;
    }
    while (j < m && to[j] == 1) ++j;
    if (i == n && j == m) return result;
    if (i == n || j == m) return {};  // the numbers of elements differ
    // The shortest runs of dims with equal numbers of elements.
    const int i0 = i, j0 = j;
    int64_t p = from[i++], q = to[j++];
    while (p != q) {
      if (p < q) {
        p *= from[i++];
      } else {
        q *= to[j++];
      }
    }
    bool dynamic = false;
    for (int d = i0; d < i; ++d) dynamic |= map[d].dynamic >= 0;
    if (dynamic) {
      if (i - i0 != 1 || j - j0 != 1) return {};
      result[j0] = map[i0];
      continue;
    }
    // The flat index into both runs.
    SmallVec<Term, 4> flat;
    int64_t offset = 0, stride = 1;
    for (int d = i - 1; d >= i0; --d) {
      for (const Term& t : map[d].terms) flat.push_back({t.axis, t.coeff * stride});
      offset += map[d].offset * stride;
      stride *= from[d];
    }
    // Split the flat index into the dims of `to`, innermost dim first.
    int64_t below = 1;
    for (int d = j - 1; d >= j0; --d) {
      DimIndex& out = result[d];
      const int64_t above = below * to[d];
      out.offset = offset / below % to[d];
      int64_t most = out.offset;
      for (const Term& t : flat) {
        if (t.coeff < below || t.coeff >= above) continue;
        if (t.coeff % below != 0) return {};
        if (t.coeff * extents[t.axis] > above) {
          const int64_t minor = above / t.coeff;
          if (above % t.coeff == 0 && extents[t.axis] % minor == 0) *split = {t.axis, minor};
          return {};
        }
        most += t.coeff / below * (extents[t.axis] - 1);
        out.terms.push_back({t.axis, t.coeff / below});
      }
      if (most >= to[d]) return {};  // would carry into the next dim
      sort_terms(out);
      below = above;
    }
    for (const Term& t : flat)
      if (t.coeff >= below) return {};
  }
}

std::optional<IndexMap> operand_map(const Node& n, const TensorType& operand, const IndexMap& result,
                                    const std::vector<int64_t>& extents, SplitAxis* split) {
  const Shape &in = operand.shape, &out = n.outputs[0].shape;
  IndexMap map(in.size());
  switch (n.op->placing) {
    case Placing::kNone:
      return {};
    case Placing::kSame:
      return result;
    case Placing::kReshape:
      return reshape_map(result, out, in, extents, split);
    case Placing::kPermute: {
      const Shape& dims = n.attrs.ints("dims");
      for (int d = 0; d < dims.size(); ++d) map[dims[d]] = result[d];
      break;
    }
    case Placing::kBroadcast: {
      const int shift = out.size() - in.size();
      for (int d = 0; d < in.size(); ++d)
        if (in[d] == out[d + shift]) map[d] = result[d + shift];
      break;
    }
    case Placing::kSlice: {
      const Shape &begin = n.attrs.ints("begin"), &step = n.attrs.ints("step");
      for (int d = 0; d < in.size(); ++d) {
        map[d] = result[d];
        if (map[d].dynamic >= 0 && !(begin[d] == 0 && step[d] == 1)) return {};
        for (Term& t : map[d].terms) t.coeff *= step[d];
        map[d].offset = begin[d] + map[d].offset * step[d];
      }
      break;
    }
    case Placing::kWindow:
      return window_map(n, in, result);
  }
  return map;
}

std::optional<IndexMap> result_map(const Node& n, const TensorType& operand, const IndexMap& map,
                                   const std::vector<int64_t>& extents, SplitAxis* split) {
  const Shape &in = operand.shape, &out = n.outputs[0].shape;
  IndexMap result(out.size());
  switch (n.op->placing) {
    case Placing::kSame:
      return map;
    case Placing::kReshape:
      return reshape_map(map, in, out, extents, split);
    case Placing::kPermute: {
      const Shape& dims = n.attrs.ints("dims");
      for (int d = 0; d < dims.size(); ++d) result[d] = map[dims[d]];
      return result;
    }
    case Placing::kBroadcast: {
      const int shift = out.size() - in.size();
      for (int d = 0; d < out.size(); ++d) {
        if (d >= shift && in[d - shift] == out[d]) {
          result[d] = map[d - shift];
        } else if (out[d] != 1) {
          return {};
        }
      }
      return result;
    }
    case Placing::kSlice:
      if (in == out) return map;
      return {};
    case Placing::kNone:
    case Placing::kWindow:
      return {};
  }
  return {};
}

}  // namespace weft::loop_ir
