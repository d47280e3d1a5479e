#include "ops/core/collectives/collective_types.h"

#include <cstdlib>

#include "ops/core/collectives/collective.h"
#include "ops/core/record_parts.h"

namespace weft {

std::string sizes_text(std::span<const int64_t> sizes) {
  std::string s;
  for (int64_t n : sizes) s += str_cat(s.empty() ? "" : ",", n);
  return s;
}

std::vector<int64_t> parse_sizes(const std::string& text) {
  std::vector<int64_t> sizes;
  const char* p = text.c_str();
  while (true) {
    char* end = nullptr;
    sizes.push_back(std::strtoll(p, &end, 10));
    WEFT_CHECK(end != p && sizes.back() >= 0 && (*end == ',' || !*end), "sizes: got \"", text,
               "\"; need numbers with commas between them: \"2,1,1\"");
    if (!*end) return sizes;
    p = end + 1;
  }
}

}  // namespace weft

namespace weft::internal {

ReduceOp reduce_op(const Attrs& attrs, const char* op) {
  const std::string& name = attrs.get<std::string>("op");
  for (ReduceOp r : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax, ReduceOp::kMin})
    if (to_string_view(r) == name) return r;
  WEFT_CHECK(false, op, ": op is '", name, "'; need sum, avg, max or min");
  return {};
}

const std::string& axes_of(const Attrs& attrs) { return attrs.get<std::string>("axes"); }

std::vector<int64_t> sizes_of(const Attrs& attrs, std::string_view key) {
  return attrs.has(key) ? parse_sizes(attrs.get<std::string>(key)) : std::vector<int64_t>();
}

int64_t total(const std::vector<int64_t>& sizes) {
  int64_t n = 0;
  for (int64_t s : sizes) n = saturating_add(n, s);
  return n;
}

namespace {

int dim_of(const InferCall& c, const char* key) {
  const int64_t d = c.attrs.i(key);
  WEFT_CHECK_AS(kOutOfRange, d >= 0 && d < c.in[0].shape.size(), c.op.name, ": ", key, " is ", d, " of ", c.in[0].shape,
                "; need a dim below ", c.in[0].shape.size());
  return static_cast<int>(d);
}

int64_t parts_of(const InferCall& c) {
  const int64_t n = c.attrs.i("parts");
  WEFT_CHECK(n >= 1, c.op.name, ": parts is ", n, "; need 1 or more");
  return n;
}

std::vector<int64_t> checked_sizes(const InferCall& c, const char* key, int64_t parts) {
  std::vector<int64_t> sizes = sizes_of(c.attrs, key);
  WEFT_CHECK(sizes.empty() || static_cast<int64_t>(sizes.size()) == parts, c.op.name, ": ", key, " are ", sizes,
             "; need one for each of ", parts, " ranks");
  return sizes;
}

void check_sizes_fit(const InferCall& c, const char* key, const std::vector<int64_t>& sizes, int dim) {
  WEFT_CHECK(sizes.empty() || total(sizes) == c.in[0].shape[dim], c.op.name, ": ", key, " are ", sizes, " for dim ",
             dim, " of ", c.in[0].shape, "; need them to add up to ", c.in[0].shape[dim]);
}

void check_reducible(const InferCall& c) {
  const ReduceOp op = reduce_op(c.attrs, c.op.name);
  const DType t = c.in[0].dtype;
  const bool extreme = op == ReduceOp::kMax || op == ReduceOp::kMin;
  const bool ok = is_floating(t) ? itemsize(t) > 1 : t == kBool ? extreme : op != ReduceOp::kAvg;
  WEFT_CHECK(ok, c.op.name, ": cannot take the ", to_string_view(op), " of ", t, "; convert with to(f32) first");
}

}  // namespace

// ---- types ----

Types infer_all_reduce(const InferCall& c) {
  check_reducible(c);
  WEFT_CHECK(!c.attrs.b("identity_grad", false) || reduce_op(c.attrs, c.op.name) == ReduceOp::kSum, c.op.name,
             ": identity_grad needs op 'sum'");
  return {c.in[0]};
}

Types infer_all_gather(const InferCall& c) {
  const int d = dim_of(c, "dim");
  const int64_t parts = parts_of(c);
  const std::vector<int64_t> sizes = checked_sizes(c, "sizes", parts);
  TensorType t = c.in[0];
  bool known = sizes.empty();
  for (int64_t s : sizes) known |= s == t.shape[d];
  WEFT_CHECK(known, c.op.name, ": dim ", d, " of ", t.shape, " is not one of the sizes ", sizes);
  t.shape[d] = sizes.empty() ? saturating_mul(t.shape[d], parts) : total(sizes);
  return {t};
}

// A dim's extent on this rank after the dim was split into parts.
static int64_t own_extent(const InferCall& c, int d, int64_t parts, const std::vector<int64_t>& sizes,
                          const char* key) {
  const int64_t n = c.in[0].shape[d];
  if (c.attrs.has("extent")) {
    bool known = sizes.empty();
    for (int64_t s : sizes) known |= s == c.attrs.i("extent");
    WEFT_CHECK(known, c.op.name, ": extent ", c.attrs.i("extent"), " is not one of the ", key, " ", sizes);
    return c.attrs.i("extent");
  }
  bool even = n % parts == 0;
  for (int64_t s : sizes) even &= s == sizes[0];
  WEFT_CHECK(even, c.op.name, ": dim ", d, " of ", c.in[0].shape, " cannot be split into ", parts,
             " equal parts; need ", key, " and extent");
  return n / parts;
}

Types infer_reduce_scatter(const InferCall& c) {
  check_reducible(c);
  const int d = dim_of(c, "dim");
  const int64_t parts = parts_of(c);
  const std::vector<int64_t> sizes = checked_sizes(c, "sizes", parts);
  check_sizes_fit(c, "sizes", sizes, d);
  TensorType t = c.in[0];
  t.shape[d] = own_extent(c, d, parts, sizes, "sizes");
  return {t};
}

Types infer_all_to_all(const InferCall& c) {
  const int from = dim_of(c, "split_dim"), to = dim_of(c, "concat_dim");
  const int64_t parts = parts_of(c);
  const std::vector<int64_t> split = checked_sizes(c, "split_sizes", parts),
                             joined = checked_sizes(c, "concat_sizes", parts);
  check_sizes_fit(c, "split_sizes", split, from);
  TensorType t = c.in[0];
  if (from == to) {
    WEFT_CHECK(!split.empty() || t.shape[from] % parts == 0, c.op.name, ": dim ", from, " of ", t.shape,
               " cannot be split into ", parts, " equal parts; need split_sizes and concat_sizes");
    if (!joined.empty()) t.shape[to] = total(joined);
  } else {
    t.shape[from] = own_extent(c, from, parts, split, "split_sizes");
    t.shape[to] = joined.empty() ? saturating_mul(t.shape[to], parts) : total(joined);
  }
  return {t};
}

Types infer_all_to_all_rows(const InferCall& c) {
  WEFT_CHECK(c.in[0].shape.size() >= 1, "all_to_all_rows: operand is ", c.in[0], "; need rows");
  for (int i : {1, 2})
    WEFT_CHECK(c.in[i].dtype == kInt64 && c.in[i].shape.size() == 1 && c.in[i].shape == c.in[1].shape,
               "all_to_all_rows: counts are ", c.in[1], " and ", c.in[2], "; need i64 with one number for each rank");
  WEFT_CHECK(c.attrs.i("rows") >= 0, "all_to_all_rows: rows is ", c.attrs.i("rows"), "; need 0 or more");
  TensorType t = c.in[0];
  t.shape[0] = c.attrs.i("rows");
  return {t};
}

Types infer_send(const InferCall& c) { return {TensorType{c.in[0].dtype, c.in[0].device, {}}}; }

Types infer_rank_coordinate(const InferCall& c) {
  TensorType t{kInt64, Device::cpu(), {}};
  if (!c.attrs.has("device")) return {t};
  const std::string& name = c.attrs.get<std::string>("device");
  if (name == "meta") {
    t.device = Device::meta();
  } else {
    WEFT_CHECK(name.starts_with("cpu"), c.op.name, ": device is '", name, "'; need cpu or meta");
    t.device = Device::cpu(name.size() > 4 ? std::atoi(name.c_str() + 4) : 0);
  }
  return {t};
}

Types infer_recv_start(const InferCall& c) {
  const Shape& shape = c.attrs.ints("shape");
  checked_numel(shape, c.op.name);
  TensorType t = infer_rank_coordinate(c)[0];
  t.dtype = c.attrs.get<DType>("dtype");
  t.shape = shape;
  return {t};
}

// ---- dim maps ----

// Whether the reduction {op}, if there is one, is linear.
static bool sums(const Attrs& attrs) {
  return !attrs.has("op") || attrs.get<std::string>("op") == "sum" || attrs.get<std::string>("op") == "avg";
}

DimMap dims_same(const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out) {
  DimMap m = DimMap::pointwise(in, out);
  m.linear = sums(attrs);
  return m;
}

// All dims pass, except those in `moved`: they are different dims in operand and result.
static DimMap dims_moved(std::span<const TensorType> in, std::span<const TensorType> out, uint32_t moved) {
  std::vector<std::string> from, to;
  const int n = in[0].shape.size();
  for (int d = 0; d < n; ++d) {
    const bool m = moved >> d & 1;
    from.push_back(factor_name(d) + (m ? "?" : ""));
    to.push_back(m ? factor_name(n + d) + "?" : factor_name(d));
  }
  std::string operands = join_words(from);
  for (size_t i = 1; i < in.size(); ++i) operands += ", " + factor_name(2 * n + static_cast<int>(i)) + "?";
  return DimMap::parse(operands + " -> " + join_words(to), in, out);
}

DimMap dims_of_dim(const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out) {
  DimMap m = dims_moved(in, out, 1u << attrs.i("dim"));
  m.linear = sums(attrs);
  return m;
}
DimMap dims_all_to_all(const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out) {
  return dims_moved(in, out, 1u << attrs.i("split_dim") | 1u << attrs.i("concat_dim"));
}
DimMap dims_rows(const Attrs&, std::span<const TensorType> in, std::span<const TensorType> out) {
  return dims_moved(in, out, 1);
}
DimMap dims_send(const Attrs&, std::span<const TensorType> in, std::span<const TensorType> out) {
  std::vector<std::string> words;
  for (int d = 0; d < in[0].shape.size(); ++d) words.push_back(factor_name(d) + "?");
  return DimMap::parse(join_words(words) + " -> ", in, out);
}

}  // namespace weft::internal
