#include "compiler/targets/cpu/print/scalar_text.h"

#include <cmath>
#include <cstdio>

#include "framework/base/error.h"
#include "framework/base/str_cat.h"

namespace weft::codegen {
namespace {

using loop_ir::Op;
using loop_ir::Type;

// Rows of pointwise.inc: the name, and the expression in x, in a and b, or in c, a and b.
struct PwText {
  const char* name;
  const char* expression;
};
constexpr PwText kPointwise[] = {
#define WEFT_UNARY(name, types, expr, vjp, lo, hi, flops, doc) {#name, #expr},
#define WEFT_TEST(name, types, expr, doc) {#name, #expr},
#define WEFT_BINARY(name, types, expr, vjp_a, vjp_b, lo, hi, flops, doc) {#name, #expr},
#define WEFT_COMPARE(name, types, expr, doc) {#name, #expr},
#define WEFT_TERNARY(name, types, expr, vjp_a, vjp_b, flops, doc) {#name, #expr},
#include "ops/kernels/pointwise.inc"
};

}  // namespace

void TextLines::line(const std::string& text, const std::string& note) {
  body_.append(2 * depth_, ' ').append(text);
  if (notes_ && !note.empty()) body_.append("  // ").append(note);
  body_ += '\n';
}
void TextLines::open(const std::string& text) {
  line(text);
  ++depth_;
}
void TextLines::close(const std::string& text) {
  --depth_;
  line(text);
}

std::string strip_comments(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    line = line.substr(0, line.find("//"));
    while (!line.empty() && line.back() == ' ') line.remove_suffix(1);
    if (!line.empty()) out.append(line).push_back('\n');
  }
  return out;
}

std::string value_name(const loop_ir::Kernel& k, int id) {
  static constexpr const char* kReductions[] = {"sum", "max", "min", "prod"};
  const loop_ir::Instr& i = k.instrs[id];
  switch (i.op) {
    case Op::kConst:
      return str_cat("c", id);
    case Op::kParam:
      return str_cat("param", id);
    case Op::kIndex:
      return str_cat("index", id);
    case Op::kLoad:
      return str_cat("load", id);
    case Op::kCheck:
      return str_cat("at", id);
    case Op::kPw:
      return str_cat(kPointwise[static_cast<int>(i.pw)].name, id);
    case Op::kCast:
      return str_cat("cast", id);
    case Op::kRound:
      return str_cat("round", id);
    case Op::kKept:
      return str_cat("kept", id);
    case Op::kReduce:
      return str_cat(kReductions[static_cast<int>(i.rd)], id);
    default:
      WEFT_BUG_IF(true, "print: instruction ", id, " has no value");
  }
}

const char* reduction_type(kernels::Rd rd) {
  static constexpr const char* kTypes[] = {"Sum", "Max", "Min", "Prod"};
  return kTypes[static_cast<int>(rd)];
}

Type read_type(DType t) {
  constexpr Type k[] = {Type::f32, Type::f64, Type::f32, Type::f32, Type::i64,
                        Type::i32, Type::i32, Type::i32, Type::i32, Type::pred};
  return k[static_cast<int>(t)];
}

const char* pointwise_expression(kernels::Pw op) { return kPointwise[static_cast<int>(op)].expression; }

std::string pointwise_text(kernels::Pw op, FunctionRef<std::string(int)> operand, const char* expression) {
  const int operands = kernels::pointwise_info(op).operands;
  const char* e = expression ? expression : pointwise_expression(op);
  std::string s;
  for (const char* p = e; *p; ++p) {
    const bool alone = (p == e || !is_letter(p[-1])) && !is_letter(p[1]);
    int which = -1;
    if (alone && operands == 1 && *p == 'x') which = 0;
    if (alone && operands == 2 && *p == 'a') which = 0;
    if (alone && operands == 2 && *p == 'b') which = 1;
    const std::string text = which < 0 ? std::string(1, *p) : operand(which);
    if (text[0] == '-' && which >= 0 && !s.empty() && s.back() == '-') s += ' ';  // avoids printing a decrement
    s += text;
  }
  return s;
}

std::string float_text(Type t, double x) {
  const char* f = t == Type::f32 ? "f" : "";
  if (std::isinf(x)) return str_cat(x < 0 ? "-" : "", "__builtin_inf", f, "()");
  char text[40];
  std::snprintf(text, sizeof text, t == Type::f32 ? "%.9g" : "%.17g", t == Type::f32 ? static_cast<float>(x) : x);
  std::string s = text;
  if (s.find_first_of(".e") == s.npos) s += ".0";
  return s + f;
}

}  // namespace weft::codegen
