#include "compiler/targets/cpu/print/testing/sample_kernels.h"

namespace weft::codegen {

using kernels::Pw;
using kernels::Rd;
using loop_ir::Level;
using loop_ir::Mode;
using loop_ir::Type;

namespace {
KernelCase with(const char* name, KernelBuilder& b, std::vector<int64_t> extents, std::vector<double> params = {}) {
  KernelCase c{name, b.kernel, std::move(extents), {}, std::move(params)};
  c.kernel.name = name;
  c.lay_out();
  return c;
}
}  // namespace

loop_ir::Kernel softmax_kernel() {
  KernelBuilder b(Mode::kRows, 2);
  const int x = b.in(kFloat32, "s1"), y = b.out(kFloat32, "s1");
  b.loop();
  const int max = b.reduce(Rd::max, b.load(x));
  b.loop();
  const int e = b.pw(Pw::exp, b.pw(Pw::sub, b.load(x), max));
  const int row = b.keep(e);
  const int sum = b.reduce(Rd::sum, e);
  b.loop();
  b.store(y, b.pw(Pw::div, b.kept(row), sum));
  return b.kernel;
}

namespace {

KernelCase gelu_times() {
  KernelBuilder b(Mode::kRows, 1);
  const int x = b.in(kFloat32, "1"), z = b.in(kFloat32, "1"), y = b.out(kFloat32, "1");
  b.once();
  const int half = b.constant(0.5), root = b.constant(0.70710677), one = b.constant(1);
  b.loop();
  const int v = b.load(x);
  const int erf = b.pw(Pw::erf, b.pw(Pw::mul, v, root));
  const int g = b.pw(Pw::mul, b.pw(Pw::mul, v, half), b.pw(Pw::add, erf, one));
  b.store(y, b.pw(Pw::mul, g, b.load(z)));
  return with("gelu_mul", b, {5003});
}

KernelCase layer_norm() {
  KernelBuilder b(Mode::kRows, 2);
  const int x = b.in(kFloat32, "s1"), w = b.in(kFloat32, "01"), bias = b.in(kFloat32, "01");
  const int y = b.out(kBFloat16, "s1"), mean_out = b.out(kFloat32, "10");
  b.once();
  const int scale = b.param(), eps = b.param();
  b.loop();
  const int sum = b.reduce(Rd::sum, b.load(x));
  b.once();
  const int mean = b.pw(Pw::mul, sum, scale);
  b.store(mean_out, mean, Level::kPoint);
  b.loop();
  const int d = b.pw(Pw::sub, b.load(x), mean);
  const int squares = b.reduce(Rd::sum, b.pw(Pw::square, d));
  b.once();
  const int r = b.pw(Pw::rsqrt, b.pw(Pw::add, b.pw(Pw::mul, squares, scale), eps));
  b.loop();
  const int n = b.pw(Pw::mul, b.pw(Pw::sub, b.load(x), mean), r);
  b.store(y, b.pw(Pw::add, b.pw(Pw::mul, n, b.load(w)), b.load(bias)));
  return with("layer_norm", b, {7, 1100}, {1.0 / 1100, 1e-5});
}

KernelCase rms_norm_backward() {
  KernelBuilder b(Mode::kRows, 2);
  const int x = b.in(kFloat32, "s1"), g = b.in(kFloat32, "s1"), w = b.in(kFloat32, "01"), rstd = b.in(kFloat32, "10");
  const int dx = b.out(kFloat32, "s1");
  b.once();
  const int scale = b.param();
  const int r = b.load(rstd, Level::kPoint);
  b.loop();
  const int gw = b.pw(Pw::mul, b.load(g), b.load(w));
  const int row = b.keep(gw);
  const int v = b.load(x);
  const int dot = b.reduce(Rd::sum, b.pw(Pw::mul, gw, v));
  b.once();
  const int c = b.pw(Pw::mul, b.pw(Pw::mul, dot, scale), b.pw(Pw::mul, r, b.pw(Pw::mul, r, r)));
  b.loop();
  const int xx = b.load(x);
  const int gg = b.load(g);
  b.column(Rd::sum, b.pw(Pw::mul, gg, b.pw(Pw::mul, xx, r)));
  b.store(dx, b.pw(Pw::sub, b.pw(Pw::mul, b.kept(row), r), b.pw(Pw::mul, xx, c)));
  return with("rms_norm_backward", b, {5, 777}, {1.0 / 777});
}

KernelCase cross_entropy() {
  KernelBuilder b(Mode::kRows, 2);
  const int x = b.in(kFloat32, "s1"), target = b.in(kInt64, "10"), loss = b.out(kFloat32, "10");
  b.once();
  const int t = b.load(target, Level::kPoint), zero = b.constant(0);
  b.loop();
  const int max = b.reduce(Rd::max, b.load(x));
  b.loop();
  const int v = b.load(x);
  const int sum = b.reduce(Rd::sum, b.pw(Pw::exp, b.pw(Pw::sub, v, max)));
  const int hit = b.pw(Pw::eq, b.index(1), t);
  const int picked = b.reduce(Rd::sum, b.pw(Pw::where, hit, v, zero));
  b.once();
  b.store(loss, b.pw(Pw::sub, b.pw(Pw::add, b.pw(Pw::log, sum), max), picked), Level::kPoint);
  KernelCase c = with("cross_entropy", b, {9, 1000});
  c.extremes = false;
  return c;
}

KernelCase adamw() {
  KernelBuilder b(Mode::kRows, 1);
  const int p = b.in(kFloat32, "1"), g = b.in(kFloat32, "1"), m = b.in(kFloat32, "1"), v = b.in(kFloat32, "1");
  const int p2 = b.out(kFloat32, "1"), m2 = b.out(kFloat32, "1"), v2 = b.out(kFloat32, "1");
  b.once();
  const int b1 = b.param(), b2 = b.param(), lr = b.param(), eps = b.param(), decay = b.param(), one = b.constant(1);
  const int c1 = b.pw(Pw::sub, one, b1), c2 = b.pw(Pw::sub, one, b2);
  b.loop();
  const int gv = b.load(g);
  const int mn = b.pw(Pw::add, b.pw(Pw::mul, b.load(m), b1), b.pw(Pw::mul, gv, c1));
  const int vn = b.pw(Pw::add, b.pw(Pw::mul, b.load(v), b2), b.pw(Pw::mul, b.pw(Pw::mul, gv, gv), c2));
  const int step = b.pw(Pw::div, b.pw(Pw::mul, mn, lr), b.pw(Pw::add, b.pw(Pw::sqrt, vn), eps));
  b.store(m2, mn);
  b.store(v2, vn);
  b.store(p2, b.pw(Pw::sub, b.pw(Pw::mul, b.load(p), decay), step));
  return with("adamw", b, {2050}, {0.9, 0.95, 1e-3, 1e-8, 0.999});
}

KernelCase transpose_add() {
  KernelBuilder b(Mode::kRows, 2);
  const int x = b.in(kFloat32, "1s"), z = b.in(kFloat32, "s1"), y = b.out(kFloat32, "s1");
  b.loop();
  b.store(y, b.pw(Pw::add, b.load(x), b.load(z)));
  return with("transpose_add", b, {70, 147});
}

// 56 operations, each dependent on the previous one.
KernelCase long_chain() {
  KernelBuilder b(Mode::kRows, 2);
  const int x = b.in(kFloat32, "s1"), z = b.in(kBFloat16, "ss"), y = b.out(kFloat32, "s1");
  b.once();
  const int c = b.param();
  b.loop();
  const int step = b.load(z);
  int v = b.load(x);
  for (int i = 0; i < 4; ++i) v = b.pw(Pw::add, b.pw(Pw::exp, b.pw(Pw::mul, v, c)), step);
  b.store(y, v);
  return with("long_chain", b, {3, 200}, {0.75});
}

KernelCase outer_softmax() {
  KernelBuilder b(Mode::kAcross, 3);
  const int x = b.in(kFloat32, "ss1"), y = b.out(kFloat32, "ss1");
  b.loop();
  const int max = b.reduce(Rd::max, b.load(x), Level::kLane);
  b.loop();
  const int sum = b.reduce(Rd::sum, b.pw(Pw::exp, b.pw(Pw::sub, b.load(x), max)), Level::kLane);
  b.loop();
  b.store(y, b.pw(Pw::div, b.pw(Pw::exp, b.pw(Pw::sub, b.load(x), max)), sum));
  return with("outer_softmax", b, {2, 1030, 83});
}

KernelCase log_product() {
  KernelBuilder b(Mode::kAcross, 3);
  const int x = b.in(kFloat32, "s10"), z = b.in(kFloat32, "0s1"), y = b.out(kFloat32, "s01");
  b.loop();
  const int s = b.pw(Pw::add, b.load(x, Level::kStep), b.load(z));
  const int max = b.reduce(Rd::max, s, Level::kLane);
  b.loop();
  const int again = b.pw(Pw::add, b.load(x, Level::kStep), b.load(z));
  const int sum = b.reduce(Rd::sum, b.pw(Pw::exp, b.pw(Pw::sub, again, max)), Level::kLane);
  b.once();
  b.store(y, b.pw(Pw::add, b.pw(Pw::log, sum), max), Level::kLane);
  return with("log_product", b, {11, 70, 100});
}

KernelCase split_sum() {
  KernelBuilder b(Mode::kSplit, 2);
  const int x = b.in(kBFloat16, "s1");
  b.loop();
  const int v = b.load(x);
  b.reduce(Rd::sum, b.pw(Pw::square, v));
  b.reduce(Rd::max, v);
  return with("split_sum", b, {2, 7000});
}

}  // namespace

std::vector<KernelCase> sample_cases() {
  KernelCase softmax{"softmax", softmax_kernel(), {5, 2100}};
  softmax.kernel.name = "softmax";
  softmax.lay_out();
  return {gelu_times(),    softmax,      layer_norm(),    rms_norm_backward(), cross_entropy(), adamw(),
          transpose_add(), long_chain(), outer_softmax(), log_product(),       split_sum()};
}

}  // namespace weft::codegen
