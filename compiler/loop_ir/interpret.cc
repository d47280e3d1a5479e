#include "compiler/loop_ir/interpret.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>

#include "ops/numerics/reduce_order.h"

namespace weft::loop_ir {
namespace {

constexpr int64_t kTile = kReduceBlock;  // lanes at a time in kRows: a tile is one block of a reduction
constexpr int64_t kAcrossTile = 256;     // lanes at a time in kAcross: 16 accumulators of this many fit in L1
static_assert(kReduceBlock == 1024);

DType dtype_of(Type t) {
  constexpr DType k[] = {kFloat32, kFloat64, kInt32, kInt64, kBool};
  return k[static_cast<int>(t)];
}

void write(Type t, double x, void* out) {
  switch (t) {
    case Type::f32:
      *static_cast<float*>(out) = static_cast<float>(x);
      break;
    case Type::f64:
      *static_cast<double*>(out) = x;
      break;
    case Type::i32:
      *static_cast<int32_t*>(out) = static_cast<int32_t>(x);
      break;
    case Type::i64:
      *static_cast<int64_t*>(out) = static_cast<int64_t>(x);
      break;
    case Type::pred:
      *static_cast<uint8_t*>(out) = x != 0;
  }
}

// The state of a reduction: accumulators of one block (kAcross), and the tree over blocks as a binary counter.
struct Reduction {
  std::vector<char> lanes, stack;
  int depth = 0;
  int64_t blocks = 0;
};

class Interpreter {
 public:
  Interpreter(const Kernel& k, const Args& args)
      : k_(k), args_(args), tile_(k.mode == Mode::kAcross ? kAcrossTile : kTile) {
    const size_t n = k.instrs.size();
    data_.resize(n);
    reductions_.resize(n);
    base_.resize(k.operands.size());
    at_.resize(k.axes);
    size_t bytes = 0;
    for (const Instr& i : k.instrs) bytes += room(i);
    slab_ = std::make_unique<char[]>(bytes + 64 + 2 * tile_ * 8);
    char* p = slab_.get() + (64 - reinterpret_cast<uintptr_t>(slab_.get()) % 64) % 64;
    for (size_t i = 0; i < n; ++i) {
      own_.push_back(p);
      data_[i] = p;
      p += room(k.instrs[i]);
    }
    temp_ = p;
    temp2_ = p + tile_ * 8;
    if (k.mode == Mode::kAcross && k.kept) {
      kept_.resize(k.kept * args.extent[k.axes - 2] * tile_);
    }
    find_aliases();
  }

  void run(int64_t o0, int64_t o1, int64_t step, int64_t l0, int64_t l1) {
    for (int64_t o = o0; o < o1; o += step) {
      point_ = o;
      int64_t rest = o;
      for (int a = k_.outer_axes() - 1; a >= 0; --a) {
        at_[a] = rest % args_.extent[a];
        rest /= args_.extent[a];
      }
      for (size_t p = 0; p < k_.operands.size(); ++p) {
        int64_t offset = 0;
        for (int a = 0; a < k_.outer_axes(); ++a) offset += at_[a] * stride(p, a);
        base_[p] = static_cast<char*>(args_.ptr[p]) + offset * itemsize(k_.operands[p].dtype);
      }
      if (k_.mode == Mode::kAcross) {
        for (int64_t l = l0; l < l1; l += tile_) across(l, std::min(tile_, l1 - l));
      } else {
        rows(l0, l1);
      }
    }
  }

 private:
  bool many(Level level) const { return level == Level::kBoth || level == Level::kLane; }
  bool looped(const Instr& i) const {
    return i.level == Level::kBoth || i.level == Level::kStep || i.op == Op::kReduce;
  }
  size_t room(const Instr& i) const { return many(i.level) ? tile_ * 8 : 64; }
  int64_t stride(size_t operand, int axis) const {
    const StrideKind kind = k_.operands[operand].strides[axis];
    return kind == StrideKind::kAny ? args_.stride[operand * k_.axes + axis] : kind == StrideKind::kUnit;
  }

  // A load may alias the operand's memory if no store comes before the last use of its lanes in the segment.
  void find_aliases() {
    may_alias_.assign(k_.instrs.size(), true);
    for (const KernelSegment& s : k_.segments) {
      std::vector<char> stored_since(k_.instrs.size(), 0);
      for (int i : s.instrs) {
        const Instr& in = k_.instrs[i];
        for (int x : {in.a, in.b, in.c})
          if (x >= 0 && stored_since[x]) may_alias_[x] = false;
        if (in.op == Op::kStore)
          for (int j : s.instrs) stored_since[j] = 1;
        stored_since[i] = 0;
      }
      // A value that is loaded once must survive later stores.
      for (int i : s.instrs)
        if (!s.loop || !looped(k_.instrs[i])) may_alias_[i] = false;
    }
  }

  void rows(int64_t l0, int64_t l1) {
    for (const KernelSegment& s : k_.segments) {
      before_loop(s, 0, 1);
      if (!s.loop) continue;
      begin(s);
      for (int64_t l = l0; l < l1; l += tile_) {
        const int64_t n = std::min(tile_, l1 - l);
        for (int i : s.instrs)
          if (looped(k_.instrs[i])) execute(i, 0, l, n);
      }
      end(s, 1);
    }
  }

  void across(int64_t l, int64_t n) {
    const int64_t extent = args_.extent[k_.axes - 2];
    for (const KernelSegment& s : k_.segments) {
      before_loop(s, l, n);
      if (!s.loop) continue;
      begin(s);
      for (int64_t k = 0; k < extent; ++k) {
        if (k % kReduceBlock == 0) begin_block(s, n);
        for (int i : s.instrs)
          if (looped(k_.instrs[i])) execute(i, k, l, n);
        if (k + 1 == extent || (k + 1) % kReduceBlock == 0) end_block(s, n);
      }
      end(s, n);
    }
  }

  void before_loop(const KernelSegment& s, int64_t l, int64_t n) {
    for (int i : s.instrs)
      if (!looped(k_.instrs[i])) execute(i, 0, l, n);
  }

  // ---- reductions ----

  template <class F>
  void each_reduction(const KernelSegment& s, F f) {
    for (int i : s.instrs)
      if (k_.instrs[i].op == Op::kReduce) f(k_.instrs[i], reductions_[i], own_[i]);
  }
  void begin(const KernelSegment& s) {
    each_reduction(s, [](const Instr&, Reduction& r, char*) { r.depth = 0, r.blocks = 0; });
  }
  int64_t width(const Instr& i, int64_t n) const { return many(i.level) ? n : 1; }
  void begin_block(const KernelSegment& s, int64_t n) {
    each_reduction(s, [&](const Instr& i, Reduction& r, char*) {
      r.lanes.resize(kReduceLanes * tile_ * 8);
      kernels::fill_identity(i.rd, dtype_of(i.type), r.lanes.data(), kReduceLanes * width(i, n));
    });
  }
  void end_block(const KernelSegment& s, int64_t n) {
    each_reduction(s, [&](const Instr& i, Reduction& r, char*) {
      const int64_t w = width(i, n), bytes = w * itemsize(dtype_of(i.type));
      for (int t = kReduceLanes / 2; t > 0; t /= 2)
        kernels::combine(i.rd, dtype_of(i.type), r.lanes.data(), r.lanes.data() + t * bytes, t * w);
      push(i, r, r.lanes.data(), w);
    });
  }
  void push(const Instr& i, Reduction& r, const char* block, int64_t w) {
    const int64_t bytes = w * itemsize(dtype_of(i.type));
    if (static_cast<int64_t>(r.stack.size()) < (r.depth + 1) * bytes) r.stack.resize((r.depth + 1) * bytes);
    std::memcpy(r.stack.data() + r.depth++ * bytes, block, bytes);
    for (int64_t d = r.blocks++; d & 1; d >>= 1) pop(i, r, w, bytes);
  }
  void pop(const Instr& i, Reduction& r, int64_t w, int64_t bytes) {
    --r.depth;
    kernels::combine(i.rd, dtype_of(i.type), r.stack.data() + (r.depth - 1) * bytes, r.stack.data() + r.depth * bytes,
                     w);
  }
  void end(const KernelSegment& s, int64_t n) {
    each_reduction(s, [&](const Instr& i, Reduction& r, char* out) {
      const int64_t w = width(i, n), bytes = w * itemsize(dtype_of(i.type));
      if (r.depth == 0) return kernels::fill_identity(i.rd, dtype_of(i.type), out, w);
      while (r.depth > 1) pop(i, r, w, bytes);
      std::memcpy(out, r.stack.data(), bytes);
    });
  }

  // ---- instructions ----

  StridedView view(const void* p, DType dtype, int64_t n, bool is_many, int64_t stride = 1) const {
    if (!is_many) return {const_cast<void*>(p), dtype, {}, {}};
    return {const_cast<void*>(p), dtype, {n}, {stride}};
  }
  StridedView value(int i, int64_t n) const {
    return view(data_[i], dtype_of(k_.instrs[i].type), n, many(k_.instrs[i].level));
  }
  // Value i as n contiguous elements.
  const char* lanes_of(int i, int64_t n) {
    if (many(k_.instrs[i].level) || n == 1) return data_[i];
    kernels::cast_copy(value(i, n), view(temp_, dtype_of(k_.instrs[i].type), n, true));
    return temp_;
  }

  void execute(int id, int64_t k, int64_t l, int64_t tile) {
    const Instr& i = k_.instrs[id];
    const bool wide = many(i.level);
    const int64_t n = wide ? tile : 1;
    const DType dtype = dtype_of(i.type);
    char* const out = own_[id];
    switch (i.op) {
      case Op::kConst:
        return write(i.type, i.value, out);
      case Op::kParam:
        return write(i.type, args_.param[i.slot], out);
      case Op::kIndex: {
        auto fill = [&]<class T>(T* x) {
          if (i.slot == k_.axes - 1) {
            for (int64_t j = 0; j < n; ++j) x[j] = static_cast<T>(l + j);
          } else {
            *x = static_cast<T>(k_.mode == Mode::kAcross && i.slot == k_.axes - 2 ? k : at_[i.slot]);
          }
        };
        if (i.type == Type::i64) return fill(reinterpret_cast<int64_t*>(out));
        return fill(reinterpret_cast<int32_t*>(out));
      }
      case Op::kLoad: {
        const DType from = k_.operands[i.slot].dtype;
        const char* p = address(i, k, l);
        const int64_t s = stride(i.slot, k_.axes - 1);
        if (i.a >= 0) return load_at(id, i, p, wide ? s : 0, n);
        if (from == dtype && (s == 1 || !wide) && may_alias_[id]) {
          data_[id] = const_cast<char*>(p);
        } else {
          data_[id] = out;
          kernels::cast_copy(view(p, from, n, wide, s), view(out, dtype, n, wide));
        }
        return;
      }
      case Op::kCheck: {
        const int64_t *at = reinterpret_cast<int64_t*>(data_[i.a]), limit = *reinterpret_cast<int64_t*>(data_[i.b]);
        for (int64_t j = 0; j < n; ++j) {
          const bool good = at[j] >= 0 && at[j] < limit;
          reinterpret_cast<int64_t*>(out)[j] = good ? at[j] : 0;
          if (!good) std::atomic_ref<int32_t>(*args_.bad).store(1, std::memory_order_relaxed);
        }
        return;
      }
      case Op::kPw: {
        const int operand[] = {i.a, i.b, i.c};
        const void* in[3];
        uint32_t scalars = 0;
        const int count = kernels::pointwise_info(i.pw).operands;
        for (int x = 0; x < count; ++x) {
          in[x] = data_[operand[x]];
          if (wide && !many(k_.instrs[operand[x]].level)) scalars |= 1u << x;
        }
        const DType of = dtype_of(k_.instrs[operand[count - 1]].type);
        if (kernels::pointwise_contiguous_fn(i.pw, of)(in, out, n, scalars)) kernels::pointwise_fail(i.pw);
        return;
      }
      case Op::kCast:
        return cast(id, i, i.type == Type::i32 && i.dtype == kUInt8 ? kUInt8 : dtype, n);
      case Op::kRound:
        return cast(id, i, i.dtype, n);
      case Op::kStore: {
        const StridedView to = view(address(i, k, l), k_.operands[i.slot].dtype, n, wide, stride(i.slot, k_.axes - 1));
        return kernels::cast_copy(value(i.a, n), to);
      }
      case Op::kReduce:
        return reduce(id, i, k, l, tile);
      case Op::kKeep:
        return kernels::cast_copy(value(i.a, n), view(kept(i, k, l), kFloat32, n, true));
      case Op::kKept:
        data_[id] = reinterpret_cast<char*>(kept(i, k, l));
        return;
      case Op::kColumn:
        return kernels::combine(i.rd, dtype, static_cast<char*>(args_.column[i.slot]) + l * itemsize(dtype),
                                lanes_of(i.a, tile), tile);
    }
  }

  // Loads elements of an indexed operand, each at its own position.
  void load_at(int id, const Instr& i, const char* p, int64_t lane_stride, int64_t n) {
    const DType from = k_.operands[i.slot].dtype;
    const int64_t size = itemsize(from), step = args_.index_stride[i.slot];
    const int64_t* at = reinterpret_cast<const int64_t*>(data_[i.a]);
    const int64_t next = many(k_.instrs[i.a].level) ? 1 : 0;
    for (int64_t j = 0; j < n; ++j)
      std::memcpy(temp_ + j * size, p + (j * lane_stride + at[j * next] * step) * size, size);
    const bool wide = many(i.level);
    kernels::cast_copy(view(temp_, from, n, wide), view(own_[id], dtype_of(i.type), n, wide));
    data_[id] = own_[id];
  }

  char* address(const Instr& i, int64_t k, int64_t l) const {
    int64_t at = 0;
    if (many(i.level)) at += l * stride(i.slot, k_.axes - 1);
    if (k_.mode == Mode::kAcross && looped(i)) at += k * stride(i.slot, k_.axes - 2);
    return base_[i.slot] + at * itemsize(k_.operands[i.slot].dtype);
  }
  float* kept(const Instr& i, int64_t k, int64_t l) {
    if (k_.mode == Mode::kAcross) return kept_.data() + (i.slot * args_.extent[k_.axes - 2] + k) * tile_;
    return args_.scratch + i.slot * ((args_.extent[k_.axes - 1] + 15) / 16 * 16) + l;
  }

  // Casts to `through` first (a rounding: 16-bit floats, u8), then to i.type.
  void cast(int id, const Instr& i, DType through, int64_t n) {
    const bool wide = many(i.level);
    const StridedView from = value(i.a, n), to = view(own_[id], dtype_of(i.type), n, wide);
    if (through == to.dtype) return kernels::cast_copy(from, to);
    const StridedView middle = view(temp2_, through, n, wide);
    kernels::cast_copy(from, middle);
    kernels::cast_copy(middle, to);
  }

  void reduce(int id, const Instr& i, int64_t k, int64_t l, int64_t tile) {
    Reduction& r = reductions_[id];
    const DType dtype = dtype_of(i.type);
    if (k_.mode == Mode::kAcross) {
      const int64_t w = width(i, tile);
      return kernels::combine(i.rd, dtype, r.lanes.data() + k % kReduceLanes * w * itemsize(dtype), lanes_of(i.a, w),
                              w);
    }
    char block[8];
    kernels::reduce(i.rd, view(lanes_of(i.a, tile), dtype, tile, true), 1, view(block, dtype, 1, false), nullptr);
    if (k_.mode == Mode::kSplit) {
      const int64_t blocks = (args_.extent[k_.axes - 1] + kReduceBlock - 1) / kReduceBlock;
      std::memcpy(static_cast<char*>(args_.partial[i.slot]) + (point_ * blocks + l / kReduceBlock) * itemsize(dtype),
                  block, itemsize(dtype));
    } else {
      push(i, r, block, 1);
    }
  }

  const Kernel& k_;
  const Args& args_;
  const int64_t tile_;
  std::unique_ptr<char[]> slab_;
  std::vector<char*> own_, data_;  // instruction -> its own buffer, and its current value
  std::vector<char> may_alias_;
  std::vector<Reduction> reductions_;
  std::vector<char*> base_;  // operand -> outer point
  std::vector<int64_t> at_;  // positions on outer axes
  std::vector<float> kept_;  // kAcross
  char *temp_, *temp2_;
  int64_t point_ = 0;
};

}  // namespace

void interpret(const Kernel& kernel, const Args& args, int64_t o0, int64_t o1, int64_t step, int64_t l0, int64_t l1) {
  if (o0 >= o1 || l0 > l1) return;
  Interpreter(kernel, args).run(o0, o1, step, l0, l1);
}

}  // namespace weft::loop_ir
