// Rows of simplify: a pattern over ops, what replaces it, and when. Every row keeps the bits of every dtype it admits
// (-0 and infinities too; NaNs count as one): simplify_test.cc proves each one on random values.
#pragma once
#include <span>

#include "framework/ir/op_def.h"

namespace weft {

class Match;

/// Which dtypes of x a row admits.
enum class Only : uint8_t { kAny, kInts, kFloats, kBools };

struct RewriteRule {
  /// "sub(x, neg(y))": ops by name; x y z any value (a letter seen twice: the same value); c d a constant with equal
  /// elements; a number such a constant of just this value (0 and -0 differ for floats). Operands of commutative ops
  /// match in either order.
  const char* pattern;
  /// The same notation for ops without attributes; a number becomes a constant of the result's type. With `build` it
  /// only documents.
  const char* result;
  Only only = Only::kAny;
  /// Builds the replacement, or returns an invalid Value if the row does not apply after all.
  Value (*build)(Match&) = nullptr;
};

/// What a pattern matched: all in terms of the new graph.
class Match {
 public:
  virtual ~Match() = default;
  /// The value of a letter.
  virtual Value operator[](char letter) const = 0;
  /// The i-th op of the pattern, in reading order; 0 is the root.
  virtual const Node& node(int i) const = 0;
  virtual const TensorType& type(Value v) const = 0;
  /// The element of a constant's letter.
  virtual double number(char letter) const = 0;
  /// A node of this op, itself simplified; its types are inferred.
  virtual Value emit(const OpDef& op, std::initializer_list<Value> in, Attrs attrs = {}) = 0;
  /// A constant like `type` whose elements all equal `value`.
  virtual Value constant(double value, const TensorType& type) = 0;
};

std::span<const RewriteRule> arith_rules();
std::span<const RewriteRule> view_rules();
std::span<const RewriteRule> cast_rules();

}  // namespace weft
