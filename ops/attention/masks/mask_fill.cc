// The dense evaluator of mask programs. Values that depend only on queries are computed once for all rows, values that
// depend only on keys once for all columns, and the rest row by row in vectors.
#include <algorithm>
#include <array>
#include <cstring>

#include "ops/attention/masks/mask_program.h"

namespace weft::internal {
namespace {

enum Class : uint8_t { kUniform = 0, kByRow = kDepQ, kByColumn = kDepKv, kMixed = kDepQ | kDepKv };
Class class_of(const MaskInstr& in) { return static_cast<Class>(in.deps & kMixed); }

// Scratch of this thread; it grows and is kept, because blocks are small and many.
unsigned char* scratch(size_t bytes) {
  thread_local std::vector<uint64_t> memory;
  if (memory.size() * 8 < bytes + 64) memory.resize(bytes / 8 + 16);
  return reinterpret_cast<unsigned char*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) & ~uintptr_t{63});
}

// An instruction computed for each row, and its operands that may change from row to row: kByRow operands, of `size`
// bytes per row, and kMixed operands (size 0). args < 0: too many to track.
struct MixedStep {
  int32_t instr, args;
  std::array<int32_t, 3> arg;
  std::array<int8_t, 3> size;
};
// More scratch of this thread.
std::vector<MixedStep>& mixed_steps() {
  thread_local std::vector<MixedStep> steps;
  return steps;
}

bool same_bytes(const unsigned char* a, const unsigned char* b, int64_t size) {
  if (size == 8) {
    uint64_t x, y;
    std::memcpy(&x, a, 8);
    std::memcpy(&y, b, 8);
    return x == y;
  }
  if (size == 4) {
    uint32_t x, y;
    std::memcpy(&x, a, 4);
    std::memcpy(&y, b, 4);
    return x == y;
  }
  return !std::memcmp(a, b, size);
}

template <class E>
void take(const unsigned char* table, const int64_t* at, int64_t n, unsigned char* out) {
  const E* from = reinterpret_cast<const E*>(table);
  E* to = reinterpret_cast<E*>(out);
  for (int64_t i = 0; i < n; ++i) to[i] = from[at[i]];
}

template <class I>
bool add_offsets(const unsigned char* index, bool one, int64_t n, int64_t extent, int64_t stride, int64_t* at) {
  const I* p = reinterpret_cast<const I*>(index);
  uint64_t bad = 0;
  if (one) {
    const int64_t v = static_cast<int64_t>(*p);
    if (v < 0 || v >= extent) return false;
    for (int64_t i = 0; i < n; ++i) at[i] += v * stride;
    return true;
  }
  for (int64_t i = 0; i < n; ++i) {
    const int64_t v = static_cast<int64_t>(p[i]);
    bad |= static_cast<uint64_t>(v) >= static_cast<uint64_t>(extent);
    at[i] += v * stride;
  }
  return !bad;
}

// Packs 0/1 bytes to bits, least first; `bits` has room for whole bytes.
void pack(const unsigned char* bytes, int64_t n, uint8_t* bits) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    uint64_t w;
    std::memcpy(&w, bytes + i, 8);
    bits[i >> 3] = static_cast<uint8_t>((w * 0x0102040810204080ull) >> 56);
  }
  if (i < n) {
    uint8_t last = 0;
    for (int64_t j = i; j < n; ++j) last |= static_cast<uint8_t>((bytes[j] & 1) << (j - i));
    bits[i >> 3] = last;
  }
}

}  // namespace

struct MaskProgram::MaskRun {
  const MaskProgram& p;
  const MaskTile& t;
  unsigned char** data;  // per instruction
  int64_t* offsets;      // scratch of a lookup
  bool* fresh;           // scratch of fill, per instruction

  /// Computes instruction `id` at n points; for a kMixed instruction, `row` is the row of kByRow operands.
  void eval(int32_t id, int64_t n, int64_t row) {
    const MaskInstr& in = p.instrs_[id];
    const Class cls = class_of(in);
    const void* operand[3];
    uint32_t ones = 0;
    auto of = [&](size_t k, bool* one) {
      const MaskInstr& a = p.instrs_[in.args[k]];
      const Class from = class_of(a);
      *one = from != cls && (from == kUniform || from == kByRow);
      return data[in.args[k]] + (from == kByRow && cls == kMixed ? row * itemsize(a.dtype) : 0);
    };
    switch (in.kind) {
      case MaskInstr::kConst:
        break;
      case MaskInstr::kIndex: {
        const int64_t first = in.index == 0 ? t.b : in.index == 1 ? t.h : in.index == 2 ? t.q0 : t.kv0;
        int64_t* out = reinterpret_cast<int64_t*>(data[id]);
        for (int64_t i = 0; i < n; ++i) out[i] = first + i;
        break;
      }
      case MaskInstr::kCast: {
        bool one;
        const unsigned char* from = of(0, &one);
        kernels::cast_copy({const_cast<unsigned char*>(from), in.in_dtype, {n}, {one ? 0 : 1}},
                           {data[id], in.dtype, {n}, {1}});
        break;
      }
      case MaskInstr::kPointwise:
        for (size_t k = 0; k < in.args.size(); ++k) {
          bool one;
          operand[k] = of(k, &one);
          ones |= static_cast<uint32_t>(one) << k;
        }
        if (in.fn(operand, data[id], n, ones))
          fail(Code::kInvalidArgument,
               str_cat("mask_mod: ", kernels::pointwise_info(in.op).name, ": integer division by zero",
                       in.line.line ? str_cat(" at ", in.line.to_string()) : std::string()));
        break;
      case MaskInstr::kLookup: {
        const unsigned char* table = p.tables_[in.index].view.as<unsigned char>();
        const int64_t size = itemsize(in.dtype);
        if (cls != kUniform && read_in_place(in, id, n, row, table)) break;
        std::fill_n(offsets, n, in.offset);
        for (size_t k = 0; k < in.args.size(); ++k) {
          bool one;
          const unsigned char* index = of(k, &one);
          const bool ok = p.instrs_[in.args[k]].dtype == kInt32
                              ? add_offsets<int32_t>(index, one, n, in.extents[k], in.strides[k], offsets)
                              : add_offsets<int64_t>(index, one, n, in.extents[k], in.strides[k], offsets);
          if (!ok) out_of_range(in, k, index, one, n, row);
        }
        size == 8   ? take<uint64_t>(table, offsets, n, data[id])
        : size == 4 ? take<uint32_t>(table, offsets, n, data[id])
        : size == 2 ? take<uint16_t>(table, offsets, n, data[id])
                    : take<uint8_t>(table, offsets, n, data[id]);
        break;
      }
    }
  }

  /// Returns a range of the table in place, if one index moves along it with step 1 and the others are constant.
  bool read_in_place(const MaskInstr& in, int32_t id, int64_t n, int64_t row, const unsigned char* table) {
    const Class cls = class_of(in);
    int64_t at = in.offset, moving = -1;
    for (size_t k = 0; k < in.args.size(); ++k) {
      const MaskInstr& a = p.instrs_[in.args[k]];
      const Class from = class_of(a);
      const bool stays = from != cls && (from == kUniform || from == kByRow);
      const unsigned char* index = data[in.args[k]] + (from == kByRow && stays ? row * itemsize(a.dtype) : 0);
      if (!stays) {
        if (moving >= 0 || a.kind != MaskInstr::kIndex || in.strides[k] != 1) return false;
        moving = static_cast<int64_t>(k);
        const int64_t first = a.index == 2 ? t.q0 : t.kv0;
        if (first < 0 || first + n > in.extents[k]) out_of_range(in, k, index, false, n, row);
        at += first;
        continue;
      }
      int64_t v = 0;
      if (a.dtype == kInt32) {
        v = *reinterpret_cast<const int32_t*>(index);
      } else {
        std::memcpy(&v, index, 8);
      }
      if (v < 0 || v >= in.extents[k]) out_of_range(in, k, index, true, n, row);
      at += v * in.strides[k];
    }
    if (moving < 0) return false;
    data[id] = const_cast<unsigned char*>(table) + at * itemsize(in.dtype);
    return true;
  }

  [[noreturn]] void out_of_range(const MaskInstr& in, size_t k, const unsigned char* index, bool one, int64_t n,
                                 int64_t row) const {
    const bool narrow = p.instrs_[in.args[k]].dtype == kInt32;
    auto value = [&](int64_t i) {
      return narrow ? reinterpret_cast<const int32_t*>(index)[i] : reinterpret_cast<const int64_t*>(index)[i];
    };
    int64_t i = 0;
    while (!one && i < n && value(i) >= 0 && value(i) < in.extents[k]) ++i;
    const Class cls = class_of(in);
    const int64_t q = t.q0 + (cls == kByRow ? i : cls == kMixed ? row : 0);
    const int64_t kv = t.kv0 + (cls == kByColumn || cls == kMixed ? i : 0);
    fail(Code::kOutOfRange,
         str_cat("mask_mod: index ", value(i), " is out of range for a captured ", in.dtype,
                 p.tables_[in.index].view.shape, " at (b ", t.b, ", h ", t.h, ", q ", q, ", kv ", kv, ")",
                 in.line.line ? str_cat(", read at ", in.line.to_string()) : std::string(), "; need 0 <= index < ",
                 in.extents[k], ": make the table as long as the lengths, or clamp the index"));
  }
};

void MaskProgram::fill(const MaskTile& t, uint8_t* bits, int64_t row_bytes) const {
  if (t.rows <= 0) return;
  const int64_t bytes = (t.cols + 7) / 8;
  for (int64_t r = 0; r < t.rows; ++r) std::memset(bits + r * row_bytes + bytes, 0, row_bytes - bytes);
  if (t.cols <= 0) return;
  const auto points = [&](Class c) { return c == kUniform ? 1 : c == kByRow ? t.rows : t.cols; };
  auto rounded = [](int64_t n) { return (n + 63) & ~int64_t{63}; };
  int64_t total = rounded(static_cast<int64_t>(instrs_.size()) * 8) + rounded(static_cast<int64_t>(instrs_.size())) +
                  rounded(std::max(t.rows, t.cols) * 8);
  for (const MaskInstr& in : instrs_) total += rounded(points(class_of(in)) * itemsize(in.dtype));
  unsigned char* at = scratch(total);
  MaskRun run{*this, t, reinterpret_cast<unsigned char**>(at), nullptr, nullptr};
  at += rounded(static_cast<int64_t>(instrs_.size()) * 8);
  run.fresh = reinterpret_cast<bool*>(at);
  at += rounded(static_cast<int64_t>(instrs_.size()));
  run.offsets = reinterpret_cast<int64_t*>(at);
  at += rounded(std::max(t.rows, t.cols) * 8);
  for (size_t i = 0; i < instrs_.size(); ++i) {
    const MaskInstr& in = instrs_[i];
    if (in.kind == MaskInstr::kConst) {
      run.data[i] = const_cast<unsigned char*>(in.value);
      continue;
    }
    run.data[i] = at;
    at += rounded(points(class_of(in)) * itemsize(in.dtype));
  }
  std::vector<MixedStep>& mixed = mixed_steps();
  mixed.clear();
  for (int32_t i = 0; i < static_cast<int32_t>(instrs_.size()); ++i) {
    const MaskInstr& in = instrs_[i];
    if (class_of(in) != kMixed) {
      run.eval(i, points(class_of(in)), 0);
      continue;
    }
    MixedStep step{i, 0, {}, {}};
    bool too_many = in.args.size() > 3;
    for (size_t k = 0; k < in.args.size() && !too_many; ++k) {
      const MaskInstr& a = instrs_[in.args[k]];
      if (class_of(a) != kByRow && class_of(a) != kMixed) continue;
      step.arg[step.args] = in.args[k];
      step.size[step.args++] = class_of(a) == kByRow ? static_cast<int8_t>(itemsize(a.dtype)) : int8_t{0};
    }
    if (too_many) step.args = -1;
    mixed.push_back(step);
  }
  const Class result = class_of(instrs_[output_]);
  if (result == kMixed) {
    bool* fresh = run.fresh;  // instruction -> the value differs from the previous row's value
    for (int64_t r = 0; r < t.rows; ++r) {
      for (MixedStep& m : mixed) {
        bool changed = r == 0 || m.args < 0;
        for (int32_t k = 0; k < m.args && !changed; ++k) {
          const unsigned char* at = run.data[m.arg[k]] + r * m.size[k];
          changed = m.size[k] ? !same_bytes(at, at - m.size[k], m.size[k]) : fresh[m.arg[k]];
        }
        fresh[m.instr] = changed;
        if (changed) run.eval(m.instr, t.cols, r);
      }
      if (fresh[output_]) {
        pack(run.data[output_], t.cols, bits + r * row_bytes);
      } else {
        std::memcpy(bits + r * row_bytes, bits + (r - 1) * row_bytes, bytes);
      }
    }
    return;
  }
  if (result == kByColumn) {
    pack(run.data[output_], t.cols, bits);
    for (int64_t r = 1; r < t.rows; ++r) std::memcpy(bits + r * row_bytes, bits, bytes);
    return;
  }
  for (int64_t r = 0; r < t.rows; ++r) {
    const bool on = run.data[output_][result == kByRow ? r : 0];
    uint8_t* row = bits + r * row_bytes;
    std::memset(row, on ? 0xff : 0, bytes);
    if (on && t.cols % 8) row[bytes - 1] = static_cast<uint8_t>((1 << t.cols % 8) - 1);
  }
}

kernels::MaskFill MaskProgram::fill_hook() const {
  return {[](const void* context, int64_t b, int64_t h, int64_t q0, int64_t kv0, int64_t rows, int64_t cols,
             uint8_t* bits, int64_t row_bytes) {
            static_cast<const MaskProgram*>(context)->fill({b, h, q0, kv0, rows, cols}, bits, row_bytes);
          },
          this};
}

}  // namespace weft::internal
