// Every intrinsic: all rows of pointwise.inc on all types, all casts and roundings, memory of every dtype and stride,
// reductions, checked positions, parts of the work, and random kernels. Vector text, scalar text and interpreter give
// the same bits; the interpreter runs the eager kernels themselves.
#include <gtest/gtest.h>

#include <random>

#include "compiler/targets/cpu/print/testing/kernel_case.h"
#include "framework/base/str_cat.h"

namespace weft::codegen {
namespace {

using kernels::Pw;
using kernels::Rd;
using loop_ir::Level;
using loop_ir::Mode;
using loop_ir::Type;

constexpr DType kDTypes[] = {kFloat32, kFloat64, kInt32, kInt64, kBool};

void check(std::vector<KernelCase> cases, const std::vector<std::vector<int64_t>>& extents,
           const std::vector<WorkRange>& parts = {}) {
  std::vector<loop_ir::Kernel> kernels;
  for (const KernelCase& c : cases) {
    c.kernel.verify();
    kernels.push_back(c.kernel);
  }
  const auto vector = compile(kernels, cpu()), scalar = compile(kernels, cpu_scalar());
  for (size_t i = 0; i < cases.size(); ++i)
    for (const auto& e : extents) {
      KernelCase& c = cases[i];
      c.extents = e;
      c.lay_out();
      const Outcome want = run(c, interpreted(kernels[i]), parts);
      EXPECT_EQ(difference(run(c, vector[i], parts), want), "") << c.name << ", vector text, L " << e.back() << "\n"
                                                                << kernels[i].to_string();
      EXPECT_EQ(difference(run(c, scalar[i], parts), want), "") << c.name << ", scalar text, L " << e.back() << "\n"
                                                                << kernels[i].to_string();
    }
}

TEST(Words, EveryPointwiseRowOnEveryType) {
  std::vector<KernelCase> cases;
  for (int op = 0; op < kernels::kNumPw; ++op)
    for (DType t : kDTypes) {
      const Pw pw = static_cast<Pw>(op);
      const kernels::PwInfo& info = kernels::pointwise_info(pw);
      if (!kernels::pointwise_takes(pw, t)) continue;
      if (!is_floating(t) && (pw == Pw::remainder || pw == Pw::floor_divide)) continue;
      KernelBuilder b(Mode::kRows, 1);
      const int x = b.in(info.operands == 3 ? kBool : t, "1"), y = b.in(t, "1"), z = b.in(t, "1");
      const int out = b.out(info.bool_result ? kBool : t, "1");
      b.loop();
      int v[] = {b.load(x), -1, -1};
      if (info.operands > 1) v[1] = b.load(y);
      if (info.operands > 2) v[2] = b.load(z);
      b.store(out, b.pw(pw, v[0], v[1], v[2]));
      cases.push_back({str_cat(info.name, " of ", to_string_view(t)), b.kernel});
    }
  check(cases, {{0}, {1}, {37}, {1040}});
}

TEST(Words, EveryCastAndRounding) {
  std::vector<KernelCase> cases;
  for (int from = 0; from < 5; ++from)
    for (int to = 0; to < 5; ++to)
      for (const bool u8 : {false, true}) {
        if (u8 && static_cast<Type>(to) != Type::i32) continue;
        KernelBuilder b(Mode::kRows, 1);
        const int x = b.in(kDTypes[from], "1"), y = b.out(u8 ? kUInt8 : kDTypes[to], "1");
        b.loop();
        b.store(y, b.cast(b.load(x), static_cast<Type>(to), u8 ? kUInt8 : kFloat32));
        cases.push_back({str_cat("cast ", from, " to ", to, u8 ? " u8" : ""), b.kernel});
      }
  for (DType t : {kInt16, kInt8, kUInt8}) {
    KernelBuilder b(Mode::kRows, 1);
    const int small = b.in(t, "1"), whole = b.in(kInt32, "1"), to = b.out(kInt32, "1"), back = b.out(t, "1");
    b.loop();
    b.store(to, b.load(small));
    b.store(back, b.load(whole));
    cases.push_back({str_cat("to and from ", to_string_view(t)), b.kernel});
  }
  for (DType t : {kBFloat16, kFloat16}) {
    KernelBuilder b(Mode::kRows, 1);
    const int x = b.in(kFloat32, "1"), y = b.out(kFloat32, "1");
    b.loop();
    b.store(y, b.round(b.load(x), t));
    cases.push_back({"round", b.kernel});
  }
  check(cases, {{1}, {37}, {530}});
}

TEST(Words, MemoryOfEveryDTypeAndStride) {
  std::vector<KernelCase> cases;
  for (int t = 0; t <= static_cast<int>(kBool); ++t)
    for (const char* in : {"s1", "s0", "ss", "1s", "00"})
      for (const char* out : {"s1", "ss"}) {
        KernelBuilder b(Mode::kRows, 2);
        const int x = b.in(static_cast<DType>(t), in), y = b.out(static_cast<DType>(t), out);
        b.loop();
        b.store(y, b.load(x));
        cases.push_back({str_cat(to_string_view(static_cast<DType>(t)), " ", in, " to ", out), b.kernel});
      }
  check(cases, {{3, 1}, {2, 17}, {5, 64}, {18, 70}, {150, 135}});
}

TEST(Words, ReductionsOfEveryTypeAndWay) {
  std::vector<KernelCase> cases;
  for (Rd rd : {Rd::sum, Rd::max, Rd::min, Rd::prod})
    for (DType t : {kFloat32, kFloat64, kBFloat16, kInt64}) {
      KernelBuilder b(Mode::kRows, 2);
      const int x = b.in(t, "s1"), y = b.out(t, "10");
      b.loop();
      const int v = b.load(x), r = b.reduce(rd, v);
      b.column(rd, v);
      b.once();
      b.store(y, r, Level::kPoint);
      cases.push_back({"rows", b.kernel});
      KernelBuilder s(Mode::kSplit, 2);
      const int sx = s.in(t, "s1");
      s.loop();
      s.reduce(rd, s.load(sx));
      cases.push_back({"split", s.kernel});
      KernelBuilder a(Mode::kAcross, 2);
      const int ax = a.in(t, "1s"), ay = a.out(t, "01");
      a.loop();
      const int ar = a.reduce(rd, a.load(ax), Level::kLane);
      a.once();
      a.store(ay, ar, Level::kLane);
      cases.push_back({"across", a.kernel});
    }
  for (KernelCase& c : cases) c.extremes = false;
  check(cases, {{2, 0}, {2, 1}, {3, 17}, {1, 1023}, {2, 1024}, {1030, 19}, {3, 2049}, {2, 9000}});
}

TEST(Words, KeptRowsAcross) {
  KernelBuilder b(Mode::kAcross, 3);
  const int x = b.in(kFloat32, "ss1"), w = b.in(kFloat32, "010"), y = b.out(kFloat32, "ss1"),
            z = b.out(kFloat32, "100");
  b.loop();
  const int e = b.pw(Pw::exp, b.load(x));
  const int row = b.keep(e);
  const int sum = b.reduce(Rd::sum, e, Level::kLane);
  const int steps = b.reduce(Rd::sum, b.load(w, Level::kStep));
  b.once();
  const int root = b.pw(Pw::sqrt, sum);
  b.store(z, steps, Level::kPoint);
  b.loop();
  b.store(y, b.pw(Pw::div, b.kept(row), b.pw(Pw::add, root, steps)));
  KernelCase c{"kept across", b.kernel};
  c.extremes = false;
  check({c}, {{2, 5, 0}, {2, 0, 5}, {2, 5, 1}, {1, 40, 33}, {3, 1030, 20}});
}

TEST(Words, PartsOfTheWork) {
  KernelBuilder b(Mode::kRows, 3);
  const int x = b.in(kFloat32, "ss1"), y = b.out(kBFloat16, "ss1");
  b.loop();
  const int at = b.cast(b.pw(Pw::add, b.index(0), b.pw(Pw::mul, b.index(1), b.index(2))), Type::f32);
  b.store(y, b.pw(Pw::add, b.load(x), at));
  check({{"parts", b.kernel}}, {{3, 4, 100}},
        {{0, 12, 3, 0, 100}, {1, 12, 3, 5, 37}, {2, 9, 3, 99, 100}, {5, 5, 1, 0, 100}});
}

TEST(Words, PartsOfTiles) {
  std::vector<KernelCase> cases;
  for (DType t : {kFloat32, kBFloat16, kInt64}) {
    KernelBuilder b(Mode::kRows, 3);
    const int x = b.in(t, "s1s"), z = b.in(t, "ss1"), y = b.out(t, "ss1");
    b.loop();
    b.store(y, b.pw(Pw::add, b.load(x), b.load(z)));
    cases.push_back({str_cat("tiles of ", to_string_view(t)), b.kernel});
  }
  // Points of a tile that are not consecutive in memory, steps, lanes from any start.
  check(cases, {{3, 90, 100}, {2, 130, 70}},
        {{0, 180, 1, 0, 70}, {50, 180, 1, 3, 69}, {1, 180, 3, 5, 37}, {40, 41, 1, 69, 70}, {5, 5, 1, 0, 70}});
}

// Several vectors at once, of all types.
TEST(Words, LongChains) {
  std::vector<KernelCase> cases;
  for (DType dtype : {kFloat32, kFloat64, kBFloat16, kInt64, kInt32})
    for (const char* z : {"1", "s", "0"}) {
      if (dtype != kFloat32 && *z != (dtype == kBFloat16 ? 's' : '1')) continue;
      KernelBuilder b(Mode::kRows, 2);
      const int x = b.in(dtype, "s1"), w = b.in(dtype, str_cat("s", z)), y = b.out(dtype, "s1"),
                less = b.out(kBool, "s1");
      b.loop();
      const int step = b.load(w);
      int v = b.load(x);
      for (int i = 0; i < 60; ++i) v = b.pw(i % 3 ? Pw::sub : Pw::add, v, step);
      const int at = b.cast(b.index(1), b.kernel.instrs[v].type);
      v = b.pw(Pw::where, b.pw(Pw::lt, v, at), v, step);
      b.store(y, v);
      b.store(less, b.pw(Pw::lt, v, step));
      cases.push_back({str_cat("chain of ", to_string_view(dtype), " ", z), b.kernel});
      EXPECT_NE(print(b.kernel, cpu()).find("along_wide"), std::string::npos);
    }
  check(cases, {{2, 1}, {3, 16}, {1, 63}, {2, 65}, {2, 128}, {2, 129}, {3, 500}});
  cases.resize(2);
  check(cases, {{3, 200}}, {{0, 3, 1, 0, 17}, {0, 3, 1, 17, 200}, {1, 2, 1, 5, 5}});
}

// Chains of random ops on f32 of several levels, with a reduction in the middle.
TEST(Words, RandomKernels) {
  std::vector<KernelCase> cases;
  constexpr Pw unary[] = {Pw::neg, Pw::exp, Pw::tanh, Pw::sigmoid, Pw::abs, Pw::sqrt, Pw::relu, Pw::square, Pw::floor};
  constexpr Pw binary[] = {Pw::add, Pw::sub, Pw::mul, Pw::div, Pw::maximum, Pw::minimum};
  for (int seed = 0; seed < 24; ++seed) {
    std::mt19937 rng(seed);
    const bool across = seed % 3 == 2;
    KernelBuilder b(across ? Mode::kAcross : Mode::kRows, 2);
    constexpr const char* kinds[] = {"s1", "01", "ss", "1s", "s0"};
    std::vector<int> in;
    for (int i = 0; i < 3; ++i) in.push_back(b.in(rng() % 3 ? kFloat32 : kBFloat16, kinds[rng() % 5]));
    const int y = b.out(rng() % 2 ? kFloat32 : kBFloat16, "s1"), total = b.out(kFloat32, across ? "01" : "10");
    std::vector<int> once{}, now;
    b.once();
    once.push_back(b.constant(0.75));
    once.push_back(b.param());
    auto ops = [&](int count) {
      for (int i = 0; i < count; ++i) {
        auto pick = [&] { return now[rng() % now.size()]; };
        const int a = pick(), c = pick();
        now.push_back(rng() % 3 == 0 ? b.pw(unary[rng() % std::size(unary)], a)
                      : rng() % 4    ? b.pw(binary[rng() % std::size(binary)], a, c)
                                     : b.pw(Pw::where, b.pw(rng() % 2 ? Pw::lt : Pw::ne, a, c), c, pick()));
      }
    };
    auto loads = [&] {
      now = once;
      for (int i : in) now.push_back(b.load(i));
    };
    b.loop();
    loads();
    ops(4);
    const int sum = b.reduce(rng() % 2 ? Rd::sum : Rd::max, b.pw(Pw::add, now.back(), now[2]),
                             across ? Level::kLane : Level::kPoint);
    b.once();
    once.push_back(b.pw(Pw::tanh, sum));
    b.store(total, once.back(), across ? Level::kLane : Level::kPoint);
    b.loop();
    loads();
    ops(5);
    b.store(y, b.pw(Pw::add, now.back(), now[2]));
    cases.push_back({str_cat("random ", seed), b.kernel, {}, {}, {1.5}, seed});
  }
  check(cases, {{3, 19}, {20, 130}});
}

// Positions out of range become 0 and are reported. Lanes after the end are not checked.
TEST(Words, CheckedPositions) {
  KernelBuilder b(Mode::kRows, 2);
  const int table = b.in(kFloat32, "01"), rows = b.in(kInt64, "10"), each = b.in(kInt64, "s1"),
            flat = b.in(kFloat32, "00");
  const int y = b.out(kFloat32, "s1");
  b.kernel.operands[table].indexed = b.kernel.operands[flat].indexed = true;
  auto add = [&](loop_ir::Instr i) {
    b.kernel.instrs.push_back(i);
    b.kernel.segments.back().instrs.push_back(static_cast<int>(b.kernel.instrs.size()) - 1);
    return static_cast<int>(b.kernel.instrs.size()) - 1;
  };
  b.once();
  const int limit = b.constant(4, Type::i64);
  const int row = add({.op = loop_ir::Op::kCheck,
                       .type = Type::i64,
                       .level = Level::kPoint,
                       .a = b.load(rows, Level::kPoint),
                       .b = limit});
  b.loop();
  const int at =
      add({.op = loop_ir::Op::kCheck, .type = Type::i64, .level = Level::kBoth, .a = b.load(each), .b = limit});
  const int p = add({.op = loop_ir::Op::kLoad, .level = Level::kBoth, .a = row, .slot = table});
  const int q = add({.op = loop_ir::Op::kLoad, .level = Level::kBoth, .a = at, .slot = flat});
  b.store(y, b.pw(Pw::add, p, q));
  b.kernel.verify();
  const KernelFn fns[] = {compile({b.kernel}, cpu())[0], compile({b.kernel}, cpu_scalar())[0], interpreted(b.kernel)};
  for (const int wrong : {0, 1, 2})
    for (const KernelFn& fn : fns) {
      std::vector<float> values(4 * 21), few{10, 20, 30, 40}, out(2 * 21);
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
      std::vector<int64_t> r{3, wrong == 1 ? 4 : 1}, e(2 * 21);
      for (size_t i = 0; i < e.size(); ++i) e[i] = static_cast<int64_t>(i % 4);
      if (wrong == 2) e[20] = -1;
      void* ptr[] = {values.data(), r.data(), e.data(), few.data(), out.data()};
      const int64_t strides[] = {0, 1, 1, 0, 21, 1, 0, 0, 21, 1}, extents[] = {2, 21}, steps[] = {21, 0, 0, 1, 0};
      int32_t bad = 0;
      const loop_ir::Args args{ptr, strides, extents, nullptr, nullptr, nullptr, nullptr, steps, &bad};
      fn(args, 0, 2, 1, 0, 21);
      EXPECT_EQ(bad, wrong ? 1 : 0);
      for (int i = 0; i < 42; ++i) {
        const int64_t want_row = r[i / 21] < 4 ? r[i / 21] : 0, want_at = e[i] >= 0 ? e[i] : 0;
        ASSERT_EQ(out[i], values[want_row * 21 + i % 21] + few[want_at]) << i;
      }
    }
}

}  // namespace
}  // namespace weft::codegen
