#include "distributed/launch/rank_plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "compiler/exec/plan/failing.h"
#include "compiler/exec/plan/stamp.h"
#include "compiler/passes/new_node.h"
#include "distributed/placement/replica.h"
#include "ops/core/collectives/collective.h"
#include "ops/core/indexing/view.h"

namespace weft::dist {
namespace {

using internal::StampPlace;
using pipeline::Action;
using pipeline::ActionKind;

// A value that a rank keeps for each microbatch, with the stage that computed or received it.
struct KeptKey {
  Value value;
  int stage = 0;
  friend auto operator<=>(const KeptKey&, const KeptKey&) = default;
};

class RankProgramBuilder {
 public:
  RankProgramBuilder(const RankProgramCall& call, int rank)
      : call_(call),
        g_(call.step.graph),
        rank_(rank),
        parts_(call.split.ranks[rank]),
        actions_(call.step.table.ranks[rank]),
        microbatches_(static_cast<size_t>(call.step.table.microbatches)) {
    const Device device = internal::device_of(g_);
    planned_.operations = std::make_shared<internal::Operations>(target_of(device.type, "compile"), device,
                                                                 internal::prepare_options(call.options));
    std::vector<TensorType> arguments;
    for (size_t i = 0; i < call.step.microbatch.arguments; ++i) arguments.push_back(g_.type(g_.inputs[i]));
    plan_.emplace(*parts_.before.graph, arguments, *planned_.operations);
    for (size_t i = 0; i < arguments.size(); ++i) values_[g_.inputs[i]] = plan_->graph().inputs[i];
    for (int32_t id = 0; id < g_.size(); ++id) site_ = std::max(site_, g_.node(id).attrs.i("site", 0));
    receipt_ = plan_->add_block(sizeof(int64_t));
    find_order();
  }

  RankProgram run() {
    add_parts();
    find_lives();
    reserve();
    run_once(before_, parts_.before);
    for (size_t i = 0; i < actions_.size(); ++i) run_action(static_cast<int>(i));
    wait_for_rest();
    int32_t commit_point = -1;
    for (size_t level = 0; level < parts_.after.size(); ++level) {
      // The ranks of a stage, and so of its sums over replicas, run the same parts.
      const int32_t summed = after_[level].summed;
      if (static_cast<int>(level) == call_.split.commit_level) commit_point = plan_->launches() + summed;
      WEFT_CHECK(
          summed == 0 || call_.split.commit_level < 0 || static_cast<int>(level) <= call_.split.commit_level, "mesh ",
          call_.options.mesh.to_string(),
          ": a cell is written before a sum over replica that depends on another stage; need dp in place of replica");
      run_once(after_[level], parts_.after[level]);
      run_messages(messages_[level]);
    }
    if (commit_point < 0 && has_replicas(call_.options.mesh)) commit_point = plan_->launches();
    std::vector<Value> outputs;
    if (rank_ == 0) outputs = outputs_;
    planned_.plan = plan_->finish(outputs);
    planned_.plan.commit_point = commit_point;
    planned_.fused = planned_.plan.graph;
    planned_.order = "the order of the pipeline's actions";
    return {std::move(planned_), std::move(described_)};
  }

 private:
  // A planned part. `number` -1: it has no work.
  struct Ready {
    int32_t number = -1;
    std::vector<bool> in_place;  // operand -> the sum is added to in its own memory
    int32_t summed = 0;          // its launches up to the last sum over replicas
  };

  // Finds when each action runs, and when each RECV runs, by its stage, the sending stage and the microbatch.
  void find_order() {
    when_.resize(call_.order.size());
    for (size_t i = 0; i < call_.order.size(); ++i) when_[call_.order[i]] = static_cast<int>(i);
    int number = 0;
    for (size_t r = 0; r < call_.step.table.ranks.size(); ++r) {
      if (static_cast<int>(r) == rank_) first_ = number;
      for (const Action& a : call_.step.table.ranks[r]) {
        if (a.kind == ActionKind::kRecv) receives_[{a.stage, a.peer, a.microbatch}] = when_[number];
        ++number;
      }
    }
  }

  const StageOf& at(Value v) const { return call_.step.cut.nodes[v.node]; }
  int rank_of(int stage) const { return call_.step.table.rank_of_stage[stage]; }
  bool is_sum(Value v) const { return is_microbatch_sum(g_.node(v)); }
  bool is_kept(Value v) const { return at(v).region == StageOf::kStage && !is_sum(v); }
  bool is_slice(Value v) const {
    const Node& n = g_.node(v);
    return argument_index(n) >= static_cast<int64_t>(call_.step.microbatch.arguments);
  }

  // ---- the parts ----

  void add_parts() {
    before_ = add(parts_.before);
    // The actions in the order of one microbatch, so that operands come before their readers.
    std::vector<std::pair<int, ActionKind>> order;
    for (const auto& [key, part] : parts_.actions) order.push_back(key);
    const auto rank_in_order = [](const std::pair<int, ActionKind>& k) {
      const int phase = k.second == ActionKind::kForward ? 0 : k.second == ActionKind::kWeight ? 2 : 1;
      return std::pair{phase, phase == 0 ? k.first : -k.first};
    };
    std::sort(order.begin(), order.end(),
              [&](const auto& a, const auto& b) { return rank_in_order(a) < rank_in_order(b); });
    for (const auto& key : order) action_[key] = add(parts_.actions.at(key), key.first);
    for (size_t level = 0; level < parts_.after.size(); ++level) {
      after_.push_back(add(parts_.after[level]));
      messages_.push_back(messages_behind(level));
      for (Message& m : messages_.back()) m.nodes = m.to == rank_ ? receive(m.values, m.from) : send(m.values, m.to);
    }
  }

  struct Nodes {
    int32_t start = -1, wait = -1;
  };

  // One message between two levels: a value, or scalars that are stored contiguously.
  struct Message {
    std::vector<Value> values;
    int from = 0, to = 0;
    Nodes nodes;
  };

  /// The messages that this rank sends and receives after a level of the update. Scalars of one rank, such as the
  /// squares of its gradients' norms, go to the same ranks in one message.
  std::vector<Message> messages_behind(size_t level) {
    std::map<Value, std::set<int>> readers;
    for (const Hop& hop : call_.split.hops[level]) readers[hop.value].insert(hop.to);
    std::map<std::tuple<int, DType, std::set<int>>, size_t> bundles;
    std::vector<std::pair<int, std::vector<Value>>> sent;  // sender and its values
    for (const Hop& hop : call_.split.hops[level]) {
      const std::set<int>& to = readers.at(hop.value);
      if (hop.to != *to.begin()) continue;  // once for each value
      size_t at = sent.size();
      if (g_.type(hop.value).shape.empty() && !is_sum(hop.value))
        at = bundles.try_emplace({hop.from, g_.type(hop.value).dtype, to}, at).first->second;
      if (at == sent.size()) sent.emplace_back(hop.from, std::vector<Value>());
      sent[at].second.push_back(hop.value);
    }
    std::vector<Message> messages;
    for (const auto& [from, values] : sent) {
      const std::set<int>& to = readers.at(values[0]);
      if (from == rank_ || to.contains(rank_)) store_together(values);
      for (int r : to)
        if (from == rank_ || r == rank_) messages.push_back({values, from, r, {}});
    }
    return messages;
  }

  void store_together(std::span<const Value> values) {
    if (values.size() == 1) return;
    const int64_t bytes = g_.type(values[0]).nbytes();
    const int32_t block = plan_->add_block(bytes * static_cast<int64_t>(values.size()));
    for (size_t i = 0; i < values.size(); ++i)
      once_[values[i]] = {StampPlace::kBlock, block, static_cast<int64_t>(i) * bytes};
  }

  // Reserves memory, so that a plan of many microbatches is not copied while it grows.
  void reserve() {
    size_t launches = 0;
    const auto count = [&](const Ready& ready) { launches += ready.number < 0 ? 0 : plan_->launches_of(ready.number); };
    count(before_);
    for (const Ready& ready : after_) count(ready);
    for (const Action& a : actions_) {
      if (pipeline::computes(a.kind)) count(action_.at({a.stage, a.kind}));
      if (pipeline::transfers(a.kind)) launches += 2 * payload(a.stage, a.peer).size();
    }
    for (const std::vector<Message>& messages : messages_) launches += 2 * messages.size();
    plan_->reserve(launches);
  }

  Ready add(const GraphPart& part, int stage = -1) {
    if (part.empty()) return {};
    std::vector<internal::ArgumentLayout> layouts;
    std::vector<Value> operands;
    for (size_t i = 0; i < part.in.size(); ++i) {
      layouts.push_back({contiguous_strides(g_.type(part.in[i]).shape), part.adds_to[i]});
      operands.push_back(value_for(part.in[i], stage));
    }
    internal::PreparedGraph p = internal::plan_joint(part.graph, layouts, call_.options, false);
    if (const std::set<size_t> shared = internal::shared_outputs(p.plan); !shared.empty()) {
      p.plan = internal::draft_plan(internal::with_copies(*p.plan.graph, shared), layouts, *p.operations);
      internal::lay_out(p.plan);
    }
    Ready ready{.number = plan_->add_part(p.plan, operands)};
    for (size_t t = 0; t < p.plan.launches.size(); ++t)
      if (const internal::Launch& l = p.plan.launches[t];
          !l.copy && internal::ends_sum_over_replicas(*p.plan.graph, l.node))
        ready.summed = static_cast<int32_t>(t) + 1;
    for (size_t i = 0; i < part.in.size(); ++i)
      ready.in_place.push_back(part.adds_to[i] >= 0 && internal::fits_in_place(p.plan, static_cast<int32_t>(i),
                                                                               p.plan.outputs[part.adds_to[i]]));
    const std::span<const Value> results = plan_->results(ready.number);
    for (size_t o = 0; o < part.out.size(); ++o) {
      values_[part.out[o]] = results[o];
      if (part.results[o] < 0) continue;
      outputs_.resize(g_.outputs.size());
      outputs_[part.results[o]] = results[o];
    }
    if (planned_.passes_to_plan.empty()) planned_.passes_to_plan = std::move(p.passes_to_plan);
    return ready;
  }

  /// The value in the plan's graph. A value that no part of this rank computes is received.
  Value value_for(Value v, int stage) {
    if (const auto it = values_.find(v); it != values_.end()) return it->second;
    WEFT_BUG_IF(!is_kept(v), "pipeline: rank ", rank_, " reads ", g_.node(v).op->name, " before it is computed");
    transfer_nodes({kept(v, stage), 0, at(v).stage}, false);
    return values_.at(v);
  }

  // ---- nodes that send and receive ----

  struct TransferKey {
    int kept = 0, slot = 0, peer = 0;  // a stage: two stages of a rank may receive one value
    friend auto operator<=>(const TransferKey&, const TransferKey&) = default;
  };

  Attrs attrs(int peer) {
    return {{"axes", std::string("pp")}, {"peer", static_cast<int64_t>(peer)}, {"site", ++site_}};
  }

  // Records the value that the collective with the last site moves.
  void describe(Value v) {
    const Node& of = g_.node(v);
    const bool once = !is_kept(v);
    const bool written = std::any_of(g_.writes.begin(), g_.writes.end(), [&](const auto& w) { return w.value == v; });
    described_.push_back({.phase = once && !is_sum(v)       ? Phase::kUpdate
                                   : at(v).backward || once ? Phase::kBackward
                                                            : Phase::kForward,
                          .subject = !once                           ? Subject::kActivation
                                     : g_.type(v).shape.numel() <= 1 ? Subject::kScalar
                                     : written                       ? Subject::kParameter
                                                                     : Subject::kGradient,
                          .site = site_,
                          .what = str_cat(of.scope, *of.scope ? ": " : "", of.op->name),
                          .line = of.line.to_string(),
                          .why = once ? "the update of another rank reads it" : "a stage of another rank reads it"});
  }

  Nodes send(std::span<const Value> values, int peer) {
    const Node& of = g_.node(values[0]);
    const Attrs how = attrs(peer);
    describe(values[0]);
    Value x = values_.at(values[0]);
    if (values.size() > 1) {  // nodes without a launch, as the values are stored together
      std::vector<Value> parts;
      for (Value v : values) parts.push_back(view(reshape_op, values_.at(v), {{"shape", Shape{1}}}, of));
      x = {plan_->add_node(new_node(plan_->graph(), concat_op, parts, {{"dim", int64_t{0}}}, of)), 0};
    }
    Nodes n;
    n.start = plan_->add_node(new_node(plan_->graph(), send_start_op, {&x, 1}, how, of));
    const Value operands[] = {{n.start, 0}, x};
    n.wait = plan_->add_node(new_node(plan_->graph(), collective_wait_op, operands, site_of(how), of));
    return n;
  }

  Nodes receive(std::span<const Value> values, int peer) {
    const Node& of = g_.node(values[0]);
    const Attrs how = attrs(peer);
    describe(values[0]);
    const TensorType& type = g_.type(values[0]);
    const auto count = static_cast<int64_t>(values.size());
    Nodes n;
    n.start = plan_->add_node(
        new_node(plan_->graph(), recv_start_op, {},
                 how.with("shape", count > 1 ? Shape{count} : type.shape).with("dtype", type.dtype), of));
    const Value operands[] = {{n.start, 0}, {n.start, 0}};
    n.wait = plan_->add_node(new_node(plan_->graph(), collective_wait_op, operands, site_of(how), of));
    const Value all{n.wait, 0};
    for (int64_t i = 0; i < count; ++i) {
      Value v = all;
      if (count > 1)
        v = view(reshape_op, view(slice_op, all, {{"begin", Shape{i}}, {"end", Shape{i + 1}}, {"step", Shape{1}}}, of),
                 {{"shape", Shape{}}}, of);
      values_.try_emplace(values[i], v);
    }
    return n;
  }

  Value view(const OpDef& op, Value x, Attrs how, const Node& like) {
    return {plan_->add_node(new_node(plan_->graph(), op, {&x, 1}, std::move(how), like)), 0};
  }

  static Attrs site_of(const Attrs& how) { return {{"site", how.i("site")}}; }

  const Nodes& transfer_nodes(const TransferKey& key, bool sends) {
    const auto [it, fresh] = transfers_.try_emplace(key);
    if (fresh) {
      const Value v = kept_values_[key.kept];
      it->second = sends ? send({&v, 1}, rank_of(key.peer)) : receive({&v, 1}, rank_of(key.peer));
    }
    return it->second;
  }

  void start_send(const Nodes& n, const StampPlace& from) {
    const StampPlace receipt{StampPlace::kBlock, receipt_, 0};
    plan_->run_node(n.start, {&from, 1}, {&receipt, 1});
  }
  void end_send(const Nodes& n, const StampPlace& from) {
    const StampPlace receipt{StampPlace::kBlock, receipt_, 0}, operands[] = {receipt, from};
    plan_->run_node(n.wait, operands, {&receipt, 1});
  }
  void start_receive(const Nodes& n, const StampPlace& to) { plan_->run_node(n.start, {}, {&to, 1}); }
  void end_receive(const Nodes& n, const StampPlace& to) {
    const StampPlace operands[] = {to, to};
    plan_->run_node(n.wait, operands, {&to, 1});
  }

  // ---- values of microbatches ----

  /// The number of a kept value. A value that another stage of this rank computed belongs to the other stage.
  int kept(Value v, int stage) {
    if (rank_of(at(v).stage) == rank_) stage = at(v).stage;
    const auto [it, fresh] = kept_.try_emplace({v, stage}, static_cast<int>(kept_values_.size()));
    if (fresh) kept_values_.push_back(v);
    return it->second;
  }

  /// The values that SEND and RECV between two stages move.
  const std::vector<Value>& payload(int from, int to) const {
    static const std::vector<Value> nothing;
    for (const Crossing& c : call_.crossings) {
      if (c.link.from == from && c.link.to == to) return c.forward;
      if (c.link.from == to && c.link.to == from) return c.backward;
    }
    return nothing;
  }

  struct Life {
    int first = -1, last = -1;  // numbers of actions
  };

  // Finds the first and the last action that needs each kept value of each microbatch.
  void find_lives() {
    for (size_t i = 0; i < actions_.size(); ++i) {
      const Action& a = actions_[i];
      const auto use = [&](Value v) {
        if (!is_kept(v)) return;
        const auto k = static_cast<size_t>(kept(v, a.stage));
        if (lives_.size() <= k) lives_.resize(k + 1, std::vector<Life>(microbatches_));
        Life& l = lives_[k][a.microbatch];
        if (l.first < 0) l.first = static_cast<int>(i);
        l.last = static_cast<int>(i);
      };
      if (pipeline::computes(a.kind)) {
        const GraphPart& p = parts_.actions.at({a.stage, a.kind});
        for (Value v : p.in) use(v);
        for (Value v : p.out) use(v);
      } else if (pipeline::transfers(a.kind)) {
        const bool sends = a.kind == ActionKind::kSend;
        for (Value v : sends ? payload(a.stage, a.peer) : payload(a.peer, a.stage)) use(v);
      }
    }
    slots_.resize(lives_.size());
    slot_.assign(lives_.size(), std::vector<int>(microbatches_, -1));
  }

  struct StageSlot {
    int32_t block = -1;
    int microbatch = -1;  // the microbatch of the slot's value
    struct Send {
      const Nodes* nodes;
      int receive;  // when its RECV runs
    };
    std::vector<Send> unsent;  // sends that nobody has waited for
  };

  StampPlace place(int k, int slot) const { return {StampPlace::kBlock, slots_[k][slot].block, 0}; }

  void end_sends(int k, int slot) {
    StageSlot& s = slots_[k][slot];
    for (const StageSlot::Send& x : s.unsent) end_send(*x.nodes, place(k, slot));
    s.unsent.clear();
  }

  // Assigns a slot to a value before action `i`, which makes it. A slot is free after the last read of its value. While
  // the slot's value is still being sent, another slot is used if there are fewer than two, or if the RECV may come
  // after action `i`: ranks that waited for this RECV could wait for each other.
  int slot_for(int k, int microbatch, int i) {
    int& own = slot_[k][microbatch];
    if (own >= 0) return own;
    std::vector<StageSlot>& all = slots_[k];
    int ready = -1, sending = -1;
    for (int s = 0; s < static_cast<int>(all.size()); ++s) {
      const StageSlot& slot = all[s];
      if (lives_[k][slot.microbatch].last >= i) continue;
      const bool comes = std::all_of(slot.unsent.begin(), slot.unsent.end(),
                                     [&](const auto& x) { return x.receive < when_[first_ + i]; });
      if (!comes) continue;
      int& to = slot.unsent.empty() ? ready : sending;
      if (to < 0 || slot.microbatch < all[to].microbatch) to = s;
    }
    own = ready >= 0 ? ready : all.size() < 2 ? -1 : sending;
    if (own < 0) {
      own = static_cast<int>(all.size());
      all.push_back({.block = plan_->add_block(g_.type(kept_values_[k]).nbytes())});
    }
    end_sends(k, own);
    all[own].microbatch = microbatch;
    return own;
  }

  // ---- launches ----

  struct SumBlocks {
    int32_t blocks[2] = {-1, -1};
    int now = 0;
  };

  StampPlace sum_place(SumBlocks& s, Value v, int which) {
    int32_t& block = s.blocks[which];
    if (block < 0) block = plan_->add_block(g_.type(v).nbytes());
    return {StampPlace::kBlock, block, 0};
  }

  /// The place of a value that is computed once per step.
  StampPlace once(Value v) {
    const auto [it, fresh] = once_.try_emplace(v);
    if (fresh) {
      // A slice is computed once per step as the stacked batch.
      const int64_t count = is_slice(v) ? static_cast<int64_t>(microbatches_) : 1;
      it->second.index = plan_->add_block(g_.type(v).nbytes() * count);
    }
    return it->second;
  }

  StampPlace operand(Value v, int stage, int microbatch) {
    if (is_slice(v)) {
      StampPlace p = once(v);
      p.offset = microbatch * g_.type(v).nbytes();
      return p;
    }
    if (is_argument(g_.node(v))) return {StampPlace::kArgument, static_cast<int32_t>(g_.node(v).attrs.i("index")), 0};
    if (is_sum(v) && sums_.contains(v)) return sum_place(sums_[v], v, sums_[v].now);
    if (!is_kept(v)) return once(v);
    const int k = kept(v, stage);
    return place(k, slot_[k][microbatch]);
  }

  // Runs a part that runs once per step.
  void run_once(const Ready& ready, const GraphPart& part) {
    if (ready.number < 0) return;
    std::vector<StampPlace> in, out;
    for (Value v : part.in) in.push_back(operand(v, -1, -1));
    for (size_t o = 0; o < part.out.size(); ++o) {
      const Value v = part.out[o];
      if (part.results[o] >= 0) {
        out.push_back({StampPlace::kOutput, part.results[o], 0});
      } else if (is_sum(v)) {  // zeros
        out.push_back(sum_place(sums_[v], v, 0));
      } else {
        out.push_back(once(v));
      }
    }
    plan_->run(ready.number, in, out);
  }

  void run_action(int i) {
    const Action& a = actions_[i];
    if (pipeline::computes(a.kind)) {
      const GraphPart& part = parts_.actions.at({a.stage, a.kind});
      const Ready& ready = action_.at({a.stage, a.kind});
      if (ready.number < 0) return;
      std::vector<StampPlace> in, out;
      for (Value v : part.in) {
        if (is_kept(v)) wait_for(kept(v, a.stage), a.microbatch);
        in.push_back(operand(v, a.stage, a.microbatch));
      }
      for (Value v : part.out) {
        if (is_kept(v)) {
          const int k = kept(v, a.stage);
          out.push_back(place(k, slot_for(k, a.microbatch, i)));
          continue;
        }
        SumBlocks& s = sums_[v];
        const auto at = std::find(part.in.begin(), part.in.end(), v) - part.in.begin();
        if (!ready.in_place[at]) s.now = 1 - s.now;
        out.push_back(sum_place(s, v, s.now));
      }
      plan_->run(ready.number, in, out);
    } else if (a.kind == ActionKind::kSend) {
      for (Value v : payload(a.stage, a.peer)) {
        const int k = kept(v, a.stage), slot = slot_[k][a.microbatch];
        const Nodes& n = transfer_nodes({k, slot, a.peer}, true);
        wait_for(k, a.microbatch);  // a value that is passed on
        start_send(n, place(k, slot));
        slots_[k][slot].unsent.push_back({&n, receives_.at({a.peer, a.stage, a.microbatch})});
      }
    } else if (a.kind == ActionKind::kRecv) {
      for (Value v : payload(a.peer, a.stage)) {
        const int k = kept(v, a.stage), slot = slot_for(k, a.microbatch, i);
        const Nodes& n = transfer_nodes({k, slot, a.peer}, false);
        start_receive(n, place(k, slot));
        awaited_[{k, a.microbatch}] = &n;
      }
    }
  }

  void wait_for(int k, int microbatch) {
    const auto it = awaited_.find({k, microbatch});
    if (it == awaited_.end()) return;
    end_receive(*it->second, place(k, slot_[k][microbatch]));
    awaited_.erase(it);
  }

  void wait_for_rest() {
    while (!awaited_.empty()) wait_for(awaited_.begin()->first.first, awaited_.begin()->first.second);
    for (int k = 0; k < static_cast<int>(slots_.size()); ++k)
      for (int s = 0; s < static_cast<int>(slots_[k].size()); ++s) end_sends(k, s);
  }

  void run_messages(std::span<const Message> messages) {
    for (const Message& m : messages) {
      if (m.from == rank_) start_send(m.nodes, operand(m.values[0], -1, -1));
      if (m.to == rank_) start_receive(m.nodes, once(m.values[0]));
    }
    for (const Message& m : messages) {
      if (m.from == rank_) end_send(m.nodes, operand(m.values[0], -1, -1));
      if (m.to == rank_) end_receive(m.nodes, once(m.values[0]));
    }
  }

  const RankProgramCall& call_;
  const Graph& g_;
  const int rank_;
  const RankParts& parts_;
  const std::vector<Action>& actions_;
  const size_t microbatches_;
  internal::PreparedGraph planned_;
  std::vector<PlannedCollective> described_;
  std::optional<internal::Stamper> plan_;
  Ready before_;
  std::map<std::pair<int, ActionKind>, Ready> action_;
  std::vector<Ready> after_;
  std::map<Value, Value> values_;  // values of the plan's graph
  std::vector<Value> outputs_;
  std::map<TransferKey, Nodes> transfers_;
  std::vector<std::vector<Message>> messages_;  // index: level
  std::map<KeptKey, int> kept_;
  std::vector<Value> kept_values_;
  std::vector<std::vector<Life>> lives_;       // indices: kept value and microbatch
  std::vector<std::vector<int>> slot_;         // indices: kept value and microbatch
  std::vector<std::vector<StageSlot>> slots_;  // index: kept value
  std::map<std::pair<int, int>, const Nodes*>
      awaited_;  // receives that nothing has waited for, by kept value and microbatch
  std::map<Value, SumBlocks> sums_;
  std::map<Value, StampPlace> once_;
  int first_ = 0;          // the number of the rank's first action
  std::vector<int> when_;  // index: number of an action
  std::map<std::tuple<int, int, int>, int> receives_;
  int32_t receipt_ = -1;
  int64_t site_ = 0;
};

}  // namespace

RankProgram plan_rank(const RankProgramCall& call, int rank) { return RankProgramBuilder(call, rank).run(); }

}  // namespace weft::dist
