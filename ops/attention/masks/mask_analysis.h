// Evaluates a mask over a whole rectangle of queries and keys without evaluating its points: mask programs run on
// ranges (mask_range.h); captured integer tables are represented by minima and maxima of their ranges.
#pragma once
#include <memory>
#include <unordered_map>

#include "framework/base/mutex.h"
#include "ops/attention/masks/mask_program.h"
#include "ops/attention/masks/mask_range.h"

namespace weft::internal {

/// Minimum and maximum over any range of one line of a table (integers or bool): built in O(n), queried in O(log n).
class LineBounds {
 public:
  /// n elements, `stride` elements apart.
  LineBounds(const void* first, DType dtype, int64_t n, int64_t stride);
  /// The range of elements [lo, hi], which must be inside the line.
  MaskRange over(int64_t lo, int64_t hi) const;

 private:
  struct BoundPair {
    int64_t lo, hi;
  };
  BoundPair scan(int64_t begin, int64_t end) const;
  const void* first_;
  DType dtype_;
  int64_t n_, stride_, leaves_ = 0;
  std::vector<BoundPair> tree_;  // a heap of `leaves_` leaves of 64 elements
};

/// The lines of a program's tables that were queried so far; shared by analyses in several threads.
class TableBounds {
 public:
  const LineBounds& line(const void* first, DType dtype, int64_t n, int64_t stride);

 private:
  Mutex mutex_;
  std::unordered_map<const void*, std::vector<std::pair<int64_t, std::unique_ptr<LineBounds>>>> lines_
      WEFT_GUARDED_BY(mutex_);
};

/// One thread's evaluation for one batch entry and head.
class MaskAnalysis {
 public:
  MaskAnalysis(const MaskProgram& program, TableBounds& bounds, int64_t b, int64_t h)
      : MaskAnalysis(program, bounds, MaskRange::of(b), MaskRange::of(h)) {}
  /// The evaluation for all these batch entries and heads at once.
  MaskAnalysis(const MaskProgram& program, TableBounds& bounds, const MaskRange& b, const MaskRange& h);

  /// The mask over queries [q0, q1) x keys [kv0, kv1), none empty: constant only if it is constant over all points.
  const MaskRange& over(int64_t q0, int64_t q1, int64_t kv0, int64_t kv1);
  /// The ranges of all instructions after the last call of over().
  std::span<const MaskRange> ranges() const { return ranges_; }

 private:
  struct TableLine {
    const void* first = nullptr;
    int64_t stride = 0;
    const LineBounds* bounds = nullptr;
  };
  MaskRange eval(int32_t id) const;
  MaskRange lookup(int32_t id) const;
  const LineBounds& line(int32_t id, const void* first, DType dtype, int64_t n, int64_t stride) const;

  const MaskProgram& program_;
  TableBounds& bounds_;
  std::vector<MaskRange> ranges_;
  std::vector<int32_t> varying_;           // instructions that depend on q or kv
  mutable std::vector<TableLine> recent_;  // instruction -> the most recently queried line
};

}  // namespace weft::internal
