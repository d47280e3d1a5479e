#include "compiler/targets/cuda/print/testing/cuda_case.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "compiler/loop_ir/testing/run_lowered.h"
#include "compiler/targets/cuda/intrinsics/kernel.h"
#include "compiler/targets/cuda/testing/emulate/emulate.h"
#include "framework/base/error.h"
#include "framework/base/str_cat.h"
#include "framework/tensor/tensor.h"

namespace weft::cuda {

using loop_ir::Op;

namespace {

constexpr int64_t kGuard = 256;  // bytes around each tensor that no kernel may access

int64_t span_of(const loop_ir::ValueLayout& l) {
  int64_t last = 0;
  for (int d = 0; d < l.type.shape.size(); ++d) {
    if (l.type.shape[d] == 0) return 0;
    last += (l.type.shape[d] - 1) * l.strides[d];
  }
  return last + 1;
}

template <class T>
void put(char* p, size_t i, T v) {
  std::memcpy(p + i * sizeof(T), &v, sizeof v);
}

void fill(char* p, int64_t n, DType t, std::mt19937& rng, bool extremes, int64_t below) {
  std::normal_distribution<float> normal(0, 2);
  constexpr float inf = std::numeric_limits<float>::infinity();
  const float odd[] = {0, -0.0f, 1, -1, inf, -inf, std::nanf(""), 1e-40f, 88.5f, -103.5f, 1e30f, 0.5f, 65519.f, 2.5f};
  for (int64_t i = 0; i < n; ++i) {
    float x = normal(rng);
    if (extremes && rng() % 16 == 0) x = odd[rng() % std::size(odd)];
    const int64_t whole = below > 0 ? static_cast<int64_t>(rng() % below) : static_cast<int64_t>(rng() % 21) - 5;
    switch (t) {
      case kFloat32:
        put(p, i, x);
        break;
      case kFloat64:
        put(p, i, static_cast<double>(x));
        break;
      case kBFloat16:
        put(p, i, bfloat16(x));
        break;
      case kFloat16:
        put(p, i, float16(x));
        break;
      case kInt64:
        put(p, i, whole);
        break;
      case kInt32:
        put(p, i, static_cast<int32_t>(whole));
        break;
      case kInt16:
        put(p, i, static_cast<int16_t>(rng()));
        break;
      case kInt8:
        put(p, i, static_cast<int8_t>(rng()));
        break;
      case kUInt8:
        put(p, i, static_cast<uint8_t>(rng()));
        break;
      default:
        put(p, i, static_cast<uint8_t>(rng() % 2));
    }
  }
}

loop_ir::ValueLayout dense(DType t, int64_t n) {
  loop_ir::ValueLayout l;
  l.type.dtype = t;
  l.type.shape = Shape{n};
  l.strides = Shape{1};
  return l;
}

struct Tensor {
  DType dtype;
  int64_t elements;
  std::vector<char> bytes;
  char* begin;         // the first element
  char* on = nullptr;  // used instead of begin, if set
  char* at() const { return on ? on : begin; }
};

Tensor tensor(const loop_ir::ValueLayout& l, int misaligned, std::mt19937& rng, bool extremes, int64_t below) {
  const int64_t size = itemsize(l.type.dtype);
  Tensor t;
  t.dtype = l.type.dtype;
  t.elements = span_of(l);
  t.bytes.resize(t.elements * size + 2 * kGuard + 32, 0x5a);
  const auto at = reinterpret_cast<uintptr_t>(t.bytes.data()) % 16;
  t.begin = t.bytes.data() + kGuard + (16 - at) % 16 + misaligned / size * size;
  fill(t.begin, t.elements, l.type.dtype, rng, extremes, below);
  return t;
}

struct Memory {
  std::vector<Tensor> in, out;
  Tensor tile;
  bool bad = false;
};

Memory memory_of(const CudaCase& c) {
  std::mt19937 rng(c.seed);
  Memory m;
  for (size_t i = 0; i < c.in.size(); ++i)
    m.in.push_back(tensor(c.in[i], c.misaligned, rng, c.extremes, i < c.in_below.size() ? c.in_below[i] : 0));
  for (const loop_ir::ValueLayout& l : c.out) m.out.push_back(tensor(l, c.misaligned, rng, false, 0));
  if (c.low.tile >= 0) {
    const int64_t n = c.low.outer_points() * c.low.lanes();
    m.tile = tensor(dense(kFloat32, n), 0, rng, false, 0);
  }
  return m;
}

Memory by_interpreter(const CudaCase& c) {
  Memory m = memory_of(c);
  auto views = [](std::vector<Tensor>& all) {
    std::vector<StridedView> v;
    for (Tensor& t : all) v.push_back({t.begin, t.dtype, {t.elements}, {1}});
    return v;
  };
  const auto in = views(m.in), out = views(m.out);
  m.bad = !loop_ir::run_lowered(c.low, in, out, c.low.tile >= 0 ? reinterpret_cast<float*>(m.tile.begin) : nullptr);
  return m;
}

Memory by_emulation(const CudaCase& c, const CudaLaunches& plan, Emulated& emulated) {
  Memory m = memory_of(c);
  if (c.in_place) {
    std::vector<bool> taken(m.in.size());
    for (const auto& [input, output] : c.low.overwrites) {
      Tensor &from = m.in[input], &to = m.out[output];
      if (taken[input] || from.elements != to.elements || to.on) continue;
      taken[input] = true;
      to.on = from.begin;
    }
  }
  std::vector<char> scratch(plan.scratch_bytes + 256, 0x5a);
  BadIndex bad;
  emulated.forget_ranges();
  auto allow = [&](const std::string& name, Tensor& t) {
    emulated.allow(name, t.at(), t.elements * itemsize(t.dtype));
  };
  for (size_t i = 0; i < m.in.size(); ++i) allow(str_cat("in", i), m.in[i]);
  for (size_t i = 0; i < m.out.size(); ++i) allow(str_cat("out", i), m.out[i]);
  if (c.low.tile >= 0) allow("tile", m.tile);
  if (plan.scratch_bytes > 0) emulated.allow("scratch", scratch.data(), plan.scratch_bytes);
  emulated.allow("bad", &bad, sizeof bad);
  for (const CudaLaunch& l : plan.launches) {
    if (l.empty()) continue;
    std::vector<char> params = l.params;
    for (const Pointer& p : l.pointers) {
      char* at = nullptr;
      if (p.kind == Pointer::kBad) at = reinterpret_cast<char*>(&bad);
      if (p.kind == Pointer::kScratch) at = scratch.data() + p.offset;
      if (p.kind == Pointer::kResult) at = m.out[p.index].at();
      if (p.kind == Pointer::kOperand) {
        const loop_ir::BoundOperand& b = c.low.bound[p.index];
        Tensor& t = p.index == c.low.tile ? m.tile : b.output ? m.out[b.index] : m.in[b.index];
        at = t.at() + b.offset * itemsize(t.dtype);
      }
      std::memcpy(params.data() + p.at, &at, 8);
    }
    emulated.launch(l.kernel.symbol, l.grid, std::as_bytes(std::span<const char>(params)));
  }
  m.bad = bad.raised != 0;
  for (Tensor& t : m.out)
    if (t.on) std::memcpy(t.begin, t.on, t.elements * itemsize(t.dtype));
  return m;
}

bool is_nan(DType t, const char* p) {
  uint64_t x = 0;
  std::memcpy(&x, p, itemsize(t));
  if (t == kFloat32) return (x & 0x7fffffff) > 0x7f800000;
  if (t == kFloat64) return (x << 1) > 0xffe0000000000000ull;
  if (t == kBFloat16) return (x & 0x7fff) > 0x7f80;
  if (t == kFloat16) return (x & 0x7fff) > 0x7c00;
  return false;
}

std::string text(DType t, const char* p) {
  int64_t x = 0;
  std::memcpy(&x, p, itemsize(t));
  if (t == kFloat32) return str_cat(std::bit_cast<float>(static_cast<int32_t>(x)));
  if (t == kFloat64) return str_cat(std::bit_cast<double>(x));
  return str_cat(x);
}

std::string difference(const Memory& a, const Memory& b) {
  if (a.bad != b.bad) return str_cat("only the ", a.bad ? "interpreter" : "CUDA text", " finds an index out of range");
  for (size_t k = 0; k < a.out.size(); ++k) {
    const Tensor &x = a.out[k], &y = b.out[k];
    const int64_t size = itemsize(x.dtype);
    for (int64_t i = -8; i < x.elements + 8; ++i) {
      const char *p = x.begin + i * size, *q = y.begin + i * size;
      if (std::memcmp(p, q, size) == 0 || (is_nan(x.dtype, p) && is_nan(x.dtype, q))) continue;
      return str_cat("result ", k, " at ", i, " of ", x.elements, ": ", text(x.dtype, p), " by the interpreter, ",
                     text(x.dtype, q), " by the CUDA text");
    }
  }
  return "";
}

DType dtype_of(loop_ir::Type t) {
  constexpr DType k[] = {kFloat32, kFloat64, kInt32, kInt64, kBool};
  return k[static_cast<int>(t)];
}

}  // namespace

CudaCase case_of(const codegen::KernelCase& c) {
  CudaCase r;
  r.name = c.name;
  r.seed = c.seed;
  r.extremes = c.extremes;
  r.low.kernel = c.kernel;
  r.low.extents = c.extents;
  r.low.params = c.params;
  for (size_t p = 0; p < c.kernel.operands.size(); ++p) {
    const loop_ir::Operand& o = c.kernel.operands[p];
    loop_ir::ValueLayout l;
    l.type.dtype = o.dtype;
    std::vector<int64_t> shape, strides = c.strides[p];
    for (int a = 0; a < c.kernel.axes; ++a) shape.push_back(strides[a] == 0 ? 1 : c.extents[a]);
    const int64_t index_stride = o.indexed ? c.index_strides.at(p) : 0;
    if (o.indexed) shape.push_back(c.index_extents.at(p)), strides.push_back(index_stride);
    l.type.shape = Shape(std::span<const int64_t>(shape));
    l.strides = Shape(std::span<const int64_t>(strides));
    auto& list = o.output ? r.out : r.in;
    r.low.bound.push_back({o.output, static_cast<int32_t>(list.size()), 0, c.strides[p], index_stride});
    list.push_back(l);
  }
  for (const loop_ir::Instr& i : c.kernel.instrs) {
    const bool split = c.kernel.mode == loop_ir::Mode::kSplit && i.op == Op::kReduce;
    if (i.op != Op::kColumn && !split) continue;
    (split ? r.low.partials : r.low.columns).push_back({i.slot, static_cast<int32_t>(r.out.size()), i.rd, i.type});
    r.out.push_back(dense(dtype_of(i.type), split ? c.points() : c.extents.back()));
  }
  return r;
}

CudaLaunches plan_of(const CudaCase& c, const std::string& symbol) {
  KernelTextOptions options;
  options.symbol = symbol;
  options.wide = c.wide;
  options.approximate = c.approximate;
  if (c.misaligned) options.alignment = 1;
  while (c.misaligned && options.alignment < 16 && c.misaligned % (2 * options.alignment) == 0) options.alignment *= 2;
  DeviceLimits device;
  device.multiprocessors = c.multiprocessors;
  return plan(c.low, c.out, device, options);
}

std::vector<std::string> faults(const std::vector<CudaCase>& cases,
                                const std::function<std::string(std::string)>& change) {
  std::vector<CudaLaunches> plans;
  std::vector<Kernel> kernels;
  for (const CudaCase& c : cases) {
    plans.push_back(plan_of(c, str_cat("k", plans.size())));
    for (CudaLaunch& l : plans.back().launches) {
      l.kernel.text = change(l.kernel.text);
      kernels.push_back(l.kernel);
    }
  }
  Emulated emulated(kernels);
  std::vector<std::string> found(cases.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    try {
      by_emulation(cases[i], plans[i], emulated);
    } catch (const Error& e) {
      found[i] = e.what();
    }
  }
  return found;
}

std::vector<std::string> differences(const std::vector<CudaCase>& cases, uint64_t seed) {
  std::vector<CudaLaunches> plans;
  std::vector<Kernel> kernels;
  for (const CudaCase& c : cases) {
    plans.push_back(plan_of(c, str_cat("k", plans.size())));
    for (const CudaLaunch& l : plans.back().launches) kernels.push_back(l.kernel);
  }
  Emulated emulated(kernels, {.seed = seed});
  std::vector<std::string> found;
  for (size_t i = 0; i < cases.size(); ++i) {
    std::string s;
    try {
      s = difference(by_interpreter(cases[i]), by_emulation(cases[i], plans[i], emulated));
    } catch (const Error& e) {
      s = e.what();
    }
    if (!s.empty()) found.push_back(str_cat(cases[i].name, ": ", s));
  }
  return found;
}

}  // namespace weft::cuda
