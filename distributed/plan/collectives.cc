#include "distributed/plan/collectives.h"

#include <numeric>
#include <unordered_map>

#include "distributed/plan/collective_names.h"
#include "ops/core/collectives/collective.h"

namespace weft::dist {

static int64_t site_of(const Node& n) { return n.attrs.i("site", 0); }

std::vector<PlannedCollective> collectives_in(const Graph& g, const std::vector<PlannedCollective>& known) {
  std::vector<int32_t> all(static_cast<size_t>(g.size()));
  std::iota(all.begin(), all.end(), 0);
  return collectives_in(g, all, known);
}

std::vector<PlannedCollective> collectives_in(const Graph& g, std::span<const int32_t> nodes,
                                              const std::vector<PlannedCollective>& known) {
  std::unordered_map<int64_t, const PlannedCollective*> by_site;
  for (const PlannedCollective& c : known) by_site.emplace(c.site, &c);
  std::vector<PlannedCollective> out;
  const std::vector<bool> update = follows_gradients(g);
  for (int32_t id : nodes) {
    const Node& n = g.node(id);
    const auto kind = collective_of(n);
    if (!kind) continue;
    const auto it = by_site.find(site_of(n));
    PlannedCollective c;
    if (it != by_site.end()) {
      c = *it->second;
    } else {  // a collective of an op's own lowering
      c.phase = n.backward ? Phase::kBackward : update[id] ? Phase::kUpdate : Phase::kForward;
      c.what = str_cat(n.scope, *n.scope ? ": " : "", n.op->name);
      c.line = n.line.to_string();
      c.why = *kind == Collective::kPermute ? "one step of a ring, beside the product or attention that uses it"
              : n.op == &all_to_all_rows_op || n.op == start_form(all_to_all_rows_op)
                  ? "rows go to the ranks of their experts, or back"
                  : "how its op works on shards";
    }
    c.kind = *kind;
    c.axes = n.attrs.get<std::string>("axes");
    c.dtype = *kind == Collective::kRecv ? n.outputs[0].dtype : g.type(n.inputs[0]).dtype;
    c.bytes = collective_bytes(g, n);
    c.site = site_of(n);
    out.push_back(std::move(c));
  }
  return out;
}

void add_arrangement(const CommunicationReport& report, std::vector<PlannedCollective>& collectives) {
  std::unordered_map<int64_t, const HiddenCollective*> hidden;
  for (const HiddenCollective& h : report.schedule.hidden) hidden.emplace(h.site, &h);
  std::unordered_map<int64_t, size_t> shared;
  std::unordered_map<int64_t, PlannedCollective> replaced;
  for (const PlannedCollective& c : collectives) replaced.emplace(c.site, c);
  for (const auto& [step, site] : report.ring_steps) {
    PlannedCollective c = replaced.at(site);
    c.why = str_cat("a ring with its product, instead of the ", title(c.kind));
    c.site = step;
    collectives.push_back(std::move(c));
  }
  std::unordered_map<int64_t, const PlannedCollective*>
      largest;  // largest collective of a bucket, which gives the bucket its name
  for (const std::vector<int64_t>& b : report.buckets) {
    shared.emplace(b[0], b.size());
    const PlannedCollective*& most = largest[b[0]];
    for (int64_t site : b)
      if (const auto it = replaced.find(site); it != replaced.end() && (!most || it->second.bytes > most->bytes))
        most = &it->second;
  }
  for (PlannedCollective& c : collectives) {
    if (const auto it = shared.find(c.site); it != shared.end()) {
      c.members = static_cast<int32_t>(it->second);
      if (const PlannedCollective* like = largest[c.site])
        c.subject = like->subject, c.phase = like->phase, c.what = like->what, c.line = like->line, c.why = like->why;
    }
    const auto it = hidden.find(c.site);
    if (it == hidden.end()) continue;
    c.hidden_by = it->second->by;
    c.exposed = it->second->seconds > 0 ? it->second->exposed / it->second->seconds : 1;
  }
}

}  // namespace weft::dist
