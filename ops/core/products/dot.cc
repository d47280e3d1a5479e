// Records of dot and grouped_dot. Every dot is one batched matrix product (dot_product.h).
#include "ops/core/products/dot.h"

#include <algorithm>

#include "framework/dispatch/dispatch.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"
#include "ops/core/products/dot_product.h"
#include "ops/core/record_parts.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/products/gemm.h"

namespace weft {

using internal::free_dims;
using internal::Sample;
using internal::SampleInput;

namespace {

DotDims dims_in(const Attrs& attrs) {
  return {attrs.ints("a_batch"), attrs.ints("b_batch"), attrs.ints("a_contract"), attrs.ints("b_contract")};
}

// ---- types ----

void check_number_type(const InferCall& c, DType t) {
  WEFT_CHECK(t != kBool && (!is_floating(t) || itemsize(t) > 1), c.op.name, ": does not support ", t,
             is_floating(t) ? "; convert with to(bf16) first" : "; convert with to(f32) first");
}

DType product_dtype(const InferCall& c) {
  const DType in = c.in[0].dtype;
  check_number_type(c, in);
  WEFT_CHECK(c.in[1].dtype == in, c.op.name, ": operands are ", in, " and ", c.in[1].dtype, "; need one dtype");
  const DType out = c.attrs.has("out_dtype") ? c.attrs.get<DType>("out_dtype") : in;
  WEFT_CHECK(out == in || (out == kFloat32 && is_16bit(in)), c.op.name, ": out_dtype is ", out, " for ", in, "; need ",
             in, " or, for 16-bit floats, f32");
  return out;
}

void check_dims(const char* which, const TensorType& t, const Shape& batch, const Shape& contract) {
  uint32_t seen = 0;
  for (const Shape* dims : {&batch, &contract})
    for (int64_t d : *dims) {
      WEFT_CHECK(d >= 0 && d < t.shape.size() && !(seen >> d & 1), "dot: dims ", batch, " and ", contract,
                 " of operand ", which, " ", t.shape, "; need distinct dims below ", t.shape.size());
      seen |= 1u << d;
    }
}

Types infer_dot(const InferCall& c) {
  const DotDims d = dims_in(c.attrs);
  const TensorType &a = c.in[0], &b = c.in[1];
  const DType dtype = product_dtype(c);
  check_dims("a", a, d.a_batch, d.a_contract);
  check_dims("b", b, d.b_batch, d.b_contract);
  WEFT_CHECK(d.a_batch.size() == d.b_batch.size() && d.a_contract.size() == d.b_contract.size(),
             "dot: ", d.a_batch.size(), " and ", d.b_batch.size(), " batch dims, ", d.a_contract.size(), " and ",
             d.b_contract.size(), " contracted dims; need equal numbers for a and b");
  Shape out;
  for (int i = 0; i < d.a_batch.size(); ++i) {
    const int64_t x = a.shape[static_cast<int>(d.a_batch[i])], y = b.shape[static_cast<int>(d.b_batch[i])];
    WEFT_CHECK(x == y, "dot: batch dimensions differ: ", a.shape, " x ", b.shape, " (", x, " != ", y,
               "); need equal ones");
    out.push_back(x);
  }
  for (int i = 0; i < d.a_contract.size(); ++i) {
    const int64_t x = a.shape[static_cast<int>(d.a_contract[i])], y = b.shape[static_cast<int>(d.b_contract[i])];
    WEFT_CHECK(x == y, "dot: contracted dimensions differ: ", a.shape, " x ", b.shape, " (", x, " != ", y,
               "); need equal ones");
  }
  for (int64_t i : free_dims(a.shape.size(), d.a_batch, d.a_contract)) out.push_back(a.shape[static_cast<int>(i)]);
  for (int64_t i : free_dims(b.shape.size(), d.b_batch, d.b_contract)) out.push_back(b.shape[static_cast<int>(i)]);
  return {TensorType{dtype, a.device, out}};
}

std::string groups_mode(const Attrs& attrs) { return attrs.get<std::string>("mode"); }

Types infer_grouped(const InferCall& c) {
  const std::string mode = groups_mode(c.attrs);
  const TensorType &a = c.in[0], &b = c.in[1], &offsets = c.in[2];
  WEFT_CHECK(is_floating(a.dtype), "grouped_dot: does not support ", a.dtype, "; need a floating-point dtype");
  WEFT_CHECK(mode == "rows" || mode == "contraction", "grouped_dot: mode is '", mode, "'; need rows or contraction");
  const DType dtype = product_dtype(c);
  WEFT_CHECK(is_floating(dtype), "grouped_dot: does not support ", a.dtype, "; need a floating-point dtype");
  WEFT_CHECK(internal::is_index(offsets.dtype) && offsets.shape.size() == 1 && offsets.shape[0] >= 1,
             "grouped_dot: offsets are ", offsets, "; need i64 or i32 of shape [groups + 1]");
  const int64_t groups = offsets.shape[0] - 1;
  if (mode == "rows") {
    WEFT_CHECK(a.shape.size() == 2 && b.shape.size() == 3, "grouped_dot: got ", a.shape, " x ", b.shape,
               "; need x[T, K] and w[E, K, N]");
    WEFT_CHECK(a.shape[1] == b.shape[1], "grouped_dot: inner dimensions differ: ", a.shape, " x ", b.shape, " (",
               a.shape[1], " != ", b.shape[1], "); need equal ones");
    WEFT_CHECK(b.shape[0] == groups, "grouped_dot: ", b.shape[0], " matrices for ", groups,
               " groups; need one per group");
    return {TensorType{dtype, a.device, Shape{a.shape[0], b.shape[2]}}};
  }
  WEFT_CHECK(a.shape.size() == 2 && b.shape.size() == 2, "grouped_dot: got ", a.shape, " x ", b.shape,
             "; need x[T, K] and g[T, N]");
  WEFT_CHECK(a.shape[0] == b.shape[0], "grouped_dot: rows differ: ", a.shape, " x ", b.shape, " (", a.shape[0],
             " != ", b.shape[0], "); need equal ones");
  return {TensorType{dtype, a.device, Shape{groups, a.shape[1], b.shape[1]}}};
}

// ---- dim maps ----

// b: batch, m and n: free dims of a and b, k: contracted.
DimMap dims_dot(const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out) {
  const DotDims d = dims_in(attrs);
  auto names = [](const Shape& shape, const Shape& batch, const Shape& contract, char free, std::string* kept) {
    std::string text;
    int at = 0;
    for (int i = 0; i < shape.size(); ++i) {
      std::string name;
      for (int k = 0; k < batch.size(); ++k)
        if (batch[k] == i) name = weft::str_cat("b", k);
      for (int k = 0; k < contract.size(); ++k)
        if (contract[k] == i) name = weft::str_cat("k", k);
      if (name.empty()) {
        name = weft::str_cat(std::string(1, free), at++);
        *kept += " " + name;
      }
      text += (i ? " " : "") + name;
    }
    return text;
  };
  std::string result;
  for (int k = 0; k < d.a_batch.size(); ++k) result += weft::str_cat(" b", k);
  const std::string a = names(in[0].shape, d.a_batch, d.a_contract, 'm', &result);
  const std::string b = names(in[1].shape, d.b_batch, d.b_contract, 'n', &result);
  return DimMap::parse(a + ", " + b + " ->" + result, in, out);
}

DimMap dims_grouped(const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out) {
  return groups_mode(attrs) == "rows" ? DimMap::parse("r~ k, e? k n, o? -> r~ n", in, out)
                                      : DimMap::parse("r~ k, r~ n, o? -> e? k n", in, out);
}

// The cost as if each row were in a group.
Cost cost_grouped(const Attrs&, std::span<const TensorType> in, std::span<const TensorType> out) {
  Cost c{.at_most = true};
  c.flops = 2.0 * static_cast<double>(in[0].shape.numel()) * static_cast<double>(in[1].shape.back());
  c.bytes = internal::bytes_of(in) + internal::bytes_of(out);
  return c;
}

// Rows outside all groups and matrices of empty groups are not read. The kernel checks the offsets after this.
Cost done_grouped(const WorkCall& c) {
  Cost cost = cost_grouped(c.attrs, c.in, c.out);
  const TensorType &a = c.in[0], &b = c.in[1];
  const std::vector<int64_t> at = cast(c.value(2), kInt64).to_vector<int64_t>();
  const int64_t all = a.shape[0];
  int64_t rows = 0, empty = 0;
  for (size_t e = 0; e + 1 < at.size(); ++e) {
    const int64_t n = std::clamp<int64_t>(at[e + 1], 0, all) - std::clamp<int64_t>(at[e], 0, all);
    rows += std::max<int64_t>(n, 0);
    empty += n <= 0;
  }
  const auto bytes_of = [](const TensorType& t, int64_t part, int64_t whole) {
    return whole ? static_cast<double>(t.nbytes()) * static_cast<double>(part) / static_cast<double>(whole) : 0;
  };
  const bool by_rows = groups_mode(c.attrs) == "rows";
  cost.flops = 2.0 * static_cast<double>(rows * a.shape[1]) * static_cast<double>(b.shape.back());
  cost.bytes -= bytes_of(a, all - rows, all);
  cost.bytes -= by_rows ? bytes_of(b, empty, b.shape[0]) : bytes_of(b, all - rows, all);
  cost.at_most = false;
  return cost;
}

// ---- kernels ----

int64_t dot_bytes(const Attrs& attrs, std::span<const StridedView> in, std::span<const StridedView> out) {
  const internal::DotProduct p(attrs, in);
  return p.gemm_bytes() +
         kernels::gemm_workspace(in[0].dtype, out[0].dtype, p.batch(), p.m(), p.n(), p.k(), p.gathered());
}

void run_dot(const KernelCall& c) {
  const internal::DotProduct p(c.attrs, c.in);
  const internal::DotProduct::GemmOperands x(p, c.in[0], c.in[1], c.workspace);
  kernels::GemmHooks hooks;
  x.add_to(hooks);
  const std::optional<int64_t> row = internal::row_distance(c.out[0], p.n());
  WEFT_BUG_IF(!row, "dot: the result is not rows at equal distances");
  StridedView y = c.out[0];
  y.shape = Shape{p.batch(), p.m(), p.n()};
  y.strides = Shape{p.m() * *row, *row, 1};
  kernels::gemm(x.a, x.b, y, static_cast<char*>(c.workspace) + p.gemm_bytes(), &hooks);
}

kernels::GroupedMode mode_of(const Attrs& attrs) {
  return groups_mode(attrs) == "rows" ? kernels::GroupedMode::rows : kernels::GroupedMode::contraction;
}

void run_grouped(const KernelCall& c) {
  kernels::grouped_gemm(mode_of(c.attrs), c.in[0], c.in[1], c.in[2], c.out[0], c.workspace);
}

int64_t grouped_bytes(const Attrs& attrs, std::span<const StridedView> in, std::span<const StridedView> out) {
  return kernels::grouped_gemm_workspace(mode_of(attrs), in[0].dtype, out[0].dtype, in[2].shape[0] - 1, in[0].shape[0],
                                         in[0].shape[1], in[1].shape[in[1].shape.size() - 1]);
}

// ---- derivatives ----

// The gradient of operand x: a dot of g and y over y's free dims, with the dims put back in x's order. After the batch
// dims, g has x's free dims first if x_first, otherwise y's free dims first. x_* and y_* are the batch and contracted
// dims of x and of the other operand y.
Tensor operand_gradient(const Tensor& g, const Tensor& y, int x_rank, const Shape& x_batch, const Shape& x_contract,
                        const Shape& y_batch, const Shape& y_contract, bool x_first) {
  const int nb = x_batch.size();
  const Shape x_free = free_dims(x_rank, x_batch, x_contract), y_free = free_dims(y.dim(), y_batch, y_contract);
  Shape g_batch, g_contract;
  for (int i = 0; i < nb; ++i) g_batch.push_back(i);
  for (int i = 0; i < y_free.size(); ++i) g_contract.push_back(nb + i + (x_first ? x_free.size() : 0));
  // The part of the result from y: its contracted dims in y's own order, each replaced by its partner in x.
  Shape partners;
  for (int d = 0; d < y.dim(); ++d)
    for (int k = 0; k < y_contract.size(); ++k)
      if (y_contract[k] == d) partners.push_back(x_contract[k]);
  // Both operand orders are possible; use the order whose result needs no transpose.
  for (bool g_first : {true, false}) {
    Shape order = x_batch;  // order[i]: the dim of x at position i of the result
    for (const Shape* part : {g_first ? &x_free : &partners, g_first ? &partners : &x_free})
      for (int64_t d : *part) order.push_back(d);
    bool same = true;
    for (int i = 0; i < order.size(); ++i) same = same && order[i] == i;
    if (!same && g_first) {
      Shape other = x_batch;
      for (int64_t d : partners) other.push_back(d);
      for (int64_t d : x_free) other.push_back(d);
      bool ascending = true;
      for (int i = 0; i < other.size(); ++i) ascending = ascending && other[i] == i;
      if (ascending) continue;
    }
    const Tensor r = g_first ? dot_general(g, y, {g_batch, y_batch, g_contract, y_free})
                             : dot_general(y, g, {y_batch, g_batch, y_free, g_contract});
    return permute(r, internal::inverse_order(order));
  }
  return {};
}

Grads vjp_dot(const VjpCall& c) {
  const DotDims d = dims_in(c.attrs);
  const Tensor &a = c.in[0], &b = c.in[1];
  const Tensor g = cast(c.grad[0], a.dtype());  // f32 results of 16-bit operands: products stay 16-bit
  Grads r(2);
  if (c.needs(0)) r[0] = operand_gradient(g, b, a.dim(), d.a_batch, d.a_contract, d.b_batch, d.b_contract, true);
  if (c.needs(1)) r[1] = operand_gradient(g, a, b.dim(), d.b_batch, d.b_contract, d.a_batch, d.a_contract, false);
  return r;
}

Tensor grouped(const char* mode, const Tensor& a, const Tensor& b, const Tensor& offsets) {
  return dispatch(grouped_dot_op, {&a, &b, &offsets}, {{"mode", std::string(mode)}});
}

Grads vjp_grouped(const VjpCall& c) {
  const Tensor &a = c.in[0], &b = c.in[1], &offsets = c.in[2];
  const Tensor g = cast(c.grad[0], a.dtype());
  Grads r(3);
  if (groups_mode(c.attrs) == "rows") {
    if (c.needs(0)) r[0] = grouped("rows", g, transpose(b, 1, 2), offsets);
    if (c.needs(1)) r[1] = grouped("contraction", a, g, offsets);
  } else {
    if (c.needs(0)) r[0] = grouped("rows", b, transpose(g, 1, 2), offsets);
    if (c.needs(1)) r[1] = grouped("rows", a, g, offsets);
  }
  return r;
}

// ---- samples ----

Attrs paired(const DotDims& d) {
  return {{"a_batch", d.a_batch}, {"b_batch", d.b_batch}, {"a_contract", d.a_contract}, {"b_contract", d.b_contract}};
}

std::vector<Sample> samples_dot() {
  auto two = [](const Shape& a, const Shape& b, const DotDims& d, std::string error = "") {
    return Sample{{{a}, {b}}, paired(d), error, true};
  };
  std::vector<Sample> s = {
      two({3, 5}, {5, 7}, {{}, {}, {1}, {0}}),
      two({17, 33}, {9, 33}, {{}, {}, {1}, {1}}),
      two({2, 3, 5}, {2, 5, 4}, {{0}, {0}, {2}, {1}}),
      two({2, 3, 5}, {5, 4}, {{}, {}, {2}, {0}}),
      two({4, 2, 3}, {3, 2, 5}, {{1}, {1}, {2}, {0}}),              // batch in the middle
      two({2, 3, 4, 5}, {5, 6, 3, 4}, {{}, {}, {1, 3}, {2, 0}}),    // two separate contracted dims
      two({2, 3, 4, 5}, {2, 6, 3, 5}, {{0, 1}, {0, 2}, {3}, {3}}),  // attention scores
      two({5}, {5}, {{}, {}, {0}, {0}}),
      two({4}, {3}, {{}, {}, {}, {}}),  // outer product
      two({}, {}, {{}, {}, {}, {}}),
      two({0, 3}, {3, 2}, {{}, {}, {1}, {0}}),
      two({2, 0}, {0, 3}, {{}, {}, {1}, {0}}),
      two({1, 64}, {64, 1}, {{}, {}, {1}, {0}}),
      two({4, 8}, {9, 2}, {{}, {}, {1}, {0}}, "dot: contracted dimensions differ: [4, 8] x [9, 2] (8 != 9)"),
      two({2, 3, 4}, {3, 4, 2}, {{0}, {0}, {2}, {1}}, "dot: batch dimensions differ: [2, 3, 4] x [3, 4, 2] (2 != 3)"),
      two({2, 3}, {3, 2}, {{}, {}, {1, 1}, {0, 1}}, "need distinct dims"),
      two({2, 3}, {3, 2}, {{}, {}, {1}, {}}, "need equal numbers for a and b"),
  };
  Sample bad = two({2, 3}, {3, 2}, {{}, {}, {1}, {0}}, "dot: operands are f32 and i32; need one dtype");
  bad.in[1].dtype = kInt32;
  s.push_back(bad);
  bad.in[0].dtype = bad.in[1].dtype = kBool;
  bad.error = "dot: does not support bool";
  s.push_back(bad);
  s.push_back({{{Shape{3, 5}, kInt32, -9, 9}, {Shape{5, 2}, kInt32, -9, 9}}, paired({{}, {}, {1}, {0}})});
  s.push_back({{{Shape{3, 40}, kBFloat16}, {Shape{40, 2}, kBFloat16}},
               paired({{}, {}, {1}, {0}}).with("out_dtype", kFloat32),
               "",
               false});
  return s;
}

std::vector<Sample> samples_grouped() {
  const Attrs rows{{"mode", std::string("rows")}}, contraction{{"mode", std::string("contraction")}};
  // The code that draws values sorts the offsets.
  auto offsets = [](int64_t n, double rows) { return SampleInput{Shape{n}, kInt64, 0, rows}; };
  return {
      {{{Shape{9, 3}}, {Shape{4, 3, 5}}, offsets(5, 9)}, rows},
      {{{Shape{9, 3}}, {Shape{9, 5}}, offsets(5, 9)}, contraction},
      {{{Shape{33, 17}}, {Shape{3, 17, 9}}, {Shape{4}, kInt32, 0, 33}}, rows},
      {{{Shape{0, 3}}, {Shape{2, 3, 4}}, offsets(3, 0)}, rows},
      {{{Shape{0, 3}}, {Shape{0, 4}}, offsets(2, 0)}, contraction},
      {{{Shape{5, 3}}, {Shape{2, 4, 3}}, offsets(3, 0)},
       rows,
       "grouped_dot: inner dimensions differ: [5, 3] x [2, 4, 3] (3 != 4)"},
      {{{Shape{5, 3}}, {Shape{2, 3, 4}}, offsets(4, 0)}, rows, "grouped_dot: 2 matrices for 3 groups"},
      {{{Shape{5, 3}}, {Shape{4, 3}}, offsets(3, 0)}, contraction, "grouped_dot: rows differ"},
      {{{Shape{5, 3}}, {Shape{4, 3}}, offsets(3, 0)}, rows, "need x[T, K] and w[E, K, N]"},
      {{{Shape{5, 3}}, {Shape{2, 3, 4}}, {Shape{3}}}, rows, "grouped_dot: offsets are f32[3]"},
      {{{Shape{5, 3}}, {Shape{2, 3, 4}}, offsets(3, 0)},
       {{"mode", std::string("columns")}},
       "grouped_dot: mode is 'columns'"},
  };
}

}  // namespace

const OpDef dot_op = {
    .name = "dot",
    .doc = "Products summed over the contracted dims: batch, free dims of a, free dims of b.",
    .traits = kContraction | kProduct,
    .num_inputs = 2,
    .flops_per_point = 2,
    .infer = infer_dot,
    .vjp = vjp_dot,
    .dims = dims_dot,
    .kernel = run_dot,
    .workspace = dot_bytes,
    .samples = samples_dot,
    .vjp_reads_out = 0,
    .linear = 3,
};
const OpDef grouped_dot_op = {
    .name = "grouped_dot",
    .doc = "One matrix product per group of rows, groups given by run-time offsets: ragged rows or ragged contraction.",
    .traits = kContraction | kProduct | kMayThrow,
    .num_inputs = 3,
    .flops_per_point = 2,
    .infer = infer_grouped,
    .vjp = vjp_grouped,
    .dims = dims_grouped,
    .cost = cost_grouped,
    .kernel = run_grouped,
    .workspace = grouped_bytes,
    .samples = samples_grouped,
    .vjp_reads_out = 0,
    .linear = 3,
    .done = done_grouped,
};

std::span<const OpDef* const> dot_ops() {
  static const OpDef* const all[] = {&dot_op, &grouped_dot_op};
  return all;
}

}  // namespace weft
