// Tests every row of pointwise.inc: against plain f64 code, and for the same bits in every layout, position and thread
// count.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "framework/base/error.h"
#include "framework/base/testing/error_of.h"
#include "framework/base/thread_pool.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/testing/test_arrays.h"

namespace weft::kernels {
namespace {

using testing::error_of;

struct Sample {
  double lo, hi;
};
Sample sample(Pw op) {
  static const Sample all[] = {
#define WEFT_UNARY(name, types, expr, vjp, lo, hi, flops, doc) {lo, hi},
#define WEFT_TEST(...) {-3, 3},
#define WEFT_BINARY(name, types, expr, va, vb, lo, hi, flops, doc) {lo, hi},
#define WEFT_COMPARE(...) {-3, 3},
#define WEFT_TERNARY(...) {-3, 3},
#include "ops/kernels/pointwise.inc"
  };
  return all[static_cast<int>(op)];
}

// Independent of the scalar expressions: the C library and plain arithmetic, in f64. Ulps are f32's.
struct Reference {
  std::function<double(double, double)> f;
  double ulps;
};
double sign_of(double x) { return (x > 0) - (x < 0); }
double floor_mod(double a, double b) {
  double r = std::fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
int64_t whole(double x) { return static_cast<int64_t>(x); }
const std::map<std::string, Reference>& references() {
  using D = double;
  static const std::map<std::string, Reference> r = {
      {"neg", {[](D a, D) { return -a; }, 0}},
      {"abs", {[](D a, D) { return std::fabs(a); }, 0}},
      {"sign", {[](D a, D) { return sign_of(a); }, 0}},
      {"exp", {[](D a, D) { return std::exp(a); }, 1.5}},
      {"expm1", {[](D a, D) { return std::expm1(a); }, 2}},
      {"log", {[](D a, D) { return std::log(a); }, 1}},
      {"log1p", {[](D a, D) { return std::log1p(a); }, 1.5}},
      {"sqrt", {[](D a, D) { return std::sqrt(a); }, 0.5}},
      {"rsqrt", {[](D a, D) { return 1 / std::sqrt(a); }, 1.5}},
      {"sin", {[](D a, D) { return std::sin(a); }, 2}},
      {"cos", {[](D a, D) { return std::cos(a); }, 2}},
      {"tanh", {[](D a, D) { return std::tanh(a); }, 2}},
      {"tanh_fast", {[](D a, D) { return std::tanh(a); }, 6}},
      {"sigmoid", {[](D a, D) { return 1 / (1 + std::exp(-a)); }, 2.5}},
      {"erf", {[](D a, D) { return std::erf(a); }, 2}},
      {"floor", {[](D a, D) { return std::floor(a); }, 0}},
      {"ceil", {[](D a, D) { return std::ceil(a); }, 0}},
      {"round", {[](D a, D) { return std::nearbyint(a); }, 0}},
      {"relu", {[](D a, D) { return a < 0 ? 0 : a; }, 0}},
      {"reciprocal", {[](D a, D) { return 1 / a; }, 0.5}},
      {"square", {[](D a, D) { return a * a; }, 0.5}},
      {"logical_not", {[](D a, D) { return a == 0; }, 0}},
      {"isfinite", {[](D a, D) { return std::isfinite(a); }, 0}},
      {"isnan", {[](D a, D) { return std::isnan(a); }, 0}},
      {"add", {[](D a, D b) { return a + b; }, 0.5}},
      {"sub", {[](D a, D b) { return a - b; }, 0.5}},
      {"mul", {[](D a, D b) { return a * b; }, 0.5}},
      {"div", {[](D a, D b) { return a / b; }, 0.5}},
      {"pow", {[](D a, D b) { return std::pow(a, b); }, 1}},
      {"maximum", {[](D a, D b) { return std::isnan(a) || a > b ? a : b; }, 0}},
      {"minimum", {[](D a, D b) { return std::isnan(a) || a < b ? a : b; }, 0}},
      {"remainder", {floor_mod, 0.5}},
      {"floor_divide", {[](D a, D b) { return std::round((a - floor_mod(a, b)) / b); }, 0}},
      {"bit_and", {[](D a, D b) { return D(whole(a) & whole(b)); }, 0}},
      {"bit_or", {[](D a, D b) { return D(whole(a) | whole(b)); }, 0}},
      {"bit_xor", {[](D a, D b) { return D(whole(a) ^ whole(b)); }, 0}},
      {"shift_left", {[](D a, D b) { return a * std::exp2(b); }, 0}},
      {"shift_right", {[](D a, D b) { return std::floor(a / std::exp2(b)); }, 0}},
      {"shift_right_logical", {[](D a, D b) { return std::floor(a / std::exp2(b)); }, 0}},
      {"eq", {[](D a, D b) { return a == b; }, 0}},
      {"ne", {[](D a, D b) { return a != b; }, 0}},
      {"lt", {[](D a, D b) { return a < b; }, 0}},
      {"le", {[](D a, D b) { return a <= b; }, 0}},
      {"gt", {[](D a, D b) { return a > b; }, 0}},
      {"ge", {[](D a, D b) { return a >= b; }, 0}},
      {"logical_and", {[](D a, D b) { return a != 0 && b != 0; }, 0}},
      {"logical_or", {[](D a, D b) { return a != 0 || b != 0; }, 0}},
      {"logical_xor", {[](D a, D b) { return (a != 0) != (b != 0); }, 0}},
  };
  return r;
}

std::vector<Pw> all_rows() {
  std::vector<Pw> v;
  for (int i = 0; i < kNumPw; ++i) v.push_back(static_cast<Pw>(i));
  return v;
}
constexpr DType kAll[] = {kFloat32, kFloat64, kBFloat16, kFloat16, kInt64, kInt32, kInt16, kInt8, kUInt8, kBool};

std::vector<Array> operands(Pw op, DType t, const Shape& shape) {
  std::vector<Array> in;
  const PwInfo& info = pointwise_info(op);
  const Sample s = sample(op);
  for (int k = 0; k < info.operands; ++k) {
    const bool condition = op == Pw::where && k == 0;
    Array a(condition ? kBool : t, shape);
    double lo = s.lo, hi = s.hi;
    if (!is_floating(t)) hi += 1;
    if (t == kUInt8) lo = std::max(lo, 0.0);
    a.fill_uniform(7 + k, lo, hi);
    if (condition || t == kBool) a.fill_with([&](int64_t i) { return (i * 7 + k * 3) % 5 < 2; });
    // Integer divisors are not 0.
    if (!is_floating(t) && (op == Pw::remainder || op == Pw::floor_divide))
      a.fill_with([&](int64_t i) { return k ? i % 5 + 1 : t == kUInt8 ? i % 100 : i % 100 - 50; });
    in.push_back(std::move(a));
  }
  return in;
}
std::vector<StridedView> views(const std::vector<Array>& a) {
  std::vector<StridedView> v;
  for (const Array& x : a) v.push_back(x.view());
  return v;
}
DType result_type(Pw op, DType t) { return pointwise_info(op).bool_result ? kBool : t; }

class Rows : public ::testing::TestWithParam<Pw> {};

TEST_P(Rows, AgreesWithPlainCode) {
  const Pw op = GetParam();
  const PwInfo& info = pointwise_info(op);
  int taken = 0;
  for (DType t : kAll) {
    if (!pointwise_takes(op, t)) continue;
    ++taken;
    const auto in = operands(op, t, {1000});
    Array out(result_type(op, t), {1000});
    pointwise(op, views(in), out);
    for (int64_t i = 0; i < 1000; ++i) {
      if (op == Pw::where) {
        ASSERT_EQ(out[i], in[0][i] != 0 ? in[1][i] : in[2][i]);
        continue;
      }
      const Reference& ref = references().at(info.name);
      const double a = in[0][i], b = info.operands > 1 ? in[1][i] : 0;
      double want = ref.f(a, b), allowed = 0;
      if (info.bool_result || t == kBool) {
      } else if (is_small_integer(t)) {
        want = with_integer(t, [&]<class T>(T) { return static_cast<double>(static_cast<T>(whole(want))); });
      } else if (t == kFloat64) {
        allowed = 4 * ulp(want, t);  // another order of the same few roundings
      } else if (is_floating(t)) {
        allowed = ref.ulps * ulp(want, kFloat32);
        if (t != kFloat32) allowed += 0.5 * ulp(want, t);
        if (ref.ulps == 0 && t != kFloat32) allowed = 0.5 * ulp(want, t);
      }
      ASSERT_LE(std::fabs(out[i] - want), allowed) << info.name << " " << to_string_view(t) << " of " << a << ", " << b
                                                   << ": got " << out[i] << ", want " << want;
    }
  }
  EXPECT_GT(taken, 0);
}

TEST_P(Rows, SameBitsInEveryLayoutAndPosition) {
  const Pw op = GetParam();
  for (DType t : kAll) {
    if (!pointwise_takes(op, t)) continue;
    const Shape shape{6, 35, 5};
    const auto in = operands(op, t, shape);
    Array out(result_type(op, t), shape);
    pointwise(op, views(in), out);
    const auto want = out.bits();
    const int64_t size = itemsize(out.view().dtype);
    // One element at a time is the simplest order.
    for (int64_t i = 0; i < out.size(); i += 13) {
      std::vector<StridedView> one;
      for (const Array& a : in) one.push_back({a.address(i), a.view().dtype, {}, {}});
      char got[8];
      pointwise(op, one, {got, out.view().dtype, {}, {}});
      ASSERT_EQ(0, std::memcmp(got, want.data() + i * size, size))
          << pointwise_info(op).name << " " << to_string_view(t);
    }
    const Shape layouts[] = {{1, 6, 210}, {1, 12, 420}, {350, 10, 2}, {175, 5, 1}, {5, 30, 1}};
    for (size_t l = 0; l < std::size(layouts); ++l) {
      std::vector<Array> moved;
      for (size_t k = 0; k < in.size(); ++k) moved.push_back(in[k].with_strides(layouts[(l + k) % std::size(layouts)]));
      Array to(out.view().dtype, shape, layouts[(l * 2) % std::size(layouts)]);
      pointwise(op, views(moved), to);
      ASSERT_EQ(to.bits(), want) << pointwise_info(op).name << " " << to_string_view(t) << " layout " << l;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Pointwise, Rows, ::testing::ValuesIn(all_rows()),
                         [](const auto& info) { return std::string(pointwise_info(info.param).name); });

TEST(Pointwise, BroadcastsAndOddSizes) {
  for (int64_t n : {0, 1, 3, 15, 16, 17, 31, 33, 1000})
    for (int64_t m : {1, 2, 40}) {
      const Shape shape{m, n};
      Array x(kFloat32, shape), row(kFloat32, shape, {0, 1}), col(kFloat32, shape, {1, 0}), out(kFloat32, shape);
      x.fill_uniform(1, -1, 1), row.fill_uniform(2, -1, 1), col.fill_uniform(3, -1, 1);
      Array scalar(kFloat32, {});
      scalar.set(0, 0.25);
      for (const StridedView& other : {row.view(), col.view(), scalar.view()}) {
        const StridedView ab[] = {x, other}, ba[] = {other, x};
        for (bool swap : {false, true}) {
          pointwise(Pw::sub, swap ? ba : ab, out);
          for (int64_t i = 0; i < x.size(); ++i) {
            const float o = static_cast<float>(other.shape.empty()             ? scalar[0]
                                               : other.data == row.view().data ? row[i]
                                                                               : col[i]);
            const float a = static_cast<float>(x[i]);
            ASSERT_EQ(static_cast<float>(out[i]), swap ? o - a : a - o);
          }
        }
      }
    }
}

TEST(Pointwise, LargeWorkHasTheSameBitsForAnyThreadCount) {
  Array a(kFloat32, {300, 1001}), b(kFloat32, {300, 1001}, {1, 300}), out(kFloat32, {300, 1001});
  a.fill_uniform(1, -5, 5), b.fill_uniform(2, -5, 5);
  const StridedView in[] = {a, b};
  std::vector<char> first;
  const int before = num_threads();
  for (int threads : {1, 2, 5}) {
    set_num_threads(threads);
    pointwise(Pw::maximum, in, out);
    pointwise(Pw::tanh, {&out.view(), 1}, out);  // in place
    if (first.empty()) first = out.bits();
    EXPECT_EQ(out.bits(), first);
  }
  set_num_threads(before);
}

float value(Pw op, float a, float b = 0) {
  float out;
  const StridedView in[] = {{&a, kFloat32, {}, {}}, {&b, kFloat32, {}, {}}};
  pointwise(op, {in, pointwise_info(op).operands}, {&out, kFloat32, {}, {}});
  return out;
}
constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

TEST(Pointwise, LimitsOfFloats) {
  for (Pw op : {Pw::maximum, Pw::minimum, Pw::add, Pw::mul, Pw::pow, Pw::remainder, Pw::floor_divide}) {
    EXPECT_TRUE(std::isnan(value(op, kNan, 2)));
    EXPECT_TRUE(std::isnan(value(op, 2, kNan)));
  }
  for (Pw op :
       {Pw::exp, Pw::log, Pw::tanh, Pw::sin, Pw::cos, Pw::erf, Pw::sigmoid, Pw::sqrt, Pw::relu, Pw::expm1, Pw::log1p})
    EXPECT_TRUE(std::isnan(value(op, kNan))) << pointwise_info(op).name;
  EXPECT_EQ(value(Pw::exp, kInf), kInf);
  EXPECT_EQ(value(Pw::exp, -kInf), 0);
  EXPECT_EQ(value(Pw::exp, 89), kInf);
  EXPECT_GT(value(Pw::exp, -100), 0);  // denormal
  EXPECT_EQ(value(Pw::log, 0), -kInf);
  EXPECT_TRUE(std::isnan(value(Pw::log, -1)));
  EXPECT_EQ(value(Pw::log1p, -1), -kInf);
  EXPECT_EQ(value(Pw::tanh, kInf), 1);
  EXPECT_EQ(value(Pw::tanh_fast, kInf), 1);
  EXPECT_EQ(value(Pw::erf, -kInf), -1);
  EXPECT_TRUE(std::isnan(value(Pw::sin, kInf)));
  EXPECT_EQ(value(Pw::sigmoid, -kInf), 0);
  EXPECT_EQ(value(Pw::rsqrt, 0), kInf);
  EXPECT_TRUE(std::signbit(value(Pw::expm1, -0.0f)));
  EXPECT_EQ(value(Pw::sign, kNan), 0);
  EXPECT_EQ(value(Pw::round, 2.5f), 2);
  EXPECT_EQ(value(Pw::round, -1e10f), -1e10f);
  for (float a : {0.0f, -0.0f, 1.0f, -1.0f, kInf, -kInf, 2.0f, -2.0f, 0.5f, -3.0f, 1e-40f, 1e30f})
    for (float b : {0.0f, -0.0f, 1.0f, -1.0f, kInf, -kInf, 2.0f, 3.0f, -3.0f, 0.5f, -0.5f, 1e10f, kNan}) {
      const float want = std::pow(a, b), got = value(Pw::pow, a, b);
      if (std::isnan(want)) {
        EXPECT_TRUE(std::isnan(got)) << a << "^" << b;
      } else {
        EXPECT_FLOAT_EQ(got, want) << a << "^" << b;
        EXPECT_EQ(std::signbit(got), std::signbit(want)) << a << "^" << b;
      }
    }
  EXPECT_EQ(value(Pw::floor_divide, 1, 0), kInf);
  EXPECT_EQ(value(Pw::remainder, -7, 3), 2);
  EXPECT_EQ(value(Pw::remainder, 7, -3), -2);
}

// A thinned sample of the whole range of f32, through the vectors of the selected instruction set.
TEST(Pointwise, AccurateOverTheWholeRange) {
  std::vector<float> x;
  for (uint64_t u = 0; u < 0x7f800000u; u += 40009)
    for (uint32_t sign : {0u, 0x80000000u}) x.push_back(std::bit_cast<float>(static_cast<uint32_t>(u) | sign));
  std::vector<float> y(x.size());
  const int64_t n = x.size();
  const StridedView in{x.data(), kFloat32, {n}, {1}}, out{y.data(), kFloat32, {n}, {1}};
  for (Pw op : {Pw::exp, Pw::expm1, Pw::log, Pw::log1p, Pw::sqrt, Pw::rsqrt, Pw::sin, Pw::cos, Pw::tanh, Pw::tanh_fast,
                Pw::sigmoid, Pw::erf}) {
    const Reference& ref = references().at(pointwise_info(op).name);
    pointwise(op, {&in, 1}, out);
    double worst = 0;
    float where = 0;
    for (int64_t i = 0; i < n; ++i) {
      const double want = ref.f(x[i], 0);
      if (std::isnan(want) || std::fabs(want) > std::numeric_limits<float>::max()) {
        ASSERT_TRUE(std::isnan(want) ? std::isnan(y[i]) : std::fabs(y[i]) >= std::numeric_limits<float>::max())
            << pointwise_info(op).name << " of " << x[i] << " is " << y[i];
        continue;
      }
      const double error = std::fabs(y[i] - want) / ulp(want, kFloat32);
      if (!(error <= worst)) worst = error, where = x[i];
    }
    EXPECT_LE(worst, ref.ulps) << pointwise_info(op).name << " of " << where;
  }
}

template <class T>
T whole_value(Pw op, T a, T b) {
  T out;
  const DType t = DTypeOf<T>::value;
  const StridedView in[] = {{&a, t, {}, {}}, {&b, t, {}, {}}};
  pointwise(op, in, {&out, t, {}, {}});
  return out;
}
TEST(Pointwise, WholeNumbersAtTheirLimits) {
  constexpr int64_t least = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(whole_value<int64_t>(Pw::floor_divide, -7, 2), -4);
  EXPECT_EQ(whole_value<int64_t>(Pw::remainder, -7, 2), 1);
  EXPECT_EQ(whole_value<int64_t>(Pw::remainder, 7, -2), -1);
  EXPECT_EQ(whole_value<int64_t>(Pw::floor_divide, least, -1), least);
  EXPECT_EQ(whole_value<int64_t>(Pw::remainder, least, -1), 0);
  EXPECT_EQ(whole_value<int64_t>(Pw::shift_left, 3, 62), int64_t{3} << 62);
  for (int64_t out_of_range : {int64_t{64}, int64_t{-1}, int64_t{1000}}) {
    EXPECT_EQ(whole_value<int64_t>(Pw::shift_left, 3, out_of_range), 0);
    EXPECT_EQ(whole_value<int64_t>(Pw::shift_right, -3, out_of_range), -1);
    EXPECT_EQ(whole_value<int64_t>(Pw::shift_right, 3, out_of_range), 0);
    EXPECT_EQ(whole_value<int64_t>(Pw::shift_right_logical, -3, out_of_range), 0);
  }
  EXPECT_EQ(whole_value<int32_t>(Pw::shift_right_logical, -1, 8), 0xffffff);
  EXPECT_EQ(whole_value<int32_t>(Pw::shift_right, -256, 4), -16);
  EXPECT_EQ(whole_value<uint8_t>(Pw::shift_right, 200, 3), 25);
  EXPECT_EQ(whole_value<uint8_t>(Pw::shift_right, 200, 9), 0);
  EXPECT_EQ(whole_value<uint8_t>(Pw::sub, 3, 5), 254);
}

TEST(Pointwise, BadInputGivesASentence) {
  Array a(kInt32, {3}), z(kInt32, {3}), f(kFloat32, {3}), wide(kInt32, {4});
  a.fill_with([](int64_t i) { return i; });
  z.fill_with([](int64_t i) { return i - 1; });
  const StridedView az[] = {a, z}, af[] = {a, f}, aw[] = {a, wide};
  EXPECT_EQ(error_of([&] { pointwise(Pw::remainder, az, a); }),
            "remainder: integer division by zero; need divisors other than 0");
  EXPECT_EQ(error_of([&] { pointwise(Pw::floor_divide, az, a); }),
            "floor_divide: integer division by zero; need divisors other than 0");
  EXPECT_EQ(error_of([&] { pointwise(Pw::add, af, f); }), "add: operand 0 has dtype i32; need f32");
  EXPECT_EQ(error_of([&] { pointwise(Pw::add, aw, a); }), "add: operand 1 has shape [4]; need [3] or []");
  EXPECT_EQ(error_of([&] { pointwise(Pw::exp, {az, 1}, a); }), "exp: does not support dtype i32");
  EXPECT_EQ(error_of([&] { pointwise(Pw::add, {az, 1}, a); }), "add: got 1 operands; need 2");
  EXPECT_EQ(error_of([&] { pointwise(Pw::lt, az, a); }), "lt: output has dtype i32; need bool");
}

}  // namespace
}  // namespace weft::kernels
