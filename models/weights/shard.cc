#include "models/weights/shard.h"

#include <algorithm>

namespace weft::weights {
namespace {

// The number of indices of each dim of a piece, and the first ones.
struct Box {
  std::vector<int64_t> first, count;
};

// The dims of a piece that number the elements along one dim of the cell: index i of dims[k] is i * strides[k] further.
struct Digits {
  std::vector<size_t> dims;      // dims of the piece
  std::vector<int64_t> strides;  // in indices of the cell's dim; descending
  int64_t offset = 0;            // the index in the cell's dim of the piece's first element

  // The number of indices from the first to the last that the digits from k on reach.
  int64_t span(const Piece& p, size_t k) const {
    int64_t n = 1;
    for (; k < dims.size(); ++k) n += (p.extents[dims[k]] - 1) * strides[k];
    return n;
  }
};

int64_t floor_div(int64_t a, int64_t b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }

// Adds to `out` the boxes of the elements whose digits from k on have values in [begin, end); `box` has the others.
void add_boxes(const Piece& p, const Digits& g, size_t k, int64_t begin, int64_t end, Box box, std::vector<Box>& out) {
  if (begin <= 0 && end >= g.span(p, k)) {
    for (; k < g.dims.size(); ++k) box.first[g.dims[k]] = 0, box.count[g.dims[k]] = p.extents[g.dims[k]];
    return out.push_back(std::move(box));
  }
  if (k == g.dims.size()) return;  // a single index, outside of the range
  const size_t d = g.dims[k];
  const int64_t stride = g.strides[k], inner = g.span(p, k + 1);
  // Indices that reach into the range, and the indices that are inside it.
  const int64_t first = std::max<int64_t>(0, floor_div(begin - inner, stride) + 1),
                last = std::min(p.extents[d] - 1, floor_div(end - 1, stride)),
                inside = std::max(first, -floor_div(-begin, stride)),
                behind = std::max(inside, std::min(last, floor_div(end - inner, stride)) + 1);
  const auto cut = [&](int64_t i) {
    box.first[d] = i, box.count[d] = 1;
    add_boxes(p, g, k + 1, begin - i * stride, end - i * stride, box, out);
  };
  for (int64_t i = first; i < std::min(inside, last + 1); ++i) cut(i);
  if (inside < behind) {
    box.first[d] = inside, box.count[d] = behind - inside;
    add_boxes(p, g, k + 1, 0, inner, box, out);
  }
  for (int64_t i = behind; i <= last; ++i) cut(i);
}

}  // namespace

std::vector<Piece> pieces_in(const Piece& piece, const Shape& cell, const TensorPart& part) {
  if (cell.numel() == 0) return {};
  const Shape strides = contiguous_strides(cell), own = contiguous_strides(part.shape());
  std::vector<Digits> digits(static_cast<size_t>(cell.size()));
  int64_t rest = piece.to_offset;
  for (int k = 0; k < cell.size(); ++k) {
    Digits& g = digits[static_cast<size_t>(k)];
    g.offset = rest / strides[k];
    rest %= strides[k];
    for (size_t d = 0; d < piece.extents.size(); ++d)
      if (piece.extents[d] > 1 && piece.to[d] >= strides[k] && piece.to[d] < strides[k] * cell[k]) g.dims.push_back(d);
    std::sort(g.dims.begin(), g.dims.end(), [&](size_t a, size_t b) { return piece.to[a] > piece.to[b]; });
    for (const size_t d : g.dims) g.strides.push_back(piece.to[d] / strides[k]);
  }
  Piece whole = piece;
  whole.to_offset = 0;
  std::vector<Piece> pieces{whole};
  for (int k = 0; k < cell.size(); ++k) {
    const Digits& g = digits[static_cast<size_t>(k)];
    std::vector<Piece> next;
    int64_t before = 0;  // indices of the part in earlier ranges
    for (const auto& [begin, end] : part.dims[static_cast<size_t>(k)]) {
      std::vector<Box> boxes;
      const Box all{std::vector<int64_t>(piece.extents.size()), piece.extents};
      add_boxes(piece, g, 0, begin - g.offset, end - g.offset, all, boxes);
      for (const Box& box : boxes)
        for (Piece p : pieces) {
          int64_t at = g.offset - begin + before;
          for (size_t i = 0; i < g.dims.size(); ++i) {
            const size_t d = g.dims[i];
            at += box.first[d] * g.strides[i];
            p.from_offset += box.first[d] * piece.from[d];
            p.extents[d] = box.count[d];
            p.to[d] = g.strides[i] * own[k];
          }
          p.to_offset += at * own[k];
          next.push_back(std::move(p));
        }
      before += end - begin;
    }
    pieces = std::move(next);
  }
  return pieces;
}

}  // namespace weft::weights
