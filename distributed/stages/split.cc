#include "distributed/stages/split.h"

#include <algorithm>
#include <functional>
#include <set>

#include "compiler/passes/new_node.h"
#include "distributed/stages/recomputed.h"
#include "framework/ir/rewrite.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"

namespace weft::dist {
namespace {

using pipeline::Action;
using pipeline::ActionKind;

constexpr int kAll = -1;  // in place of a rank: each rank that needs the value computes it

class PartMaker {
 public:
  /// Parts have the cells of `step`, and its captured tensors before the captured tensors of `joint`.
  PartMaker(const Graph& step, const Graph& joint) {
    part_.graph = make_ref<Graph>();
    part_.graph->cells = step.cells;
    part_.graph->captured = step.captured;
    part_.graph->captured.insert(part_.graph->captured.end(), joint.captured.begin(), joint.captured.end());
    part_.graph->stage = "joint";
  }

  Graph& graph() { return *part_.graph; }

  Value operand(Value key, const TensorType& type) {
    const auto [it, fresh] = operands_.try_emplace(key);
    if (fresh) {
      it->second = graph().add_input(type);
      part_.in.push_back(key);
      part_.adds_to.push_back(-1);
    }
    return it->second;
  }

  int32_t result(Value key, Value made, int32_t number = -1) {
    graph().outputs.push_back(made);
    part_.out.push_back(key);
    part_.results.push_back(number);
    return static_cast<int32_t>(part_.out.size()) - 1;
  }

  /// Copies the values `roots` of a graph, and the nodes from which they follow. Results of nodes that `computes`
  /// rejects become operands, named by `key`. `captured`: the number of the graph's first captured tensor. Copies of
  /// nodes that `again` accepts are marked as recomputed for backward.
  NodeCopier copy(const Graph& from, std::span<const Value> roots, const std::function<bool(int32_t)>& computes,
                  const std::function<Value(Value)>& key, int64_t captured = 0,
                  const std::function<bool(int32_t)>& again = {}) {
    std::vector<bool> needed(static_cast<size_t>(from.size()));
    const auto computed = [&](int32_t id) { return is_kept(from.node(id)) || computes(id); };
    for (Value v : roots) needed[v.node] = true;
    for (int32_t id = from.size() - 1; id >= 0; --id)
      if (needed[id] && computed(id))
        for (Value v : from.node(id).inputs) needed[v.node] = true;
    NodeCopier now(from, graph());
    const auto find = [&](Value v) {
      if (!now.has(v)) now.map(v, operand(key(v), from.type(v)));
    };
    for (int32_t id = 0; id < from.size(); ++id) {
      if (!needed[id] || !computed(id)) continue;
      for (Value v : from.node(id).inputs) find(v);
      now.copy(id, [&](Node& n) {
        if (again && again(id)) n.backward = n.recomputed = true;
        if (n.op->leaf == weft::internal::Leaf::kCaptured)
          n.attrs = n.attrs.with("index", n.attrs.i("index") + captured);
      });
    }
    for (Value v : roots) find(v);
    return now;
  }

  /// Adds the result sum + x for the node of a microbatch_sum.
  void add_to_sum(Value sum, const Node& n, Value x) {
    const Value operands[] = {operand(sum, n.outputs[0]), x};
    const Value added = add_node(graph(), pointwise_op("add"), operands, {}, n);
    const auto at = std::find(part_.in.begin(), part_.in.end(), sum) - part_.in.begin();
    part_.adds_to[at] = result(sum, added);
  }

  Value zeros(const TensorType& type, const Node& like) {
    const Attrs attrs = is_floating(type.dtype) ? Attrs{{"value", 0.0}, {"dtype", type.dtype}}
                                                : Attrs{{"value", int64_t{0}}, {"dtype", type.dtype}};
    const Value v = add_node(graph(), constant_op, {}, attrs, like);
    if (type.shape.empty()) return v;
    return add_node(graph(), broadcast_op, {&v, 1}, {{"shape", type.shape}}, like);
  }

  GraphPart finish() { return std::move(part_); }

 private:
  GraphPart part_;
  std::map<Value, Value> operands_;  // key: key of the operand
};

class StageSplitter {
 public:
  explicit StageSplitter(const SplitCall& call)
      : call_(call),
        g_(call.graph),
        ranks_(static_cast<int>(call.table.ranks.size())),
        users_(users(call.graph)),
        recomputed_(call.graph, call.cut) {
    split_.ranks.resize(static_cast<size_t>(ranks_));
    find_gathered();
  }

  StepSplit run() {
    for (int r = 0; r < ranks_; ++r) {
      check_order(r);
      std::set<std::pair<int, ActionKind>> parts;
      for (const Action& a : call_.table.ranks[r])
        if (pipeline::computes(a.kind)) parts.insert({a.stage, a.kind});
      for (const auto& [stage, kind] : parts) ranks(r).actions[{stage, kind}] = action(stage, kind);
    }
    place_after();
    for (int r = 0; r < ranks_; ++r) {
      for (int level = 0; level < levels_; ++level) ranks(r).after.push_back(after(r, level));
      ranks(r).before = before(r);
      split_.cells.emplace_back();
      for (const std::set<int>& homes : homes_) split_.cells.back().push_back(homes.contains(r));
    }
    return std::move(split_);
  }

 private:
  RankParts& ranks(int r) { return split_.ranks[r]; }
  const StageOf& at(int32_t id) const { return call_.cut.nodes[id]; }
  int rank_of(int stage) const { return call_.table.rank_of_stage[stage]; }
  bool is_free(int32_t id) const { return at(id).region == StageOf::kFree && !is_argument(g_.node(id)); }

  // Finds values that no microbatch changes, but of which other ranks have a part.
  void find_gathered() {
    gathered_.resize(static_cast<size_t>(g_.size()));
    for (int32_t id = 0; id < g_.size(); ++id) {
      if (at(id).region != StageOf::kOutside) continue;
      bool gathered = g_.node(id).op->is(kCollective);
      for (Value v : g_.node(id).inputs) gathered = gathered || gathered_[v.node];
      gathered_[id] = gathered;
    }
  }

  /// Whether each action computes a value that no microbatch changes instead of reading the result of `before`. True
  /// for a view of a parameter, which then costs no memory, and for a parameter that is gathered for each action.
  bool computed_by_each(int32_t id) const {
    return at(id).region == StageOf::kOutside && (g_.node(id).op->view || (!call_.gather_once && gathered_[id]));
  }

  // ---- actions ----

  /// Whether an action computes a forward node again.
  bool recomputes(int32_t id, int stage, ActionKind kind) const {
    if (at(id).stage != stage || kind == ActionKind::kForward) return false;
    const auto i = static_cast<size_t>(id);
    return kind == ActionKind::kInput    ? recomputed_.input[i]
           : kind == ActionKind::kWeight ? recomputed_.weight[i]
                                         : recomputed_.any(id);
  }

  bool belongs(int32_t id, int stage, ActionKind kind) const {
    const StageOf& s = at(id);
    if (s.region != StageOf::kStage || s.stage != stage) return false;
    switch (kind) {
      case ActionKind::kForward:
        return !s.backward;
      case ActionKind::kInput:
        return s.backward && !s.weight;
      case ActionKind::kWeight:
        return s.backward && s.weight;
      default:
        return s.backward;
    }
  }

  GraphPart action(int stage, ActionKind kind) {
    std::vector<Value> roots, kept;
    std::vector<int32_t> sums;
    for (int32_t id = 0; id < g_.size(); ++id) {
      if (!belongs(id, stage, kind)) continue;
      if (is_microbatch_sum(g_.node(id))) {
        sums.push_back(id);
        roots.push_back(g_.node(id).inputs[0]);
        continue;
      }
      for (Value v : read_elsewhere(id, stage, kind)) kept.push_back(v);
    }
    roots.insert(roots.end(), kept.begin(), kept.end());
    PartMaker part(g_, call_.joint);
    const auto again = [&](int32_t id) { return recomputes(id, stage, kind); };
    const auto computes = [&](int32_t id) {
      return is_free(id) || belongs(id, stage, kind) || computed_by_each(id) || again(id);
    };
    const NodeCopier now = part.copy(g_, roots, computes, std::identity(), 0, again);
    for (int32_t id : sums) part.add_to_sum({id, 0}, g_.node(id), now(g_.node(id).inputs[0]));
    for (Value v : kept) part.result(v, now(v));
    return part.finish();
  }

  /// The results of a node that other actions read; an action does not read values that it computes again.
  std::set<Value> read_elsewhere(int32_t id, int stage, ActionKind kind) const {
    std::set<Value> found;
    for (int32_t user : users_[id]) {
      const StageOf& reader = at(user);
      if (reader.region != StageOf::kStage) continue;
      const bool kept = reader.stage != stage || !recomputed_.any(id);
      const bool elsewhere = !belongs(user, stage, kind) || recomputed_.any(user);
      if (!kept || !elsewhere) continue;
      for (Value v : g_.node(user).inputs)
        if (v.node == id) found.insert(v);
    }
    return found;
  }

  // Checks the order of microbatches: the bits of a float sum depend on the order of its terms.
  void check_order(int rank) const {
    std::map<std::pair<int, bool>, const Action*> last;  // key: stage and direction
    for (const Action& a : call_.table.ranks[rank]) {
      if (!pipeline::computes(a.kind) || a.kind == ActionKind::kInput) continue;
      const Action*& before = last[{a.stage, a.kind == ActionKind::kForward}];
      WEFT_CHECK(!before || before->microbatch < a.microbatch, "pipeline: rank ", rank, " has ", a.to_string(),
                 " after ", before ? before->to_string() : "",
                 "; need the F, and the B and W, of each stage in the order of the microbatches");
      before = &a;
    }
  }

  // ---- where and when the update runs ----

  void place_after() {
    where_.assign(static_cast<size_t>(g_.size()), kAll);
    level_.assign(static_cast<size_t>(g_.size()), 0);
    for (int32_t id = 0; id < g_.size(); ++id) {
      const StageOf& s = at(id);
      if (s.region == StageOf::kStage && is_microbatch_sum(g_.node(id))) where(id) = rank_of(s.stage);
      if (s.region == StageOf::kAfter) place(id);
    }
    find_homes();
    // A rank that needs a value may read further cells, and then also has these.
    do {
      find_needs();
    } while (add_homes());
    levels_ = 0;
    const auto last = [&](int level) { levels_ = std::max(levels_, level + 1); };
    for (const auto& [hop, level] : hops_) last(level + 1);
    for (int r = 0; r < ranks_; ++r) {
      for (int32_t id = 0; id < g_.size(); ++id)
        if (needed_[r][id] && runs(id, r)) last(level(id));
      if (r == 0)
        for (Value v : g_.outputs) last(level_at(v, r));
      for (const CellWrite& w : g_.writes)
        if (has_cell(r, w.cell)) last(write_level(w, r));
    }
    split_.hops.resize(static_cast<size_t>(levels_));
    for (const auto& [hop, level] : hops_) split_.hops[level].push_back(hop);
    for (int r = 0; r < ranks_; ++r)
      for (const CellWrite& w : g_.writes)
        if (has_cell(r, w.cell) && (split_.commit_level < 0 || write_level(w, r) < split_.commit_level))
          split_.commit_level = write_level(w, r);
  }

  int& where(int32_t id) { return where_[id]; }
  int& level(int32_t id) { return level_[id]; }
  /// Whether a value follows from the sums, or is one.
  bool comes_from_sums(Value v) const { return at(v.node).region == StageOf::kAfter || is_microbatch_sum(g_.node(v)); }
  /// Whether a rank computes this node of the update, if it needs it.
  bool runs(int32_t id, int rank) {
    return at(id).region == StageOf::kAfter && (where(id) == kAll || where(id) == rank);
  }
  /// The first level at which a rank can read a value.
  int level_at(Value v, int rank) {
    if (!comes_from_sums(v)) return 0;
    return level(v.node) + (where(v.node) != kAll && where(v.node) != rank);
  }

  // Scalars that follow from several ranks, such as the norm of all gradients, are computed on every rank that needs
  // them. Every other node is computed on the rank of its largest operand: for example, the update of a parameter on
  // the rank of its gradient.
  void place(int32_t id) {
    const Node& n = g_.node(id);
    std::set<int> owners;
    int64_t largest = -1;
    for (Value v : n.inputs) {
      if (!comes_from_sums(v)) continue;
      owners.insert(where(v.node));
      const TensorType& type = g_.type(v);
      if (type.shape.empty() || where(v.node) == kAll || type.nbytes() <= largest) continue;
      largest = type.nbytes();
      where(id) = where(v.node);
    }
    if (largest < 0 && owners.size() == 1) where(id) = *owners.begin();
    for (Value v : g_.node(id).inputs) {
      if (!comes_from_sums(v)) continue;
      const bool sent = where(v.node) != kAll && where(v.node) != where(id);
      level(id) = std::max(level(id), level(v.node) + sent);
    }
  }

  bool has_cell(int rank, int32_t cell) const { return homes_[cell].contains(rank); }

  /// Finds the ranks that have a cell: ranks whose actions read it, and the rank that computes its new value.
  void find_homes() {
    homes_.assign(g_.cells.size(), {});
    for (int r = 0; r < ranks_; ++r) {
      for (const auto& [key, part] : ranks(r).actions) {
        for (int32_t id = 0; id < part.graph->size(); ++id) add_home(part.graph->node(id), r);
        // These are values that `before` computes.
        for (Value v : part.in)
          if (at(v.node).region == StageOf::kOutside)
            for (int32_t id : closure(v)) add_home(g_.node(id), r);
      }
    }
    for (const CellWrite& w : g_.writes) {
      std::set<int>& homes = homes_[w.cell];
      if (comes_from_sums(w.value) && where(w.value.node) != kAll) {
        homes.insert(where(w.value.node));
      } else if (g_.cells[w.cell]->type.shape.empty()) {
        for (int r = 0; r < ranks_; ++r) homes.insert(r);
      }
    }
    for (std::set<int>& homes : homes_)
      if (homes.empty()) homes.insert(0);  // nothing uses the cell, or only the update of rank 0
  }

  bool add_home(const Node& n, int rank) { return is_cell(n) && homes_[n.attrs.i("index")].insert(rank).second; }

  /// The nodes from which a value follows, as far as no microbatch changes them.
  std::set<int32_t> closure(Value v) const {
    std::set<int32_t> all;
    std::vector<int32_t> open{v.node};
    while (!open.empty()) {
      const int32_t id = open.back();
      open.pop_back();
      if (at(id).region == StageOf::kStage || at(id).region == StageOf::kAfter || !all.insert(id).second) continue;
      for (Value in : g_.node(id).inputs) open.push_back(in.node);
    }
    return all;
  }

  /// Finds the nodes that the update reads on each rank, and the values that ranks send each other for the update.
  void find_needs() {
    needed_.assign(static_cast<size_t>(ranks_), std::vector<bool>(static_cast<size_t>(g_.size())));
    hops_.clear();
    const auto need = [&](Value v, int rank) {
      needed_[rank][v.node] = true;
      const int from = comes_from_sums(v) ? where(v.node) : kAll;
      if (from == kAll || from == rank) return;
      hops_.emplace(Hop{v, from, rank}, level(v.node));
      needed_[from][v.node] = true;
    };
    for (Value v : g_.outputs) need(v, 0);
    for (const CellWrite& w : g_.writes)
      for (int r : homes_[w.cell]) need(w.value, r);
    for (int32_t id = g_.size() - 1; id >= 0; --id)
      for (int r = 0; r < ranks_; ++r) {
        if (!needed_[r][id]) continue;
        const StageOf::Region region = at(id).region;
        if (region == StageOf::kStage || (region == StageOf::kAfter && !runs(id, r))) continue;
        for (Value v : g_.node(id).inputs) need(v, r);
      }
  }

  bool add_homes() {
    bool more = false;
    for (int r = 0; r < ranks_; ++r)
      for (int32_t id = 0; id < g_.size(); ++id)
        if (needed_[r][id]) more |= add_home(g_.node(id), r);
    return more;
  }

  /// The level at which a rank writes a cell: the new value is known, and no later level reads the old value.
  int write_level(const CellWrite& w, int rank) {
    const auto [it, fresh] = write_levels_.try_emplace(rank);
    if (fresh) it->second = find_write_levels(rank);
    return it->second[&w - g_.writes.data()];
  }

  /// The level of each write. A new value that follows from no sum is computed at the level that writes it, from cells
  /// that must not be written earlier.
  std::vector<int> find_write_levels(int rank) {
    std::vector<int> levels;
    for (const CellWrite& w : g_.writes) levels.push_back(level_at(w.value, rank));
    for (bool changed = true; changed;) {
      changed = false;
      const std::vector<int> last = last_reads(rank, levels);
      for (size_t i = 0; i < levels.size(); ++i) {
        const int needed = last[g_.writes[i].cell];
        if (!has_cell(rank, g_.writes[i].cell) || levels[i] >= needed) continue;
        levels[i] = needed;
        changed = true;
      }
    }
    return levels;
  }

  /// For each cell, the last level at which a rank reads its old value.
  std::vector<int> last_reads(int rank, const std::vector<int>& write_levels) {
    std::vector<int> last(g_.cells.size());
    std::vector<int> reader(static_cast<size_t>(g_.size()), -1);  // node -> the last level that computes it
    const auto read = [&](Value v, int level) {
      int& l = reader[v.node];
      l = std::max(l, level);
    };
    if (rank == 0)
      for (Value v : g_.outputs) read(v, level_at(v, rank));
    for (size_t i = 0; i < g_.writes.size(); ++i)
      if (has_cell(rank, g_.writes[i].cell)) read(g_.writes[i].value, write_levels[i]);
    for (int32_t id = g_.size() - 1; id >= 0; --id) {
      const Node& n = g_.node(id);
      int l = reader[id];
      if (at(id).region == StageOf::kAfter) l = runs(id, rank) && needed_[rank][id] ? level(id) : -1;
      if (l < 0 || at(id).region == StageOf::kStage) continue;
      if (is_cell(n)) {
        int& of_cell = last[n.attrs.i("index")];
        of_cell = std::max(of_cell, l);
      }
      for (Value v : n.inputs) read(v, l);
    }
    return last;
  }

  GraphPart after(int rank, int level) {
    const std::vector<bool>& needed = needed_[rank];
    const auto here = [&](int32_t id) { return needed[id] && runs(id, rank) && this->level(id) == level; };
    // Values that this level computes for later levels, for other ranks, for cells and for the caller.
    std::set<Value> kept;
    const auto keep = [&](Value v, bool outside) {
      if (outside && here(v.node)) kept.insert(v);
    };
    for (int32_t id = 0; id < g_.size(); ++id)
      if (needed[id] && runs(id, rank))
        for (Value v : g_.node(id).inputs) keep(v, this->level(id) > level);
    for (const auto& [hop, at_level] : hops_) keep(hop.value, hop.from == rank);
    std::vector<std::pair<Value, int32_t>> results;
    std::vector<CellWrite> writes;
    if (rank == 0)
      for (size_t i = 0; i < g_.outputs.size(); ++i)
        if (level_at(g_.outputs[i], rank) == level) results.emplace_back(g_.outputs[i], static_cast<int32_t>(i));
    for (const CellWrite& w : g_.writes) {
      if (!has_cell(rank, w.cell)) continue;
      if (write_level(w, rank) == level) writes.push_back(w);
      keep(w.value, write_level(w, rank) > level);
    }
    std::vector<Value> roots(kept.begin(), kept.end());
    for (const auto& [v, number] : results) roots.push_back(v);
    for (const CellWrite& w : writes) roots.push_back(w.value);
    PartMaker part(g_, call_.joint);
    const auto computes = [&](int32_t id) { return here(id) || is_free(id) || at(id).region == StageOf::kOutside; };
    const NodeCopier now = part.copy(g_, roots, computes, std::identity());
    for (Value v : kept) part.result(v, now(v));
    for (const auto& [v, number] : results) part.result(v, now(v), number);
    for (const CellWrite& w : writes) part.graph().writes.push_back({w.cell, now(w.value)});
    return part.finish();
  }

  // ---- before all microbatches ----

  GraphPart before(int rank) {
    const auto arguments = static_cast<int64_t>(call_.microbatch.arguments);
    std::set<Value> slices, sums, once;
    for (const auto& [key, part] : ranks(rank).actions)
      for (Value v : part.in) {
        const Node& n = g_.node(v);
        if (is_microbatch_sum(n)) {
          sums.insert(v);
        } else if (is_argument(n) && n.attrs.i("index") >= arguments) {
          slices.insert(v);
        } else if (!is_argument(n) && at(v.node).region == StageOf::kOutside) {
          once.insert(v);
        }
      }
    PartMaker part(g_, call_.joint);
    const auto source = [&](Value slice) {
      return call_.microbatch.sources[g_.node(slice).attrs.i("index") - arguments];
    };
    std::vector<Value> roots;
    for (Value v : slices) roots.push_back(source(v));
    const Graph& joint = call_.joint;
    const NodeCopier batch = part.copy(
        joint, roots, [&](int32_t id) { return !is_argument(joint.node(id)); },
        [&](Value v) { return g_.inputs[joint.node(v).attrs.i("index")]; }, static_cast<int64_t>(g_.captured.size()));
    for (Value v : slices) part.result(v, batch(source(v)));
    roots.assign(once.begin(), once.end());
    const NodeCopier now = part.copy(
        g_, roots, [&](int32_t id) { return !is_argument(g_.node(id)); }, std::identity());
    for (Value v : once) part.result(v, now(v));
    for (Value v : sums) part.result(v, part.zeros(g_.type(v), g_.node(v)));
    return part.finish();
  }

  const SplitCall& call_;
  const Graph& g_;
  const int ranks_;
  const std::vector<std::vector<int32_t>> users_;
  StepSplit split_;
  const Recomputed recomputed_;
  std::vector<bool> gathered_;  // index: node
  // The rank and the level that compute each node of the update, and each sum.
  std::vector<int> where_, level_;
  std::vector<std::set<int>> homes_;              // index: cell
  std::vector<std::vector<bool>> needed_;         // indices: rank and node
  std::map<Hop, int> hops_;                       // each hop, with the level after which it is sent
  std::map<int, std::vector<int>> write_levels_;  // key: rank; index: write
  int levels_ = 0;
};

}  // namespace

StepSplit split_step(const SplitCall& call) { return StageSplitter(call).run(); }

}  // namespace weft::dist
