// The units of a graph divided into groups, each one launch. Groups are joined two at a time; what a join needs is
// checked here: one iteration space, no cycle through others, sizes, memory kept no longer.
#pragma once
#include <string>
#include <vector>

#include "compiler/passes/fuse_graph.h"

namespace weft::fusion {

/// Where the value of a unit stands in its group's space.
enum class Level : uint8_t {
  kFull,    // one per point
  kRow,     // one per row: of n / row points
  kLane,    // one per outer point and lane: what an across reduction leaves
  kColumn,  // one per column, summed over all rows: a result, of no use inside
  kMapped,  // computed wherever a member needs it, at any index; no result
};

/// The iteration space of a group.
struct Space {
  int64_t n = 0;         // points
  int64_t row = 0;       // length of its rows, 0: not divided
  int64_t k = 0, l = 0;  // across: n = outer x k x l with k reduced; 0: none
  int64_t column = 0;    // number of columns that are summed over all rows; 0: none
  bool rows = false;     // rows are reduced
  bool plain() const { return row == 0 && k == 0 && column == 0; }
};

struct Group {
  std::vector<int32_t> nodes;
  std::vector<Level> levels;  // by nodes
  Space space;
  int32_t product = -1;  // its dot
  bool library = false;
  bool gone = false;              // part of another group now
  int32_t left = -1, right = -1;  // joined from
  int32_t order = 0;              // topological
  int32_t first = 0, last = 0;    // nodes
  std::vector<int32_t> clones;    // nodes of other groups that it computes again
};

/// How the consumer's space lies in the producer's.
enum class Fit : uint8_t {
  kNone,
  kEqual,
  kAcross,  // equal, and what is summed over all rows is used on them again: those sums are taken across
  kConsumerRow,
  kProducerRow,
  kConsumerLane,
  kProducerLane,
  kMapped
};

struct Match {
  Fit fit = Fit::kNone;
  const char* why = "";  // kNone: what stops it
};

/// One join that would have saved bytes but could not be.
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

  /// Joins groups, those that save most first.
  void join_all();

  const FusionGraph& graph() const { return g_; }
  int32_t of(int32_t node) const { return of_[node]; }
  Group& group(int32_t i) { return groups_[i]; }
  const Group& group(int32_t i) const { return groups_[i]; }
  int32_t size() const { return static_cast<int32_t>(groups_.size()); }

  /// Undoes the last join of a group; all of them if it was cut. Of one node: the node is a library call from now on.
  void split(int32_t i);
  /// Cuts group i into `nodes` (sorted; closed under operands within the group) and the rest, levels kept. Returns the
  /// index of the part with `nodes`; the rest has the next one.
  int32_t cut(int32_t i, const std::vector<int32_t>& nodes);
  /// Joins two groups for which match() and no_cycle() hold. Returns the new group.
  int32_t join(int32_t producer, int32_t consumer, Fit fit);
  /// No path from a to b through others (and none from b to a at all, if there is a value from a to b).
  bool no_cycle(int32_t a, int32_t b);
  Match match(int32_t producer, int32_t consumer) const;
  /// Do the sizes allow it?
  bool small_enough(int32_t a, int32_t b);
  Level level(int32_t node) const { return level_[node]; }
  /// Bytes that one launch instead of two saves.
  int64_t saved(int32_t a, int32_t b);
  /// Joining them, to run where the later (sibling: or the earlier) stands, keeps no more memory alive than before.
  bool keeps_memory(int32_t producer, int32_t consumer, bool sibling) const;
  void refuse(int32_t a, int32_t b, std::string why, int64_t bytes) {
    refusals.push_back({groups_[a].last, groups_[b].last, std::move(why), bytes});
  }

  std::vector<Refusal> refusals;

 private:
  struct Candidate {
    int64_t bytes;
    int32_t a, b;
    bool sibling;
    bool operator<(const Candidate& o) const {
      if (bytes != o.bytes) return bytes < o.bytes;
      if (a != o.a) return a > o.a;
      return b > o.b;
    }
  };

  void absorb_single_uses();
  void push_candidates(int32_t i, bool later_only, std::vector<Candidate>& heap);
  bool try_join(const Candidate& c);
  Match siblings(int32_t a, int32_t b) const;
  /// Can the value be computed at positions of its dim {dim} that are computed themselves, as far as it is in a or b?
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
  std::vector<int32_t> single_;  // by node: the group that it is alone
  std::vector<Level> level_;
  std::vector<int32_t> group_stamp_, value_stamp_;
  int32_t stamp_ = 0;
};

}  // namespace weft::fusion
