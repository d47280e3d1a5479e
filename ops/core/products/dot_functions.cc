// matmul and related functions as calls of dot: rank rules, batch broadcasting, einsum.
#include <algorithm>
#include <map>

#include "framework/dispatch/dispatch.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"
#include "ops/core/products/dot.h"
#include "ops/core/promotion.h"
#include "ops/core/reductions/reduce.h"

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
  WEFT_CHECK(x.dim() >= 1 && (w.dim() == 2 || w.dim() == 1) && x.size(-1) == w.size(-1), "linear: input ", x.shape(),
             " does not fit weight ", w.shape(), "; need [..., in] and [out, in]");
  const Tensor y =
      dot_general(x, cast(w, internal::dtype_with(w, x, "linear")), {{}, {}, {x.dim() - 1}, {w.dim() - 1}});
  if (!bias.is_tensor() || !bias.tensor().defined()) return y;
  const Tensor& b = bias.tensor();
  WEFT_CHECK(b.dim() == w.dim() - 1 && (b.dim() == 0 || b.size(0) == w.size(0)), "linear: bias ", b.shape(),
             " does not fit weight ", w.shape(), "; need [out]");
  internal::dtype_with(b, x, "linear");
  return add(y, cast(b, y.dtype()));
}

Tensor grouped_matmul(const Arg& input, const Arg& weight, const Arg& offsets) {
  LineScope here(input.line());
  const Tensor &x = tensor_of(input, "grouped_matmul"), &w = tensor_of(weight, "grouped_matmul"),
               &o = tensor_of(offsets, "grouped_matmul");
  const Tensor same = cast(w, internal::dtype_with(w, x, "grouped_matmul"));
  return dispatch(grouped_dot_op, {&x, &same, &o}, {{"mode", std::string("rows")}});
}

namespace {

// An operand or partial product and the letters of its dims.
struct EinsumTerm {
  Tensor value;
  std::string letters;
};

bool has(std::string_view letters, char c) { return letters.find(c) != std::string_view::npos; }

// Sums over the letters that no other term needs.
EinsumTerm reduce_to(EinsumTerm t, std::string_view needed) {
  Shape dims;
  std::string kept;
  for (size_t i = 0; i < t.letters.size(); ++i) {
    if (has(needed, t.letters[i])) {
      kept += t.letters[i];
    } else {
      dims.push_back(static_cast<int64_t>(i));
    }
  }
  return dims.empty() ? t : EinsumTerm{sum(t.value, dims), kept};
}

EinsumTerm product(const EinsumTerm& a, const EinsumTerm& b, std::string_view needed) {
  DotDims dims;
  EinsumTerm r;
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
  std::vector<std::string> in;  // an ellipsis is the character '.'
  std::string out;
  bool has_arrow = false;
};

Equation parse_equation(std::string_view text) {
  Equation e;
  std::vector<std::string> sides{""};
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == ' ') continue;
    if (text.substr(i, 2) == "->" && sides.size() == 1) {
      sides.emplace_back();
      ++i;
    } else if (text.substr(i, 3) == "..." && !has(sides.back().substr(sides.back().rfind(',') + 1), '.')) {
      sides.back() += '.';
      i += 2;
    } else {
      const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
      WEFT_CHECK(letter || (c == ',' && sides.size() == 1), "einsum: '", text, "' has '", std::string(1, c),
                 "'; need letters, '...' once for each operand, commas and one ->");
      sides.back() += c;
    }
  }
  e.in.emplace_back();
  for (char c : sides[0]) {
    if (c == ',') {
      e.in.emplace_back();
    } else {
      e.in.back() += c;
    }
  }
  e.has_arrow = sides.size() > 1;
  if (e.has_arrow) e.out = sides[1];
  return e;
}

// The diagonal of dims i < j, as the last dim.
Tensor diagonal_of(const Tensor& x, int i, int j) {
  Shape order, shape;
  for (int d = 0; d < x.dim(); ++d) {
    if (d == i || d == j) continue;
    order.push_back(d);
    shape.push_back(x.size(d));
  }
  order.push_back(i);
  order.push_back(j);
  const int64_t n = x.size(i);
  shape.push_back(n * n);
  return slice(reshape(permute(x, order), shape), -1, 0, n * n, n + 1);
}

// The operand with one name for each dim: the dims of an ellipsis are numbered from the right, and a name that occurs
// twice is its diagonal.
EinsumTerm named_term(std::string_view equation, const Tensor& x, size_t operand, const std::string& letters) {
  const size_t dots = letters.find('.');
  const int more = x.dim() - static_cast<int>(letters.size()) + (dots != letters.npos ? 1 : 0);
  WEFT_CHECK(dots != letters.npos ? more >= 0 : more == 0, "einsum: operand ", operand, " is ", x.shape(), "; '",
             dots == letters.npos ? letters : std::string(equation), "' needs ",
             letters.size() - (dots != letters.npos ? 1 : 0), dots != letters.npos ? " dims or more" : " dims");
  EinsumTerm t{x, letters};
  if (dots != letters.npos) {
    std::string numbers;
    for (int k = more; k-- > 0;) numbers += static_cast<char>('0' + k);
    t.letters.replace(dots, 1, numbers);
  }
  for (size_t i = 0; i < t.letters.size(); ++i) {
    const char c = t.letters[i];
    const size_t j = t.letters.find(c, i + 1);
    if (j == t.letters.npos) continue;
    WEFT_CHECK(t.value.size(i) == t.value.size(j), "einsum: '", std::string(1, c), "' of '", equation, "' is ",
               t.value.size(i), " and ", t.value.size(j), "; need equal extents");
    t.value = diagonal_of(t.value, static_cast<int>(i), static_cast<int>(j));
    t.letters.erase(j, 1);
    t.letters.erase(i--, 1);
    t.letters += c;
  }
  return t;
}

// The names of the result.
std::string result_of(std::string_view equation, const Equation& e, const std::vector<EinsumTerm>& terms) {
  std::string all, numbers, once;
  for (const EinsumTerm& t : terms) all += t.letters;
  for (char c = '7'; c >= '0'; --c)
    if (has(all, c)) numbers += c;
  if (e.has_arrow) {
    std::string out = e.out;
    if (const size_t dots = out.find('.'); dots != out.npos) out.replace(dots, 1, numbers);
    for (size_t i = 0; i < out.size(); ++i)
      WEFT_CHECK(has(all, out[i]) && out.find(out[i]) == i, "einsum: '", equation, "' has '", std::string(1, out[i]),
                 "' in its result; need each letter there once, from the operands");
    return out;
  }
  std::string named;  // as in NumPy: the letters that occur once, in order
  for (const std::string& letters : e.in) named += letters;
  for (char c : named)
    if (c != '.' && std::count(named.begin(), named.end(), c) == 1) once += c;
  std::sort(once.begin(), once.end());
  return numbers + once;
}

}  // namespace

Tensor einsum(std::string_view equation, const std::vector<Tensor>& operands, std::source_location loc) {
  LineScope here(loc);
  const Equation e = parse_equation(equation);
  WEFT_CHECK(e.in.size() == operands.size(), "einsum: got ", operands.size(), " tensors for '", equation, "'; need ",
             e.in.size());
  std::vector<EinsumTerm> terms;
  for (size_t i = 0; i < operands.size(); ++i) terms.push_back(named_term(equation, operands[i], i, e.in[i]));
  const std::string out = result_of(equation, e, terms);
  std::map<char, int64_t> extents;
  for (const EinsumTerm& t : terms)
    for (int d = 0; d < t.value.dim(); ++d) {
      int64_t& extent = extents.try_emplace(t.letters[d], 1).first->second;
      WEFT_CHECK(extent == 1 || t.value.size(d) == 1 || extent == t.value.size(d), "einsum: '",
                 std::string(1, t.letters[d]), "' of '", equation, "' is ", extent, " and ", t.value.size(d),
                 "; need equal extents");
      if (extent == 1) extent = t.value.size(d);
    }
  // An extent of 1 is broadcast: such a dim is left out.
  for (EinsumTerm& t : terms)
    for (int d = t.value.dim(); d-- > 0;)
      if (t.value.size(d) == 1 && extents[t.letters[d]] != 1) {
        t.value = squeeze(t.value, d);
        t.letters.erase(d, 1);
      }
  auto needed_after = [&](size_t i) {
    std::string s = out;
    for (size_t k = i; k < terms.size(); ++k) s += terms[k].letters;
    return s;
  };
  EinsumTerm r = reduce_to(terms[0], needed_after(1));
  for (size_t i = 1; i < terms.size(); ++i) {
    const EinsumTerm next = reduce_to(terms[i], r.letters + needed_after(i + 1));
    r = reduce_to(r, next.letters + needed_after(i + 1));
    r = product(r, next, needed_after(i + 1));
  }
  Shape order;
  for (char c : out) order.push_back(static_cast<int64_t>(r.letters.find(c)));
  return permute(r.value, order);
}

}  // namespace weft
