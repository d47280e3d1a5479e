#include "compiler/cost/max_flow.h"

#include <algorithm>

namespace weft {

void FlowNetwork::add_arc(int32_t from, int32_t to, int64_t capacity) {
  const int32_t id = static_cast<int32_t>(arcs_.size());
  arcs_.push_back({to, first_[from], capacity});
  arcs_.push_back({from, first_[to], 0});
  first_[from] = id;
  first_[to] = id + 1;
}

// Distances to the sink over arcs that can carry more; vertices that cannot reach it get -1.
bool FlowNetwork::label(int32_t source, int32_t sink) {
  std::fill(level_.begin(), level_.end(), -1);
  level_[sink] = 0;
  queue_.assign(1, sink);
  for (size_t at = 0; at < queue_.size(); ++at) {
    const int32_t v = queue_[at];
    for (int32_t a = first_[v]; a >= 0; a = arcs_[a].next) {
      const int32_t u = arcs_[a].to;
      if (arcs_[a ^ 1].left == 0 || level_[u] >= 0) continue;
      level_[u] = level_[v] + 1;
      queue_.push_back(u);
    }
  }
  return level_[source] >= 0;
}

// One shortest path, walked without recursion: deep models make deep networks.
int64_t FlowNetwork::augment(int32_t source, int32_t sink) {
  path_.clear();
  int32_t v = source;
  while (v != sink) {
    int32_t& a = current_[v];
    while (a >= 0 && (arcs_[a].left == 0 || level_[arcs_[a].to] != level_[v] - 1)) a = arcs_[a].next;
    if (a >= 0) {
      path_.push_back(a);
      v = arcs_[a].to;
    } else {
      if (path_.empty()) return 0;
      v = arcs_[path_.back() ^ 1].to;
      current_[v] = arcs_[path_.back()].next;
      path_.pop_back();
    }
  }
  int64_t flow = kInfinite;
  for (int32_t a : path_) flow = std::min(flow, arcs_[a].left);
  for (int32_t a : path_) {
    arcs_[a].left -= flow;
    arcs_[a ^ 1].left += flow;
  }
  return flow;
}

int64_t FlowNetwork::run(int32_t source, int32_t sink) {
  level_.assign(first_.size(), -1);
  int64_t total = 0;
  while (total < kInfinite && label(source, sink)) {
    current_ = first_;
    while (int64_t flow = augment(source, sink)) total += flow;
  }
  return total;
}

}  // namespace weft
