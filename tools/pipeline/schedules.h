// Schedules of //tools:pipeline with their times, as text, JSON and charts. The tables come from
// distributed/pipeline, the generator that training uses.
#pragma once
#include <string>
#include <vector>

#include "distributed/pipeline/simulate.h"
#include "distributed/pipeline/table.h"
#include "tools/draw/chart.h"

namespace weft::tools {

struct PipelineChoice {
  std::vector<std::string> schedules;
  int ranks = 4, microbatches = 8;
  int stages_per_rank = 2;  // for interleaved_1f1b
  bool pairs = false;       // for dualpipe_v: F and the B beside it are one action
  /// Times of F, I and W of one microbatch on each of `ranks` equal parts of the model's depth: one time, or one for
  /// each part from the first layers to the last. If a rank has several stages, each stage has its share.
  std::vector<double> forward{1}, input{1}, weight{1};
  double wire = 0;  // time of a value between two ranks
};

/// A schedule and the times of its actions, from the times of the choice. Activations are in microbatches of one rank's
/// share of the depth.
struct Scheduled {
  std::string name;
  dist::pipeline::Table table;
  dist::pipeline::Simulation run;
  int chunks = 1;  // stages per rank

  /// "1f1b, 4 ranks, 8 microbatches".
  std::string title() const;
  double makespan() const { return run.makespan; }
  /// The share of the makespan in which a rank computes, as mean over ranks.
  double efficiency() const;
  /// The most activations of any rank.
  double peak() const;
  /// The index of a stage among its rank's stages.
  int chunk_of(int stage) const;
};

/// Throws InvalidArgument as make_schedule() and simulate() do.
Scheduled scheduled(const PipelineChoice& c, const std::string& name);
/// Whether the schedule exists for the numbers of the choice; if not, sets `why` to the error.
bool exists(const PipelineChoice& c, const std::string& name, std::string& why);

/// Each rank's actions in a line of at most `columns` letters, and the meaning of the letters.
std::string schedule_text(const Scheduled& s, size_t columns);
/// A line for each schedule: its time, bubbles, efficiency and peak.
std::string comparison_text(const std::vector<Scheduled>& all);
/// Efficiency of each schedule of the choice over microbatches.
std::string efficiency_text(const PipelineChoice& c);
/// The schedules and their efficiency as JSON, with the spans of all actions.
std::string schedules_json(const PipelineChoice& c, const std::vector<Scheduled>& all);
/// The schedules, efficiency over microbatches, and idle time beside activations.
std::vector<draw::Chart> schedule_charts(const PipelineChoice& c, const std::vector<Scheduled>& all);
/// The page's data: tables of all schedules for at most `most_ranks` ranks and `most_microbatches` microbatches, and
/// their times.
std::string page_json(const PipelineChoice& c, int most_ranks, int most_microbatches);

}  // namespace weft::tools
