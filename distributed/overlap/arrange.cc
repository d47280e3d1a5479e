#include "distributed/overlap/arrange.h"

#include <algorithm>

#include "distributed/overlap/dependencies.h"
#include "framework/ir/op_def.h"

namespace weft::dist {
namespace {

std::string ms(double seconds) { return formatted("%.3g", seconds * 1e3); }

int64_t count(const Graph& g) {
  const Dependencies flow(g);
  int64_t n = 0;
  for (int32_t id = 0; id < g.size(); ++id) n += flow.live[id] && communicates(g.node(id));
  return n;
}

// The schedule without overlap: the rank waits for the whole time of each collective.
OverlapSchedule plain_schedule(const Graph& g, const Mesh& mesh, const Machine& machine) {
  OverlapSchedule s;
  const Dependencies flow(g);
  for (int32_t id = 0; id < g.size(); ++id) {
    if (!flow.live[id]) continue;
    const Node& n = g.node(id);
    if (communicates(n)) {
      s.communication += communication_seconds(machine, mesh, g, n);
    } else if (!flow.light[id]) {
      s.compute += compute_seconds(machine, g, n);
    }
  }
  s.exposed = s.communication;
  return s;
}

// Why kAuto declines rings: names the ring that comes closest to a gain.
std::string why_declined(const Graph& g, const Machine& machine, size_t rings,
                         const std::vector<ProductRing>& declined) {
  const ProductRing& r =
      *std::min_element(declined.begin(), declined.end(), [](const ProductRing& a, const ProductRing& b) {
        return a.ring_seconds / a.plain_seconds < b.ring_seconds / b.plain_seconds;
      });
  const Node& n = g.node(r.collective);
  return str_cat("async_tp auto: ", rings, " of ", rings + declined.size(), " rings; the best other (", n.op->name,
                 " at ", n.line.to_string(), ") would take ", ms(r.ring_seconds), " ms instead of ",
                 ms(r.plain_seconds), machine.shares_cores ? ": cores move the data" : "");
}

}  // namespace

Ref<Graph> with_sites(const Graph& g) {
  int64_t site = 0;
  for (int32_t id = 0; id < g.size(); ++id)
    if (g.node(id).op->is(kCollective)) site = std::max(site, g.node(id).attrs.i("site", 0));
  return changed_copy(g, [&](Node& n) {
    if (communicates(n) && n.attrs.i("site", 0) <= 0) n.attrs = n.attrs.with("site", ++site);
  });
}

std::vector<std::string> sequence_of_collectives(const Graph& g) {
  std::vector<std::string> all;
  const Dependencies flow(g);
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    if (!flow.live[id] || !n.op->is(kCollective) || !n.op->is(kOrdered)) continue;
    all.push_back(str_cat(n.op->name, " ", n.attrs.i("site", 0)));
  }
  return all;
}

void check_same_sequence(std::span<const Ref<Graph>> classes) {
  if (classes.size() < 2) return;
  const std::vector<std::string> first = sequence_of_collectives(*classes[0]);
  for (size_t c = 1; c < classes.size(); ++c) {
    const std::vector<std::string> other = sequence_of_collectives(*classes[c]);
    const size_t n = std::min(first.size(), other.size());
    size_t i = 0;
    while (i < n && first[i] == other[i]) ++i;
    WEFT_BUG_IF(i < std::max(first.size(), other.size()), "mesh: ranks of shape class ", c, " have ",
                i < other.size() ? other[i] : "nothing", " as collective ", i, ", ranks of class 0 have ",
                i < first.size() ? first[i] : "nothing", "; need the same sequence on all ranks");
  }
}

CommunicationReport arrange_communication(const Mesh& mesh, std::span<Ref<Graph>> classes,
                                          const CommunicationOptions& options, const PassOptions& passes) {
  CommunicationReport report;
  check_same_sequence(classes);
  const Machine& machine = options.machine;
  report.before = count(*classes[0]);
  report.after = report.before;
  report.plain = report.schedule = plain_schedule(*classes[0], mesh, machine);
  if (report.before == 0) return report;
  for (const Ref<Graph>& g : classes)
    if (!same_structure(*classes[0], *g)) {
      report.notes.push_back("ranks have graphs of different structure: collectives are not rearranged");
      return report;
    }
  // Each pass decides on the first class, and all classes get the same change.
  PassSteps steps(passes);
  auto replaced = [&](const char* pass) {
    report.after = count(*classes[0]);
    report.schedule = plain_schedule(*classes[0], mesh, machine);
    dump_graph(*classes[0], pass);
  };
  steps.run("async_tp", [&] {
    std::vector<ProductRing> declined;
    const std::vector<ProductRing> rings = choose_rings(*classes[0], mesh, machine, options.async_tp, &declined);
    if (!declined.empty()) report.notes.push_back(why_declined(*classes[0], machine, rings.size(), declined));
    if (rings.empty()) return;
    for (const ProductRing& r : rings) report.rings.push_back(classes[0]->node(r.collective).attrs.i("site", 0));
    for (Ref<Graph>& g : classes) g = apply_rings(*g, rings, &report.ring_steps);
    replaced("async_tp");
  });
  if (options.bucket)
    steps.run("bucket", [&] {
      const Graph& first = *classes[0];
      const Buckets buckets = choose_buckets(first, mesh, machine, options.buckets);
      for (const std::vector<int32_t>& b : buckets) {
        report.buckets.emplace_back();
        for (int32_t id : b) report.buckets.back().push_back(first.node(id).attrs.i("site", 0));
      }
      if (buckets.empty()) return;
      for (Ref<Graph>& g : classes) g = apply_buckets(*g, buckets);
      replaced("bucket");
    });
  if (options.overlap)
    steps.run("overlap", [&] {
      report.schedule = schedule(*classes[0], mesh, machine, options.overlapping);
      for (Ref<Graph>& g : classes) g = apply_schedule(*g, report.schedule);
      report.schedule.events.clear();
      dump_graph(*classes[0], "overlap");
    });
  check_same_sequence(classes);
  return report;
}

std::string CommunicationReport::to_string() const {
  std::string s = str_cat("collectives: ", before);
  if (!rings.empty()) s += str_cat(", ", rings.size(), " in rings with their products");
  if (!buckets.empty()) s += str_cat(", after bucketing ", after);
  if (schedule.peak > 0) s += str_cat("; memory before fusion ", schedule.peak_before, " -> ", schedule.peak, " bytes");
  return s;
}

}  // namespace weft::dist
