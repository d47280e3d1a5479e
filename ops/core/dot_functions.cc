// matmul and related functions as calls of dot: rank rules, batch broadcasting, einsum.
#include <algorithm>

#include "framework/dispatch/dispatch.h"
#include "ops/core/creation.h"
#include "ops/core/dot.h"
#include "ops/core/pointwise.h"
#include "ops/core/reduce.h"
#include "ops/core/view.h"

namespace weft {

using internal::LineScope;
using internal::tensor_of;

namespace {

Shape range(int begin, int end) {
  Shape r;
  for (int i = begin; i < end; ++i) r.push_back(i);
  return r;
}

void check_inner(const char* op, const Shape& a, const Shape& b, int64_t x, int64_t y) {
  WEFT_CHECK(x == y, op, ": inner dimensions differ: ", a, " x ", b, " (", x, " != ", y, "); need equal ones");
}

Tensor matrix_product(const Arg& x, const Arg& y, int rank, const char* op) {
  LineScope here(x.line());
  const Tensor &a = tensor_of(x, op), &b = tensor_of(y, op);
  WEFT_CHECK(a.dim() == rank && b.dim() == rank, op, ": got ", a.shape(), " x ", b.shape(), "; need two tensors of ",
             rank, " dims");
  check_inner(op, a.shape(), b.shape(), a.size(-1), b.size(-2));
  const Shape batch = range(0, rank - 2);
  if (rank == 3)
    WEFT_CHECK(a.size(0) == b.size(0), op, ": batches differ: ", a.shape(), " x ", b.shape(), " (", a.size(0),
               " != ", b.size(0), "); need equal ones");
  return dot_general(a, b, {batch, batch, {rank - 1}, {rank - 2}});
}

}  // namespace

Tensor dot_general(const Arg& x, const Arg& y, const DotDims& dims, std::optional<DType> out_dtype) {
  LineScope here(x.line());
  const Tensor &a = tensor_of(x, "dot"), &b = tensor_of(y, "dot");
  const DType dtype = promote(a.dtype(), b.dtype());
  const Tensor pa = cast(a, dtype), pb = cast(b, dtype);
  Attrs attrs{{"a_batch", dims.a_batch},
              {"b_batch", dims.b_batch},
              {"a_contract", dims.a_contract},
              {"b_contract", dims.b_contract}};
  if (out_dtype && *out_dtype != dtype) attrs = attrs.with("out_dtype", *out_dtype);
  return dispatch(dot_op, {&pa, &pb}, attrs);
}

Tensor matmul(const Arg& x, const Arg& y) {
  LineScope here(x.line());
  const Tensor &a = tensor_of(x, "matmul"), &b = tensor_of(y, "matmul");
  WEFT_CHECK(a.dim() > 0 && b.dim() > 0, "matmul: got ", a.shape(), " x ", b.shape(),
             "; need one dim or more on both sides");
  check_inner("matmul", a.shape(), b.shape(), a.size(-1), b.dim() == 1 ? b.size(0) : b.size(-2));
  const int last = a.dim() - 1;
  // One operand has no batch: the dims of the other fold into one product, and nothing is copied.
  if (b.dim() <= 2) return dot_general(a, b, {{}, {}, {last}, {0}});
  if (a.dim() == 1) return dot_general(a, b, {{}, {}, {0}, {b.dim() - 2}});
  const Shape a_batch(std::span<const int64_t>(a.shape()).first(a.dim() - 2)),
      b_batch(std::span<const int64_t>(b.shape()).first(b.dim() - 2));
  const Shape batch = broadcast_shapes(a_batch, b_batch, "matmul");
  if (b_batch.numel() == 1) {
    const Tensor y2 = dot_general(a, reshape(b, {b.size(-2), b.size(-1)}), {{}, {}, {last}, {0}});
    Shape out = batch;
    out.push_back(a.size(-2));
    out.push_back(b.size(-1));
    return reshape(y2, out);
  }
  auto with_batch = [&](const Tensor& m) {
    Shape s = batch;
    s.push_back(m.size(-2));
    s.push_back(m.size(-1));
    return broadcast_to(m, s);
  };
  const int n = batch.size();
  return dot_general(with_batch(a), with_batch(b), {range(0, n), range(0, n), {n + 1}, {n}});
}

Tensor mm(const Arg& a, const Arg& b) { return matrix_product(a, b, 2, "mm"); }
Tensor bmm(const Arg& a, const Arg& b) { return matrix_product(a, b, 3, "bmm"); }

Tensor linear(const Arg& input, const Arg& weight, const Arg& bias) {
  LineScope here(input.line());
  const Tensor &x = tensor_of(input, "linear"), &w = tensor_of(weight, "linear");
  WEFT_CHECK(is_floating(x.dtype()), "linear: input is ", x.type(), "; need a floating-point dtype");
  WEFT_CHECK(x.dim() >= 1 && w.dim() == 2 && x.size(-1) == w.size(1), "linear: input ", x.shape(),
             " does not fit weight ", w.shape(), "; need [..., in] and [out, in]");
  const Tensor y = dot_general(x, cast(w, x.dtype()), {{}, {}, {x.dim() - 1}, {1}});
  if (!bias.is_tensor() || !bias.tensor().defined()) return y;
  const Tensor& b = bias.tensor();
  WEFT_CHECK(b.dim() == 1 && b.size(0) == w.size(0), "linear: bias ", b.shape(), " does not fit weight ", w.shape(),
             "; need [out]");
  return add(y, cast(b, x.dtype()));
}

Tensor grouped_matmul(const Arg& input, const Arg& weight, const Arg& offsets) {
  LineScope here(input.line());
  const Tensor &x = tensor_of(input, "grouped_matmul"), &w = tensor_of(weight, "grouped_matmul"),
               &o = tensor_of(offsets, "grouped_matmul");
  const Tensor same = cast(w, x.dtype());
  return dispatch(grouped_dot_op, {&x, &same, &o}, {{"mode", std::string("rows")}});
}

namespace {

// An operand or partial product and the letters of its dims.
struct Term {
  Tensor value;
  std::string letters;
};

bool has(std::string_view letters, char c) { return letters.find(c) != std::string_view::npos; }

// Sums over the letters that no other term needs.
Term reduce_to(Term t, std::string_view needed) {
  Shape dims;
  std::string kept;
  for (size_t i = 0; i < t.letters.size(); ++i) {
    if (has(needed, t.letters[i])) {
      kept += t.letters[i];
    } else {
      dims.push_back(static_cast<int64_t>(i));
    }
  }
  return dims.empty() ? t : Term{sum(t.value, dims), kept};
}

Term product(const Term& a, const Term& b, std::string_view needed) {
  DotDims dims;
  Term r;
  for (size_t i = 0; i < a.letters.size(); ++i) {
    const size_t j = b.letters.find(a.letters[i]);
    if (j == std::string::npos) continue;
    const bool keep = has(needed, a.letters[i]);
    (keep ? dims.a_batch : dims.a_contract).push_back(static_cast<int64_t>(i));
    (keep ? dims.b_batch : dims.b_contract).push_back(static_cast<int64_t>(j));
    if (keep) r.letters += a.letters[i];
  }
  for (char c : a.letters)
    if (!has(b.letters, c)) r.letters += c;
  for (char c : b.letters)
    if (!has(a.letters, c)) r.letters += c;
  r.value = dot_general(a.value, b.value, dims);
  return r;
}

struct Equation {
  std::vector<std::string> in;
  std::string out;
};

Equation parse_equation(std::string_view text) {
  Equation e;
  std::string clean;
  for (char c : text)
    if (c != ' ') clean += c;
  const size_t arrow = clean.find("->");
  std::string_view left(clean);
  left = left.substr(0, arrow);
  e.in.emplace_back();
  for (char c : left) {
    if (c == ',') {
      e.in.emplace_back();
      continue;
    }
    WEFT_CHECK((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'), "einsum: '", text, "' has '", std::string(1, c),
               "'; need letters, commas and one ->");
    WEFT_CHECK(!has(e.in.back(), c), "einsum: '", text, "' names ", std::string(1, c),
               " twice in one operand; need distinct letters (diagonals are not supported)");
    e.in.back() += c;
  }
  std::string all;
  for (const std::string& s : e.in) all += s;
  if (arrow == std::string::npos) {  // as in NumPy: the letters that occur once, in order
    for (char c : all)
      if (std::count(all.begin(), all.end(), c) == 1) e.out += c;
    std::sort(e.out.begin(), e.out.end());
  } else {
    e.out = clean.substr(arrow + 2);
  }
  for (size_t i = 0; i < e.out.size(); ++i)
    WEFT_CHECK(has(all, e.out[i]) && e.out.find(e.out[i]) == i, "einsum: '", text, "' has '", std::string(1, e.out[i]),
               "' in its result; need each letter there once, from the operands");
  return e;
}

}  // namespace

Tensor einsum(std::string_view equation, const std::vector<Tensor>& operands, std::source_location loc) {
  LineScope here(loc);
  const Equation e = parse_equation(equation);
  WEFT_CHECK(e.in.size() == operands.size(), "einsum: got ", operands.size(), " tensors for '", equation, "'; need ",
             e.in.size());
  std::vector<std::pair<char, int64_t>> extents;
  for (size_t i = 0; i < operands.size(); ++i) {
    const Shape& shape = operands[i].shape();
    WEFT_CHECK(shape.size() == static_cast<int>(e.in[i].size()), "einsum: operand ", i, " is ", shape, "; '", e.in[i],
               "' needs ", e.in[i].size(), " dims");
    for (int d = 0; d < shape.size(); ++d) {
      const char c = e.in[i][d];
      auto it = std::find_if(extents.begin(), extents.end(), [c](auto& x) { return x.first == c; });
      if (it == extents.end()) {
        extents.emplace_back(c, shape[d]);
        continue;
      }
      WEFT_CHECK(it->second == shape[d], "einsum: '", std::string(1, c), "' of '", equation, "' is ", it->second,
                 " and ", shape[d], "; need equal extents");
    }
  }
  auto needed_after = [&](size_t i) {
    std::string s = e.out;
    for (size_t k = i; k < e.in.size(); ++k) s += e.in[k];
    return s;
  };
  Term r = reduce_to({operands[0], e.in[0]}, needed_after(1));
  for (size_t i = 1; i < operands.size(); ++i) {
    const Term next = reduce_to({operands[i], e.in[i]}, r.letters + needed_after(i + 1));
    r = reduce_to(r, next.letters + needed_after(i + 1));
    r = product(r, next, needed_after(i + 1));
  }
  Shape order;
  for (char c : e.out) order.push_back(static_cast<int64_t>(r.letters.find(c)));
  return permute(r.value, order);
}

}  // namespace weft
