#include "compiler/targets/cpu/print/testing/kernel_case.h"

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <random>

#include "compiler/loop_ir/interpret.h"
#include "compiler/targets/cpu/print/scalar_text.h"
#include "framework/base/cpu.h"
#include "framework/base/error.h"
#include "framework/base/str_cat.h"

namespace weft::codegen {

using loop_ir::Instr;
using loop_ir::Level;
using loop_ir::Mode;
using loop_ir::Op;
using loop_ir::StrideKind;
using loop_ir::Type;

// ---- the builder ----

int KernelBuilder::operand(DType dtype, const std::string& strides, bool output) {
  loop_ir::Operand p;
  p.dtype = dtype;
  p.output = output;
  for (char c : strides)
    p.strides.push_back(c == '0' ? StrideKind::kZero : c == '1' ? StrideKind::kUnit : StrideKind::kAny);
  kernel.operands.push_back(p);
  return static_cast<int>(kernel.operands.size()) - 1;
}
int KernelBuilder::add(Instr i) {
  kernel.instrs.push_back(i);
  kernel.segments.back().instrs.push_back(static_cast<int>(kernel.instrs.size()) - 1);
  return static_cast<int>(kernel.instrs.size()) - 1;
}
Level KernelBuilder::join(Level a, Level b) const {
  const bool lanes = a == Level::kLane || a == Level::kBoth || b == Level::kLane || b == Level::kBoth;
  const bool loop = a == Level::kStep || a == Level::kBoth || b == Level::kStep || b == Level::kBoth;
  return lanes ? (loop ? Level::kBoth : Level::kLane) : (loop ? Level::kStep : Level::kPoint);
}
int KernelBuilder::constant(double x, Type t) { return add({.op = Op::kConst, .type = t, .value = x}); }
int KernelBuilder::param(Type t) { return add({.op = Op::kParam, .type = t, .slot = kernel.params++}); }
int KernelBuilder::load(int operand, Level level) {
  const Type t = codegen::read_type(kernel.operands[operand].dtype);
  return add({.op = Op::kLoad, .type = t, .level = level, .slot = operand});
}
int KernelBuilder::pw(kernels::Pw op, int a, int b, int c) {
  Level level = kernel.instrs[a].level;
  for (int x : {b, c})
    if (x >= 0) level = join(level, kernel.instrs[x].level);
  const int last = c >= 0 ? c : b >= 0 ? b : a;
  const Type t = kernels::pointwise_info(op).bool_result ? Type::pred : kernel.instrs[last].type;
  return add({.op = Op::kPw, .type = t, .level = level, .a = a, .b = b, .c = c, .pw = op});
}
int KernelBuilder::cast(int a, Type t, DType dtype) {
  return add({.op = Op::kCast, .type = t, .level = kernel.instrs[a].level, .a = a, .dtype = dtype});
}
int KernelBuilder::round(int a, DType dtype) {
  return add({.op = Op::kRound, .level = kernel.instrs[a].level, .a = a, .dtype = dtype});
}
int KernelBuilder::index(int axis) {
  const bool across = kernel.mode == Mode::kAcross;
  Level level = Level::kPoint;
  if (axis == kernel.axes - 1) level = across ? Level::kLane : Level::kBoth;
  if (across && axis == kernel.axes - 2) level = Level::kStep;
  return add({.op = Op::kIndex, .type = Type::i64, .level = level, .slot = axis});
}
int KernelBuilder::reduce(kernels::Rd rd, int a, Level level) {
  Instr i{.op = Op::kReduce, .type = kernel.instrs[a].type, .level = level, .a = a, .rd = rd};
  if (kernel.mode == Mode::kSplit) i.slot = kernel.partials++;
  return add(i);
}
int KernelBuilder::column(kernels::Rd rd, int a) {
  return add({.op = Op::kColumn,
              .type = kernel.instrs[a].type,
              .level = Level::kBoth,
              .a = a,
              .slot = kernel.columns++,
              .rd = rd});
}
int KernelBuilder::keep(int a) {
  add({.op = Op::kKeep, .level = Level::kBoth, .a = a, .slot = kernel.kept});
  return kernel.kept++;
}
int KernelBuilder::kept(int slot) { return add({.op = Op::kKept, .level = Level::kBoth, .slot = slot}); }
void KernelBuilder::store(int operand, int a, Level level) {
  add({.op = Op::kStore, .type = kernel.instrs[a].type, .level = level, .a = a, .slot = operand});
}

// ---- memory ----

namespace {

constexpr int64_t kGuard = 80;  // elements before and after, which no kernel may access

template <class T>
void fill_floats(std::vector<char>& bytes, std::mt19937& rng, bool extremes) {
  std::normal_distribution<float> normal(0, 2);
  constexpr float inf = std::numeric_limits<float>::infinity();
  const float odd[] = {0,     -0.0f,  1,    -1,      inf,     -inf,  std::nanf(""), 1e-40f, -1e-40f, 88.5f, -103.5f,
                       1e30f, -1e30f, 0.5f, 65519.f, 65520.f, 6e-8f, 3e9f,          -3e9f,  2.5f,    -1.5f};
  const size_t n = bytes.size() / sizeof(T);
  for (size_t i = 0; i < n; ++i) {
    float x = normal(rng);
    if (extremes && rng() % 4 == 0) x = odd[rng() % std::size(odd)];
    const T v(x);
    std::memcpy(bytes.data() + i * sizeof(T), &v, sizeof(T));
  }
}
void fill(std::vector<char>& bytes, DType dtype, std::mt19937& rng, bool extremes) {
  const size_t n = bytes.size() / itemsize(dtype);
  switch (dtype) {
    case kFloat32:
      return fill_floats<float>(bytes, rng, extremes);
    case kFloat64:
      return fill_floats<double>(bytes, rng, extremes);
    case kBFloat16:
      return fill_floats<bfloat16>(bytes, rng, extremes);
    case kFloat16:
      return fill_floats<float16>(bytes, rng, extremes);
    case kInt64:
      for (size_t i = 0; i < n; ++i)
        reinterpret_cast<int64_t*>(bytes.data())[i] =
            extremes && rng() % 8 == 0 ? static_cast<int64_t>(rng()) << 31 : static_cast<int64_t>(rng() % 21) - 5;
      return;
    case kInt32:
      for (size_t i = 0; i < n; ++i)
        reinterpret_cast<int32_t*>(bytes.data())[i] =
            extremes && rng() % 8 == 0 ? static_cast<int32_t>(rng()) : static_cast<int32_t>(rng() % 21) - 5;
      return;
    case kInt16:
    case kInt8:
    case kUInt8:
      for (char& c : bytes) c = static_cast<char>(rng());
      return;
    default:
      for (char& c : bytes) c = static_cast<char>(rng() % 2);
  }
}

DType dtype_of(Type t) {
  constexpr DType k[] = {kFloat32, kFloat64, kInt32, kInt64, kBool};
  return k[static_cast<int>(t)];
}

bool is_nan(DType t, const char* p) {
  if (t == kFloat32) {
    float x;
    std::memcpy(&x, p, 4);
    return x != x;
  }
  if (t == kFloat64) {
    double x;
    std::memcpy(&x, p, 8);
    return x != x;
  }
  uint16_t h;
  std::memcpy(&h, p, 2);
  if (t == kBFloat16) return (h & 0x7fff) > 0x7f80;
  if (t == kFloat16) return (h & 0x7fff) > 0x7c00;
  return false;
}

}  // namespace

int64_t KernelCase::points() const {
  int64_t n = 1;
  for (int a = 0; a < kernel.outer_axes(); ++a) n *= extents[a];
  return n;
}

void KernelCase::lay_out() {
  strides.clear();
  for (const loop_ir::Operand& p : kernel.operands) {
    std::vector<int64_t> s(kernel.axes, 0);
    // Dense, starting with the axis of stride 1; then the axes to its left, from right to left.
    std::vector<int> order;
    for (int a = kernel.axes - 1; a >= 0; --a)
      if (p.strides[a] == StrideKind::kUnit) order.push_back(a);
    if (p.output || !order.empty()) {
      for (int a = kernel.axes - 1; a >= 0; --a)
        if (p.strides[a] == StrideKind::kAny) order.push_back(a);
    } else {
      for (int a = 0; a < kernel.axes; ++a)
        if (p.strides[a] == StrideKind::kAny) order.push_back(a);
    }
    int64_t step = order.empty() || p.strides[order[0]] == StrideKind::kUnit ? 1 : 2;
    for (int a : order) {
      s[a] = step;
      step *= std::max<int64_t>(1, extents[a]);
    }
    strides.push_back(s);
  }
}

Outcome run(const KernelCase& c, const KernelFn& fn, const std::vector<WorkRange>& parts) {
  const loop_ir::Kernel& k = c.kernel;
  std::mt19937 rng(c.seed);
  Outcome r;
  std::vector<void*> ptr, column, partial;
  std::vector<int64_t> strides;
  for (size_t p = 0; p < k.operands.size(); ++p) {
    int64_t last = 0;
    for (int a = 0; a < k.axes; ++a) last += c.strides[p][a] * std::max<int64_t>(0, c.extents[a] - 1);
    if (k.operands[p].indexed) last += c.index_strides.at(p) * std::max<int64_t>(0, c.index_extents.at(p) - 1);
    const DType dtype = k.operands[p].dtype;
    r.memory.push_back({dtype, std::vector<char>((last + 1 + 2 * kGuard) * itemsize(dtype))});
    fill(r.memory.back().second, dtype, rng, c.extremes);
    strides.insert(strides.end(), c.strides[p].begin(), c.strides[p].end());
  }
  auto slots = [&](Op op, int count, int64_t size) {
    for (int s = 0; s < count; ++s) {
      const Instr* of = nullptr;
      for (const Instr& i : k.instrs)
        if (i.op == op && i.slot == s) of = &i;
      const DType dtype = dtype_of(of->type);
      r.memory.push_back({dtype, std::vector<char>((size + 2 * kGuard) * itemsize(dtype))});
      fill(r.memory.back().second, dtype, rng, false);
    }
  };
  const int64_t lanes = c.extents.back();
  slots(Op::kColumn, k.columns, lanes);
  slots(Op::kReduce, k.partials, c.points() * ((lanes + 1023) / 1024));
  for (auto& [dtype, bytes] : r.memory) {
    void* p = bytes.data() + kGuard * itemsize(dtype);
    (ptr.size() < k.operands.size()                ? ptr
     : static_cast<int>(column.size()) < k.columns ? column
                                                   : partial)
        .push_back(p);
  }
  const int64_t row = k.mode == Mode::kAcross ? c.extents[k.axes - 2] * 16 : (lanes + 15) / 16 * 16;
  std::vector<float> scratch(k.kept * row);
  int32_t bad = 0;
  const loop_ir::Args args{ptr.data(),      strides.data(),         c.extents.data(),
                           c.params.data(), scratch.data(),         column.data(),
                           partial.data(),  c.index_strides.data(), &bad};
  if (parts.empty()) {
    fn(args, 0, c.points(), 1, 0, lanes);
  } else {
    for (const WorkRange& p : parts) fn(args, p.o0, p.o1, p.step, p.l0, p.l1);
  }
  r.bad = bad;
  return r;
}

std::string difference(const Outcome& a, const Outcome& b) {
  if (a.bad != b.bad) return str_cat("only the ", a.bad ? "first" : "second", " finds an index out of range");
  for (size_t m = 0; m < a.memory.size(); ++m) {
    const auto& [dtype, x] = a.memory[m];
    const auto& y = b.memory[m].second;
    const int64_t size = itemsize(dtype);
    for (size_t at = 0; at < x.size(); at += size) {
      if (std::memcmp(&x[at], &y[at], size) == 0) continue;
      if (is_nan(dtype, &x[at]) && is_nan(dtype, &y[at])) continue;
      auto text = [&](const char* p) {
        float f = 0;
        double d = 0;
        int64_t i = 0;
        std::memcpy(&i, p, size);
        if (dtype == kFloat32) return std::memcpy(&f, p, 4), str_cat(f, " (", i, ")");
        if (dtype == kFloat64) return std::memcpy(&d, p, 8), str_cat(d, " (", i, ")");
        return str_cat(i);
      };
      return str_cat("memory ", m, " (", to_string_view(dtype), ") at ", static_cast<int64_t>(at / size) - kGuard, ": ",
                     text(&x[at]), " and ", text(&y[at]));
    }
  }
  return "";
}

// ---- running ----

std::string march() {
  constexpr const char* k[] = {"x86-64-v2", "x86-64-v3", "x86-64-v4"};
  return k[static_cast<int>(selected_isa())];
}

std::vector<KernelFn> compile(const std::vector<loop_ir::Kernel>& kernels, const PrintTarget& target) {
  static int count = 0;
  const char* dir = std::getenv("TEST_TMPDIR");
  const std::string path = str_cat(dir ? dir : "/tmp", "/", target.name, "_", ++count);
  {
    std::ofstream file(path + ".cc");
    file << prelude(target);
    for (size_t k = 0; k < kernels.size(); ++k) file << print(kernels[k], target, {.symbol = str_cat("k", k)});
  }
  const std::string command = str_cat(
      "g++ -x c++ -std=c++20 -O1 -fgcse -fno-tree-pta -march=", march(),
      " -mprefer-vector-width=512 -ffp-contract=off -fno-math-errno -fno-trapping-math -fwrapv -fno-strict-aliasing"
      " -fPIC -shared -nostdlib -w -o ",
      path, ".so ", path, ".cc 2> ", path, ".log");
  if (std::system(command.c_str()) != 0) {
    std::ifstream log(path + ".log");
    WEFT_BUG_IF(true, "compile: ", command, "\n", std::string(std::istreambuf_iterator<char>(log), {}));
  }
  void* library = dlopen((path + ".so").c_str(), RTLD_NOW);
  WEFT_BUG_IF(!library, "compile: ", dlerror());
  std::vector<KernelFn> fns;
  for (size_t k = 0; k < kernels.size(); ++k) {
    const loop_ir::KernelFunction fn =
        reinterpret_cast<loop_ir::KernelFunction>(dlsym(library, str_cat("k", k).c_str()));
    fns.push_back([fn](const loop_ir::Args& a, int64_t o0, int64_t o1, int64_t step, int64_t l0, int64_t l1) {
      fn(&a, o0, o1, step, l0, l1);
    });
  }
  return fns;
}

KernelFn interpreted(const loop_ir::Kernel& kernel) {
  return [kernel](const loop_ir::Args& a, int64_t o0, int64_t o1, int64_t step, int64_t l0, int64_t l1) {
    loop_ir::interpret(kernel, a, o0, o1, step, l0, l1);
  };
}

}  // namespace weft::codegen
