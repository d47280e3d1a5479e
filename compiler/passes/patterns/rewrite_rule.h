// The rows of simplify: a pattern over ops, its replacement, and a condition. Every row keeps the bits for every dtype
// that it admits (-0 and infinities too; all NaNs are equal). simplify_test.cc proves each row on random values.
#pragma once
#include <span>

#include "framework/ir/op_def.h"

namespace weft {

class Match;

/// Which dtypes of x a row admits.
enum class Only : uint8_t { kAny, kInts, kFloats, kBools };

struct RewriteRule {
  /// "sub(x, neg(y))": ops by name. x, y, z match any value (a letter used twice must match the same value). c, d match
  /// a constant whose elements are all equal. A number matches such a constant of exactly this value (0 and -0 differ
  /// for floats). Operands of commutative ops match in either order.
  const char* pattern;
  /// The same notation, for ops without attributes. A number becomes a constant of the result's type. If `build` is
  /// set, the text is documentation only.
  const char* result;
  Only only = Only::kAny;
  /// Builds the replacement, or returns an invalid Value if the row does not apply.
  Value (*build)(Match&) = nullptr;
};

/// The match of a pattern, in terms of the new graph.
class Match {
 public:
  virtual ~Match() = default;
  /// The value bound to a letter.
  virtual Value operator[](char letter) const = 0;
  /// The i-th op of the pattern, in reading order; 0 is the root.
  virtual const Node& node(int i) const = 0;
  virtual const TensorType& type(Value v) const = 0;
  /// The element of the constant bound to a letter.
  virtual double number(char letter) const = 0;
  /// A node of this op, simplified in turn. Its types are inferred.
  virtual Value emit(const OpDef& op, std::initializer_list<Value> in, Attrs attrs = {}) = 0;
  /// A constant like `type` whose elements all equal `value`.
  virtual Value constant(double value, const TensorType& type) = 0;
};

std::span<const RewriteRule> arith_rules();
std::span<const RewriteRule> view_rules();
std::span<const RewriteRule> cast_rules();

}  // namespace weft
