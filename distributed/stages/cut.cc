#include "distributed/stages/cut.h"

#include <algorithm>
#include <map>
#include <set>

#include "compiler/cost/node_seconds.h"
#include "compiler/passes/new_node.h"
#include "distributed/stages/microbatch.h"
#include "framework/ir/rewrite.h"
#include "ops/core/collectives/collective.h"

namespace weft::dist {
namespace {

// Whether each stage may compute a node, if its operands are free.
bool may_be_free(const Node& n) {
  const bool structural = n.op->is(kStructural) && !is_passed_on(n) && !is_unwritten_leaf(n);
  return !structural && !n.op->is(kContraction) && !n.op->is(kSideEffect) && !n.op->is(kCollective) &&
         !n.op->is(kCustom);
}

class Cutter {
 public:
  Cutter(const Graph& g, size_t arguments, const CutOptions& options)
      : g_(g), arguments_(static_cast<int64_t>(arguments)), options_(options), users_(users(g)), nodes_(g.size()) {}

  StageCut run() {
    find_regions();
    find_pieces();
    // Makes each piece a stage first, to find the piece that computes each gradient.
    place(pieces_);
    const std::vector<double> work = work_of_stages(pieces_.size() + 1);
    std::vector<int> begins = options_.begins.empty() ? at_marks() : at_modules();
    if (begins.empty()) begins = chosen(work);
    place(begins);
    find_weights();
    StageCut cut;
    cut.stages = options_.stages;
    cut.seconds = work_of_stages(begins.size() + 1);
    cut.largest_piece = *std::max_element(work.begin(), work.end());
    cut.first.push_back(order_.empty() ? "" : name(order_[0]));
    for (int k : begins) cut.first.push_back(name(order_[k]));
    cut.fits = fits_;
    cut.nodes = std::move(nodes_);
    return cut;
  }

 private:
  StageOf& at(Value v) { return nodes_[v.node]; }
  bool is_sum(int32_t id) const { return is_microbatch_sum(g_.node(id)); }
  bool in_stage(int32_t id) const { return nodes_[id].region == StageOf::kStage; }
  bool is_forward(int32_t id) const { return in_stage(id) && !nodes_[id].backward; }

  // ---- regions ----

  void find_regions() {
    std::vector<bool> varies(g_.size());  // whether the node varies by microbatch
    bases_.resize(g_.size());
    lazy_.resize(g_.size());
    for (int32_t id = 0; id < g_.size(); ++id) {
      const Node& n = g_.node(id);
      StageOf& own = nodes_[id];
      bool after = false, free = may_be_free(n);
      varies[id] = is_argument(n) && argument_index(n) >= arguments_;
      if (is_cell(n)) {
        const Cell& cell = *g_.cells[n.attrs.i("index")];
        // Every rank has generators, counters and scales.
        free = !cell.is_parameter && n.outputs[0].shape.empty();
        if (!free) bases_[id].insert(id);
      }
      for (Value v : n.inputs) {
        after |= at(v).region == StageOf::kAfter || is_sum(v.node);
        varies[id] = varies[id] || (varies[v.node] && !is_sum(v.node));
        free &= at(v).region == StageOf::kFree;
        own.backward |= at(v).backward;
        bases_[id].insert(bases_[v.node].begin(), bases_[v.node].end());
      }
      WEFT_BUG_IF(after && (varies[id] || is_sum(id)), "stages: ", n.op->name, " reads a microbatch and a sum");
      if (after) {
        own.region = StageOf::kAfter;
      } else if (is_sum(id) || (varies[id] && !free)) {
        own.region = StageOf::kStage;
        lazy_[id] = !is_sum(id) && (n.op->view || !own.backward);
        own.backward |= n.backward && !is_sum(id);
      } else {
        own.region = free ? StageOf::kFree : StageOf::kOutside;
      }
      own.backward &= in_stage(id);
      if (is_forward(id)) {
        bases_[id] = {id};
      } else if (own.region == StageOf::kAfter || (own.backward && !lazy_[id])) {
        bases_[id].clear();
      }
    }
  }

  // ---- the order of the forward pass ----

  double seconds(int32_t id) const {
    const Node& n = g_.node(id);
    return n.op->view ? 0 : node_seconds(options_.machine, g_, n);
  }

  void find_pieces() {
    for (int32_t id = 0; id < g_.size(); ++id)
      if (is_forward(id) && !is_sum(id)) order_.push_back(id);
    // A piece ends after a node with work: views belong to their readers.
    bool work = false;
    for (int k = 0; k < static_cast<int>(order_.size()); ++k) {
      if (work) pieces_.push_back(k);
      work = seconds(order_[k]) > 0;
    }
    if (!work && !pieces_.empty()) pieces_.pop_back();
  }

  std::string name(int32_t id) const {
    const Node& n = g_.node(id);
    return str_cat(n.scope, *n.scope ? ": " : "", n.op->name, at_line(n));
  }

  // ---- where stages begin ----

  static bool in_module(std::string_view path, std::string_view module) {
    const auto ends = [&](size_t i) { return i >= path.size() || path[i] == '/' || path[i] == '.'; };
    for (size_t i = path.find(module); i != path.npos; i = path.find(module, i + 1))
      if ((i == 0 || ends(i - 1)) && ends(i + module.size())) return true;
    return false;
  }

  /// Positions in the order after stage_boundary().
  std::vector<int> at_marks() const {
    std::vector<int> begins;
    for (int k = 0; k + 1 < static_cast<int>(order_.size()); ++k)
      if (g_.node(order_[k]).op == &stage_boundary_op) begins.push_back(k + 1);
    WEFT_CHECK(begins.empty() || static_cast<int>(begins.size()) == options_.stages - 1, "pp: the step has ",
               begins.size(), " calls of stage_boundary() for ", options_.stages,
               " stages; need one for each stage but the first, or none");
    check_work(begins);
    return begins;
  }

  void check_work(const std::vector<int>& begins) const {
    int from = 0;
    for (size_t s = 0; s <= begins.size() && !begins.empty(); ++s) {
      const int to = s < begins.size() ? begins[s] : static_cast<int>(order_.size());
      WEFT_CHECK(std::any_of(order_.begin() + from, order_.begin() + to, [&](int32_t id) { return seconds(id) > 0; }),
                 "stages: stage ", s,
                 s < begins.size() ? str_cat(", which ends before ", name(order_[to]), ",") : ", the last one,",
                 " has no work; need work in each stage");
      from = to;
    }
  }

  std::vector<int> at_modules() const {
    const std::vector<std::string>& modules = options_.begins;
    WEFT_CHECK(static_cast<int>(modules.size()) == options_.stages - 1, "stages: got ", modules.size(), " modules for ",
               options_.stages, " stages; need one for each stage but the first");
    const int all = static_cast<int>(order_.size());
    std::vector<int> begins;
    for (const std::string& module : modules) {
      int k = 0;
      while (k < all && !in_module(g_.node(order_[k]).scope, module)) ++k;
      WEFT_CHECK(k < all, "stages: '", module,
                 "' is no module that computes a value of each microbatch; need one, as 'blocks.3'");
      WEFT_CHECK(begins.empty() || k > begins.back(), "stages: '", module, "' does not begin after '",
                 modules[begins.size() - 1], "'; need modules in the order of the step");
      begins.push_back(k);
    }
    check_work(begins);
    return begins;
  }

  /// `work`: by piece.
  std::vector<int> chosen(const std::vector<double>& work) {
    const int p = options_.stages;
    WEFT_CHECK(p >= 1, "pp: got ", p, " stages; need 1 or more");
    WEFT_CHECK(static_cast<int>(work.size()) >= p && !order_.empty(), "pp: the step has ",
               order_.empty() ? 0 : work.size(), " pieces of work for a microbatch; need one or more for each of ", p,
               " stages");
    if (p == 1) return {};
    std::vector<double> before(work.size() + 1);
    for (size_t i = 0; i < work.size(); ++i) before[i + 1] = before[i] + work[i];
    const std::vector<double> bytes = bytes_crossing();
    PieceMemory memory = options_.memory > 0 ? memory_of_pieces(work.size()) : PieceMemory();
    // The most even cut at places where at most `level` bytes cross. Sets `most`.
    double most = 0;
    const auto cut_below = [&](double level) {
      std::vector<int> places;
      for (int i = 1; i < static_cast<int>(work.size()); ++i)
        if (bytes[pieces_[i - 1]] <= level) places.push_back(i);
      return most_even(places, before, memory, p, &most);
    };
    std::vector<double> levels;
    for (int k : pieces_) levels.push_back(bytes[k]);
    std::sort(levels.begin(), levels.end());
    cut_below(levels.back());
    fits_ = most <= before.back();
    if (!fits_) {
      memory = {};
      cut_below(levels.back());
    }
    const double allowed = most * kUnevenStages;
    // A higher level allows all cuts of a lower level.
    const auto level = std::partition_point(levels.begin(), levels.end() - 1,
                                            [&](double l) { return cut_below(l).empty() || most > allowed; });
    std::vector<int> begins;
    for (int i : cut_below(*level)) begins.push_back(pieces_[i - 1]);
    return begins;
  }

  // Bytes before each piece: cells with sums of gradients, and values that a microbatch keeps for backward.
  struct PieceMemory {
    double limit = 0;  // limit of a stage; 0: none
    std::vector<double> cells = {}, kept = {}, alive = {};

    bool fits(int from, int to, int stage) const {
      if (limit == 0) return true;
      const auto a = static_cast<size_t>(from), b = static_cast<size_t>(to);
      return cells[b] - cells[a] + alive[stage] * (kept[b] - kept[a]) <= limit;
    }
  };

  /// Requires that each node's stage is the number of its piece.
  PieceMemory memory_of_pieces(size_t pieces) const {
    PieceMemory m{static_cast<double>(options_.memory) / options_.stages_of_rank, std::vector<double>(pieces + 1),
                  std::vector<double>(pieces + 1), options_.alive};
    double trained = 0, state = 0;
    for (const Ref<Cell>& c : g_.cells) {
      double& sum = c->is_parameter ? trained : state;
      if (!c->is_parameter || c->requires_grad) sum += static_cast<double>(c->type.nbytes());
    }
    const double for_each_byte = trained > 0 ? 2 + state / trained : 1;
    const auto again = [&](int32_t id) { return !options_.may_recompute.empty() && options_.may_recompute[id]; };
    for (int32_t id = 0; id < g_.size(); ++id) {
      const Node& n = g_.node(id);
      if (is_cell(n) && !readers_[id].empty()) {
        const Cell& cell = *g_.cells[n.attrs.i("index")];
        const double bytes = static_cast<double>(cell.type.nbytes());
        if (cell.is_parameter)
          m.cells[static_cast<size_t>(*readers_[id].begin()) + 1] += bytes * (cell.requires_grad ? for_each_byte : 1);
      }
      if (!is_forward(id) || is_sum(id) || again(id)) continue;
      const bool kept = std::any_of(users_[id].begin(), users_[id].end(), [&](int32_t user) {
        return nodes_[user].backward || (is_forward(user) && again(user));
      });
      for (const TensorType& t : n.outputs)
        if (kept && !n.op->view) m.kept[static_cast<size_t>(nodes_[id].stage) + 1] += static_cast<double>(t.nbytes());
    }
    for (size_t i = 0; i < pieces; ++i) m.cells[i + 1] += m.cells[i], m.kept[i + 1] += m.kept[i];
    return m;
  }

  /// The first pieces of stages 1, 2, ..., all in `places`, and the work of the largest stage, which is more than all
  /// work if some stage does not fit into the memory. Empty: there are too few places.
  static std::vector<int> most_even(const std::vector<int>& places, const std::vector<double>& before,
                                    const PieceMemory& memory, int stages, double* most) {
    const int m = static_cast<int>(places.size());
    if (m < stages - 1) return {};
    // Each stage gets as much work as the limit allows, but leaves a place for each later stage.
    const int all = static_cast<int>(before.size()) - 1;
    const auto fill = [&](double limit, double* largest) {
      std::vector<int> begins;
      int from = 0;
      *largest = 0;
      const auto end_stage = [&](int to, int stage) {
        *largest = std::max(*largest, memory.fits(from, to, stage) ? before[to] - before[from] : 2 * before.back());
        from = to;
      };
      for (int s = 1, j = 0; s < stages; ++s) {
        const int last = m - (stages - s);
        while (j < last && before[places[j + 1]] - before[from] <= limit && memory.fits(from, places[j + 1], s - 1))
          ++j;
        end_stage(places[j], s - 1);
        begins.push_back(places[j++]);
      }
      end_stage(all, stages - 1);
      return begins;
    };
    double low = 0, high = before.back();
    std::vector<int> best = fill(high, most);
    for (int i = 0; i < 50; ++i) {
      const double limit = (low + high) / 2;
      double largest = 0;
      std::vector<int> begins = fill(limit, &largest);
      (largest <= limit ? high : low) = limit;
      if (largest < *most) *most = largest, best = std::move(begins);
    }
    return best;
  }

  /// For each position in the order, the bytes of values that were computed before it and are read there or later.
  std::vector<double> bytes_crossing() const {
    std::vector<int> position(g_.size(), -1);
    for (int k = 0; k < static_cast<int>(order_.size()); ++k) position[order_[k]] = k;
    std::vector<double> bytes(order_.size() + 1);
    for (int k = 0; k < static_cast<int>(order_.size()); ++k) {
      int last = k;
      for (int32_t user : users_[order_[k]]) last = std::max(last, position[user]);
      double own = 0;
      for (const TensorType& t : g_.node(order_[k]).outputs) own += static_cast<double>(t.nbytes());
      bytes[k + 1] += own;
      bytes[last + 1] -= own;
    }
    for (size_t k = 1; k < bytes.size(); ++k) bytes[k] += bytes[k - 1];
    return bytes;
  }

  // ---- stages of nodes ----

  /// Stages begin at these positions in the order.
  void place(const std::vector<int>& begins) {
    const int last = static_cast<int>(begins.size());
    readers_.assign(g_.size(), {});
    for (int k = 0, stage = 0; k < static_cast<int>(order_.size()); ++k) {
      if (stage < static_cast<int>(begins.size()) && k == begins[stage]) ++stage;
      nodes_[order_[k]].stage = stage;
      for (Value v : g_.node(order_[k]).inputs)
        for (int32_t base : bases_[v.node]) readers_[base].insert(stage);
    }
    for (int32_t id = 0; id < g_.size(); ++id)
      if (nodes_[id].backward || (in_stage(id) && is_sum(id))) nodes_[id].stage = stage_with(id, last);
    // A node that only prepares a gradient, or views it in another shape, is computed where it is read.
    for (int32_t id = g_.size() - 1; id >= 0; --id) {
      if (!nodes_[id].backward || !lazy_[id]) continue;
      int latest = -1;
      for (int32_t user : users_[id])
        if (in_stage(user)) latest = std::max(latest, nodes_[user].stage);
      if (latest >= 0) nodes_[id].stage = latest;
    }
    for (int32_t id = 0; id < g_.size(); ++id) {
      if (!in_stage(id) || !is_sum(id)) continue;
      const Value part = g_.node(id).inputs[0];
      if (in_stage(part.node)) nodes_[id].stage = at(part).stage;
    }
  }

  /// The first stage, from `last` downwards as gradients flow, that has all operands of a node.
  int stage_with(int32_t id, int last) {
    int latest = last, home = 0;
    std::set<int32_t> bases;
    for (Value v : g_.node(id).inputs) {
      if (at(v).backward) latest = std::min(latest, at(v).stage);
      bases.insert(bases_[v.node].begin(), bases_[v.node].end());
    }
    for (int s = latest; s >= 0; --s)
      if (std::all_of(bases.begin(), bases.end(), [&](int32_t base) { return has(base, s); })) return s;
    for (int32_t base : bases)
      if (in_stage(base)) home = std::max(home, nodes_[base].stage);
    return std::min(latest, home);
  }

  /// Whether a stage has a forward value or a cell without an additional transfer.
  bool has(int32_t base, int stage) const {
    if (readers_[base].contains(stage)) return true;
    return in_stage(base) ? nodes_[base].stage == stage : readers_[base].empty();
  }

  std::vector<double> work_of_stages(size_t stages) const {
    std::vector<double> work(stages);
    for (int32_t id = 0; id < g_.size(); ++id)
      if (nodes_[id].region == StageOf::kStage) work[nodes_[id].stage] += seconds(id);
    return work;
  }

  void find_weights() {
    std::vector<bool> awaited(g_.size());  // whether another stage awaits the node
    for (int32_t id = g_.size() - 1; id >= 0; --id) {
      StageOf& own = nodes_[id];
      if (!own.backward) continue;
      for (int32_t user : users_[id])
        if (in_stage(user) && (nodes_[user].stage != own.stage || awaited[user])) awaited[id] = true;
      own.weight = !awaited[id];
    }
  }

  const Graph& g_;
  const int64_t arguments_;
  const CutOptions& options_;
  const std::vector<std::vector<int32_t>> users_;
  std::vector<StageOf> nodes_;
  // For each node, the forward values and cells that a stage needs to compute the node itself instead of receiving it.
  std::vector<std::set<int32_t>> bases_;
  bool fits_ = true;
  std::vector<bool> lazy_;              // backward nodes that are computed where they are read
  std::vector<int32_t> order_;          // forward nodes
  std::vector<int> pieces_;             // positions in the order where a stage may begin
  std::vector<std::set<int>> readers_;  // node -> the stages whose forward nodes read it
};

}  // namespace

StageCut cut_stages(const Graph& g, size_t arguments, const CutOptions& options) {
  return Cutter(g, arguments, options).run();
}

std::vector<Crossing> crossings(const Graph& g, const StageCut& cut) {
  struct CrossingValues {
    std::set<Value> forward, backward;
  };
  std::map<pipeline::StageLink, CrossingValues> all;
  for (int32_t id = 0; id < g.size(); ++id) {
    const StageOf& reader = cut.nodes[id];
    if (reader.region != StageOf::kStage) continue;
    for (Value v : g.node(id).inputs) {
      const StageOf& own = cut.nodes[v.node];
      if (own.region != StageOf::kStage || own.stage == reader.stage) continue;
      const bool forth = own.stage < reader.stage;
      WEFT_BUG_IF(forth ? own.backward : !reader.backward, "stages: ", g.node(v).op->name,
                  " goes against the direction of its phase");
      CrossingValues& values = all[{std::min(own.stage, reader.stage), std::max(own.stage, reader.stage)}];
      (forth ? values.forward : values.backward).insert(v);
    }
  }
  std::vector<Crossing> found;
  for (const auto& [link, values] : all) {
    Crossing c{link, {values.forward.begin(), values.forward.end()}, {values.backward.begin(), values.backward.end()}};
    for (Value v : c.forward) c.forward_bytes += g.type(v).nbytes();
    for (Value v : c.backward) c.backward_bytes += g.type(v).nbytes();
    found.push_back(std::move(c));
  }
  return found;
}

}  // namespace weft::dist
