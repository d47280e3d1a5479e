#include "distributed/placement/spec.h"

#include <algorithm>
#include <cstring>

#include "ops/core/core.h"

namespace weft::dist {

Spec Spec::replicated(const Shape& shape) {
  Spec s;
  for (int64_t extent : shape) s.dims.push_back(one_segment(extent));
  return s;
}

bool Spec::is_replicated() const {
  if (!pending.empty()) return false;
  for (const DimSpec& d : dims)
    if (!whole(d)) return false;
  return true;
}

bool Spec::is_pending(int axis) const {
  for (const Pending& p : pending)
    if (p.axis == axis) return true;
  return false;
}

bool Spec::splits(int axis) const {
  for (const DimSpec& d : dims)
    for (const Seg& s : d)
      if (s.axes.contains(static_cast<int8_t>(axis))) return true;
  return false;
}

void Spec::add_pending(int axis, ReduceOp op) {
  SmallVec<Pending, 2> now;
  bool done = false;
  for (const Pending& p : pending) {
    if (!done && p.axis > axis) now.push_back({static_cast<int8_t>(axis), op}), done = true;
    now.push_back(p);
  }
  if (!done) now.push_back({static_cast<int8_t>(axis), op});
  pending = std::move(now);
}

Axes Spec::split_axes() const {
  Axes out;
  for (const DimSpec& d : dims)
    for (int8_t a : axes_of(d)) out.push_back(a);
  return out;
}

DimSpec one_segment(int64_t extent, const Axes& axes, SegLayout layout) {
  DimSpec d;
  d.push_back({extent, axes, axes.empty() ? SegLayout::kBlock : layout});
  return d;
}

Axes axes_of(const DimSpec& dim) {
  Axes out;
  for (const Seg& s : dim)
    for (int8_t a : s.axes) out.push_back(a);
  return out;
}

bool whole(const DimSpec& dim) {
  for (const Seg& s : dim)
    if (!s.axes.empty()) return false;
  return true;
}

bool is_rows(const DimSpec& dim) { return dim.size() == 1 && dim[0].is_rows(); }

DimSpec canonical(const Mesh& mesh, const DimSpec& dim) {
  DimSpec out;
  for (const Seg& s : dim) {
    if (s.extent == 1 && s.axes.empty() && dim.size() > 1) continue;
    if (out.empty()) {
      out.push_back(s);
      continue;
    }
    Seg& last = out.back();
    const int64_t parts = mesh.parts(last.axes);
    const bool blocks = last.layout == SegLayout::kBlock && s.layout == SegLayout::kBlock;
    const bool fixed = last.is_rows() || last.layout == SegLayout::kTable;  // its positions are listed one by one
    if (s.axes.empty() && !fixed && (last.axes.empty() || last.extent % last.pieces(parts) == 0)) {
      last.extent *= s.extent;
    } else if (blocks && parts == last.extent && s.extent > 0) {
      last.extent *= s.extent;
      for (int8_t a : s.axes) last.axes.push_back(a);
    } else {
      out.push_back(s);
    }
  }
  if (out.empty()) out.push_back({});
  return out;
}

std::optional<std::vector<DimSpec>> cut(const Mesh& mesh, const DimSpec& dim, const std::vector<int64_t>& sizes) {
  if (sizes.size() == 1) return std::vector<DimSpec>{dim};
  if (is_rows(dim)) return {};
  std::vector<Seg> left(dim.begin(), dim.end());
  std::reverse(left.begin(), left.end());  // the next segment is at the back
  std::vector<DimSpec> out;
  for (size_t f = 0; f < sizes.size(); ++f) {
    int64_t rem = sizes[f];
    DimSpec part;
    if (f + 1 == sizes.size()) {
      while (!left.empty()) {
        part.push_back(left.back());
        rem = left.back().extent > 0 && rem % left.back().extent == 0 ? rem / left.back().extent : 0;
        left.pop_back();
      }
      if (part.empty()) part.push_back({});
      if (rem != 1 && !whole(part)) return {};
      if (whole(part)) part = one_segment(sizes[f]);
      out.push_back(canonical(mesh, part));
      break;
    }
    while (rem > 1) {
      if (left.empty()) return {};
      Seg s = left.back();
      left.pop_back();
      if (s.extent <= 0) return {};
      if (s.extent <= rem) {
        if (rem % s.extent != 0) return {};
        part.push_back(s);
        rem /= s.extent;
        continue;
      }
      if (s.extent % rem != 0) return {};
      if (s.layout == SegLayout::kTable) return {};
      if (rem % s.pieces(mesh.parts(s.axes)) == 0) {
        part.push_back({rem, s.axes, s.layout});
        left.push_back({s.extent / rem, {}, SegLayout::kBlock});
      } else {
        if (s.layout != SegLayout::kBlock) return {};
        Seg major{rem, {}, SegLayout::kBlock}, minor{s.extent / rem, {}, SegLayout::kBlock};
        int64_t product = 1;
        for (int8_t a : s.axes) {
          if (product < rem) {
            product *= mesh.axis_size(a);
            major.axes.push_back(a);
          } else {
            minor.axes.push_back(a);
          }
        }
        if (product != rem) return {};
        part.push_back(major);
        left.push_back(minor);
      }
      rem = 1;
    }
    if (part.empty()) part = one_segment(sizes[f]);
    out.push_back(canonical(mesh, part));
  }
  return out;
}

DimSpec join(const Mesh& mesh, const std::vector<DimSpec>& parts) {
  DimSpec all;
  for (const DimSpec& p : parts)
    for (const Seg& s : p) all.push_back(s);
  return canonical(mesh, all);
}

namespace {

int64_t bound(int64_t extent, int64_t parts, int64_t i) { return i * extent / parts; }

// The ranges [begin, end) of a segment that a rank owns, in local order.
SmallVec<std::pair<int64_t, int64_t>, 2> pieces(const Mesh& mesh, const Seg& seg, int rank) {
  SmallVec<std::pair<int64_t, int64_t>, 2> out;
  WEFT_BUG_IF(seg.is_rows() || seg.layout == SegLayout::kTable, "positions are known only when the step runs");
  const int64_t n = mesh.parts(seg.axes), i = mesh.coordinate(rank, seg.axes);
  if (seg.layout == SegLayout::kBlock) {
    out.push_back({bound(seg.extent, n, i), bound(seg.extent, n, i + 1)});
  } else {
    for (int64_t c : {i, 2 * n - 1 - i}) out.push_back({bound(seg.extent, 2 * n, c), bound(seg.extent, 2 * n, c + 1)});
  }
  return out;
}

// The global indices of a dim that a rank has.
IndexRanges ranges_of(const Mesh& mesh, const DimSpec& dim, int rank) {
  IndexRanges out{{0, 1}};
  for (const Seg& s : dim) {
    IndexRanges next;
    const auto own = pieces(mesh, s, rank);
    const bool all = own.size() == 1 && own[0] == std::pair<int64_t, int64_t>(0, s.extent);
    for (const auto& [first, last] : out) {
      if (all) {
        add_range(next, first * s.extent, last * s.extent);
        continue;
      }
      for (int64_t base = first; base < last; ++base)
        for (const auto& [begin, end] : own) add_range(next, base * s.extent + begin, base * s.extent + end);
    }
    out = std::move(next);
  }
  return out;
}

// Calls f(byte of the whole, byte of the part, number of bytes) for the runs of a rank's part.
template <class F>
void each_byte_run(const Mesh& mesh, const Spec& spec, const TensorType& type, int rank, F&& f) {
  const int64_t item = itemsize(type.dtype);
  each_run(part_of(mesh, spec, rank), type.shape,
           [&](const ElementRun& r) { f(r.whole * item, r.part * item, static_cast<size_t>(r.count * item)); });
}

char* bytes_of(const Tensor& t) { return static_cast<char*>(t.get().storage->data()) + t.get().offset; }

}  // namespace

int64_t local_extent(const Mesh& mesh, const Seg& seg, int rank) {
  if (seg.axes.empty()) return seg.extent;
  if (seg.layout == SegLayout::kByExpert) return seg.room;
  if (seg.layout == SegLayout::kByToken || seg.layout == SegLayout::kTable) return seg.extent / mesh.parts(seg.axes);
  int64_t n = 0;
  for (const auto& [begin, end] : pieces(mesh, seg, rank)) n += end - begin;
  return n;
}

int64_t local_extent(const Mesh& mesh, const DimSpec& dim, int rank) {
  int64_t n = 1;
  for (const Seg& s : dim) n *= local_extent(mesh, s, rank);
  return n;
}

Shape local_shape(const Mesh& mesh, const Spec& spec, int rank) {
  Shape s;
  for (const DimSpec& d : spec.dims) s.push_back(local_extent(mesh, d, rank));
  return s;
}

int64_t local_bytes(const Mesh& mesh, const Spec& spec, DType dtype, int rank) {
  return local_shape(mesh, spec, rank).numel() * itemsize(dtype);
}

TensorPart part_of(const Mesh& mesh, const Spec& spec, int rank) {
  TensorPart part;
  for (const DimSpec& d : spec.dims) part.dims.push_back(ranges_of(mesh, d, rank));
  return part;
}

std::vector<int64_t> global_indices(const Mesh& mesh, const DimSpec& dim, int rank) {
  std::vector<int64_t> out;
  for (const auto& [begin, end] : ranges_of(mesh, dim, rank))
    for (int64_t i = begin; i < end; ++i) out.push_back(i);
  return out;
}

bool even(const Mesh& mesh, const Spec& spec) {
  for (const DimSpec& d : spec.dims)
    for (const Seg& s : d)
      if (!s.is_rows() && s.extent % s.pieces(mesh.parts(s.axes)) != 0) return false;
  return true;
}

Tensor shard(const Mesh& mesh, const Spec& spec, const Tensor& whole, int rank) {
  NoGrad guard;
  const Tensor from = whole.contiguous();
  TensorType type = whole.type();
  type.device = Device::cpu(rank);
  type.shape = local_shape(mesh, spec, rank);
  Tensor to = Tensor::empty(type);
  for (const Pending& p : spec.pending) {
    Axes axis;
    axis.push_back(p.axis);
    if (p.op == ReduceOp::kSum && mesh.coordinate(rank, axis) != 0) {
      std::memset(bytes_of(to), 0, static_cast<size_t>(type.nbytes()));
      return to;
    }
  }
  each_byte_run(mesh, spec, whole.type(), rank, [&](int64_t at, int64_t local, size_t n) {
    std::memcpy(bytes_of(to) + local, bytes_of(from) + at, n);
  });
  return to;
}

Tensor unshard(const Mesh& mesh, const Spec& spec, const TensorType& type, const std::vector<Tensor>& parts) {
  NoGrad guard;
  WEFT_BUG_IF(static_cast<int>(parts.size()) != mesh.size(), "unshard: ", parts.size(), " parts of ", mesh.size());
  TensorType host = type;
  host.device = Device::cpu();
  if (!spec.pending.empty()) {
    Axes axes;
    for (const Pending& p : spec.pending) axes.push_back(p.axis);
    Spec rest = spec;
    rest.pending = {};
    const bool exact = !is_floating(type.dtype);
    std::vector<Tensor> reduced(parts.size());
    for (int r = 0; r < mesh.size(); ++r) {
      Tensor sum;
      for (int peer : mesh.group(r, axes)) {
        Tensor term = parts[peer].to(Device::cpu());
        if (!exact) term = term.to(kFloat64);
        const ReduceOp op = spec.pending[0].op;
        sum = !sum.defined()         ? term
              : op == ReduceOp::kMax ? maximum(sum, term)
              : op == ReduceOp::kMin ? minimum(sum, term)
                                     : sum + term;
      }
      reduced[r] = sum.to(type.dtype);
    }
    return unshard(mesh, rest, type, reduced);
  }
  Tensor to = Tensor::empty(host);
  for (int r = mesh.size(); r-- > 0;) {
    const Tensor part = parts[r].contiguous();
    const Shape need = local_shape(mesh, spec, r);
    WEFT_BUG_IF(part.shape() != need, "unshard: part of rank ", r, " is ", part.type(), "; need ", need);
    each_byte_run(mesh, spec, type, r, [&](int64_t at, int64_t local, size_t n) {
      std::memcpy(bytes_of(to) + at, bytes_of(part) + local, n);
    });
  }
  return to;
}

std::string to_string(const Mesh& mesh, const Spec& spec) {
  std::string s = "[";
  for (size_t d = 0; d < spec.dims.size(); ++d) {
    const DimSpec& dim = spec.dims[d];
    if (d) s += ", ";
    if (dim.size() > 1) s += "(";
    for (size_t i = 0; i < dim.size(); ++i) {
      if (i) s += " ";
      s += str_cat(dim[i].extent);
      if (dim[i].axes.empty()) continue;
      const std::string names = mesh.name(dim[i].axes);
      s += names.find(',') == names.npos ? str_cat("@", names) : str_cat("@(", names, ")");
      static constexpr const char* kLayouts[] = {"", "~head-tail", "~table", "~by-token", "~by-expert"};
      s += kLayouts[static_cast<int>(dim[i].layout)];
    }
    if (dim.size() > 1) s += ")";
  }
  s += "]";
  std::vector<std::pair<ReduceOp, Axes>> by_op;
  for (const Pending& p : spec.pending) {
    auto it = std::find_if(by_op.begin(), by_op.end(), [&](const auto& x) { return x.first == p.op; });
    if (it == by_op.end()) it = by_op.insert(by_op.end(), {p.op, {}});
    it->second.push_back(p.axis);
  }
  static constexpr const char* kNames[] = {"sum", "avg", "max", "min"};
  for (const auto& [op, axes] : by_op) {
    const std::string names = mesh.name(axes);
    s += str_cat(" + ", kNames[static_cast<int>(op)], "@",
                 names.find(',') == names.npos ? names : str_cat("(", names, ")"));
  }
  return s;
}

}  // namespace weft::dist
