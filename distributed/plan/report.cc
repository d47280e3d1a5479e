#include "distributed/plan/report.h"

#include <algorithm>
#include <map>

#include "compiler/cost/machine/machine_file.h"
#include "distributed/pipeline/table_text.h"
#include "distributed/plan/collective_names.h"
#include "distributed/plan/forbid.h"
#include "framework/base/hash.h"
#include "framework/base/units.h"
#include "ops/core/core.h"

namespace weft::dist {
namespace {

constexpr size_t kWide = 180;  // largest number of characters in a line

std::string fitted(std::string s, size_t n) { return s.size() <= n ? s : s.substr(0, n - 3) + "..."; }
std::string left(std::string s, size_t n) { return s.size() < n ? s + std::string(n - s.size(), ' ') : s; }
std::string right(const std::string& s, size_t n) { return s.size() < n ? std::string(n - s.size(), ' ') + s : s; }

// Removes folders from file names: "dot at model.cc:48".
std::string without_folders(const std::string& text) {
  std::string out;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    std::string word = text.substr(at, end - at);
    if (const size_t slash = word.rfind('/'); slash != word.npos && word.find(".cc:") != word.npos)
      word = word.substr(slash + 1);
    out += word;
    if (end < text.size()) out += ' ';
    at = end + 1;
  }
  return out;
}

// Aligns rows of cells in columns; the last column is cut at the end of the line.
std::string table(const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& numbers) {
  std::vector<size_t> width(numbers.size(), 0);
  for (const auto& row : rows)
    for (size_t i = 0; i + 1 < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  std::string out;
  for (const auto& row : rows) {
    std::string line = " ";
    for (size_t i = 0; i < row.size(); ++i)
      line += str_cat(" ",
                      i + 1 == row.size() ? row[i]
                      : numbers[i]        ? right(row[i], width[i])
                                          : left(row[i], width[i]),
                      " ");
    line = fitted(line, kWide);
    while (!line.empty() && line.back() == ' ') line.pop_back();
    out += line + "\n";
  }
  return out;
}

// The first few names, and the number of further names.
struct NameList {
  std::vector<std::string> all;
  void add(std::string name) {
    name = layers_as_one(name);
    if (std::find(all.begin(), all.end(), name) == all.end()) all.push_back(std::move(name));
  }
  std::string text(size_t width) const {
    std::string s;
    for (size_t i = 0; i < all.size(); ++i) {
      if (i && s.size() + all[i].size() > width) return str_cat(s, " +", all.size() - i);
      s += (i ? ", " : "") + all[i];
    }
    return s;
  }
};

/// Groups by key, in the order of the first member of each.
template <class T>
class GroupsByKey {
 public:
  T& at(const std::string& key) {
    const auto [it, fresh] = index_.emplace(key, all_.size());
    if (fresh) all_.emplace_back();
    return all_[it->second];
  }
  std::vector<T>& all() { return all_; }

 private:
  std::map<std::string, size_t> index_;
  std::vector<T> all_;
};

bool matters(const Node& n) { return n.op->is(kContraction) || n.op->decompose || n.op->is(kIndexing); }

// The mesh dimensions that split a parameter, with the dim; and the mesh dimensions along which a rule of the plan
// keeps it whole.
std::vector<std::pair<std::string, int>> split_at_use(const Mesh& mesh, const Plan& plan, const std::string& name,
                                                      const Spec& use) {
  std::vector<std::pair<std::string, int>> out;
  for (size_t d = 0; d < use.dims.size(); ++d) {
    if (use.dims[d].size() != 1) continue;
    const Axes axes = axes_of(use.dims[d]);
    for (size_t at = 0; at < axes.size();) {
      const Mesh::Dim* found = nullptr;
      for (const Mesh::Dim& m : mesh.dims()) {
        bool here = !m.axes.empty() && at + m.axes.size() <= axes.size();
        for (size_t i = 0; here && i < m.axes.size(); ++i) here = axes[at + i] == m.axes[i];
        if (here && (!found || m.over.empty())) found = &m;
      }
      if (!found) break;
      out.emplace_back(found->name, static_cast<int>(d));
      at += found->axes.size();
    }
  }
  for (const PlanRule& rule : plan.rules)
    for (const auto& [dimension, placement] : rule.placements)
      if (placement.dim < 0 && name_matches(rule.pattern, name) && mesh.find(dimension))
        out.emplace_back(dimension, -1);
  return out;
}

}  // namespace

PlanReport::PlanReport(const MeshPartition& p, const std::string& machine, int64_t exact_peak)
    : rejected(p.rejected), mesh_(p.world), plan_(p.plan), machine_(machine), notes_(p.notes), exact_peak_(exact_peak) {
  for (size_t c = 0; c < p.joint->cells.size(); ++c) {
    const Cell& cell = *p.joint->cells[c];
    const CellPin& pin = p.decision.cells[c];
    PlannedCell k{.name = cell.name,
                  .type = cell.type,
                  .rest = dist::to_string(p.mesh, pin.rest),
                  .use = dist::to_string(p.mesh, pin.use),
                  .why = pin.why,
                  .copies = p.mesh.size() / p.mesh.parts(pin.rest.split_axes()),
                  .parameter = cell.is_parameter};
    if (k.why.empty()) k.why = "a copy on every rank";
    k.bytes = local_bytes(p.mesh, pin.rest, cell.type.dtype, p.mesh.size() - 1);  // the last block is the largest
    if (cell.is_parameter) k.split = split_at_use(p.mesh, p.plan, cell.name, pin.use);
    cells_.push_back(std::move(k));
  }
  bool backward = false;  // whether backward has begun: activations come before it
  for (int32_t id = 0; id < p.joint->size(); ++id) {
    const Node& n = p.joint->node(id);
    const NodeChoice& c = p.decision.nodes[id];
    placements_.push_back(c.settled.empty() ? "" : dist::to_string(p.mesh, c.settled[0]));
    if (n.backward || backward) {
      backward = true;
      continue;
    }
    if (c.free || !matters(n) || c.settled.empty()) continue;
    activations_.push_back({str_cat(n.scope, *n.scope ? ": " : "", n.op->name), dist::to_string(p.mesh, c.settled[0]),
                            n.line.to_string(),
                            local_bytes(p.mesh, c.settled[0], n.outputs[0].dtype, p.mesh.size() - 1)});
  }
  const std::vector<MeshPartition::RankPlace> places = p.places();
  auto all = std::make_shared<std::vector<std::vector<PlannedCollective>>>(p.launched);
  if (all->empty())
    for (const LocalGraph& l : p.locals) all->push_back(l.collectives);
  for (const MeshPartition::RankPlace& place : places)
    class_of_.push_back(p.launched.empty() ? p.class_of[place.rank] : p.program_of(place));
  by_class_ = all;
  collectives_ = (*all)[class_of_[0]];
  const auto first = static_cast<size_t>(p.class_of[0]);
  if (p.pipeline) {
    placements_.clear();  // they belong to one microbatch
    PipelinePartition predicted = *p.pipeline;
    predicted.predict(p.mesh, *p.arranged[first], machine_named(machine));
    pipeline_ = predicted.to_string();
    pipeline_key_ = pipeline::table_text(predicted.table);
    std::vector<int> nodes(static_cast<size_t>(predicted.cut.stages));
    for (const StageOf& n : predicted.cut.nodes)
      if (n.region == StageOf::kStage) ++nodes[n.stage];
    for (int n : nodes) pipeline_key_ += str_cat(n, " nodes\n");
    estimate_ = estimate_pipeline(predicted, *p.arranged[first], machine_named(machine));
  } else {
    for (size_t i = 0; i < p.locals.size() && i < 8; ++i) {
      const Estimate e =
          dist::estimate(mesh_, *p.arranged[i], p.locals[i].collectives, machine_named(machine), exact_peak == 0);
      const int64_t most = std::max(estimate_.peak_bytes, e.peak_bytes);
      if (i == first) estimate_ = e;
      estimate_.peak_bytes = most;
    }
  }
  if (p.communication.before > 0) notes_.push_back(p.communication.to_string());
  notes_.insert(notes_.end(), p.communication.notes.begin(), p.communication.notes.end());
}

const std::vector<PlannedCollective>& PlanReport::collectives(int rank) const {
  WEFT_CHECK_AS(kOutOfRange, rank >= 0 && rank < static_cast<int>(class_of_.size()), "plan: rank ", rank,
                " of a mesh of ", class_of_.size());
  WEFT_CHECK_AS(kFailedPrecondition, class_of_[rank] >= 0, "plan: rank ", rank,
                " has shards of its own sizes, and only the first and the last rank were planned");
  return (*by_class_)[class_of_[rank]];
}

std::vector<PlannedCell> PlanReport::parameters() const {
  std::vector<PlannedCell> out;
  for (const PlannedCell& c : cells_)
    if (c.parameter) out.push_back(c);
  return out;
}

std::vector<CollectiveSum> PlanReport::totals() const {
  GroupsByKey<CollectiveSum> sums;
  for (const PlannedCollective& c : collectives_) {
    CollectiveSum& s = sums.at(str_cat(c.axes, "/", c.kind));
    s.axes = c.axes;
    s.kind = c.kind;
    ++s.count;
    s.bytes += c.bytes;
    s.sent += static_cast<double>(c.bytes) * bus_factor(c.kind, static_cast<double>(mesh_.parts(mesh_.axes(c.axes))));
    s.seconds += seconds_of(mesh_, c, machine_named(machine_));
  }
  return sums.all();
}

uint64_t PlanReport::hash() const {
  std::string all = mesh_.to_string();
  for (const PlannedCell& c : cells_) all += str_cat("\n", c.name, " ", c.rest, " ", c.use);
  all += pipeline_key_;  // sends follow from the key
  if (by_class_ && pipeline_key_.empty())
    for (const auto& one : *by_class_)
      for (const PlannedCollective& c : one)
        all += str_cat("\n", c.kind, " ", c.axes, " ", c.dtype, " ", c.bytes, " ", c.site);
  uint64_t h = 0xcbf29ce484222325ull;  // FNV-1a: the same in every process
  for (char c : all) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return h;
}

std::string PlanReport::to_string() const {
  std::string s = str_cat("plan over ", mesh_.size() > 1 ? mesh_.to_string() : "one rank", ": ", mesh_.size(),
                          mesh_.size() == 1 ? " rank" : " ranks", "; ", options_text(mesh_, plan_),
                          plan_.rules.empty() ? "" : str_cat(", ", plan_.rules.size(), " rules"), "\n");

  s += "parameters (at rest; at use; why)\n";
  struct CellGroup {
    NameList names;
    size_t count = 0;
    int64_t bytes = 0;
    const PlannedCell* one = nullptr;
  };
  GroupsByKey<CellGroup> parameters;
  int64_t state_bytes = 0;
  size_t states = 0;
  for (const PlannedCell& c : cells_) {
    if (!c.parameter) {
      state_bytes += c.bytes;
      ++states;
      continue;
    }
    CellGroup& g = parameters.at(str_cat(c.rest, " ", c.use, " ", c.why));
    g.names.add(c.name);
    g.one = &c;
    ++g.count;
    g.bytes += c.bytes;
  }
  std::vector<std::vector<std::string>> rows;
  for (const CellGroup& g : parameters.all())
    rows.push_back({g.names.text(44), str_cat(g.count, " x ", g.one->type.dtype),
                    bytes_text(static_cast<double>(g.bytes)), g.one->rest, g.one->use, g.one->why});
  if (states)
    rows.push_back({"optimiser state and other cells", str_cat(states), bytes_text(static_cast<double>(state_bytes)),
                    "as the update that they are part of"});
  s += table(rows, {false, false, true, false, false, false});

  struct ActivationGroup {
    const PlannedActivation* one = nullptr;
    size_t count = 0;
    size_t at = 0;
  };
  GroupsByKey<ActivationGroup> activations;
  for (const PlannedActivation& a : activations_) {
    ActivationGroup& g = activations.at(str_cat(layers_as_one(a.name), " ", a.spec));
    if (!g.count) g.at = static_cast<size_t>(&a - activations_.data());
    g.one = &a;
    ++g.count;
  }
  std::vector<ActivationGroup> large = activations.all();
  std::stable_sort(large.begin(), large.end(), [](const auto& a, const auto& b) {
    return static_cast<double>(a.one->bytes) * static_cast<double>(a.count) >
           static_cast<double>(b.one->bytes) * static_cast<double>(b.count);
  });
  if (large.size() > 8) large.resize(8);
  std::stable_sort(large.begin(), large.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
  rows.clear();
  for (const ActivationGroup& g : large)
    rows.push_back({layers_as_one(g.one->name), str_cat(g.count, " x"), bytes_text(static_cast<double>(g.one->bytes)),
                    g.one->spec, g.one->line});
  if (!rows.empty()) s += "activations (of one rank)\n" + table(rows, {false, true, true, false, false});

  // One line for all parameters or gradients of a kind; one line for each place in the model for activations.
  struct CollectiveGroup {
    NameList names;
    size_t count = 0;
    int64_t bytes = 0;
    bool same_bytes = true;
    size_t members = 0;
    double seconds = 0, exposed = 0;
    std::string by;
    const PlannedCollective* one = nullptr;
  };
  GroupsByKey<CollectiveGroup> groups;
  for (const PlannedCollective& c : collectives_) {
    std::string key = str_cat(static_cast<int>(c.phase), c.kind, c.axes, c.dtype, static_cast<int>(c.subject));
    if (c.subject == Subject::kActivation) key += str_cat(" ", c.bytes, " ", c.line);
    CollectiveGroup& g = groups.at(key);
    if (!g.one) g.one = &c;
    g.same_bytes &= g.one->bytes == c.bytes;
    g.names.add(c.what);
    ++g.count;
    g.bytes += c.bytes;
    g.members += static_cast<size_t>(c.members);
    const double seconds = seconds_of(mesh_, c, machine_named(machine_));
    g.seconds += seconds;
    g.exposed += c.exposed * seconds;
    if (g.by.empty()) g.by = c.hidden_by;
  }
  std::stable_sort(groups.all().begin(), groups.all().end(),
                   [](const auto& a, const auto& b) { return a.one->phase < b.one->phase; });
  rows.clear();
  for (const CollectiveGroup& g : groups.all()) {
    const PlannedCollective& c = *g.one;
    const std::string bytes = g.same_bytes ? bytes_text(static_cast<double>(c.bytes))
                                           : str_cat(bytes_text(static_cast<double>(g.bytes)), " in all");
    const int64_t percent = g.seconds > 0 ? static_cast<int64_t>(100 * (1 - g.exposed / g.seconds) + 0.5) : 0;
    const std::string hidden =
        g.by.empty() || percent <= 0 ? "exposed" : fitted(str_cat(percent, "% behind ", without_folders(g.by)), 34);
    rows.push_back({weft::to_string(c.phase), title(c.kind), c.axes, str_cat(g.count, " x"), bytes, str_cat(c.dtype),
                    str_cat(dist::to_string(c.subject), " ", g.names.text(30),
                            g.members > g.count ? str_cat(", ", g.members, " values") : ""),
                    hidden, without_folders(c.why)});
  }
  if (!rows.empty())
    s += "collectives (of rank 0)\n" + table(rows, {false, false, false, true, true, false, false, false, false});

  rows.clear();
  for (const CollectiveSum& t : totals())
    rows.push_back({t.axes, title(t.kind), str_cat(t.count, " x"), bytes_text(static_cast<double>(t.bytes)),
                    str_cat(bytes_text(t.sent), " over its link"), seconds_text(t.seconds)});
  if (!rows.empty())
    s += str_cat("totals of a rank's step (time on ", machine_, ")\n",
                 table(rows, {false, false, true, true, true, true}));
  s += str_cat("peak memory of a rank: ", bytes_text(static_cast<double>(peak_bytes())),
               peak_is_exact() ? " (planned)" : " (estimated)", ", of it cells ",
               bytes_text(static_cast<double>(estimate_.cell_bytes)),
               kept_bytes_ > 0 ? str_cat(", a kept copy of them ", bytes_text(static_cast<double>(kept_bytes_))) : "",
               "\n");
  s +=
      str_cat("step on ", machine_, ": ", seconds_text(estimate_.step_seconds()), " (compute ",
              estimate_.at_most ? "at most " : "", seconds_text(estimate_.compute_seconds),
              estimate_.equal_loads ? " if experts have equal loads" : "", ", communication ",
              seconds_text(estimate_.comm_seconds), ", of it exposed ", seconds_text(estimate_.exposed_seconds), ")\n");
  s += pipeline_;
  for (const std::string& n : notes_) s += str_cat("note: ", fitted(n, kWide), "\n");
  if (!rejected.empty()) {
    rows.clear();
    for (const RejectedCandidate& r : rejected)
      rows.push_back({r.text, r.step_seconds > 0 ? seconds_text(r.step_seconds) : "",
                      r.peak_bytes > 0 ? bytes_text(static_cast<double>(r.peak_bytes)) : "", r.reason});
    if (rows.size() > 8) rows.resize(8);
    s += "rejected plans (step, peak memory, why)\n" + table(rows, {false, true, true, false});
  }
  return s;
}

}  // namespace weft::dist
