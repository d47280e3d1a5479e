#include "tools/plan/advice.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>

#include "compiler/cost/collective_seconds.h"
#include "framework/base/error.h"
#include "framework/base/units.h"

namespace weft::planner {
namespace {

// Fully sharded data parallelism alone, beside the best plan.
std::string fsdp_alone(const Workload& s, const Planned& best) {
  const Search alone =
      search_plans(s, {.dimensions = {{"dp", 1}, {"fsdp", s.gpus}, {"tp", 1}, {"cp", 1}, {"ep", 1}, {"pp", 1}}}, 1);
  if (alone.best.empty())
    return str_cat("fsdp alone ", alone.least_memory > 0 ? "does not fit" : "does not divide the batch");
  const Planned& plan = alone.best[0];
  if (plan.candidate.text() == best.candidate.text()) return "fsdp alone is the best plan";
  char more[64];
  std::snprintf(more, sizeof more, "%.0f %% longer than the best plan (", 100 * (plan.cost.step / best.cost.step - 1));
  return str_cat("fsdp alone, ", plan.candidate.text(), ", takes ", seconds_text(plan.cost.step), ", ", more,
                 why_slower(plan.cost, best.cost), ")");
}

void scale(std::vector<LinkPoint>& points, double by) {
  for (LinkPoint& p : points) p.bandwidth *= by;
}

struct Change {
  double number = 0;
  bool factor = false;
  double of(double before) const { return factor ? before * number : number; }
  int64_t whole(const char* name, int64_t before, double most) const {
    const double n = std::floor(of(static_cast<double>(before)) + 0.5);
    WEFT_CHECK(n >= 1 && n <= most, "what_if: ", name, " becomes ", of(static_cast<double>(before)), "; need 1 to ",
               most);
    return static_cast<int64_t>(n);
  }
};

}  // namespace

Limits limits_of(const Workload& s) {
  Limits l;
  const int node = s.machine.links.node, nodes = (s.gpus + node - 1) / node;
  const double bandwidth = bus_bandwidth(Collective::kAllGather, std::max(2, s.gpus), std::max(1, nodes), s.machine);
  // An element of 4 bytes takes twice the time of the 2 that the form is for, and unused experts add no compute.
  l.closed_form = dist::fsdp_comm_limit(
      s.tokens(), bandwidth * 2 / static_cast<double>(itemsize(s.activations)) * s.model.used_share(),
      s.peak_flops() * s.machine.reached);
  const auto hidden = [&](int gpus) {
    const FsdpSeconds t = fsdp_seconds(s, gpus);
    return t.communication <= t.compute;
  };
  int within = 1, beyond = 2;
  while (beyond <= kMostGpus && hidden(beyond)) within = beyond, beyond *= 2;
  while (beyond <= kMostGpus && beyond - within > 1) {
    const int middle = within + (beyond - within) / 2;
    (hidden(middle) ? within : beyond) = middle;
  }
  l.communication = within;
  l.batch = dist::fsdp_batch_limit(s.tokens(), static_cast<double>(s.sequence));
  l.scale_case = dist::scale_case(s.gpus, l.communication, l.batch);
  return l;
}

std::string advice(const Workload& s, const Limits& l, const Planned& best) {
  char closed[32];
  std::snprintf(closed, sizeof closed, "%.4g", l.closed_form);
  const std::string limits =
      str_cat("compute hides the gathers and reductions of fully sharded data parallelism (fsdp) up to ",
              static_cast<int64_t>(l.communication), " GPUs", l.communication >= kMostGpus ? " or more" : "", " (",
              closed, " without latency and with gradients as wide as weights), and the batch has ",
              static_cast<int64_t>(l.batch + 0.5), " sequences for ", s.gpus, " GPUs: ");
  switch (l.scale_case) {
    case dist::ScaleCase::kFsdp:
      return str_cat("case 1, within both limits: ", limits, fsdp_alone(s, best));
    case dist::ScaleCase::kBatch:
      return str_cat("case 2, limited by the batch: ", limits,
                     "split sequences (cp) or matrices (tp) too; pp does not help");
    case dist::ScaleCase::kComm:
      return str_cat("case 3, limited by communication: ", limits, "use pp, or tp between nodes; ",
                     fsdp_alone(s, best));
    case dist::ScaleCase::kBoth:
      break;
  }
  return str_cat("case 4, beyond both limits: ", limits, "use cp or tp together with pp, or tp between nodes");
}

Workload what_if(Workload s, const std::string& changes, bool fit_batch) {
  const Workload before = s;
  std::optional<Change> batch, sequence;
  for (size_t at = 0; at < changes.size();) {
    const size_t comma = std::min(changes.find(',', at), changes.size()), equals = changes.find('=', at);
    const std::string one = changes.substr(at, comma - at);
    at = comma + 1;
    const char* need =
        "; need gpu_flops, network, bandwidth, memory, gpus, batch or seq with a number above 0, or a factor such as "
        "8x";
    WEFT_CHECK(equals < comma, "what_if: got '", one.substr(0, 40), "'", need);
    const std::string name = one.substr(0, one.find('=')), text = one.substr(one.find('=') + 1);
    Change c;
    c.factor = text.ends_with('x');
    const char* end = text.data() + text.size() - (c.factor ? 1 : 0);
    const auto [stop, bad] = std::from_chars(text.data(), end, c.number);
    WEFT_CHECK(bad == std::errc() && stop == end && std::isfinite(c.number) && c.number > 0 && c.number < 1e18,
               "what_if: got '", one.substr(0, 40), "'", need);
    Machine& m = s.machine;
    if (name == "gpu_flops") {
      const double by = c.of(s.peak_flops()) / s.peak_flops();
      for (double Machine::*rate : {&Machine::flops, &Machine::products, &Machine::products_tf32, &Machine::products16,
                                    &Machine::products64, &Machine::products8, &Machine::products4})
        m.*rate *= by;
    } else if (name == "network") {
      WEFT_CHECK(c.factor, "what_if: got '", one.substr(0, 40), "'; need a factor such as network=0.1x");
      for (double Links::*rate : {&Links::inner_bus, &Links::outer_bus, &Links::inner_all_to_all})
        m.links.*rate *= c.number;
      for (auto* points : {&m.links.inner_gather, &m.links.inner_reduce, &m.links.outer_gather, &m.links.outer_reduce})
        scale(*points, c.number);
    } else if (name == "bandwidth") {
      const double by = c.of(m.bytes) / m.bytes;
      m.bytes *= by;
      for (MemoryRate& r : m.memory_rates) r.read *= by, r.write *= by, r.copy *= by;
    } else if (name == "memory") {
      m.memory = c.of(m.memory);
    } else if (name == "gpus") {
      s.gpus = static_cast<int>(c.whole("gpus", s.gpus, 1 << 20));
    } else if (name == "batch") {
      batch = c;
    } else {
      WEFT_CHECK(name == "seq", "what_if: got '", one.substr(0, 40), "'", need);
      sequence = c;
    }
  }
  if (sequence) {
    s.sequence = sequence->whole("seq", s.sequence, 1e9);
    s.batch = std::max<int64_t>(1, static_cast<int64_t>(before.tokens() / static_cast<double>(s.sequence) + 0.5));
  }
  if (batch) {
    s.batch = batch->whole("batch", s.batch, 1e9);
  } else if (fit_batch && s.gpus != before.gpus) {
    s.batch = batch_for(s.batch, s.gpus);
  }
  check_machine(s.machine);
  return s;
}

}  // namespace weft::planner
