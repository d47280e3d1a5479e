#include "tools/plan/step_cost.h"

#include <algorithm>

#include "compiler/cost/roofline.h"
#include "distributed/pipeline/schedules.h"
#include "distributed/pipeline/simulate.h"
#include "framework/base/error.h"
#include "tools/plan/layer_cost.h"
#include "tools/plan/pipeline_cost.h"

namespace weft::planner {
namespace {

// Launches of a layer in a microbatch: forward, and backward with two products for each forward product.
constexpr double kForwardLaunches = 12, kBackwardLaunches = 24;

double d(int64_t n) { return static_cast<double>(n); }

// One microbatch without pp.
std::vector<Pass> passes_of(const Costs& costs, const LayerCosts& model, bool reduce, bool first_gathers, bool last) {
  std::vector<Pass> all;
  // Sums over microbatches cross between replicas, with the last one.
  const auto seconds = [&](const Layer& l) {
    return (reduce ? costs.reduce_seconds(l) : 0) + (last ? costs.replica_seconds(l) : 0);
  };
  const auto bytes = [&](const Layer& l) {
    return l.parameters() * kMasterBytes + (last ? costs.replica_bytes(l) : 0);
  };
  const int64_t n = model.layers();
  for (int64_t i = 0; i < n; ++i) {
    const Layer& l = model.at(i);
    all.push_back({.name = str_cat("forward ", i),
                   .gather = costs.gather_seconds(l),
                   .compute = l.forward,
                   .blocking = l.exposed_forward(),
                   .hidden = l.hidden_forward,
                   .gather_bytes = l.parameters() * costs.element(),
                   .blocking_bytes = l.forward_bytes});
  }
  const Layer& h = model.head;
  all.push_back({.name = "head",
                 .gather = costs.gather_seconds(h),
                 .compute = h.forward + h.input + h.weight,
                 .blocking = h.tp_forward + h.tp_backward,
                 .reduce = seconds(h),
                 .gather_bytes = h.parameters() * costs.element(),
                 .blocking_bytes = h.forward_bytes + h.backward_bytes,
                 .reduce_bytes = bytes(h)});
  for (int64_t i = n - 1; i >= 0; --i) {
    const Layer& l = model.at(i);
    // The last layer's weights are still there.
    all.push_back({.name = str_cat("backward ", i),
                   .gather = i == n - 1 ? 0 : costs.gather_seconds(l),
                   .compute = l.input + l.weight,
                   .blocking = l.exposed_backward(),
                   .hidden = l.hidden_backward,
                   .reduce = seconds(l),
                   .gather_bytes = l.parameters() * costs.element(),
                   .blocking_bytes = l.backward_bytes,
                   .reduce_bytes = bytes(l)});
  }
  // The embedding has too little work to hide a collective, so it is part of the first layer. Backward reads no table.
  const Layer& table = model.embedding;
  Pass &first = all.front(), &end = all.back();
  first.gather += costs.gather_seconds(table);
  first.gather_bytes += table.parameters() * costs.element();
  first.compute += table.forward;
  first.blocking += table.tp_forward;
  first.blocking_bytes += table.forward_bytes;
  end.compute += table.weight;
  end.blocking += table.tp_backward;
  end.blocking_bytes += table.backward_bytes;
  if (reduce && !model.tied) {  // else its gradient is part of the head's
    end.reduce += seconds(table);
    end.reduce_bytes += bytes(table);
  }
  if (!first_gathers) first.gather = 0;
  return all;
}

// One stage of a pipeline for one microbatch.
struct Stage {
  double forward = 0, input = 0, weight = 0;                                     // including waiting for collectives
  double compute = 0, tp = 0, cp = 0, ep = 0, data = 0, all_network = 0;         // parts of the sum
  double contended = 0;                                                          // collectives hidden in layers
  double gather = 0, reduce = 0, replica = 0, kept = 0, dense = 0, experts = 0;  // replica: part of reduce
};

void add(Stage& s, const Layer& l, const Costs& costs, const Candidate& c) {
  const double gather = costs.gather_seconds(l), f = l.forward_seconds(), i = l.input_seconds();
  // Gathers for each microbatch run ahead of the layer that they are for.
  const double each = c.gather_once ? 0 : std::max(0.0, gather - f) + std::max(0.0, gather - i - l.weight);
  s.forward += f + (c.gather_once ? 0 : std::max(0.0, gather - f));
  s.input += i + (c.gather_once ? 0 : std::max(0.0, gather - i - l.weight));
  s.weight += l.weight;
  s.compute += l.forward + l.input + l.weight;
  s.tp += l.tp_forward + l.tp_backward;
  s.cp += l.cp_forward + l.cp_backward;
  s.ep += l.ep_forward + l.ep_backward;
  s.data += each;
  s.contended += l.contended;
  s.all_network += l.hidden_forward + l.hidden_backward + l.exposed_forward() + l.exposed_backward();
  if (!c.gather_once) s.all_network += 2 * gather;
  s.gather += gather;
  s.replica += costs.replica_seconds(l);
  s.reduce += costs.reduce_seconds(l) + costs.replica_seconds(l);
  s.kept += c.full_recompute ? l.input_bytes : l.kept;
  s.dense += l.dense;
  s.experts += l.experts;
}

// The contents of one rank's memory: parameters that it uses, and bytes.
struct Held {
  double dense = 0, experts = 0, gathered = 0, kept = 0, working = 0;
};

StepCost cost_of(const Workload& s, const Candidate& c, bool simulate) {
  const Costs costs(s, c);
  costs.check_divides();
  const LayerCosts model(s, costs);
  const double m = d(c.microbatches), layers = d(s.model.layers()), e = costs.element();
  const Layer& largest = model.largest();
  StepCost r;
  const double table = d(s.model.table_parameters()) / c.tp, layer_parameters = largest.dense + largest.experts;
  // Logits with their gradients, or one layer's values while it is computed again.
  const double again = c.full_recompute ? largest.kept : 0, stream = 4 * costs.stream() / c.tp,
               logits = std::max(again, 2 * costs.tokens() * d(s.model.vocab) / c.tp * e);
  // If weights are gathered for each use, memory holds a layer and the next layer, or a layer and a table.
  const double one_ahead = (layer_parameters + std::max(layer_parameters, table)) * e;
  std::vector<Held> ranks;
  double launches = 0;
  if (c.pp == 1) {
    double hidden = 0;
    const auto add_microbatches = [&](double n, bool reduce, bool first, bool last) {
      if (n <= 0) return;
      const Timeline t = run_passes(passes_of(costs, model, reduce, first, last));
      r.compute += n * t.compute;
      r.exposed_data += n * t.exposed;
      const double ahead = first ? 0 : costs.gather_seconds(model.embedding) + costs.gather_seconds(model.at(0));
      r.communication += n * (t.network + t.blocking + ahead);
      hidden += n * (t.network - t.exposed + ahead);
    };
    // Later microbatches gather for their first layer behind the previous microbatch's backward.
    add_microbatches(1, m == 1 || costs.reduces_each(), true, m == 1);
    add_microbatches(m - 2, costs.reduces_each(), false, false);
    add_microbatches(m == 1 ? 0 : 1, true, false, true);
    Stage all;
    for (int64_t i = 0; i < model.layers(); ++i) add(all, model.at(i), costs, c);
    r.communication += m * (all.all_network - all.tp - all.cp - all.ep);
    r.contention = costs.contention(hidden + m * all.contended);
    r.exposed_tp = m * (all.tp + model.head.tp_forward + model.head.tp_backward + model.embedding.tp_forward +
                        model.embedding.tp_backward);
    r.exposed_cp = m * all.cp;
    r.exposed_ep = m * all.ep;
    r.replica_sums =
        all.replica + costs.replica_seconds(model.head) + (model.tied ? 0 : costs.replica_seconds(model.embedding));
    ranks.push_back({.dense = all.dense + model.head.dense + (s.model.tied ? 0 : table),
                     .experts = all.experts,
                     .gathered = c.zero == 3 ? one_ahead : 0,
                     .kept = all.kept,
                     .working = logits + stream});
    launches = m * layers * (kForwardLaunches + kBackwardLaunches + (c.full_recompute ? kForwardLaunches : 0));
  } else {
    const int stages = c.pp * c.stages_per_rank;
    const double unit = largest.forward_seconds() + largest.input_seconds() + largest.weight;
    const double head = (model.head.forward_seconds() + model.head.input_seconds() + model.head.weight) / unit;
    const std::vector<int64_t> split = stage_layers(model.layers(), head, stages);
    std::vector<Stage> by_stage(static_cast<size_t>(stages));
    int64_t layer = 0;
    add(by_stage[0], model.embedding, costs, c);
    for (size_t k = 0; k < by_stage.size(); ++k) {
      for (int64_t i = 0; i < split[k]; ++i) add(by_stage[k], model.at(layer++), costs, c);
      if (k + 1 == by_stage.size()) add(by_stage[k], model.head, costs, c);
    }
    const bool vee = c.schedule == "zb_v" || c.schedule == "dualpipe_v";
    const auto rank_of = [&](int stage) {
      const int at = stage % c.pp;
      return vee && stage >= c.pp ? c.pp - 1 - at : at;
    };
    std::vector<Stage> by_rank(static_cast<size_t>(c.pp));
    for (int k = 0; k < stages; ++k) {
      Stage& to = by_rank[rank_of(k)];
      const Stage& from = by_stage[k];
      for (double Stage::*part :
           {&Stage::forward, &Stage::input, &Stage::weight, &Stage::compute, &Stage::tp, &Stage::cp, &Stage::ep,
            &Stage::data, &Stage::all_network, &Stage::contended, &Stage::gather, &Stage::reduce, &Stage::replica,
            &Stage::kept, &Stage::dense, &Stage::experts})
        to.*part += from.*part;
    }
    const Stage& slow = *std::max_element(by_rank.begin(), by_rank.end(), [](const Stage& a, const Stage& b) {
      return a.forward + a.input + a.weight < b.forward + b.input + b.weight;
    });
    const double busy = m * (slow.forward + slow.input + slow.weight);
    r.bubble = bubble_seconds(c.schedule, c.pp, c.stages_per_rank, slow.forward, slow.input, slow.weight);
    if (simulate) {
      namespace pl = dist::pipeline;
      const pl::Table table = pl::make_schedule(
          c.schedule, {.ranks = c.pp, .stages_per_rank = c.stages_per_rank, .microbatches = static_cast<int>(m)});
      pl::ActionCosts times;
      times.times.resize(by_stage.size());
      for (int k = 0; k < stages; ++k) {
        const Stage& from = by_stage[k];
        times.time(k, pl::ActionKind::kForward) = from.forward;
        times.time(k, pl::ActionKind::kInput) = from.input;
        times.time(k, pl::ActionKind::kWeight) = from.weight;
        times.time(k, pl::ActionKind::kBackward) = from.input + from.weight;
      }
      r.bubble = std::max(0.0, pl::simulate(table, pl::StageLinks(stages), times).makespan - busy);
    }
    r.compute = m * slow.compute;
    r.exposed_tp = m * slow.tp;
    r.exposed_cp = m * slow.cp;
    r.exposed_ep = m * slow.ep;
    r.replica_sums = slow.replica;
    // The first and the last value pass all stages; work hides the other transfers.
    const double send = costs.send_seconds();
    r.exposed_pp = 2 * (stages - 1) * send;
    const double reduced = slow.reduce - slow.reduce / std::max(1.0, d(split[0]) * c.stages_per_rank);
    r.exposed_data = m * slow.data + (c.gather_once ? slow.gather : 0) +
                     std::max(slow.reduce - reduced, slow.reduce - slow.input - slow.weight);
    r.communication =
        m * slow.all_network + (c.gather_once ? slow.gather : 0) + slow.reduce + 2 * m * c.stages_per_rank * send;
    r.contention =
        costs.contention((c.gather_once ? 1 : 2 * m) * slow.gather + slow.reduce - r.exposed_data + m * slow.contended);
    const int last = rank_of(stages - 1);
    for (int k = 0; k < c.pp; ++k) {
      const Stage& one = by_rank[k];
      // The ranks of the embedding and of the head have a table each, unless they are one rank and share it.
      Held held{.dense = one.dense - (k == 0 && last == 0 && s.model.tied ? table : 0), .experts = one.experts};
      held.kept = one.kept * alive_microbatches(c.schedule, c.pp, c.stages_per_rank, c.microbatches, k);
      held.working = (k == last ? logits : again) + stream;
      if (c.zero == 3)
        held.gathered = c.gather_once         ? (held.dense + held.experts) * e
                        : k == 0 || k == last ? one_ahead
                                              : 2 * layer_parameters * e;
      ranks.push_back(held);
    }
    launches = m * layers / c.pp * (kForwardLaunches + kBackwardLaunches + (c.full_recompute ? kForwardLaunches : 0));
  }
  const int shard = c.zero == 0 ? 1 : costs.state_group(), expert_shard = c.zero == 0 ? 1 : costs.expert_group();
  double updated = 0, new_weights = 0;
  for (const Held& one : ranks) {
    double state = state_bytes(one.dense, c.zero, shard, e) + state_bytes(one.experts, c.zero, expert_shard, e);
    // Sums over microbatches in f32 stay whole if gradients are reduced at the end.
    if (c.zero == 3 && c.pp > 1)
      state += 4 * ((one.dense - one.dense / shard) + (one.experts - one.experts / expert_shard));
    if (state + one.gathered + one.kept + one.working > r.memory())
      r.state = state, r.gathered = one.gathered, r.kept = one.kept, r.working = one.working;
    updated = std::max(updated, one.dense / shard + one.experts / expert_shard);
    new_weights = std::max(
        new_weights, costs.collective(Collective::kAllGather, one.dense * kMasterBytes, costs.state_group(), c.tp) +
                         (one.experts > 0 ? costs.collective(Collective::kAllGather, one.experts * kMasterBytes,
                                                             costs.expert_group(), c.tp * c.cp * c.ep)
                                          : 0));
  }
  // The update reads weights, two moments and gradients, and the gradients again for their norm. It writes weights,
  // moments and the weights at use. 2.2 ms of GPT-2's step on an H100 (docs/gpu.md) reach the share `reached` of the
  // memory's rate.
  const double written = (12 + (e < 4 ? e : 0)) * updated;
  r.update = s.sharing() * roofline_seconds(s.machine, {.bytes = 20 * updated + written, .written = written});
  if (c.zero == 1) {  // gather new weights to all ranks
    r.update_gather = new_weights;
    r.exposed_data += new_weights;
    r.communication += new_weights;
  }
  const double device = r.compute + r.contention + r.exposed() + r.bubble + r.update;
  r.step = with_host(device, launches, s.host_seconds);
  r.host = r.step - device;
  return r;
}

}  // namespace

double state_bytes(double n, int zero, double shards, double at_use) {
  const double gradients = 4, moments = at_use >= 4 ? 8 : 12;
  return n * (at_use / (zero >= 3 ? shards : 1) + gradients / (zero >= 2 ? shards : 1) +
              moments / (zero >= 1 ? shards : 1));
}

double StepCost::mfu(const Workload& s) const {
  return s.model.training_flops(s.sequence) * s.tokens() / (step * s.gpus / s.sharing() * s.peak_flops());
}
double StepCost::tokens_per_gpu_second(const Workload& s) const { return s.tokens() / (step * s.gpus); }

StepCost step_cost(const Workload& setup, const Candidate& c) { return cost_of(setup, c, false); }
StepCost simulated_cost(const Workload& setup, const Candidate& c) { return cost_of(setup, c, true); }

Timeline step_timeline(const Workload& setup, const Candidate& c) {
  const Costs costs(setup, c);
  costs.check_divides();
  return run_passes(passes_of(costs, LayerCosts(setup, costs), true, true, true), true);
}

FsdpSeconds fsdp_seconds(const Workload& setup, int gpus) {
  const Candidate c{.fsdp = gpus, .zero = 3};
  const Costs costs(setup, c);
  const Timeline t = run_passes(passes_of(costs, LayerCosts(setup, costs), true, true, true));
  return {.compute = t.compute, .communication = t.network};
}

}  // namespace weft::planner
