#include "distributed/overlap/overlap.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "compiler/passes/new_node.h"
#include "distributed/overlap/dependencies.h"
#include "ops/core/collectives/collective.h"

namespace weft::dist {
namespace {

// Live bytes while nodes run in some order. A light node keeps alive the memory that it views.
class LiveBytes {
 public:
  LiveBytes(const Graph& g, const Dependencies& flow)
      : g_(g), flow_(flow), uses_(g.size()), bytes_(g.size()), reads_(g.size()) {
    for (int32_t id = 0; id < g.size(); ++id) {
      if (!flow.live[id] || flow.light[id]) continue;
      for (const TensorType& t : g.node(id).outputs) bytes_[id] += t.nbytes();
      find_reads(id);
      for (int32_t from : reads_[id]) ++uses_[from];
    }
    auto keep = [&](Value v) {
      std::vector<int32_t> stack{v.node};
      while (!stack.empty()) {
        const int32_t id = stack.back();
        stack.pop_back();
        if (!flow.light[id]) {
          ++uses_[id];
        } else if (g.node(id).op->view && !g.node(id).inputs.empty()) {
          stack.push_back(g.node(id).inputs[0].node);
        }
      }
    };
    for (Value v : g.outputs) keep(v);
    for (const CellWrite& w : g.writes) keep(w.value);
  }

  int64_t live() const { return live_; }
  int64_t peak() const { return peak_; }
  int64_t bytes(int32_t id) const { return bytes_[id]; }
  void make(int32_t id) {
    live_ += bytes_[id];
    peak_ = std::max(peak_, live_);
    if (uses_[id] == 0) live_ -= bytes_[id];
  }
  void read(int32_t id) {
    for (int32_t from : reads_[id])
      if (--uses_[from] == 0) live_ -= bytes_[from];
  }
  /// Bytes that become free once this node has read its operands.
  int64_t frees(int32_t id) const {
    int64_t bytes = 0;
    for (int32_t from : reads_[id])
      if (uses_[from] == 1) bytes += bytes_[from];
    return bytes;
  }

 private:
  void find_reads(int32_t id) {
    std::vector<int32_t> stack;
    for (Value v : g_.node(id).inputs) stack.push_back(v.node);
    auto& to = reads_[id];
    while (!stack.empty()) {
      const int32_t from = stack.back();
      stack.pop_back();
      if (!flow_.light[from]) {
        if (std::find(to.begin(), to.end(), from) == to.end()) to.push_back(from);
      } else if (g_.node(from).op->view && !g_.node(from).inputs.empty()) {
        stack.push_back(g_.node(from).inputs[0].node);
      }
    }
  }

  const Graph& g_;
  const Dependencies& flow_;
  std::vector<int> uses_;
  std::vector<int64_t> bytes_;
  std::vector<std::vector<int32_t>> reads_;
  int64_t live_ = 0, peak_ = 0;
};

// The path up to its first number: "blocks.3" for "blocks.3.attn.qkv"; without a number, the outermost name.
std::string_view layer_of(const Node& n) {
  const std::string_view scope = n.scope;
  for (size_t begin = 0, end = 0; begin < scope.size(); begin = end + 1) {
    end = std::min(scope.find_first_of("./", begin), scope.size());
    const std::string_view name = scope.substr(begin, end - begin);
    if (!name.empty() && name.find_first_not_of("0123456789") == name.npos) return scope.substr(0, end);
  }
  return scope.substr(0, scope.find('/'));
}

class OverlapScheduler {
 public:
  /// `window`: limit of bytes of parameters gathered ahead. `limit`: live bytes above which nothing starts early.
  /// `in_place`: keeps the graph's order, without overlap.
  OverlapScheduler(const Graph& g, const Dependencies& flow, const Mesh& mesh, const Machine& machine,
                   const OverlapOptions& options, int64_t window, int64_t limit, bool in_place)
      : g_(g),
        flow_(flow),
        look_ahead_(options.look_ahead),
        window_(window),
        budget_(limit),
        in_place_(in_place),
        memory_(g, flow_),
        n_(g.size()) {
    for (int32_t id = 0; id < g.size(); ++id) {
      if (!flow_.live[id] || flow_.light[id]) continue;
      const Node& n = g.node(id);
      NodeTiming& x = n_[id];
      order_.push_back(id);
      x.missing = static_cast<int32_t>(flow_.before[id].size());
      for (int32_t from : flow_.before[id]) n_[from].after.push_back(id);
      x.splits = communicates(n) && start_form(*n.op) && !n.op->is(kSideEffect);
      x.fixed = n.op->is(kSideEffect) || (communicates(n) && !x.splits) || n.op->is(kOrdered);
      x.seconds = x.splits          ? communication_seconds(machine, mesh, g, n)
                  : communicates(n) ? 0
                                    : compute_seconds(machine, g, n);
      if (x.splits) {
        open_.push_back(id);
        s_.communication += x.seconds;
      } else {
        s_.compute += x.seconds;
        if (communicates(n)) {
          const double seconds = communication_seconds(machine, mesh, g, n);
          s_.communication += seconds;
          s_.exposed += seconds;
        }
      }
    }
    // Seconds of the work before each node, in the graph's order.
    double before = 0;
    for (int32_t id : order_) {
      n_[id].before = before;
      if (!n_[id].splits) before += n_[id].seconds;
    }
    all_ = before;
  }

  OverlapSchedule run() {
    for (size_t head = 0; head < order_.size();) {
      if (!in_place_) {
        start_ready(head);
        wait_for_done();
      }
      const int32_t id = order_[head];
      NodeTiming& x = n_[id];
      if (x.done || x.started) {
        ++head;
        continue;
      }
      const double until = free_at(id);
      if (until > clock_ && !x.fixed && !in_place_) {
        if (const int32_t other = work_meanwhile(head); other >= 0) {
          run_node(other);
          continue;
        }
      }
      need(id);
      make_room(memory_.bytes(id));
      if (x.splits) {
        start(id);
        if (in_place_ && !x.done) wait_for(id);
      } else {
        run_node(id);
      }
      ++head;
    }
    while (!under_way_.empty()) wait_for(under_way_.front());
    s_.peak = memory_.peak();
    return std::move(s_);
  }

 private:
  struct NodeTiming {
    bool splits = false, fixed = false, started = false, done = false;
    int32_t missing = 0;  // number of nodes of Dependencies::before that are not done
    double seconds = 0, finish = 0, before = 0;
    size_t hidden = 0;  // a collective's index in OverlapSchedule::hidden
    int64_t ahead = 0;  // its bytes in the prefetch window
    std::vector<int32_t> after;
  };

  /// The time at which all operands of a node are ready; 1e30 if one of them has not started.
  double free_at(int32_t id) const {
    double t = clock_;
    for (int32_t from : flow_.before[id]) {
      const NodeTiming& x = n_[from];
      if (x.done) continue;
      if (!x.started) return 1e30;
      t = std::max(t, x.finish);
    }
    return t;
  }

  /// Waits for the collectives that a node needs.
  void need(int32_t id) {
    if (n_[id].missing == 0) return;
    std::vector<int32_t> all;
    for (int32_t from : under_way_)
      if (std::find(flow_.before[id].begin(), flow_.before[id].end(), from) != flow_.before[id].end())
        all.push_back(from);
    for (int32_t from : all) wait_for(from);
    WEFT_BUG_IF(n_[id].missing != 0, "overlap: %", id, " (", g_.node(id).op->name, ") comes before its operands");
  }

  void finish(int32_t id) {
    NodeTiming& x = n_[id];
    x.done = true;
    memory_.read(id);
    for (int32_t to : x.after) --n_[to].missing;
  }

  void run_node(int32_t id) {
    need(id);
    NodeTiming& x = n_[id];
    s_.events.push_back({ScheduleEvent::kRun, id});
    memory_.make(id);
    clock_ += x.seconds;
    for (int32_t c : under_way_) meanwhile_[c].push_back(id);
    finish(id);
  }

  void start(int32_t id) {
    need(id);
    NodeTiming& x = n_[id];
    x.started = true;
    double& network = network_[g_.node(id).attrs.get<std::string>("axes")];
    network = std::max(network, clock_) + x.seconds;
    x.finish = network;
    x.hidden = s_.hidden.size();
    s_.hidden.push_back({g_.node(id).attrs.i("site", 0), x.seconds, 0, {}});
    s_.events.push_back({ScheduleEvent::kStart, id});
    memory_.make(id);
    if (x.seconds <= 0) return wait_at_once(id);
    under_way_.push_back(id);
    std::erase(open_, id);
  }
  void wait_at_once(int32_t id) {
    std::erase(open_, id);
    under_way_.push_back(id);
    wait_for(id);
  }

  void wait_for(int32_t id) {
    NodeTiming& x = n_[id];
    HiddenCollective& h = s_.hidden[x.hidden];
    if (x.finish > clock_) {
      // The rank also waits for earlier transfers on the same network.
      const auto& axes = g_.node(id).attrs.get<std::string>("axes");
      for (int32_t other : under_way_) {
        const NodeTiming& y = n_[other];
        if (g_.node(other).attrs.get<std::string>("axes") == axes)
          s_.hidden[y.hidden].exposed +=
              std::max(0.0, std::min(y.finish, x.finish) - std::max(y.finish - y.seconds, clock_));
      }
      s_.exposed += x.finish - clock_;
      clock_ = x.finish;
    }
    h.by = by(meanwhile_[id]);
    meanwhile_.erase(id);
    ahead_ -= x.ahead;
    std::erase(under_way_, id);
    s_.events.push_back({ScheduleEvent::kWait, id});
    finish(id);
  }

  std::string by(const std::vector<int32_t>& nodes) const {
    const Node* longest = nullptr;
    double most = 0;
    for (int32_t id : nodes)
      if (n_[id].seconds > most) most = n_[id].seconds, longest = &g_.node(id);
    if (!longest) return "";
    std::string s = str_cat(longest->op->name, at_line(*longest));
    if (nodes.size() > 1) s += str_cat(" and ", nodes.size() - 1, " more");
    return s;
  }

  /// Whether a collective would keep memory for longer than its hiding needs. Its result must be larger than the memory
  /// that it frees; and the work after the next node and up to its use must take more than twice its time, including
  /// the network's earlier transfers.
  bool too_early(size_t head, int32_t id) {
    if (memory_.bytes(id) <= memory_.frees(id)) return false;
    const int32_t use = flow_.use[id];
    const NodeTiming& next = n_[order_[head]];
    const double work = (use < g_.size() ? n_[use].before : all_) - next.before - (next.splits ? 0 : next.seconds);
    const double network = std::max(0.0, network_[g_.node(id).attrs.get<std::string>("axes")] - clock_);
    return work > 2 * (network + n_[id].seconds);
  }

  /// Starts the collectives whose operands are ready. Gathers of parameters start only within the window, others not
  /// long before their use, and none beyond the budget.
  void start_ready(size_t head) {
    const std::vector<int32_t> open = open_;
    for (int32_t id : open) {
      NodeTiming& x = n_[id];
      if (free_at(id) > clock_) continue;
      if (memory_.live() + memory_.bytes(id) > budget_) continue;
      if (flow_.ready[id] < 0 && id > order_[head]) {
        const int64_t bytes = memory_.bytes(id);
        if (ahead_ > 0 && ahead_ + bytes > window_) break;  // gathers start in the order of use
        ahead_ += bytes;
        x.ahead = bytes;
      } else if (flow_.ready[id] >= 0 && too_early(head, id)) {
        continue;
      }
      start(id);
    }
  }

  /// Waits for collectives that finished long ago, if that frees their operands' memory.
  void wait_for_done() {
    const std::vector<int32_t> all = under_way_;
    for (int32_t id : all)
      if (n_[id].finish + n_[id].seconds <= clock_ && memory_.frees(id) > 0) wait_for(id);
  }

  /// Waits for collectives that free their operands' memory, oldest first, until `bytes` more fit.
  void make_room(int64_t bytes) {
    if (memory_.live() + bytes <= budget_) return;
    const std::vector<int32_t> all = under_way_;
    for (int32_t id : all) {
      if (memory_.live() + bytes <= budget_) return;
      if (memory_.frees(id) > 0) wait_for(id);
    }
  }

  /// Whether only collectives need the result.
  bool only_communicated(const NodeTiming& x) const {
    return std::all_of(x.after.begin(), x.after.end(), [&](int32_t to) { return n_[to].splits; });
  }

  /// The first node after `head` that can run now within the budget, or -1.
  int32_t work_meanwhile(size_t head) const {
    const size_t end = std::min(order_.size(), head + static_cast<size_t>(look_ahead_));
    for (size_t i = head + 1; i < end; ++i) {
      const int32_t id = order_[i];
      const NodeTiming& x = n_[id];
      if (x.done || x.started || x.splits || x.fixed || x.seconds <= 0) continue;
      if (free_at(id) > clock_) continue;
      const int64_t more = memory_.bytes(id) - memory_.frees(id);
      if (memory_.live() + more > std::max(memory_.live(), budget_)) continue;
      // A large gradient would be alive, until its reduction, together with the parameter that is gathered now.
      if (window_ > 0 && more > window_ && only_communicated(x)) continue;
      return id;
    }
    return -1;
  }

  const Graph& g_;
  const Dependencies& flow_;
  const int look_ahead_;
  const int64_t window_, budget_;
  const bool in_place_;
  LiveBytes memory_;
  std::vector<NodeTiming> n_;
  std::vector<int32_t> order_, open_, under_way_;  // open_: collectives not started, in order
  std::map<int32_t, std::vector<int32_t>> meanwhile_;
  std::map<std::string, double> network_;  // axes -> the time from which the network is idle
  int64_t ahead_ = 0;
  double clock_ = 0, all_ = 0;  // all_: seconds of all work
  OverlapSchedule s_;
};

OverlapSchedule plain_of(OverlapSchedule s) {
  s.peak_before = s.peak;
  return s;
}

// The bytes b that a typical layer gathers: layers with at most b bytes have half of all bytes. The largest layer would
// be no good limit: it may be an embedding, many times larger than the other layers, which would all be gathered ahead
// of it.
int64_t bytes_of_a_layer(const Graph& g, const Dependencies& flow) {
  std::map<std::pair<std::string_view, bool>, int64_t> layers;
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    if (flow.live[id] && flow.ready[id] < 0 && communicates(n))
      layers[{layer_of(n), n.backward}] += n.outputs[0].nbytes();
  }
  std::vector<int64_t> sizes;
  int64_t all = 0;
  for (const auto& [layer, bytes] : layers) {
    sizes.push_back(bytes);
    all += bytes;
  }
  std::sort(sizes.begin(), sizes.end());
  int64_t sum = 0;
  for (int64_t bytes : sizes)
    if (2 * (sum += bytes) >= all) return bytes;
  return 0;
}

}  // namespace

OverlapSchedule schedule(const Graph& g, const Mesh& mesh, const Machine& machine, const OverlapOptions& options) {
  const Dependencies flow(g);
  const int64_t window = options.prefetch_bytes > 0 ? options.prefetch_bytes : bytes_of_a_layer(g, flow);
  const OverlapSchedule plain = OverlapScheduler(g, flow, mesh, machine, options, 0, 0, true).run();
  const int64_t budget = options.memory_bytes > 0 ? options.memory_bytes : plain.peak + plain.peak / 50 + window;
  // The limit only bounds early starts. The peak can still exceed the budget; the limit is then lowered.
  int64_t limit = budget;
  OverlapOptions tried = options;
  for (int attempt = 0; attempt < 5; ++attempt) {
    if (attempt == 3) tried.look_ahead = 0;  // early results also use memory
    OverlapSchedule s = OverlapScheduler(g, flow, mesh, machine, tried, window, limit, false).run();
    s.peak_before = plain.peak;
    if (s.peak <= budget) return s.exposed <= plain.exposed ? s : plain_of(plain);
    limit -= 2 * (s.peak - budget);
  }
  return plain_of(plain);
}

Ref<Graph> apply_schedule(const Graph& g, const OverlapSchedule& s) {
  Rewriter r(g);
  CopyOnDemand copy(g, r);
  std::map<int32_t, std::pair<Value, Value>> started;  // the operand and the result
  for (const ScheduleEvent& e : s.events) {
    const Node& n = g.node(e.node);
    if (e.kind == ScheduleEvent::kRun) {
      copy({e.node, 0});
    } else if (e.kind == ScheduleEvent::kStart) {
      const Value in = copy(n.inputs[0]);
      const Value out = add_node(r.graph(), *start_form(*n.op), {&in, 1}, n.attrs, n);
      started[e.node] = {in, out};
    } else {
      const auto [in, out] = started.at(e.node);
      const Value both[] = {out, in};
      r.map({e.node, 0}, add_node(r.graph(), collective_wait_op, both, {{"site", n.attrs.i("site")}}, n));
    }
  }
  copy.copy_results();
  return r.finish();
}

}  // namespace weft::dist
