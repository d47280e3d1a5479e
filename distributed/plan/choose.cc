#include "distributed/plan/choose.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "compiler/cost/machine/machine_file.h"
#include "distributed/plan/collective_names.h"
#include "distributed/plan/estimate.h"
#include "framework/base/units.h"

namespace weft::dist {
namespace {

constexpr size_t kBestMeshes = 4;

// All meshes of the sizes that strategies try, from the innermost dimension outwards.
void add_meshes(MeshSearch search, std::span<const Strategy* const> left,
                const std::vector<std::pair<std::string, int>>& inner, std::vector<Mesh>& out) {
  if (left.empty()) {
    if (search.inner == search.world) out.emplace_back(inner);
    return;
  }
  for (int size : left[0]->sizes(search)) {
    MeshSearch next = search;
    next.inner *= size;
    for (std::string_view name : left[0]->dimensions) {
      std::vector<std::pair<std::string, int>> dims = inner;
      if (size > 1) dims.insert(dims.begin(), {std::string(name), size});
      add_meshes(next, left.subspan(1), dims, out);
      if (size == 1) break;
    }
  }
}

std::vector<Mesh> meshes_of(const Plan& plan, const MeshSearch& search) {
  std::vector<const Strategy*> tried = strategies_of(plan);
  std::erase_if(tried, [](const Strategy* s) { return !s->sizes; });
  std::stable_sort(tried.begin(), tried.end(),
                   [](const Strategy* a, const Strategy* b) { return a->level < b->level; });
  std::vector<Mesh> out;
  add_meshes(search, tried, {}, out);
  return out;
}

CompileOptions on(const CompileOptions& how, const Mesh& mesh) {
  CompileOptions one = how;
  one.mesh = mesh;
  one.plan.choose = false;
  return one;
}

// All settings of the options that strategies vary on this mesh.
std::vector<CompileOptions> settings(const CompileOptions& how) {
  std::vector<CompileOptions> all{how};
  for (const OptionRow* row : options_of(how.plan)) {  // the first option varies slowest
    std::vector<CompileOptions> next;
    for (const CompileOptions& one : all) {
      const std::vector<std::string> values = row->tried ? row->tried(one.mesh, one.plan) : std::vector<std::string>();
      if (values.empty()) next.push_back(one);
      for (const std::string& value : values) {
        next.push_back(one);
        set_option(*row, value, next.back().plan);
      }
    }
    all = std::move(next);
  }
  return all;
}

std::string text_of(const CompileOptions& how) {
  return str_cat(how.mesh.size() > 1 ? how.mesh.to_string() : "one rank", ", ",
                 options_text(how.mesh, settled(how.mesh, how.plan)));
}

// The plans tried so far.
class Trials {
 public:
  Trials(const Ref<Graph>& joint, const CompileOptions& how, const PartitionScope& scope)
      : joint_(joint), how_(how), scope_(scope), machine_(machine_named(how.machine)) {}

  void add(const CompileOptions& one) {
    RejectedCandidate r;
    r.text = text_of(one);
    for (const RejectedCandidate& t : tried_)
      if (t.text == r.text) return;
    options_.push_back(one);
    try {
      MeshPartition p = plan_mesh(joint_, one, {.for_machine = scope_.for_machine, .every_class = false});
      if (p.pipeline) p.pipeline->predict(p.mesh, *p.arranged[0], machine_);
      const Estimate e = p.pipeline ? estimate_pipeline(*p.pipeline, *p.arranged[0], machine_)
                                    : estimate(one.mesh, *p.arranged[0], p.locals[0].collectives, machine_);
      r.step_seconds = e.step_seconds();
      r.peak_bytes = e.peak_bytes;
      least_ = std::min(least_, r.peak_bytes);
      if (how_.memory_budget > 0 && r.peak_bytes > how_.memory_budget)
        r.reason = str_cat("needs more than ", bytes_text(static_cast<double>(how_.memory_budget)));
    } catch (const Error& e) {
      r.reason = e.what();
      if (!first_) first_ = e;
    }
    tried_.push_back(std::move(r));
  }

  // Indices, best first: plans that fit by time, then by memory; then plans that do not fit, by memory.
  std::vector<size_t> ranked() const {
    std::vector<size_t> order;
    for (size_t i = 0; i < tried_.size(); ++i)
      if (tried_[i].step_seconds > 0) order.push_back(i);
    const auto key = [&](size_t i) {
      const RejectedCandidate& t = tried_[i];
      return t.reason.empty() ? std::tuple<bool, double, int64_t>(false, t.step_seconds, t.peak_bytes)
                              : std::tuple<bool, double, int64_t>(true, static_cast<double>(t.peak_bytes), 0);
    };
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
    return order;
  }

  const CompileOptions& options(size_t i) const { return options_[i]; }

  MeshPartition finish() {
    const std::vector<size_t> order = ranked();
    if (order.empty() && first_) throw *first_;
    if (order.empty() || !tried_[order[0]].reason.empty())
      internal::OverBudget::fail(str_cat("plan: none of ", tried_.size(), " plans for ",
                                         how_.mesh.size() > 1 ? how_.mesh.size() : how_.plan.world, " ranks fits ",
                                         how_.memory_budget, " bytes; the smallest needs about ", least_));
    const RejectedCandidate best = tried_[order[0]];
    MeshPartition p = plan_mesh(joint_, options_[order[0]], scope_);
    for (size_t i = 0; i < tried_.size(); ++i) {
      if (i == order[0]) continue;
      RejectedCandidate r = tried_[i];
      if (r.reason.empty()) {
        const double more = r.step_seconds / best.step_seconds - 1;
        r.reason = more > 0 ? str_cat("takes ", static_cast<int64_t>(more * 100 + 0.5), "% longer")
                            : "takes as long and needs more memory";
      }
      p.rejected.push_back(std::move(r));
    }
    std::stable_sort(p.rejected.begin(), p.rejected.end(), [](const RejectedCandidate& a, const RejectedCandidate& b) {
      const double never = 1e30;
      return (a.step_seconds > 0 ? a.step_seconds : never) < (b.step_seconds > 0 ? b.step_seconds : never);
    });
    p.notes.push_back(str_cat("chosen of ", tried_.size(), " plans: ", best.text, " (predicted on ", how_.machine, ": ",
                              seconds_text(best.step_seconds), ", ", bytes_text(static_cast<double>(best.peak_bytes)),
                              ")"));
    return p;
  }

 private:
  const Ref<Graph>& joint_;
  const CompileOptions& how_;
  const PartitionScope& scope_;
  const Machine& machine_;
  std::vector<CompileOptions> options_;
  std::vector<RejectedCandidate> tried_;  // reason: empty if it fits
  std::optional<Error> first_;
  int64_t least_ = INT64_MAX;
};

}  // namespace

MeshPartition choose_plan(const Ref<Graph>& joint, const CompileOptions& how, const PartitionScope& scope) {
  Trials trials(joint, how, scope);
  std::vector<Mesh> meshes{how.mesh};
  if (how.mesh.size() <= 1 && how.plan.world > 1) {
    // Tries each mesh with the default options, then all options on the best few meshes.
    for (const Mesh& mesh : meshes_of(how.plan, {*joint, how.plan.world, machine_named(how.machine).links.node}))
      trials.add(on(how, mesh));
    meshes.clear();
    for (size_t i : trials.ranked())
      if (meshes.size() < kBestMeshes) meshes.push_back(trials.options(i).mesh);
  }
  for (const Mesh& mesh : meshes)
    for (const CompileOptions& one : settings(on(how, mesh))) trials.add(one);
  return trials.finish();
}

}  // namespace weft::dist
