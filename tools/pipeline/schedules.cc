#include "tools/pipeline/schedules.h"

#include <algorithm>

#include "distributed/pipeline/schedules.h"
#include "framework/base/error.h"
#include "tools/profile/table.h"

namespace weft::tools {
namespace {

using namespace dist::pipeline;

double time_of(const std::vector<double>& times, const char* what, int part, int ranks) {
  WEFT_CHECK(times.size() == 1 || times.size() == static_cast<size_t>(ranks), "pipeline: got ", times.size(),
             " times of ", what, "; need one, or one for each of ", ranks, " stages");
  return times[times.size() == 1 ? 0 : static_cast<size_t>(part)];
}

ActionCosts costs_of(const PipelineChoice& c, const Table& table, int chunks) {
  ActionCosts costs = ActionCosts::equal(table.stages());
  const double share = 1.0 / chunks;
  for (int s = 0; s < table.stages(); ++s) {
    const double f = share * time_of(c.forward, "F", s / chunks, c.ranks),
                 i = share * time_of(c.input, "I", s / chunks, c.ranks),
                 w = share * time_of(c.weight, "W", s / chunks, c.ranks);
    costs.time(s, ActionKind::kForward) = f;
    costs.time(s, ActionKind::kInput) = i;
    costs.time(s, ActionKind::kWeight) = w;
    costs.time(s, ActionKind::kBackward) = i + w;
    costs.activation.push_back(share);
  }
  costs.wire.assign(static_cast<size_t>(table.stages() - 1), c.wire);
  return costs;
}

Table table_of(const PipelineChoice& c, const std::string& name) {
  return make_schedule(name, {.ranks = c.ranks,
                              .stages_per_rank = name == "interleaved_1f1b" ? c.stages_per_rank : 0,
                              .microbatches = c.microbatches,
                              .pairs = c.pairs});
}

}  // namespace

std::string Scheduled::title() const {
  return str_cat(name, ", ", profiler::count_text(static_cast<double>(table.ranks.size()), "rank"), ", ",
                 profiler::count_text(table.microbatches, "microbatch", "es"));
}

double Scheduled::efficiency() const {
  double busy = 0;
  for (const Simulation::RankUse& r : run.ranks) busy += r.busy;
  return makespan() > 0 ? busy / (makespan() * static_cast<double>(run.ranks.size())) : 1;
}

double Scheduled::peak() const {
  double most = 0;
  for (const Simulation::RankUse& r : run.ranks) most = std::max(most, r.activation);
  return most;
}

int Scheduled::chunk_of(int stage) const { return stage / static_cast<int>(table.ranks.size()); }

Scheduled scheduled(const PipelineChoice& c, const std::string& name) {
  Scheduled s{.name = name, .table = table_of(c, name), .run = {}};
  s.chunks = s.table.stages() / c.ranks;
  s.run = simulate(s.table, StageLinks(s.table.stages()), costs_of(c, s.table, s.chunks));
  return s;
}

bool exists(const PipelineChoice& c, const std::string& name, std::string& why) {
  try {
    table_of(c, name);
    return true;
  } catch (const Error& error) {
    why = error.what();
    if (why.starts_with("pipeline: ")) why.erase(0, why.find(' ') + 1);
    return false;
  }
}

}  // namespace weft::tools
