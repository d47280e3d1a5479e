#include "ops/attention/masks/mask_key.h"

#include <bit>

namespace weft::internal {
namespace {

using kernels::Pw;

constexpr size_t kMostNames = size_t{1} << 20;

// First words of keys; instructions that are not decomposed use their op with kOpaque.
enum KeyKind : int64_t { kAffine = 1, kSum, kScaled, kQuotient, kRemainder, kCompared, kOpaque = 1000 };

bool less_than_all(const MaskRange& r, DType t) {
  const MaskRange any = MaskRange::any(t);
  return r.lo != any.lo || r.hi != any.hi;
}
int64_t floor_div(int64_t a, int64_t n) { return a / n - (a % n < 0); }

}  // namespace

MaskKeys::MaskKeys(const MaskProgram& program) : program_(program), terms_(program.instrs().size()), slots_(256, -1) {
  affine(0, 0);
  at_q_ = affine(1, 0);
  at_kv_ = affine(0, 1);
}

int32_t MaskKeys::intern(const FunctionKey& key, uint8_t ties) {
  uint64_t h = 0;
  for (int64_t v : key.v) h = (std::rotl(h, 29) ^ static_cast<uint64_t>(v)) * 0x9e3779b97f4a7c15ull;
  h ^= h >> 32;
  size_t i = h & (slots_.size() - 1);
  for (; slots_[i] >= 0; i = (i + 1) & (slots_.size() - 1))
    if (bases_[slots_[i]].key == key) return slots_[i];
  const int32_t id = static_cast<int32_t>(bases_.size());
  bases_.push_back({key, 0, 0, false, ties});
  slots_[i] = id;
  if (slots_.size() < 2 * bases_.size()) {
    slots_.assign(slots_.size() * 4, -1);
    const std::vector<FunctionBase> all = std::move(bases_);
    bases_.clear();
    bases_.reserve(all.size() * 2);
    for (const FunctionBase& b : all) {  // in order, so that numbers stay the same
      intern(b.key, b.ties);
      bases_.back() = b;
    }
  }
  return id;
}

int32_t MaskKeys::affine(int64_t per_q, int64_t per_kv) {
  const int32_t base = intern({{kAffine, per_q, per_kv, 0, 0}},
                              static_cast<uint8_t>((per_q ? kMovesWithQ : 0) | (per_kv ? kMovesWithKv : 0)));
  bases_[base].affine = true;
  bases_[base].per_q = per_q;
  bases_[base].per_kv = per_kv;
  return base;
}

/// a + sign * b as a base.
int32_t MaskKeys::combine(int32_t a, int32_t b, int64_t sign) {
  if (b == 0) return a;
  if (a == b && sign < 0) return 0;
  const FunctionBase &x = bases_[a], &y = bases_[b];
  if (x.affine && y.affine) {
    int64_t q, kv;
    if (!__builtin_add_overflow(x.per_q, sign * y.per_q, &q) && !__builtin_add_overflow(x.per_kv, sign * y.per_kv, &kv))
      return affine(q, kv);
  }
  return intern({{kSum, a, b, sign, 0}}, x.ties | y.ties);
}

int32_t MaskKeys::name(const MaskAnalysis& analysis, int64_t q0, int64_t kv0) {
  if (bases_.size() > kMostNames) return -1;
  const std::span<const MaskRange> ranges = analysis.ranges();
  const std::span<const MaskInstr> instrs = program_.instrs();
  for (size_t i = 0; i < instrs.size(); ++i) {
    const MaskInstr& in = instrs[i];
    if (!is_floating(in.dtype) && ranges[i].constant()) {
      terms_[i] = {0, ranges[i].lo};
    } else if (in.kind == MaskInstr::kIndex) {
      terms_[i] = in.index == 2 ? BaseTerm{at_q_, q0} : BaseTerm{at_kv_, kv0};
    } else {
      terms_[i] = eval(in, ranges, ranges[i]);
    }
  }
  const BaseTerm& out = terms_[program_.output()];
  // The block reads a part of a table at its own q and another value at its own kv, so no other block equals it.
  const uint8_t t = ties(out);
  if (((t & kReadsAtQ) && (t & (kMovesWithKv | kReadsAtKv))) || ((t & kReadsAtKv) && (t & kMovesWithQ))) return -1;
  return intern({{kCompared, out.base, out.constant, 0, 0}}, t);
}

MaskKeys::BaseTerm MaskKeys::opaque(const MaskInstr& in) {
  int64_t value = 0;
  if (in.kind == MaskInstr::kConst) __builtin_memcpy(&value, in.value, 8);
  // A lookup is distinguished from others by its own number, because its table and strides are its own.
  const int64_t what = kOpaque + static_cast<int64_t>(in.kind) * 1000 + static_cast<int64_t>(in.op);
  const int64_t self = in.kind == MaskInstr::kLookup
                           ? &in - program_.instrs().data()
                           : static_cast<int64_t>(in.dtype) * 16 + static_cast<int64_t>(in.in_dtype);
  uint8_t tied = 0;
  for (int32_t a : in.args) tied |= ties(terms_[a]);
  if (in.kind == MaskInstr::kLookup)  // the position that it reads, whatever moves there
    tied = static_cast<uint8_t>((in.deps & kDepQ ? kReadsAtQ : 0) | (in.deps & kDepKv ? kReadsAtKv : 0));
  int32_t base = intern({{what, self, value, static_cast<int64_t>(in.args.size()), 0}}, tied);
  for (int32_t a : in.args) base = intern({{kOpaque, base, terms_[a].base, terms_[a].constant, 0}}, tied);
  return {base, 0};
}

MaskKeys::BaseTerm MaskKeys::eval(const MaskInstr& in, std::span<const MaskRange> ranges, const MaskRange& own) {
  if (in.kind == MaskInstr::kCast) {
    // Exact if the value fits both types.
    const MaskRange& x = ranges[in.args[0]];
    const MaskRange any = MaskRange::any(in.dtype);
    const bool whole = !is_floating(in.in_dtype) && !is_floating(in.dtype) && in.dtype != kBool;
    return whole && x.lo >= any.lo && x.hi <= any.hi ? terms_[in.args[0]] : opaque(in);
  }
  if (in.kind != MaskInstr::kPointwise || (is_floating(in.in_dtype) && in.op != Pw::where)) return opaque(in);
  const BaseTerm a = terms_[in.args[0]];
  const BaseTerm b = in.args.size() > 1 ? terms_[in.args[1]] : BaseTerm{};
  const MaskRange &ra = ranges[in.args[0]], &rb = ranges[in.args[in.args.size() > 1 ? 1 : 0]];
  int64_t c = 0;
  switch (in.op) {
    case Pw::add:
    case Pw::sub: {
      const int64_t sign = in.op == Pw::add ? 1 : -1;
      const bool wraps = sign > 0 ? __builtin_add_overflow(a.constant, b.constant, &c)
                                  : __builtin_sub_overflow(a.constant, b.constant, &c);
      if (wraps || !less_than_all(own, in.dtype)) return opaque(in);
      if (a.base == 0 && sign > 0) return {b.base, c};
      return {combine(a.base, b.base, sign), c};
    }
    case Pw::neg:
      if (!less_than_all(own, in.dtype) || __builtin_sub_overflow(int64_t{0}, a.constant, &c)) return opaque(in);
      return {combine(0, a.base, -1), c};
    case Pw::mul: {
      const bool right = b.base == 0;
      if (!less_than_all(own, in.dtype) || !(right || a.base == 0)) return opaque(in);
      const BaseTerm& x = right ? a : b;
      const int64_t k = right ? b.constant : a.constant;
      if (__builtin_mul_overflow(x.constant, k, &c)) return opaque(in);
      if (const FunctionBase f = bases_[x.base]; f.affine) {
        int64_t q, kv;
        if (!__builtin_mul_overflow(f.per_q, k, &q) && !__builtin_mul_overflow(f.per_kv, k, &kv))
          return {affine(q, kv), c};
      }
      return {intern({{kScaled, x.base, k, 0, 0}}, ties(x)), c};
    }
    case Pw::floor_divide:
    case Pw::remainder: {
      if (b.base != 0 || b.constant <= 0) return opaque(in);
      // (x + c) // n = (x + c mod n) // n + c // n
      const int64_t n = b.constant, down = floor_div(a.constant, n), rest = a.constant - down * n;
      if (in.op == Pw::floor_divide) return {intern({{kQuotient, a.base, rest, n, 0}}, ties(a)), down};
      return ra.lo >= 0 && ra.hi < n ? a : BaseTerm{intern({{kRemainder, a.base, rest, n, 0}}, ties(a)), 0};
    }
    case Pw::maximum:
      return ra.lo >= rb.hi ? a : rb.lo >= ra.hi ? b : opaque(in);
    case Pw::minimum:
      return ra.hi <= rb.lo ? a : rb.hi <= ra.lo ? b : opaque(in);
    case Pw::abs:
      return ra.lo >= 0 ? a : opaque(in);
    case Pw::logical_and:
    case Pw::logical_or:
      if (in.in_dtype != kBool) return opaque(in);
      if (a.base == 0 || b.base == 0) {
        const BaseTerm &known = a.base == 0 ? a : b, &other = a.base == 0 ? b : a;
        return (known.constant != 0) == (in.op == Pw::logical_and) ? other : known;
      }
      return opaque(in);
    case Pw::where:
      return a.base == 0 && ra.constant() ? (a.constant ? b : terms_[in.args[2]]) : opaque(in);
    case Pw::eq:
    case Pw::ne:
    case Pw::lt:
    case Pw::le:
    case Pw::gt:
    case Pw::ge: {
      if (__builtin_sub_overflow(a.constant, b.constant, &c)) return opaque(in);
      const uint8_t tied = ties(a) | ties(b);
      return {intern({{kCompared + 1 + static_cast<int64_t>(in.op), combine(a.base, b.base, -1), c, 0, 0}}, tied), 0};
    }
    default:
      return opaque(in);
  }
}

}  // namespace weft::internal
