#include "models/nn/init.h"

#include <algorithm>
#include <cmath>
#include <eigen3/Eigen/Dense>
#include <numbers>
#include <utility>

#include "framework/dispatch/state/state.h"
#include "ops/composite/layers/activation.h"
#include "ops/core/core.h"

namespace weft::nn::init {
namespace {

// Random numbers are made in f32 (f64 for f64) and rounded once.
TensorOptions options_of(const CellHandle& p) {
  return {.dtype = p.dtype() == kFloat64 ? kFloat64 : kFloat32, .device = p.type().device};
}

void set(const CellHandle& p, const Tensor& value) {
  const NoGrad guard;
  p.set(value.to(p.dtype()));
}

void check_floating(const CellHandle& p, const char* op) {
  WEFT_CHECK(is_floating(p.dtype()), op, ": the parameter is ", p.type(), "; need a floating-point dtype");
}

void check_matrix(const CellHandle& p, const char* op) {
  WEFT_CHECK(p.shape().size() == 2, op, ": the parameter has shape ", p.shape(), "; need two dims");
}

struct Fans {
  double in = 0, out = 0;
};
Fans fans_of(const CellHandle& p, const char* op) {
  check_floating(p, op);
  const Shape& s = p.shape();
  WEFT_CHECK(s.size() >= 2, op, ": the parameter has shape ", s, "; need two or more dims");
  double field = 1;
  for (int d = 2; d < s.size(); ++d) field *= static_cast<double>(s[d]);
  return {static_cast<double>(s[1]) * field, static_cast<double>(s[0]) * field};
}

// gain / sqrt(fan); 1 for a parameter without elements.
double kaiming_std(const CellHandle& p, double a, std::string_view mode, std::string_view nonlinearity,
                   const char* op) {
  const Fans f = fans_of(p, op);
  WEFT_CHECK(mode == "fan_in" || mode == "fan_out", op, ": mode is '", mode, "'; need \"fan_in\" or \"fan_out\"");
  const double gain = calculate_gain(nonlinearity, a);
  return p.numel() == 0 ? 1 : gain / ::std::sqrt(mode == "fan_in" ? f.in : f.out);
}

double xavier_std(const CellHandle& p, double gain, const char* op) {
  const Fans f = fans_of(p, op);
  return p.numel() == 0 ? 1 : gain * ::std::sqrt(2 / (f.in + f.out));
}

double below(double x) { return 0.5 * ::std::erfc(-x * ::std::numbers::sqrt2 / 2); }  // the normal distribution

Tensor polynomial(const Tensor& x, std::initializer_list<double> from_highest) {
  Tensor y = full_like(x, 0);
  for (double c : from_highest) y = y * x + c;
  return y;
}

// The quantile x of the normal distribution at p in (0, 1), in f64: algorithm AS 241 (Wichura 1988), within 1e-15
// relative.
Tensor normal_quantile(const Tensor& p) {
  const Tensor q = p - 0.5, near = le(abs(q), 0.425);
  const Tensor r = 0.180625 - square(where(near, q, 0.0));
  const Tensor middle = q *
                        polynomial(r, {2.5090809287301226727e+3, 3.3430575583588128105e+4, 6.7265770927008700853e+4,
                                       4.5921953931549871457e+4, 1.3731693765509461125e+4, 1.9715909503065514427e+3,
                                       1.3314166789178437745e+2, 3.3871328727963666080e+0}) /
                        polynomial(r, {5.2264952788528545610e+3, 2.8729085735721942674e+4, 3.9307895800092710610e+4,
                                       2.1213794301586595867e+4, 5.3941960214247511077e+3, 6.8718700749205790830e+2,
                                       4.2313330701600911252e+1, 1.0});
  const Tensor tail = sqrt(-log(where(near, 0.25, minimum(p, 1.0 - p))));
  const Tensor a = minimum(tail, 5.0) - 1.6, b = maximum(tail, 5.0) - 5.0;
  const Tensor close = polynomial(a, {7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
                                      1.27045825245236838258e+0, 3.64784832476320460504e+0, 5.76949722146069140550e+0,
                                      4.63033784615654529590e+0, 1.42343711074968357734e+0}) /
                       polynomial(a, {1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2,
                                      1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940e+0,
                                      2.05319162663775882187e+0, 1.0});
  const Tensor far = polynomial(b, {2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
                                    2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580e+0,
                                    5.46378491116411436990e+0, 6.65790464350110377720e+0}) /
                     polynomial(b, {2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5,
                                    7.86869131145613259100e-4, 1.48753612908506148525e-2, 1.36929880922735805310e-1,
                                    5.99832206555887937690e-1, 1.0});
  return where(near, middle, where(le(tail, 5.0), close, far) * sign(q));
}

}  // namespace

void uniform(const CellHandle& p, double a, double b, Loc loc) {
  internal::LineScope line(loc);
  check_floating(p, "init::uniform");
  set(p, weft::uniform(p.shape(), a, b, options_of(p)));
}

void normal(const CellHandle& p, double mean, double std, Loc loc) {
  internal::LineScope line(loc);
  check_floating(p, "init::normal");
  WEFT_CHECK(std >= 0, "init::normal: std is ", std, "; need a number >= 0");
  set(p, weft::normal(p.shape(), mean, std, options_of(p)));
}

void trunc_normal(const CellHandle& p, double mean, double std, double a, double b, Loc loc) {
  internal::LineScope line(loc);
  check_floating(p, "init::trunc_normal");
  WEFT_CHECK(std > 0 && a < b, "init::trunc_normal: std is ", std, ", a ", a, " and b ", b,
             "; need std above 0 and a < b");
  double lo = (a - mean) / std, hi = (b - mean) / std;
  // Shares near 0 are more precise than shares near 1.
  const bool mirrored = lo > 0;
  if (mirrored) lo = -::std::exchange(hi, -lo);
  const double share = below(lo), width = below(hi) - share;
  WEFT_CHECK(width > 0, "init::trunc_normal: [", a, ", ", b, "] has no normal numbers with mean ", mean, " and std ",
             std, "; need an interval nearer to the mean");
  const Tensor random = rand(p.shape(), {.dtype = kFloat64, .device = p.type().device});
  // The smallest share keeps log finite.
  const Tensor x = normal_quantile(clamp(random * width + share, 1e-300, 1 - 0x1p-53));
  set(p, clamp(x * (mirrored ? -std : std) + mean, a, b));
}

void constant(const CellHandle& p, double value, Loc loc) {
  internal::LineScope line(loc);
  set(p, full(p.shape(), value, {.dtype = p.dtype(), .device = p.type().device}));
}
void zeros(const CellHandle& p, Loc loc) { constant(p, 0, loc); }
void ones(const CellHandle& p, Loc loc) { constant(p, 1, loc); }

void eye(const CellHandle& p, Loc loc) {
  internal::LineScope line(loc);
  check_matrix(p, "init::eye");
  set(p, weft::eye(p.shape()[0], p.shape()[1], {.dtype = p.dtype(), .device = p.type().device}));
}

void dirac(const CellHandle& p, int64_t groups, Loc loc) {
  internal::LineScope line(loc);
  const Shape& s = p.shape();
  WEFT_CHECK(s.size() >= 3 && s.size() <= 5, "init::dirac: the parameter has shape ", s, "; need 3 to 5 dims");
  WEFT_CHECK(groups > 0 && s[0] % groups == 0, "init::dirac: ", s[0], " outputs in ", groups,
             " groups; need a number of groups that divides the outputs");
  const int64_t per_group = s[0] / groups;
  // The output within its group is the input, and all other dims are in the middle.
  const TensorOptions integers{.dtype = kInt64, .device = p.type().device};
  Shape along = s;
  for (int64_t& extent : along) extent = 1;
  along[0] = s[0];
  Tensor set_here = reshape(remainder(arange(s[0], integers), std::max<int64_t>(per_group, 1)), along);
  along[0] = 1, along[1] = s[1];
  set_here = eq(set_here, reshape(arange(s[1], integers), along));
  along[1] = 1;
  for (int d = 2; d < s.size(); ++d) {
    along[d] = s[d];
    set_here = logical_and(set_here, eq(reshape(arange(s[d], integers), along), s[d] / 2));
    along[d] = 1;
  }
  set(p, set_here.to(p.dtype()));
}

double calculate_gain(std::string_view nonlinearity, double param, Loc loc) {
  internal::LineScope line(loc);
  if (nonlinearity == "linear" || nonlinearity == "sigmoid") return 1;
  for (const char* layer : {"conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"})
    if (nonlinearity == layer) return 1;
  if (nonlinearity == "tanh") return 5.0 / 3;
  if (nonlinearity == "relu") return ::std::numbers::sqrt2;
  if (nonlinearity == "leaky_relu") return ::std::sqrt(2 / (1 + param * param));
  WEFT_CHECK(nonlinearity == "selu", "init::calculate_gain: nonlinearity is '", nonlinearity,
             "'; need \"linear\", \"conv1d\", \"conv2d\", \"conv3d\", \"conv_transpose1d\", \"conv_transpose2d\", "
             "\"conv_transpose3d\", \"sigmoid\", \"tanh\", \"relu\", \"leaky_relu\" or \"selu\"");
  return 0.75;
}

void xavier_uniform(const CellHandle& p, double gain, Loc loc) {
  internal::LineScope line(loc);
  const double bound = ::std::numbers::sqrt3 * xavier_std(p, gain, "init::xavier_uniform");
  uniform(p, -bound, bound);
}
void xavier_normal(const CellHandle& p, double gain, Loc loc) {
  internal::LineScope line(loc);
  normal(p, 0, xavier_std(p, gain, "init::xavier_normal"));
}
void kaiming_uniform(const CellHandle& p, double a, std::string_view mode, std::string_view nonlinearity, Loc loc) {
  internal::LineScope line(loc);
  const double bound = ::std::numbers::sqrt3 * kaiming_std(p, a, mode, nonlinearity, "init::kaiming_uniform");
  uniform(p, -bound, bound);
}
void kaiming_normal(const CellHandle& p, double a, std::string_view mode, std::string_view nonlinearity, Loc loc) {
  internal::LineScope line(loc);
  normal(p, 0, kaiming_std(p, a, mode, nonlinearity, "init::kaiming_normal"));
}

void orthogonal(const CellHandle& p, double gain, Loc loc) {
  internal::LineScope line(loc);
  check_floating(p, "init::orthogonal");
  WEFT_CHECK(!is_capturing(), "init::orthogonal: called inside a compiled function; need a call before it");
  WEFT_CHECK(p.shape().size() >= 2, "init::orthogonal: the parameter has shape ", p.shape(), "; need two or more dims");
  if (p.numel() == 0) return;
  const int64_t rows = p.shape()[0], columns = p.numel() / rows, tall = ::std::max(rows, columns),
                narrow = ::std::min(rows, columns);
  using MatrixOfDoubles = Eigen::MatrixXd;
  const std::vector<double> random = randn({tall * narrow}, {.dtype = kFloat64}).to_vector<double>();
  const Eigen::HouseholderQR<MatrixOfDoubles> qr(Eigen::Map<const MatrixOfDoubles>(random.data(), tall, narrow));
  MatrixOfDoubles q = qr.householderQ() * MatrixOfDoubles::Identity(tall, narrow);
  // These signs make q uniformly distributed (Mezzadri 2007).
  for (int64_t i = 0; i < narrow; ++i)
    if (qr.matrixQR()(i, i) < 0) q.col(i) = -q.col(i);
  q *= gain;
  // q is stored by columns, so the rows of this tensor are the columns of q.
  const Tensor t = Tensor::from_vector(std::vector<double>(q.data(), q.data() + q.size()), {narrow, tall});
  const Tensor matrix = rows < columns ? t : t.t();
  set(p, reshape(matrix, p.shape()).to(p.dtype()).to(p.type().device));
}

void sparse(const CellHandle& p, double sparsity, double std, Loc loc) {
  internal::LineScope line(loc);
  check_floating(p, "init::sparse");
  check_matrix(p, "init::sparse");
  WEFT_CHECK(sparsity >= 0 && sparsity <= 1, "init::sparse: sparsity is ", sparsity, "; need a share from 0 to 1");
  WEFT_CHECK(std >= 0, "init::sparse: std is ", std, "; need a number >= 0");
  const auto none = static_cast<int64_t>(::std::ceil(sparsity * static_cast<double>(p.shape()[0])));
  const Tensor value = weft::normal(p.shape(), 0, std, options_of(p));
  const Tensor order = argsort(argsort(rand(p.shape(), {.device = p.type().device}), 0), 0);
  set(p, where(lt(order, none), 0.0, value));
}

}  // namespace weft::nn::init
