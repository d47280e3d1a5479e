// Rows over elementwise ops. These are missing because they would change the bits of floats: x + 0 (-0 becomes 0), x *
// 0, x - x, -(x - y), x * c * d, pow(x, 2) (our pow is not correctly rounded).
#include <cmath>

#include "compiler/passes/patterns/rewrite_rule.h"
#include "ops/core/pointwise.h"

namespace weft {
namespace {

/// For a power of two whose reciprocal is a normal number of the dtype: dividing and multiplying round the same value.
Value by_reciprocal(Match& m) {
  const TensorType& t = m.type(m['c']);
  double c = m.number('c');
  int exponent = 0;
  double mantissa = std::frexp(c, &exponent);
  int least = t.dtype == kFloat64 ? -1022 : t.dtype == kFloat16 ? -14 : -126;
  if (!std::isfinite(c) || std::fabs(mantissa) != 0.5 || 1 - exponent < least || exponent - 1 < least) return {};
  return m.emit(pointwise_op("mul"), {m['x'], m.constant(1 / c, t)});
}

// The difference keeps the attributes of the sum, such as kSumOfParts.
Value difference(Match& m) { return m.emit(pointwise_op("sub"), {m['x'], m['y']}, m.node(0).attrs); }

constexpr RewriteRule kRules[] = {
    {"sub(x, 0)", "x"},
    {"add(x, -0)", "x", Only::kFloats},
    {"add(x, 0)", "x", Only::kInts},
    {"mul(x, 1)", "x"},
    {"mul(x, 0)", "0", Only::kInts},
    {"div(x, 1)", "x"},
    {"div(x, c)", "mul(x, 1 / c) for c = 2^k", Only::kFloats, by_reciprocal},
    {"floor_divide(x, 1)", "x", Only::kInts},
    {"sub(x, x)", "0", Only::kInts},
    {"add(add(x, c), d)", "add(x, add(c, d))", Only::kInts},
    {"mul(mul(x, c), d)", "mul(x, mul(c, d))", Only::kInts},

    {"neg(neg(x))", "x"},
    {"neg(sub(x, y))", "sub(y, x)", Only::kInts},
    {"add(x, neg(y))", "sub(x, y)", Only::kAny, difference},
    {"sub(x, neg(y))", "add(x, y)"},
    {"mul(neg(x), neg(y))", "mul(x, y)"},
    {"div(neg(x), neg(y))", "div(x, y)"},
    {"square(neg(x))", "square(x)"},
    {"square(abs(x))", "square(x)"},
    {"abs(neg(x))", "abs(x)", Only::kFloats},

    {"abs(abs(x))", "abs(x)"},
    {"sign(sign(x))", "sign(x)"},
    {"relu(relu(x))", "relu(x)"},
    {"floor(floor(x))", "floor(x)"},
    {"ceil(ceil(x))", "ceil(x)"},
    {"round(round(x))", "round(x)"},
    {"maximum(x, x)", "x"},
    {"minimum(x, x)", "x"},

    {"where(1, x, y)", "x"},
    {"where(0, x, y)", "y"},
    {"where(z, x, x)", "x"},
    {"where(logical_not(x), y, z)", "where(x, z, y)", Only::kBools},

    {"bit_and(x, x)", "x"},
    {"bit_or(x, x)", "x"},
    {"bit_or(x, 0)", "x"},
    {"bit_xor(x, 0)", "x"},
    {"bit_xor(x, x)", "0"},
    {"bit_and(x, 0)", "0"},
    {"shift_left(x, 0)", "x"},
    {"shift_right(x, 0)", "x"},
    {"shift_right_logical(x, 0)", "x"},

    {"logical_not(logical_not(x))", "x", Only::kBools},
    {"logical_not(eq(x, y))", "ne(x, y)"},
    {"logical_not(ne(x, y))", "eq(x, y)"},
    {"logical_and(x, x)", "x", Only::kBools},
    {"logical_or(x, x)", "x", Only::kBools},
    {"logical_and(x, 1)", "x", Only::kBools},
    {"logical_and(x, 0)", "0", Only::kBools},
    {"logical_or(x, 0)", "x", Only::kBools},
    {"logical_or(x, 1)", "1", Only::kBools},
};

}  // namespace

std::span<const RewriteRule> arith_rules() { return kRules; }

}  // namespace weft
