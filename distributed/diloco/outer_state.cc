#include "distributed/diloco/outer_state.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "distributed/launch/processes.h"
#include "framework/base/error.h"
#include "framework/dispatch/state/cell_access.h"
#include "framework/dispatch/state/stored_value.h"

namespace weft::dist {
namespace {

float* data_of(const Tensor& t) { return static_cast<float*>(t.view_for_kernel().data); }

Tensor copy_of(const Tensor& t) {
  Tensor copy = Tensor::empty(t.type());
  std::memcpy(copy.view_for_kernel().data, t.view_for_kernel().data, static_cast<size_t>(t.type().nbytes()));
  return copy;
}

Tensor zeros_of(const Tensor& t) {
  Tensor zeros = Tensor::empty(t.type());
  std::memset(zeros.view_for_kernel().data, 0, static_cast<size_t>(t.type().nbytes()));
  return zeros;
}

}  // namespace

std::pair<NamedCells, NamedCells> trained_and_others(const NamedCells& cells) {
  std::pair<NamedCells, NamedCells> all;
  for (const auto& named : cells) {
    const Cell& c = named.second.cell();
    (c.is_parameter && c.requires_grad ? all.first : all.second).push_back(named);
  }
  return all;
}

OuterState::OuterState(const OuterOptions& options, const NamedCells& parameters)
    : options_(options), parameters_(parameters), own_(2 * parameters.size()) {
  options.check();
  WEFT_CHECK(!parameters.empty(), "diloco: got no trained cell; need parameters that require gradients");
  for (const char* kind : {"anchor", "momentum"})
    for (const auto& [name, p] : parameters) {
      WEFT_CHECK(p.dtype() == kFloat32 && p.device().type == DeviceType::kCpu, "diloco: got the parameter '", name,
                 "' of type ", p.type(), "; need f32 on the CPU");
      const auto cell = make_ref<Cell>();
      cell->name = str_cat("outer.", kind, ".", name);
      cell->type = p.type();
      cells_.emplace_back(cell->name, CellHandle(cell));
    }
}

CellShards OuterState::bind(const CellShards& shards, const std::vector<int>& ranks, bool made) {
  ranks_ = ranks;
  inner_ = RankValues(parameters_, shards);
  CellShards all = shards;
  for (size_t c = 0; c < cells_.size(); ++c) {
    const Ref<ShardedCell>& of = inner_.shards(c % parameters_.size());
    if (of && !own_[c]) own_[c] = make_ref<ShardedCell>(of->layout(), cells_[c].second.type());
    if (of) all.emplace_back(cells_[c].second.ref(), own_[c]);
  }
  outer_ = RankValues(cells_, all);
  if (made && !std::exchange(made_, true))
    for (size_t c = 0; c < cells_.size(); ++c) {
      Cell& cell = cells_[c].second.cell();
      if (own_[c] && cell.remote.get() == own_[c].get()) continue;  // healed
      if (cell.value.defined() || cell.remote) {                    // a checkpoint gave it
        if (!own_[c]) continue;
        const internal::CellOwner own(cell, "diloco");
        auto* const stored = dynamic_cast<StoredValue*>(cell.remote.get());
        if (stored && !cell.value.defined())
          own_[c]->read(*stored, cell);
        else
          own_[c]->scatter(internal::owned_value(cell));
        cell.remote = own_[c];
        cell.value = {};
        continue;
      }
      for (const int rank : ranks_)
        if (const Tensor p = inner_.get(c % parameters_.size(), rank); p.defined())
          outer_.set(c, rank, c < parameters_.size() ? copy_of(p) : zeros_of(p));
    }
  std::vector<Ref<ShardedCell>> now;
  for (size_t i = 0; i < parameters_.size(); ++i) now.push_back(inner_.shards(i));
  if (fragments_.empty() || now != cut_for_) cut_for_ = now, cut();
  return all;
}

// Fragments of whole parameters, so that they have the same values on all meshes. A parameter begins a block of the
// wire: the ranks of a replica may have other shards beside their copies of a parameter, and the copies need the same
// scales.
void OuterState::cut() {
  const size_t unit = options_.wire == OuterWire::kInt8 || options_.wire == OuterWire::kInt4 ? kWireBlock : 1;
  const auto up = [&](size_t n) { return (n + unit - 1) / unit * unit; };
  struct Range {
    int64_t begin = 0, end = 0;
    size_t fragment = 0, before = 0;
  };
  std::vector<int64_t> sizes;
  for (const auto& [name, p] : parameters_) sizes.push_back(p.numel());
  std::vector<std::vector<Range>> ranges(sizes.size());  // index: parameter
  const auto all = fragments_of(sizes, options_.fragments);
  whole_sizes_.assign(all.size(), 0);
  for (size_t f = 0; f < all.size(); ++f)
    for (const FragmentPiece& p : all[f]) {
      std::vector<Range>& of = ranges[p.part];
      size_t& size = whole_sizes_[f];
      if (of.empty() || of.back().fragment != f) size = up(size);
      of.push_back({p.begin, p.begin + p.count, f, size});
      size += static_cast<size_t>(p.count);
    }
  for (std::vector<Range>& of : ranges) std::ranges::sort(of, {}, &Range::begin);
  const Processes* const job = Processes::current();
  const int count = job ? job->size() : static_cast<int>(ranks_.size());
  fragments_.assign(static_cast<size_t>(count), std::vector<Fragment>(all.size()));
  for (int rank = 0; rank < count; ++rank)
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (!inner_.has(i, rank)) continue;
      const Shape shape = parameters_[i].second.shape();
      TensorPart part = TensorPart::all(shape);
      bool first = rank == 0;
      if (const Ref<ShardedCell>& s = inner_.shards(i)) {
        part = part_of(s->layout().mesh, s->layout().rest, s->layout().place[rank]);
        first = std::ranges::any_of(s->copies(), [&](const std::vector<int>& equal) { return equal[0] == rank; });
      }
      auto range = ranges[i].begin();
      each_run(part, shape, [&](const ElementRun& run) {
        for (int64_t at = run.whole; at < run.whole + run.count;) {
          while (range->end <= at) ++range;
          const int64_t n = std::min(run.whole + run.count, range->end) - at;
          Fragment& f = fragments_[rank][range->fragment];
          if (f.pieces.empty() || f.pieces.back().part != i) f.size = up(f.size);
          f.pieces.push_back(
              {i, run.part + at - run.whole, n, f.size, range->before + static_cast<size_t>(at - range->begin), first});
          f.size += static_cast<size_t>(n);
          at += n;
        }
      });
    }
}

std::vector<std::vector<float>> OuterState::gradients(int64_t x) const {
  std::vector<std::vector<float>> all;
  for (const int rank : ranks_) {
    const Fragment& f = fragment(x, rank);
    std::vector<float>& d = all.emplace_back(f.size, 0.0f);
    Tensor p, a;
    for (const Piece& piece : f.pieces) {
      if (&piece == f.pieces.data() || piece.part != (&piece)[-1].part)
        p = inner_.get(piece.part, rank), a = outer_.get(anchor(piece.part), rank);
      for (int64_t i = 0; i < piece.count; ++i)
        d[piece.before + i] = data_of(a)[piece.begin + i] - data_of(p)[piece.begin + i];
    }
  }
  return all;
}

std::vector<float> OuterState::whole(int64_t x, const std::vector<std::vector<float>>& d) const {
  std::string mine;
  for (size_t r = 0; r < ranks_.size(); ++r)
    for (const Piece& p : fragment(x, ranks_[r]).pieces)
      if (p.first) mine.append(reinterpret_cast<const char*>(d[r].data() + p.before), sizeof(float) * p.count);
  Processes* const job = Processes::current();
  const std::vector<std::string> all = job ? job->gather(mine) : std::vector<std::string>{mine};
  if (!is_first()) return {};
  std::vector<float> values(whole_sizes_[options_.fragment(x)], 0.0f);
  std::vector<size_t> read(all.size(), 0);
  for (size_t rank = 0; rank < fragments_.size(); ++rank)
    for (const Piece& p : fragment(x, rank).pieces) {
      if (!p.first) continue;
      const size_t from = job ? job->process_of(static_cast<int>(rank)) : 0, bytes = sizeof(float) * p.count;
      std::memcpy(values.data() + p.before_whole, all[from].data() + std::exchange(read[from], read[from] + bytes),
                  bytes);
    }
  return values;
}

std::vector<std::vector<float>> OuterState::by_rank(int64_t x, std::vector<float> values) const {
  values.resize(whole_sizes_[options_.fragment(x)]);
  if (Processes* const job = Processes::current())
    job->broadcast(0, {values.data(), kFloat32, {std::ssize(values)}, {1}});
  std::vector<std::vector<float>> all;
  for (const int rank : ranks_) {
    std::vector<float>& own = all.emplace_back(fragment(x, rank).size, 0.0f);
    for (const Piece& p : fragment(x, rank).pieces)
      std::copy_n(values.begin() + p.before_whole, p.count, own.begin() + p.before);
  }
  return all;
}

void OuterState::move_anchors(int64_t x, const std::vector<std::vector<float>>& averages) {
  for (size_t r = 0; r < ranks_.size(); ++r) {
    std::map<size_t, std::pair<Tensor, Tensor>> changed;  // key: parameter; anchor, momentum
    for (const Piece& p : fragment(x, ranks_[r]).pieces) {
      auto& [a, m] = changed[p.part];
      if (!a.defined()) {
        a = copy_of(outer_.get(anchor(p.part), ranks_[r]));
        m = copy_of(outer_.get(momentum(p.part), ranks_[r]));
      }
      move_anchor<float>(options_, std::span(averages[r]).subspan(p.before, static_cast<size_t>(p.count)),
                         data_of(a) + p.begin, data_of(m) + p.begin);
    }
    for (const auto& [i, values] : changed) {
      outer_.set(anchor(i), ranks_[r], values.first);
      outer_.set(momentum(i), ranks_[r], values.second);
    }
  }
}

void OuterState::move_parameters(int64_t x) {
  for (const int rank : ranks_) {
    std::map<size_t, std::pair<Tensor, Tensor>> changed;  // key: parameter; parameter, anchor
    for (const Piece& p : fragment(x, rank).pieces) {
      auto& [parameter, a] = changed[p.part];
      if (!a.defined()) parameter = copy_of(inner_.get(p.part, rank)), a = outer_.get(anchor(p.part), rank);
      move_parameter<float>(options_, std::span(data_of(a) + p.begin, static_cast<size_t>(p.count)),
                            data_of(parameter) + p.begin);
    }
    for (const auto& [i, values] : changed) inner_.set(i, rank, values.first);
  }
}

void OuterState::take_anchors() {
  made_ = true;
  for (const int rank : ranks_)
    for (size_t i = 0; i < parameters_.size(); ++i)
      if (const Tensor a = outer_.get(anchor(i), rank); a.defined()) inner_.set(i, rank, copy_of(a));
}

}  // namespace weft::dist
