// Text that the CPU printer and the CUDA printers share: indented lines, embedded source, names of values, types of
// memory as values, expressions of pointwise ops, floating-point numbers.
#pragma once
#include <string>
#include <string_view>

#include "compiler/loop_ir/loop_ir.h"
#include "framework/base/function_ref.h"

namespace weft::codegen {

/// Collects indented lines. Notes are comments at line ends, printed only if asked for.
class TextLines {
 public:
  explicit TextLines(bool notes, int depth = 0) : notes_(notes), depth_(depth) {}
  void line(const std::string& text, const std::string& note = "");
  void open(const std::string& text);
  void close(const std::string& text = "}");
  /// Ends an indentation of open() that no printed line closes.
  void depth_less() { --depth_; }
  /// The lines printed so far.
  const std::string& body() const { return body_; }

 private:
  std::string body_;
  bool notes_;
  int depth_;
};

/// An embedded source without comments, trailing spaces and blank lines.
std::string strip_comments(std::string_view text);

/// Whether c may be part of a C++ name: a letter, digit or underscore.
inline bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c >= '0' && c <= '9');
}
/// The name of the value of instruction `id`: "load3", "exp4", "sum6".
std::string value_name(const loop_ir::Kernel& k, int id);
/// "Sum", "Max", "Min" or "Prod": the type that combines a reduction.
const char* reduction_type(kernels::Rd rd);
/// The type as which an element of this dtype is read.
loop_ir::Type read_type(DType t);
inline bool is_float(loop_ir::Type t) { return t == loop_ir::Type::f32 || t == loop_ir::Type::f64; }

/// The expression of an op in pointwise.inc: in x, in a and b, or in c, a and b.
const char* pointwise_expression(kernels::Pw op);
/// The expression of an op with one or two operands, from pointwise.inc or given. `operand(0)` is the text of x or a,
/// `operand(1)` of b.
std::string pointwise_text(kernels::Pw op, FunctionRef<std::string(int)> operand, const char* expression = nullptr);
/// A number of type f32 or f64. It must not be NaN.
std::string float_text(loop_ir::Type t, double x);

}  // namespace weft::codegen
