#include "compiler/onnx/rows.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "framework/dispatch/dispatch.h"
#include "ops/core/creation.h"

namespace weft::internal {
namespace {

Ints list(const Shape& s) { return {s.begin(), s.end()}; }

Ints range(int64_t n) {
  Ints r(static_cast<size_t>(n));
  std::iota(r.begin(), r.end(), 0);
  return r;
}

Ints joined(Ints a, const Ints& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Ints extents(const Shape& shape, const Ints& dims) {
  Ints r;
  for (int64_t d : dims) r.push_back(shape[static_cast<int>(d)]);
  return r;
}

int64_t product(const Ints& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{1}, std::multiplies<>());
}

bool is_float(const OnnxCall& c) { return is_floating(c.type(0).dtype); }

// ---- elementwise ----

OnnxNames same(OnnxCall& c) { return {c.add("Identity", {c.in(0)})}; }

// The identity for integers.
OnnxNames round_row(OnnxCall& c) { return {c.add(is_float(c) ? c.onnx : "Identity", {c.in(0)})}; }

OnnxNames expm1_row(OnnxCall& c) { return {c.add("Sub", {c.add("Exp", c.in()), c.number(1, c.out().dtype)})}; }
OnnxNames log1p_row(OnnxCall& c) { return {c.add("Log", {c.add("Add", {c.in(0), c.number(1, c.out().dtype)})})}; }
OnnxNames rsqrt_row(OnnxCall& c) { return {c.add("Reciprocal", {c.add("Sqrt", c.in())})}; }
OnnxNames square_row(OnnxCall& c) { return {c.add("Mul", {c.in(0), c.in(0)})}; }

// a - b floor(a / b): Mod of floats has the sign of a.
OnnxNames remainder_row(OnnxCall& c) {
  if (!is_float(c)) return {c.add("Mod", c.in())};
  return {c.add("Sub", {c.in(0), c.add("Mul", {c.in(1), c.add("Floor", {c.add("Div", c.in())})})})};
}

// Div of integers rounds to zero.
OnnxNames floor_divide_row(OnnxCall& c) {
  if (is_float(c)) return {c.add("Floor", {c.add("Div", c.in())})};
  return {c.add("Div", {c.add("Sub", {c.in(0), c.add("Mod", c.in())}), c.in(1)})};
}

OnnxNames order_row(OnnxCall& c) {
  OnnxNames in = c.in();
  for (size_t i = 0; i < 2; ++i)
    if (c.type(i).dtype == kBool) in[i] = c.cast(in[i], kBool, kInt32);
  return {c.add(c.onnx, in)};
}

OnnxNames ne_row(OnnxCall& c) { return {c.add("Not", {c.add("Equal", c.in())})}; }

std::string truth(OnnxCall& c, size_t i) { return c.cast(c.in(i), c.type(i).dtype, kBool); }

OnnxNames logical_row(OnnxCall& c) { return {c.add(c.onnx, {truth(c, 0), truth(c, 1)})}; }
OnnxNames not_row(OnnxCall& c) { return {c.add("Not", {truth(c, 0)})}; }
OnnxNames bits_row(OnnxCall& c) { return c.out().dtype == kBool ? OnnxNames{c.add(c.onnx, c.in())} : OnnxNames{}; }

std::string as_float(OnnxCall& c) { return is_float(c) ? c.in(0) : c.cast(c.in(0), c.type(0).dtype, kFloat32); }
OnnxNames isnan_row(OnnxCall& c) { return {c.add("IsNaN", {as_float(c)})}; }
// x - x is 0 for finite numbers only. IsInf does not exist for 16-bit floats.
OnnxNames isfinite_row(OnnxCall& c) {
  const std::string x = as_float(c);
  return {c.add("Not", {c.add("IsNaN", {c.add("Sub", {x, x})})})};
}

OnnxNames where_row(OnnxCall& c) { return {c.add("Where", {truth(c, 0), c.in(1), c.in(2)})}; }

OnnxNames cast_row(OnnxCall& c) { return {c.cast(c.in(0), c.type(0).dtype, c.out().dtype)}; }

// ---- constants ----

OnnxNames evaluated(OnnxCall& c) { return {c.constant(dispatch(*c.node().op, {}, c.attrs().without("device")))}; }

// ---- views ----

OnnxNames reshape_row(OnnxCall& c) { return {c.reshape(c.in(0), list(c.out().shape))}; }
OnnxNames permute_row(OnnxCall& c) { return {c.transpose(c.in(0), list(c.attrs().ints("dims")))}; }
OnnxNames broadcast_row(OnnxCall& c) { return {c.add("Expand", {c.in(0), c.ints(list(c.out().shape))})}; }
OnnxNames concat_row(OnnxCall& c) { return {c.add("Concat", c.in(), {{"axis", c.attrs().i("dim")}})}; }

OnnxNames slice_row(OnnxCall& c) {
  const Attrs& a = c.attrs();
  if (c.out().shape.empty()) return c.in();  // onnxruntime does not slice scalars
  return {c.add("Slice", {c.in(0), c.ints(list(a.ints("begin"))), c.ints(list(a.ints("end"))),
                          c.ints(range(c.out().shape.size())), c.ints(list(a.ints("step")))})};
}

// x with `interior` values between neighbours, then `lo` before and `hi` after; negative numbers crop. Each element
// gets a new dim, which is padded with the values; the values after the last element are cropped.
std::string padded(OnnxCall& c, std::string x, Ints shape, Ints lo, Ints hi, const Ints& interior, double value) {
  const std::string fill = c.number(value, c.type(0).dtype);
  for (size_t d = 0; d < shape.size(); ++d) {
    if (interior[d] == 0 || shape[d] == 0) continue;
    Ints apart = shape;
    apart.insert(apart.begin() + static_cast<std::ptrdiff_t>(d) + 1, 1);
    Ints pads(2 * apart.size(), 0);
    pads[apart.size() + d + 1] = interior[d];
    x = c.add("Pad", {c.reshape(x, apart), c.ints(pads), fill});
    shape[d] *= interior[d] + 1;
    hi[d] -= interior[d];
    x = c.reshape(x, shape);
  }
  const Ints pads = joined(lo, hi);
  if (std::all_of(pads.begin(), pads.end(), [](int64_t n) { return n == 0; })) return x;
  return c.add("Pad", {x, c.ints(pads), fill});
}

OnnxNames pad_row(OnnxCall& c) {
  const Attrs& a = c.attrs();
  const Shape& shape = c.type(0).shape;
  const Ints interior = a.has("interior") ? list(a.ints("interior")) : Ints(static_cast<size_t>(shape.size()), 0);
  return {padded(c, c.in(0), list(shape), list(a.ints("lo")), list(a.ints("hi")), interior, a.f("value"))};
}

// Each windowed dim is gathered as [windows, elements of one]; the elements then become the last dim.
OnnxNames window_row(OnnxCall& c) {
  const Attrs& a = c.attrs();
  std::string x = c.in(0);
  int64_t rank = c.type(0).shape.size();
  for (int k = 0; k < a.ints("dims").size(); ++k, ++rank) {
    const int64_t dim = a.ints("dims")[k], size = a.ints("size")[k];
    const int64_t windows = c.out().shape[static_cast<int>(dim)];
    Ints index;
    for (int64_t i = 0; i < windows; ++i)
      for (int64_t j = 0; j < size; ++j) index.push_back(i * a.ints("stride")[k] + j * a.ints("dilation")[k]);
    x = c.add("Gather", {x, c.constant(Tensor::from_vector(index, {windows, size}))}, {{"axis", dim}});
    Ints dims = range(rank + 1);
    std::rotate(dims.begin() + dim + 1, dims.begin() + dim + 2, dims.end());
    x = c.transpose(x, dims);
  }
  return {x};
}

// ---- products ----

// An operand of a product as [batch, rows, contracted] or [batch, contracted, columns].
struct ProductSide {
  std::string name;
  Ints batch, free, contract;  // extents
};

ProductSide side(OnnxCall& c, size_t i, const Shape& batch, const Shape& contract, bool contract_last) {
  const TensorType& t = c.type(i);
  Ints free;
  for (int64_t d = 0; d < t.shape.size(); ++d)
    if (std::find(batch.begin(), batch.end(), d) == batch.end() &&
        std::find(contract.begin(), contract.end(), d) == contract.end())
      free.push_back(d);
  const Ints order = joined(list(batch), contract_last ? joined(free, list(contract)) : joined(list(contract), free));
  return {c.transpose(c.cast(c.in(i), t.dtype, c.out().dtype), order), extents(t.shape, list(batch)),
          extents(t.shape, free), extents(t.shape, list(contract))};
}

OnnxNames dot_row(OnnxCall& c) {
  const Attrs& at = c.attrs();
  const ProductSide a = side(c, 0, at.ints("a_batch"), at.ints("a_contract"), true);
  const ProductSide b = side(c, 1, at.ints("b_batch"), at.ints("b_contract"), false);
  const int64_t k = product(a.contract);
  // MatMul accepts several dims of rows if the other operand is one matrix.
  const bool matrix_b = b.free.size() == 1 && b.contract.size() == 1;
  const bool matrix_a =
      a.contract.size() == 1 && (a.free.size() == 1 || (a.free.size() > 1 && matrix_b && a.batch.empty()));
  const std::string x = matrix_a ? a.name : c.reshape(a.name, joined(a.batch, {product(a.free), k}));
  const std::string y = matrix_b ? b.name : c.reshape(b.name, joined(b.batch, {k, product(b.free)}));
  const std::string r = c.add("MatMul", {x, y});
  return {matrix_a && matrix_b ? r : c.reshape(r, list(c.out().shape))};
}

// One product for each group, of a slice of rows whose extent is known at run time. Zeros fill the rows of no group.
OnnxNames grouped_dot_row(OnnxCall& c) {
  if (c.attrs().get<std::string>("mode") != "rows") return {};
  const Shape &x = c.type(0).shape, &w = c.type(1).shape;
  const DType dtype = c.out().dtype;
  const std::string a = c.cast(c.in(0), c.type(0).dtype, dtype), b = c.cast(c.in(1), c.type(1).dtype, dtype);
  const OnnxNames at =
      c.add_n("Split", {c.cast(c.in(2), c.type(2).dtype, kInt64)}, {{"axis", 0}}, static_cast<size_t>(w[0]) + 1);
  OnnxNames parts;
  for (int64_t e = 0; e < w[0]; ++e) {
    const auto i = static_cast<size_t>(e);
    const std::string rows = c.add("Slice", {a, at[i], at[i + 1], c.ints({0})});
    const std::string matrix = c.add("Gather", {b, c.number(static_cast<double>(e), kInt64)}, {{"axis", 0}});
    parts.push_back(c.add("MatMul", {rows, matrix}));
  }
  const std::string zero = c.ints({0}), after = c.add("Sub", {c.ints({x[0]}), at.back()});
  const std::string pads = c.add("Concat", {at[0], zero, after, zero}, {{"axis", 0}});
  const std::string y = c.add("Pad", {c.add("Concat", parts, {{"axis", 0}}), pads, c.number(0, dtype)});
  return {c.reshape(y, list(c.out().shape))};
}

OnnxNames conv_row(OnnxCall& c) {
  const Attrs& a = c.attrs();
  Ints lo = list(a.ints("lo")), hi = list(a.ints("hi"));
  const Ints interior = list(a.ints("interior")), none(lo.size(), 0);
  const Ints pads = joined(lo, hi);
  std::string x = c.in(0);
  if (interior != none || *std::min_element(pads.begin(), pads.end()) < 0) {
    x = padded(c, x, list(c.type(0).shape), joined({0, 0}, lo), joined({0, 0}, hi), joined({0, 0}, interior), 0);
    lo = hi = none;
  }
  return {c.add("Conv", {x, c.in(1)},
                {{"strides", list(a.ints("stride"))},
                 {"pads", joined(lo, hi)},
                 {"dilations", list(a.ints("dilation"))},
                 {"group", a.i("groups")}})};
}

// ---- reductions ----

// Without dims ONNX would reduce all of them.
OnnxNames sum_row(OnnxCall& c) {
  const std::string x = c.cast(c.in(0), c.type(0).dtype, c.out().dtype);
  const Ints dims = list(c.attrs().ints("dims"));
  return {dims.empty() ? x : c.add("ReduceSum", {x, c.ints(dims)}, {{"keepdims", 0}})};
}

OnnxNames reduce_row(OnnxCall& c) {
  const std::string x = c.cast(c.in(0), c.type(0).dtype, c.out().dtype);
  const Ints dims = list(c.attrs().ints("dims"));
  return {dims.empty() ? x : c.add(c.onnx, {x}, {{"axes", dims}, {"keepdims", 0}})};
}

OnnxNames arg_row(OnnxCall& c) { return {c.add(c.onnx, {c.in(0)}, {{"axis", c.attrs().i("dim")}, {"keepdims", 0}})}; }

OnnxNames cumsum_row(OnnxCall& c) {
  const std::string x = c.cast(c.in(0), c.type(0).dtype, c.out().dtype);
  return {c.add("CumSum", {x, c.number(static_cast<double>(c.attrs().i("dim")), kInt64)},
                {{"reverse", c.attrs().b("reverse") ? 1 : 0}})};
}

OnnxNames softmax_row(OnnxCall& c) { return {c.add("Softmax", {c.in(0)}, {{"axis", c.attrs().i("dim")}})}; }

// ---- look-ups and order ----

OnnxNames along_dim_row(OnnxCall& c) { return {c.add(c.onnx, c.in(), {{"axis", c.attrs().i("dim")}})}; }

OnnxNames scatter_add_row(OnnxCall& c) {
  return {c.add("ScatterElements", c.in(), {{"axis", c.attrs().i("dim")}, {"reduction", std::string("add")}})};
}

OnnxNames rows_of(OnnxCall& c, const char* reduction) {
  const std::string index = c.cast(c.in(1), c.type(1).dtype, kInt64);
  const std::string column = c.reshape(index, {c.type(1).shape[0], 1});
  return {c.add("ScatterND", {c.in(0), column, c.in(2)}, {{"reduction", std::string(reduction)}})};
}
OnnxNames index_add_row(OnnxCall& c) { return rows_of(c, "add"); }
OnnxNames index_copy_row(OnnxCall& c) { return rows_of(c, "none"); }

OnnxNames best(OnnxCall& c, int64_t k, bool largest) {
  return c.add_n("TopK", {c.in(0), c.ints({k})},
                 {{"axis", c.attrs().i("dim")}, {"largest", largest ? 1 : 0}, {"sorted", 1}}, 2);
}
OnnxNames topk_row(OnnxCall& c) { return best(c, c.attrs().i("k"), c.attrs().b("largest")); }
OnnxNames sort_row(OnnxCall& c) {
  return best(c, c.type(0).shape[static_cast<int>(c.attrs().i("dim"))], c.attrs().b("descending"));
}

constexpr OnnxRow kRows[] = {
    {"neg", "Neg"},
    {"abs", "Abs"},
    {"sign", "Sign"},
    {"exp", "Exp"},
    {"expm1", "", expm1_row},
    {"log", "Log"},
    {"log1p", "", log1p_row},
    {"sqrt", "Sqrt"},
    {"rsqrt", "", rsqrt_row},
    {"sin", "Sin"},
    {"cos", "Cos"},
    {"tanh", "Tanh"},
    {"tanh_fast", "Tanh"},
    {"sigmoid", "Sigmoid"},
    {"erf", "Erf"},
    {"floor", "Floor", round_row},
    {"ceil", "Ceil", round_row},
    {"round", "Round", round_row},
    {"relu", "Relu"},
    {"reciprocal", "Reciprocal"},
    {"square", "", square_row},
    {"logical_not", "", not_row},
    {"isfinite", "", isfinite_row},
    {"isnan", "", isnan_row},
    {"add", "Add"},
    {"sub", "Sub"},
    {"mul", "Mul"},
    {"div", "Div"},
    {"pow", "Pow"},
    {"maximum", "Max"},
    {"minimum", "Min"},
    {"remainder", "", remainder_row},
    {"floor_divide", "", floor_divide_row},
    {"bit_and", "And", bits_row},
    {"bit_or", "Or", bits_row},
    {"bit_xor", "Xor", bits_row},
    {"eq", "Equal"},
    {"ne", "", ne_row},
    {"lt", "Less", order_row},
    {"le", "LessOrEqual", order_row},
    {"gt", "Greater", order_row},
    {"ge", "GreaterOrEqual", order_row},
    {"logical_and", "And", logical_row},
    {"logical_or", "Or", logical_row},
    {"logical_xor", "Xor", logical_row},
    {"where", "", where_row},
    {"cast", "", cast_row},
    {"constant", "", evaluated},
    {"iota", "", evaluated},
    {"contiguous", "", same},
    {"stop_gradient", "", same},
    {"barrier", "", same},
    {"reshape", "", reshape_row},
    {"permute", "", permute_row},
    {"broadcast", "", broadcast_row},
    {"slice", "", slice_row},
    {"pad", "", pad_row},
    {"concat", "", concat_row},
    {"window", "", window_row},
    {"dot", "", dot_row},
    {"grouped_dot", "", grouped_dot_row},
    {"conv", "", conv_row},
    {"reduce_sum", "", sum_row},
    {"reduce_max", "ReduceMax", reduce_row},
    {"reduce_min", "ReduceMin", reduce_row},
    {"reduce_prod", "ReduceProd", reduce_row},
    {"argmax", "ArgMax", arg_row},
    {"argmin", "ArgMin", arg_row},
    {"cumsum", "", cumsum_row},
    {"softmax", "", softmax_row},
    {"gather", "GatherElements", along_dim_row},
    {"index_select", "Gather", along_dim_row},
    {"scatter_add", "", scatter_add_row},
    {"index_add", "", index_add_row},
    {"index_copy", "", index_copy_row},
    {"sort", "", sort_row},
    {"topk", "", topk_row},
};

// Dtypes that operators of opset 17 do not accept.
struct Missing {
  std::string_view op;
  DType dtype, instead;
};
constexpr Missing kMissing[] = {
    {"sin", kBFloat16, kFloat32},  {"cos", kBFloat16, kFloat32},  {"round", kBFloat16, kFloat32},
    {"conv", kBFloat16, kFloat32}, {"sort", kBFloat16, kFloat32}, {"topk", kBFloat16, kFloat32},
    {"sort", kBool, kUInt8},       {"topk", kBool, kUInt8},       {"argmax", kBool, kUInt8},
    {"argmin", kBool, kUInt8},     {"neg", kUInt8, kInt32},       {"relu", kUInt8, kInt32},
    {"dot", kUInt8, kInt32},       {"dot", kInt8, kInt32},        {"dot", kInt16, kInt32},
    {"reduce_max", kBool, kUInt8}, {"reduce_min", kBool, kUInt8}, {"reduce_max", kInt16, kInt32},
    {"reduce_min", kInt16, kInt32}};

}  // namespace

int onnx_dtype(DType dtype) {
  using P = onnx::TensorProto;
  constexpr std::pair<DType, int> kTypes[] = {
      {kFloat32, P::FLOAT}, {kFloat64, P::DOUBLE}, {kFloat16, P::FLOAT16}, {kBFloat16, P::BFLOAT16}, {kInt64, P::INT64},
      {kInt32, P::INT32},   {kInt16, P::INT16},    {kInt8, P::INT8},       {kUInt8, P::UINT8},       {kBool, P::BOOL}};
  for (const auto& [from, to] : kTypes)
    if (from == dtype) return to;
  internal::fail(Code::kUnimplemented, str_cat("onnx: opset 17 has no dtype ", dtype, "; convert with to(bf16) first"));
}

void set_type(onnx::ValueInfoProto& info, const std::string& name, const TensorType& type) {
  info.set_name(name);
  onnx::TypeProto::Tensor& t = *info.mutable_type()->mutable_tensor_type();
  t.set_elem_type(onnx_dtype(type.dtype));
  t.mutable_shape();
  for (int64_t n : type.shape) t.mutable_shape()->add_dim()->set_dim_value(n);
}

void set_type(onnx::TensorProto& tensor, const std::string& name, const TensorType& type) {
  tensor.set_name(name);
  tensor.set_data_type(onnx_dtype(type.dtype));
  for (int64_t n : type.shape) tensor.add_dims(n);
}

std::string raw_bytes(const Tensor& t) {
  const Tensor host = internal::on_host(t).contiguous();
  return {static_cast<const char*>(host.view_for_kernel().data), static_cast<size_t>(host.type().nbytes())};
}

std::string OnnxGraph::unique(const std::string& wanted) {
  const int n = used_[wanted]++;
  return n == 0 ? wanted : unique(str_cat(wanted, "_", n));
}

std::string OnnxGraph::constant(const Tensor& value) {
  std::string bytes = raw_bytes(value);
  std::string& name = constants_[str_cat(value.type().to_string(), " ", bytes)];
  if (name.empty()) {
    name = unique("constant");
    onnx::TensorProto& t = *proto_.add_initializer();
    set_type(t, name, value.type());
    t.set_raw_data(std::move(bytes));
  }
  return name;
}

OnnxNames OnnxCall::add_n(const char* op, const OnnxNames& in, std::initializer_list<Attr> attrs, size_t results) {
  onnx::NodeProto& n = *to_.proto().add_node();
  const std::string scope = node_.scope && *node_.scope ? str_cat(node_.scope, "/") : std::string();
  OnnxNames out;
  for (size_t i = 0; i < results; ++i) out.push_back(to_.unique(scope + op));
  n.set_name(out[0]);
  n.set_op_type(op);
  n.set_doc_string(node_.line.to_string());
  for (const std::string& name : in) n.add_input(name);
  for (const std::string& name : out) n.add_output(name);
  for (const auto& [name, value] : attrs) {
    onnx::AttributeProto& a = *n.add_attribute();
    a.set_name(name);
    if (const auto* i = std::get_if<int64_t>(&value)) {
      a.set_type(onnx::AttributeProto::INT);
      a.set_i(*i);
    } else if (const auto* s = std::get_if<std::string>(&value)) {
      a.set_type(onnx::AttributeProto::STRING);
      a.set_s(*s);
    } else {
      a.set_type(onnx::AttributeProto::INTS);
      for (int64_t v : std::get<Ints>(value)) a.add_ints(v);
    }
  }
  return out;
}

std::string OnnxCall::ints(const Ints& values) {
  return to_.constant(Tensor::from_vector(values, {static_cast<int64_t>(values.size())}));
}

std::string OnnxCall::number(double value, DType dtype) { return to_.constant(weft::constant(value, dtype)); }

std::string OnnxCall::cast(const std::string& x, DType from, DType to) {
  return from == to ? x : add("Cast", {x}, {{"to", onnx_dtype(to)}});
}

std::string OnnxCall::transpose(const std::string& x, const Ints& dims) {
  return std::is_sorted(dims.begin(), dims.end()) ? x : add("Transpose", {x}, {{"perm", dims}});
}

std::string OnnxCall::reshape(const std::string& x, const Ints& shape) {
  const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();  // 0 else means the operand's extent
  return empty ? add("Reshape", {x, ints(shape)}, {{"allowzero", 1}}) : add("Reshape", {x, ints(shape)});
}

std::span<const OnnxRow> onnx_rows() { return kRows; }

DType computed_in(const OpDef& op, DType dtype) {
  for (const Missing& m : kMissing)
    if (m.op == op.name && m.dtype == dtype) return m.instead;
  return dtype;
}

const OnnxRow* find_onnx_row(const OpDef& op) {
  static const auto* by_name = [] {
    auto* map = new std::unordered_map<std::string_view, const OnnxRow*>;
    for (const OnnxRow& row : kRows) map->emplace(row.op, &row);
    return map;
  }();
  const auto it = by_name->find(op.name);
  return it == by_name->end() ? nullptr : it->second;
}

}  // namespace weft::internal
