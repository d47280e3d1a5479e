// Maximum flow and minimum cut in a directed network with integer capacities (Dinic 1970). The result depends on the
// network alone: if there are several minimum cuts, it is the cut nearest to the sink.
#pragma once
#include <cstdint>
#include <vector>

namespace weft {

class FlowNetwork {
 public:
  /// A capacity that no cut of finite capacities reaches; sums of it do not overflow.
  static constexpr int64_t kInfinite = int64_t{1} << 48;

  explicit FlowNetwork(int32_t vertices) : first_(vertices, -1) {}
  /// An arc from one vertex to another that carries at most `capacity` >= 0.
  void add_arc(int32_t from, int32_t to, int64_t capacity);
  /// The maximum flow from source to sink: the capacity of the minimum cut, or at least kInfinite if no cut is finite.
  /// Call it once.
  int64_t run(int32_t source, int32_t sink);
  /// After run(): the vertex is on the sink's side of the minimum cut.
  bool on_sink_side(int32_t vertex) const { return level_[vertex] >= 0; }

 private:
  struct Arc {
    int32_t to, next;
    int64_t left;  // capacity minus flow
  };
  bool label(int32_t source, int32_t sink);
  int64_t augment(int32_t source, int32_t sink);

  std::vector<Arc> arcs_;  // arc 2k + 1 is arc 2k reversed
  std::vector<int32_t> first_, current_, level_, path_, queue_;
};

}  // namespace weft
