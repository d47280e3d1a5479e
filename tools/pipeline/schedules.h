// Schedules of //tools:pipeline with their times, and what they are shown as. The tables are those of
// distributed/pipeline, from the generator that training uses.
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
  int stages_per_rank = 2;  // of interleaved_1f1b
  bool pairs = false;       // of dualpipe_v: F and the B beside it are one
  /// Times of F, I and W of one microbatch on equal parts of the model's depth, as many as ranks: one time, or one for
  /// each part from the first layers to the last. Stages of schedules with several per rank have their share.
  std::vector<double> forward{1}, input{1}, weight{1};
  double wire = 0;  // of a value between two ranks
};

/// A schedule and when its actions run. Times are those of the choice; activations are in microbatches of one rank's
/// share of the depth.
struct Scheduled {
  std::string name;
  dist::pipeline::Table table;
  dist::pipeline::Simulation run;
  int chunks = 1;  // stages of a rank

  /// "1f1b, 4 ranks, 8 microbatches".
  std::string title() const;
  double makespan() const { return run.makespan; }
  /// The mean share of its time until all have ended that a rank computes.
  double efficiency() const;
  /// The most activations of any rank.
  double peak() const;
  /// Which of its rank's stages a stage is.
  int chunk_of(int stage) const;
};

/// Throws InvalidArgument as make_schedule() and simulate() do.
Scheduled scheduled(const PipelineChoice& c, const std::string& name);
/// Whether the schedule exists for the numbers of the choice; `why`: the error if not.
bool exists(const PipelineChoice& c, const std::string& name, std::string& why);

/// Each rank's actions in a line of at most `columns` letters, and what its letters mean.
std::string schedule_text(const Scheduled& s, size_t columns);
/// A line for each schedule: its time, bubbles, efficiency and peak.
std::string comparison_text(const std::vector<Scheduled>& all);
/// Efficiency of each schedule of the choice over microbatches.
std::string efficiency_text(const PipelineChoice& c);
/// The same as JSON, with the spans of all actions.
std::string schedules_json(const PipelineChoice& c, const std::vector<Scheduled>& all);
/// The schedules, efficiency over microbatches, and idle time beside activations.
std::vector<draw::Chart> schedule_charts(const PipelineChoice& c, const std::vector<Scheduled>& all);
/// What the page shows: tables of all schedules for up to so many ranks and microbatches, and their times.
std::string page_json(const PipelineChoice& c, int most_ranks, int most_microbatches);

}  // namespace weft::tools
