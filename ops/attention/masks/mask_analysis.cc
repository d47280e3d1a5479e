#include "ops/attention/masks/mask_analysis.h"

#include <algorithm>
#include <limits>

namespace weft::internal {
namespace {

constexpr int64_t kLeaf = 64;

int64_t read(const void* p, DType dtype, int64_t i) {
  return with_integer(dtype, [&]<class T>(T) { return static_cast<int64_t>(static_cast<const T*>(p)[i]); });
}

template <class E>
void scan_line(const void* first, int64_t begin, int64_t end, int64_t stride, int64_t* lo, int64_t* hi) {
  const E* p = static_cast<const E*>(first);
  E least = p[begin * stride], most = least;
  for (int64_t i = begin; i < end; ++i) {
    const E v = p[i * stride];
    least = v < least ? v : least;
    most = v > most ? v : most;
  }
  *lo = least;
  *hi = most;
}

}  // namespace

LineBounds::LineBounds(const void* first, DType dtype, int64_t n, int64_t stride)
    : first_(first), dtype_(dtype), n_(n), stride_(stride) {
  const int64_t leaves = (n + kLeaf - 1) / kLeaf;
  leaves_ = 1;
  while (leaves_ < leaves) leaves_ *= 2;
  tree_.assign(2 * leaves_, {std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()});
  for (int64_t i = 0; i < leaves; ++i) tree_[leaves_ + i] = scan(i * kLeaf, std::min(n, (i + 1) * kLeaf));
  for (int64_t i = leaves_ - 1; i > 0; --i)
    tree_[i] = {std::min(tree_[2 * i].lo, tree_[2 * i + 1].lo), std::max(tree_[2 * i].hi, tree_[2 * i + 1].hi)};
}

LineBounds::BoundPair LineBounds::scan(int64_t begin, int64_t end) const {
  BoundPair r;
  with_integer(dtype_, [&]<class T>(T) { scan_line<T>(first_, begin, end, stride_, &r.lo, &r.hi); });
  return r;
}

MaskRange LineBounds::over(int64_t lo, int64_t hi) const {
  const int64_t end = hi + 1;
  int64_t a = (lo + kLeaf - 1) / kLeaf, b = end == n_ ? (n_ + kLeaf - 1) / kLeaf : end / kLeaf;
  BoundPair r{std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()};
  auto take = [&](const BoundPair& p) {
    r.lo = std::min(r.lo, p.lo);
    r.hi = std::max(r.hi, p.hi);
  };
  if (a >= b) {
    take(scan(lo, end));
    return MaskRange::between(r.lo, r.hi);
  }
  if (lo < a * kLeaf) take(scan(lo, a * kLeaf));
  if (b * kLeaf < end) take(scan(b * kLeaf, end));
  for (a += leaves_, b += leaves_; a < b; a /= 2, b /= 2) {
    if (a & 1) take(tree_[a++]);
    if (b & 1) take(tree_[--b]);
  }
  return MaskRange::between(r.lo, r.hi);
}

const LineBounds& TableBounds::line(const void* first, DType dtype, int64_t n, int64_t stride) {
  MutexLock lock(mutex_);
  auto& of_place = lines_[first];
  for (auto& [s, line] : of_place)
    if (s == stride) return *line;
  of_place.emplace_back(stride, std::make_unique<LineBounds>(first, dtype, n, stride));
  return *of_place.back().second;
}

MaskAnalysis::MaskAnalysis(const MaskProgram& program, TableBounds& bounds, const MaskRange& b, const MaskRange& h)
    : program_(program), bounds_(bounds), ranges_(program.instrs().size()), recent_(program.instrs().size()) {
  for (int32_t i = 0; i < static_cast<int32_t>(ranges_.size()); ++i) {
    const MaskInstr& in = program.instrs()[i];
    if (in.kind == MaskInstr::kIndex && in.index < 2) {
      ranges_[i] = in.index ? h : b;
    } else if (in.deps & (kDepQ | kDepKv)) {
      varying_.push_back(i);
    } else {
      ranges_[i] = eval(i);
    }
  }
}

const MaskRange& MaskAnalysis::over(int64_t q0, int64_t q1, int64_t kv0, int64_t kv1) {
  for (int32_t i : varying_) {
    const MaskInstr& in = program_.instrs()[i];
    if (in.kind == MaskInstr::kIndex) {
      ranges_[i] = in.index == 2 ? MaskRange::between(q0, q1 - 1) : MaskRange::between(kv0, kv1 - 1);
    } else {
      ranges_[i] = eval(i);
    }
  }
  return ranges_[program_.output()];
}

MaskRange MaskAnalysis::eval(int32_t id) const {
  const MaskInstr& in = program_.instrs()[id];
  switch (in.kind) {
    case MaskInstr::kConst:
      return is_floating(in.dtype) ? MaskRange::any(in.dtype) : MaskRange::of(in.integer());
    case MaskInstr::kCast:
      return range_of_cast(in.in_dtype, in.dtype, ranges_[in.args[0]]);
    case MaskInstr::kLookup:
      return lookup(id);
    default: {
      const size_t n = in.args.size();
      const MaskRange* args[3] = {&ranges_[in.args[0]], &ranges_[in.args[n > 1 ? 1 : 0]],
                                  &ranges_[in.args[n > 2 ? 2 : 0]]};
      return range_of(in.op, in.in_dtype, in.dtype, args, n == 2 && in.args[0] == in.args[1]);
    }
  }
}

MaskRange MaskAnalysis::lookup(int32_t id) const {
  const MaskInstr& in = program_.instrs()[id];
  const MaskRange any = MaskRange::any(in.dtype);
  if (is_floating(in.dtype)) return any;
  // The longest range is looked up as a line; the other indices are enumerated if they are few.
  int64_t at = in.offset, others = 1;
  size_t longest = 0;
  for (size_t k = 0; k < in.args.size(); ++k) {
    const MaskRange& r = ranges_[in.args[k]];
    if (r.lo < 0 || r.hi >= in.extents[k]) return any;
    const MaskRange& best = ranges_[in.args[longest]];
    if (r.hi - r.lo > best.hi - best.lo) longest = k;
  }
  for (size_t k = 0; k < in.args.size(); ++k) {
    const MaskRange& r = ranges_[in.args[k]];
    if (k == longest) continue;
    at += r.lo * in.strides[k];
    others *= r.hi - r.lo + 1;
    if (others > 16) return any;
  }
  const unsigned char* table = program_.tables()[in.index].view.as<unsigned char>();
  const int64_t size = itemsize(in.dtype);
  const MaskRange& r = ranges_[in.args[longest]];
  if (r.constant()) return MaskRange::of(read(table, in.dtype, at + r.lo * in.strides[longest]));
  MaskRange all;
  for (int64_t n = 0; n < others; ++n) {
    int64_t from = at, left = n;
    for (size_t k = 0; k < in.args.size(); ++k) {
      if (k == longest) continue;
      const int64_t width = ranges_[in.args[k]].hi - ranges_[in.args[k]].lo + 1;
      from += left % width * in.strides[k];
      left /= width;
    }
    const MaskRange one =
        line(id, table + from * size, in.dtype, in.extents[longest], in.strides[longest]).over(r.lo, r.hi);
    all = n ? range_join(all, one) : one;
  }
  return all;
}

const LineBounds& MaskAnalysis::line(int32_t id, const void* first, DType dtype, int64_t n, int64_t stride) const {
  TableLine& l = recent_[id];
  if (l.first != first || l.stride != stride) l = {first, stride, &bounds_.line(first, dtype, n, stride)};
  return *l.bounds;
}

}  // namespace weft::internal
