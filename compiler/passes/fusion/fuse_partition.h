// Divides the units of a graph into groups; each group is one launch. Groups are joined two at a time. The conditions
// of a join are checked here: one iteration space, no cycle through other groups, sizes, no longer memory lifetimes.
#pragma once
#include <string>
#include <vector>

#include "compiler/passes/fusion/fuse_graph.h"

namespace weft::fusion {

/// How often a group's space computes the value of a unit.
enum class SpaceLevel : uint8_t {
  kFull,    // one per point
  kRow,     // one per row: of n / row points
  kLane,    // one per outer point and lane: the result of an across reduction
  kColumn,  // one per column, summed over all rows: a result that the group itself cannot use
  kMapped,  // computed wherever a member needs it, at any index; never a result
};

/// The iteration space of a group.
struct Space {
  int64_t n = 0;         // points
  int64_t row = 0;       // length of its rows; 0: not divided into rows
  int64_t k = 0, l = 0;  // across: n = outer x k x l with k reduced; 0: none
  int64_t column = 0;    // number of columns summed over all rows; 0: none
  bool rows = false;     // rows are reduced
  bool plain() const { return row == 0 && k == 0 && column == 0; }
};

struct Group {
  std::vector<int32_t> nodes;
  std::vector<SpaceLevel> levels;  // sorted by nodes
  Space space;
  int32_t product = -1;  // its product node
  bool library = false;
  bool gone = false;              // merged into another group
  int32_t left = -1, right = -1;  // the groups from which it was joined
  int32_t order = 0;              // topological
  int32_t first = 0, last = 0;    // node ids
  std::vector<int32_t> clones;    // nodes of other groups that it recomputes
};

/// How the consumer's space maps to the producer's.
enum class Fit : uint8_t {
  kNone,
  kEqual,
  kAcross,  // equal, and the members use a sum over all rows again on the rows: it becomes an across reduction
  kConsumerRow,
  kProducerRow,
  kConsumerLane,
  kProducerLane,
  kMapped
};

struct Match {
  Fit fit = Fit::kNone;
  const char* why = "";  // kNone: the reason
};

/// A join that would have saved bytes but was not possible.
struct Refusal {
  int32_t a = 0, b = 0;  // nodes
  std::string why;
  int64_t bytes = 0;
};

struct PartitionOptions {
  bool rows = true, siblings = true;
  int max_nodes = 160, max_operands = 24;
};

class Partition {
 public:
  Partition(const FusionGraph& g, const PartitionOptions& options);

  /// Joins groups, the most bytes saved first.
  void join_all();

  const FusionGraph& graph() const { return g_; }
  int32_t of(int32_t node) const { return of_[node]; }
  Group& group(int32_t i) { return groups_[i]; }
  const Group& group(int32_t i) const { return groups_[i]; }
  int32_t size() const { return static_cast<int32_t>(groups_.size()); }

  /// Undoes the last join of a group, or all of them if it was cut. A group of one node becomes a library call.
  void split(int32_t i);
  /// Cuts group i into `nodes` (sorted; closed under operands within the group) and the rest, levels kept. Returns the
  /// index of the part with `nodes`; the rest has the next one.
  int32_t cut(int32_t i, const std::vector<int32_t>& nodes);
  /// Joins two groups for which match() and no_cycle() hold. Returns the new group.
  int32_t join(int32_t producer, int32_t consumer, Fit fit);
  /// Whether there is no path from a to b through other groups (and no path from b to a if a value goes from a to b).
  bool no_cycle(int32_t a, int32_t b);
  Match match(int32_t producer, int32_t consumer) const;
  /// Whether the sizes allow a join.
  bool small_enough(int32_t a, int32_t b);
  SpaceLevel level(int32_t node) const { return level_[node]; }
  /// Bytes saved by one launch instead of two.
  int64_t saved(int32_t a, int32_t b);
  /// Whether the joined group keeps no more memory alive than before. It runs at the later place; siblings may also run
  /// at the earlier one.
  bool keeps_memory(int32_t producer, int32_t consumer, bool sibling) const;
  void refuse(int32_t a, int32_t b, std::string why, int64_t bytes) {
    refusals.push_back({groups_[a].last, groups_[b].last, std::move(why), bytes});
  }

  std::vector<Refusal> refusals;

 private:
  struct MergeCandidate {
    int64_t bytes;
    int32_t a, b;
    bool sibling;
    bool operator<(const MergeCandidate& o) const {
      if (bytes != o.bytes) return bytes < o.bytes;
      if (a != o.a) return a > o.a;
      return b > o.b;
    }
  };

  void absorb_single_uses();
  void push_candidates(int32_t i, bool later_only, std::vector<MergeCandidate>& heap);
  bool try_join(const MergeCandidate& c);
  Match siblings(int32_t a, int32_t b) const;
  /// Whether the value can be computed at computed positions of its dim {dim}, as far as it is computed in a or b.
  bool carries(Value v, int dim, int32_t a, int32_t b) const;
  Match combine(Space* out, const Group& a, const Group& b, bool across = false) const;
  void renumber();
  bool reaches(int32_t from, int32_t to, int32_t skip_direct_to, std::vector<int32_t>& seen, bool backward);
  template <class F>
  void each_successor(const Group& x, F f) const;
  template <class F>
  void each_predecessor(const Group& x, F f) const;
  int32_t next_stamp() { return ++stamp_; }

  const FusionGraph& g_;
  PartitionOptions options_;
  std::vector<Group> groups_;
  std::vector<int32_t> of_;
  std::vector<int32_t> single_;  // node -> the group of this node alone
  std::vector<SpaceLevel> level_;
  std::vector<int32_t> group_stamp_, value_stamp_;
  int32_t stamp_ = 0;
};

}  // namespace weft::fusion
