#include "compiler/targets/cuda/attention/scalar_print.h"

#include <cmath>
#include <cstdio>
#include <limits>
#include <string_view>

#include "compiler/targets/cpu/print/scalar_text.h"
#include "framework/autodiff/grad.h"
#include "framework/base/error.h"
#include "framework/dispatch/dispatch.h"
#include "ops/core/core.h"

namespace weft::cuda {
namespace {

using codegen::is_letter;
using internal::MaskRange;
using kernels::Pw;

constexpr size_t kLongText = 64;  // longer expressions get a name

bool is_view(const Node& n) {
  return is_spread(n) || n.op == &barrier_op || (n.op->reduction == Reduction::kSum && n.outputs[0].shape.numel() == 1);
}
/// The letter of operand i in a row of pointwise.inc.
char letter(size_t operands, int i) { return operands == 1 ? 'x' : operands == 2 ? "ab"[i] : "cab"[i]; }
bool alone(const char* e, const char* c) { return (c == e || !is_letter(c[-1])) && !is_letter(c[1]); }
/// How often the expression of an op reads operand i.
int uses_of_operand(const Node& n, int i) {
  if (n.op->scalar < 0) return 1;
  const char* e = codegen::pointwise_expression(static_cast<Pw>(n.op->scalar));
  int uses = 0;
  for (const char* c = e; *c; ++c) uses += *c == letter(n.inputs.size(), i) && alone(e, c);
  return uses;
}
/// The type in which a value of this dtype is computed.
const char* type_text(DType t, bool narrow) {
  switch (t) {
    case kFloat64:
      return "double";
    case kInt64:
      return narrow ? "int" : "int64";
    case kInt32:
    case kInt16:
    case kInt8:
    case kUInt8:
      return "int";
    case kBool:
      return "bool";
    default:
      return "float";
  }
}
const char* element_text(DType t) {
  constexpr const char* k[] = {"float", "double", "u16", "u16", "int64", "int", "i16", "i8", "u8", "u8"};
  return k[static_cast<int>(t)];
}
/// The int `x` as a value of this dtype: small integers wrap.
std::string wrapped(const std::string& x, DType t) {
  if (t == kUInt8) return str_cat("((", x, ") & 255)");
  return is_small_integer(t) ? str_cat("((int)(", element_text(t), ")(", x, "))") : x;
}

}  // namespace

ScalarPrinter::ScalarPrinter(const Graph& g, std::span<const ScalarInput> inputs, int first, int last, const char* what)
    : g_(g), what_(what), at_(static_cast<size_t>(g.size())), inputs_(inputs.begin(), inputs.end()) {
  for (size_t i = 0; i < g.inputs.size(); ++i) {
    At& at = of(g.inputs[i]);
    const ScalarInput& in = inputs_[i];
    at.text = in.text;
    at.atom = at.printed = true;
    at.table = in.table ? static_cast<int>(i) : -1;
    at.range = in.range;
    at.deps = in.deps;
    at.line = in.deps == kOnQuery ? 'q' : in.deps == kOnKey ? 'k' : 0;
    at.narrow = !in.table && g.type(g.inputs[i]).dtype == kInt64;
  }
  for (int32_t id = 0; id < g.size(); ++id)
    if (!is_argument(g.node(id))) analyse(id);
  std::vector<char> live(at_.size(), 0);
  for (int i = first; i < last; ++i) {
    const Value v = g.outputs[static_cast<size_t>(i)];
    ++of(v).uses, live[static_cast<size_t>(v.node)] = 1;
  }
  for (int32_t id = g.size() - 1; id >= 0; --id) {
    if (!live[static_cast<size_t>(id)]) continue;
    const Node& n = g.node(id);
    const int only = settled(n);
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      if (only >= 0 && only != static_cast<int>(i)) continue;
      of(n.inputs[i]).uses +=
          is_view(n) || only >= 0 ? at_[static_cast<size_t>(id)].uses : uses_of_operand(n, static_cast<int>(i));
      live[static_cast<size_t>(n.inputs[i].node)] = 1;
    }
  }
}

std::string ScalarPrinter::output(int i) {
  const Value v = g_.outputs[static_cast<size_t>(i)];
  print(v.node);
  return of(v).text;
}

uint8_t ScalarPrinter::deps(int i) const { return of(g_.outputs[static_cast<size_t>(i)]).deps; }

// Finds the ranges and dependencies of values.
void ScalarPrinter::analyse(int32_t id) {
  const Node& n = g_.node(id);
  At& to = at_[static_cast<size_t>(id)];
  const TensorType& t = n.outputs[0];
  to.range = MaskRange::any(t.dtype);
  if (is_view(n)) {
    const At& from = of(n.inputs[0]);
    to.table = from.table, to.range = from.range, to.deps = from.deps, to.line = from.line, to.narrow = from.narrow;
    return;
  }
  WEFT_CHECK(t.shape.numel() == 1, what_, ": ", n.op->name, " gives ", t,
             n.line.line ? str_cat(" at ", n.line.to_string()) : "", "; a CUDA kernel computes one score at a time");
  bool ints = is_integral(t.dtype) || t.dtype == kBool, any_wide = false;
  for (Value v : n.inputs) {
    if (of(v).table >= 0) continue;
    to.deps |= of(v).deps;
    any_wide |= g_.type(v).dtype == kInt64 && !of(v).narrow;
  }
  if (n.op == &constant_op) {
    if (const int64_t* v = std::get_if<int64_t>(n.attrs.find("value"))) to.range = MaskRange::of(*v);
  } else if (n.op == &cast_op) {
    const DType from = g_.type(n.inputs[0]).dtype;
    if (ints && !is_floating(from)) to.range = internal::range_of_cast(from, t.dtype, of(n.inputs[0]).range);
    to.line = t.dtype == kInt64 ? of(n.inputs[0]).line : 0;
  } else if (n.op->scalar >= 0 && ints) {
    to.range = internal::range_of_node(g_, n, [this](Value v) -> const MaskRange& { return of(v).range; });
    const Pw op = static_cast<Pw>(n.op->scalar);
    if (n.inputs.size() == 2 && t.dtype == kInt64) {
      const At &a = of(n.inputs[0]), &b = of(n.inputs[1]);
      if (op == Pw::sub && a.line && b.line && a.line != b.line) to.deps = kOnDistance;
      if ((op == Pw::add || op == Pw::sub) && a.line && b.range.constant()) to.line = a.line;
      if (op == Pw::add && b.line && a.range.constant()) to.line = b.line;
    }
  }
  const bool shift = n.op->scalar >= 0 && (static_cast<Pw>(n.op->scalar) == Pw::shift_left ||
                                           static_cast<Pw>(n.op->scalar) == Pw::shift_right ||
                                           static_cast<Pw>(n.op->scalar) == Pw::shift_right_logical);
  to.narrow = t.dtype == kInt64 && to.range.fits_i32() && !shift &&
              (n.op == &constant_op || n.op == &cast_op || (n.op->scalar >= 0 && !any_wide));
}

int ScalarPrinter::settled(const Node& n) const {
  if (n.op->scalar < 0) return -1;
  const Pw op = static_cast<Pw>(n.op->scalar);
  const auto known = [&](int i, int64_t value) {
    const At& at = of(n.inputs[static_cast<size_t>(i)]);
    return g_.type(n.inputs[static_cast<size_t>(i)]).dtype == kBool && at.range.constant() && at.range.lo == value;
  };
  if (n.inputs.size() == 3) return known(0, 1) ? 1 : known(0, 0) ? 2 : -1;
  if (op == Pw::logical_or) return known(0, 0) ? 1 : known(1, 0) ? 0 : -1;
  if (op == Pw::logical_and) return known(0, 1) ? 1 : known(1, 1) ? 0 : -1;
  return -1;
}

std::string ScalarPrinter::operand(const Node& n, int i, bool wide, bool bare) {
  const Value v = n.inputs[static_cast<size_t>(i)];
  print(v.node);
  const At& at = of(v);
  const bool widens = wide && at.narrow && g_.type(v).dtype == kInt64;
  std::string s = at.atom || (bare && !widens) ? at.text : str_cat("(", at.text, ")");
  return widens ? str_cat("(int64)", s) : s;
}

std::string ScalarPrinter::constant(const Node& n) const {
  const AttrValue& v = *n.attrs.find("value");
  const double x = std::holds_alternative<double>(v) ? std::get<double>(v) : static_cast<double>(std::get<int64_t>(v));
  const DType t = n.outputs[0].dtype;
  char text[40];
  if (t == kBool) return x != 0 ? "true" : "false";
  if (!is_floating(t)) {
    const int64_t i = std::holds_alternative<int64_t>(v) ? std::get<int64_t>(v) : static_cast<int64_t>(x);
    const bool narrow = i > std::numeric_limits<int32_t>::min() && i <= std::numeric_limits<int32_t>::max();
    std::string s = narrow ? str_cat(i) : str_cat("(int64)0x", [&] {
      std::snprintf(text, sizeof text, "%llxull", static_cast<unsigned long long>(i));
      return std::string(text);
    }());
    return i < 0 && narrow ? str_cat("(", s, ")") : s;
  }
  const char* f = t == kFloat64 ? "" : "f";
  if (std::isnan(x)) return str_cat("__builtin_nanf(\"\")");
  if (std::isinf(x)) return str_cat(x < 0 ? "(-" : "(", "__builtin_inff())");
  const float rounded = t == kBFloat16  ? static_cast<float>(bfloat16(static_cast<float>(x)))
                        : t == kFloat16 ? static_cast<float>(float16(static_cast<float>(x)))
                                        : static_cast<float>(x);
  std::snprintf(text, sizeof text, t == kFloat64 ? "%.17g" : "%.9g", t == kFloat64 ? x : rounded);
  std::string s = text;
  if (s.find_first_of(".e") == s.npos) s += ".0";
  return s[0] == '-' ? str_cat("(", s, f, ")") : s + f;
}

std::string ScalarPrinter::read(const Node& n) {
  const Value table = n.inputs[0], index = n.inputs[1];
  const At& t = of(table);
  WEFT_CHECK(t.table >= 0 && g_.type(index).shape.numel() == 1, what_, ": ", n.op->name,
             " of a tensor computed inside it; need a tensor made outside");
  print(index.node);
  const DType type = g_.type(table).dtype;
  const std::string x = str_cat("((const ", element_text(type), "*)", inputs_[static_cast<size_t>(t.table)].text, ")[",
                                of(index).text, "]");
  return type == kBFloat16  ? str_cat("from_bf16(", x, ")")
         : type == kFloat16 ? str_cat("from_f16(", x, ")")
         : type == kBool    ? str_cat("(", x, " != 0)")
                            : x;
}

std::string ScalarPrinter::pointwise(const Node& n, At* to) {
  const Pw op = static_cast<Pw>(n.op->scalar);
  const size_t count = n.inputs.size();
  const DType of_type = g_.type(n.inputs[count - 1]).dtype;
  bool wide = false;
  for (Value v : n.inputs) wide |= g_.type(v).dtype == kInt64 && !of(v).narrow;
  wide |= n.outputs[0].dtype == kInt64 && !to->narrow;
  const char* e = codegen::pointwise_expression(op);
  to->atom = false;
  if (op == Pw::logical_not && of_type == kBool) return str_cat("!", operand(n, 0, false));
  if (of_type == kBool && (op == Pw::logical_or || op == Pw::logical_and))
    return str_cat(operand(n, 0, false), op == Pw::logical_or ? " || " : " && ", operand(n, 1, false));
  if ((op == Pw::floor_divide || op == Pw::remainder) && !is_floating(of_type)) {
    const MaskRange &a = of(n.inputs[0]).range, &b = of(n.inputs[1]).range;
    if (a.lo >= 0 && b.lo > 0)
      return str_cat(operand(n, 0, wide), op == Pw::remainder ? " % " : " / ", operand(n, 1, wide));
    to->atom = true;
    return wrapped(str_cat(op == Pw::remainder ? "modulo(" : "floor_div(", operand(n, 0, wide, true), ", ",
                           operand(n, 1, wide, true), ")"),
                   n.outputs[0].dtype);
  }
  // Operators convert a literal to the type of the other operand; overloaded functions do not.
  const bool function = std::string_view(e).starts_with("w_");
  bool one_wide = false;
  std::string s;
  for (const char* c = e; *c; ++c) {
    int i = -1;
    for (int k = 0; k < static_cast<int>(count); ++k)
      if (*c == letter(count, k) && alone(e, c)) i = k;
    if (i < 0) {
      s += *c;
      continue;
    }
    const bool number = g_.node(n.inputs[static_cast<size_t>(i)]).op == &constant_op;
    const bool as_wide = wide && (function || (!number && !one_wide && count == 2));
    one_wide |= as_wide;
    const bool bare =
        function && c > e && (c[-1] == '(' || (c[-1] == ' ' && c[-2] == ',')) && (c[1] == ')' || c[1] == ',');
    const bool logical = op == Pw::shift_right_logical && i == 0 && (of_type == kInt16 || of_type == kInt8);
    s += logical ? str_cat("(int)(", of_type == kInt16 ? "u16" : "u8", ")(", operand(n, i, as_wide, bare), ")")
                 : operand(n, i, as_wide, bare);
  }
  to->atom = function && s.back() == ')' && std::string_view(e).find(')') == std::string_view(e).size() - 1;
  return wrapped(s, n.outputs[0].dtype);
}

void ScalarPrinter::print(int32_t id) {
  At& to = at_[static_cast<size_t>(id)];
  if (to.printed) return;
  to.printed = true;
  const Node& n = g_.node(id);
  const DType type = n.outputs[0].dtype;
  bool named = to.uses > 1;
  if (is_view(n)) {
    print(n.inputs[0].node);
    const At& from = of(n.inputs[0]);
    if (from.table >= 0) {  // a table of one element
      WEFT_CHECK(n.outputs[0].shape.numel() == 1, what_, ": a whole table as a value");
      const DType t = g_.type(n.inputs[0]).dtype;
      const std::string x = str_cat("*(const ", element_text(t), "*)", from.text);
      to.text = t == kBFloat16  ? str_cat("from_bf16(", x, ")")
                : t == kFloat16 ? str_cat("from_f16(", x, ")")
                                : str_cat("(", x, ")");
      to.atom = true;
      to.table = -1;
      return;
    }
    to.text = from.text, to.atom = from.atom, to.narrow = from.narrow;
    return;
  }
  if (n.op == &constant_op) {
    to.text = constant(n);
    to.atom = true;
    return;
  }
  if (type == kBool && to.range.constant()) {
    to.text = to.range.lo ? "true" : "false";
    to.atom = true;
    return;
  }
  if (const int only = settled(n); only >= 0) {
    const Value v = n.inputs[static_cast<size_t>(only)];
    print(v.node);
    const At& from = of(v);
    to.text = from.text, to.atom = from.atom;
    if (g_.type(v).dtype == kInt64 && from.narrow != to.narrow)
      to.text = str_cat("(", type_text(type, to.narrow), ")", from.atom ? from.text : str_cat("(", from.text, ")")),
      to.atom = true;
    return;
  }
  if (n.op == &cast_op) {
    const DType from = g_.type(n.inputs[0]).dtype;
    const std::string x = operand(n, 0, false);
    to.atom = true;
    if (type == kBool) {
      to.text = str_cat(x, " != 0");
      to.atom = false;
    } else if (type == kBFloat16 || type == kFloat16) {
      to.text = from == type ? x
                             : str_cat(type == kBFloat16 ? "round_bf16(" : "round_f16(",
                                       is_floating(from) ? "" : "(float)", x, ")");
      to.atom = true;
    } else if (type == from || (!is_small_integer(type) &&
                                type_text(type, to.narrow) == std::string(type_text(from, of(n.inputs[0]).narrow)))) {
      to.text = x, to.atom = true;
    } else {
      to.text = str_cat("(", type_text(type, to.narrow), ")", x);
      if (is_small_integer(type)) to.text = wrapped(to.text, type);
    }
  } else if (n.op->is(kPicks)) {
    to.text = read(n);
    to.atom = true;
    named = named || to.text.size() > 24;
  } else if (n.op->scalar >= 0) {
    to.text = pointwise(n, &to);
    if ((type == kBFloat16 || type == kFloat16))
      to.text = str_cat(type == kBFloat16 ? "round_bf16(" : "round_f16(", to.text, ")"), to.atom = true;
  } else {
    WEFT_CHECK(false, what_, ": ", n.op->name, n.line.line ? str_cat(" at ", n.line.to_string()) : std::string(),
               " has no form in a CUDA kernel");
  }
  if (!named && to.text.size() <= kLongText) return;
  const std::string name = str_cat("t", names_++);
  statements_ += str_cat("  const ", type_text(type, to.narrow), " ", name, " = ", to.text, ";\n");
  to.text = name;
  to.atom = true;
}

}  // namespace weft::cuda
