#include "distributed/diloco/outer_state.h"

#include <algorithm>
#include <cstring>
#include <map>

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
  fragments_.clear();
  for (const int rank : ranks_) {
    // Cut by the largest shards: copies of a parameter on several ranks are then in the same fragments.
    std::vector<int64_t> own, largest;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const Ref<ShardedCell>& s = inner_.shards(i);
      own.push_back(s ? 0 : parameters_[i].second.numel());
      largest.push_back(own.back());
      for (int k = 0; s && k < std::ssize(s->shards); ++k)
        if (s->has_shard(k)) largest.back() = std::max(largest.back(), s->shards[k]->type.shape.numel());
      if (s && s->has_shard(rank)) own.back() = s->shards[rank]->type.shape.numel();
    }
    fragments_.push_back(fragments_of(largest, options_.fragments));
    for (std::vector<FragmentPiece>& pieces : fragments_.back()) {
      for (FragmentPiece& p : pieces) p.count = std::min(p.count, own[p.part] - p.begin);
      std::erase_if(pieces, [](const FragmentPiece& p) { return p.count <= 0; });
    }
  }
  return all;
}

// Calls f(piece, values of the fragment before it). A piece begins a block of the wire: the ranks of a replica may have
// other shards beside their copies of a parameter, and the copies need the same scales.
template <class F>
void OuterState::each_piece(int64_t x, size_t rank, F&& f) const {
  const int64_t unit = options_.wire == OuterWire::kInt8 || options_.wire == OuterWire::kInt4 ? kWireBlock : 1;
  size_t before = 0;
  for (const FragmentPiece& p : fragments_[rank][static_cast<size_t>(options_.fragment(x))]) {
    f(p, before);
    before += static_cast<size_t>((p.count + unit - 1) / unit * unit);
  }
}

std::vector<std::vector<float>> OuterState::gradients(int64_t x) const {
  std::vector<std::vector<float>> all(ranks_.size());
  for (size_t r = 0; r < ranks_.size(); ++r)
    each_piece(x, r, [&](const FragmentPiece& p, size_t before) {
      all[r].resize(before, 0.0f);
      const Tensor parameter = inner_.get(p.part, ranks_[r]), anchor_value = outer_.get(anchor(p.part), ranks_[r]);
      for (int64_t i = p.begin; i < p.begin + p.count; ++i)
        all[r].push_back(data_of(anchor_value)[i] - data_of(parameter)[i]);
    });
  return all;
}

void OuterState::move_anchors(int64_t x, const std::vector<std::vector<float>>& averages) {
  for (size_t r = 0; r < ranks_.size(); ++r) {
    std::map<size_t, std::pair<Tensor, Tensor>> changed;  // key: parameter; anchor, momentum
    each_piece(x, r, [&](const FragmentPiece& p, size_t before) {
      auto& [a, m] = changed[p.part];
      if (!a.defined()) {
        a = copy_of(outer_.get(anchor(p.part), ranks_[r]));
        m = copy_of(outer_.get(momentum(p.part), ranks_[r]));
      }
      move_anchor<float>(options_, std::span(averages[r]).subspan(before, static_cast<size_t>(p.count)),
                         data_of(a) + p.begin, data_of(m) + p.begin);
    });
    for (const auto& [i, values] : changed) {
      outer_.set(anchor(i), ranks_[r], values.first);
      outer_.set(momentum(i), ranks_[r], values.second);
    }
  }
}

void OuterState::move_parameters(int64_t x) {
  for (size_t r = 0; r < ranks_.size(); ++r) {
    std::map<size_t, Tensor> changed;  // key: parameter
    each_piece(x, r, [&](const FragmentPiece& p, size_t) {
      Tensor& parameter = changed[p.part];
      if (!parameter.defined()) parameter = copy_of(inner_.get(p.part, ranks_[r]));
      const Tensor anchor_value = outer_.get(anchor(p.part), ranks_[r]);
      move_parameter<float>(options_, std::span(data_of(anchor_value) + p.begin, static_cast<size_t>(p.count)),
                            data_of(parameter) + p.begin);
    });
    for (const auto& [i, value] : changed) inner_.set(i, ranks_[r], value);
  }
}

void OuterState::take_anchors() {
  made_ = true;
  for (const int rank : ranks_)
    for (size_t i = 0; i < parameters_.size(); ++i)
      if (const Tensor a = outer_.get(anchor(i), rank); a.defined()) inner_.set(i, rank, copy_of(a));
}

}  // namespace weft::dist
