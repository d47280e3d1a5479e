#include <algorithm>
#include <cmath>

#include "framework/base/error.h"
#include "framework/io/json.h"
#include "tools/pipeline/schedules.h"
#include "tools/profile/table.h"

namespace weft::tools {
namespace {

using dist::pipeline::Action;
using dist::pipeline::Simulation;
using profiler::fixed;
using profiler::number_text;

/// The time span of an action alone: in a pair, the first action runs first.
Simulation::BusySpan span_of(const Scheduled& s, size_t rank, size_t i) {
  Simulation::BusySpan span = s.run.spans[rank][i];
  const auto& list = s.table.ranks[rank];
  const double middle = (span.begin + span.end) / 2;
  if (list[i].with_next) span.end = middle;
  if (i > 0 && list[i - 1].with_next) span.begin = middle;
  return span;
}

std::string label_of(const Action& a) { return str_cat(to_string_view(a.kind), a.microbatch); }

/// Letters of one time unit, so that the shortest action has room for the longest label; 0: there is no room.
double letters_of_a_unit(const Scheduled& s, double columns) {
  double shortest = HUGE_VAL, longest = 1;
  for (size_t r = 0; r < s.table.ranks.size(); ++r)
    for (size_t i = 0; i < s.table.ranks[r].size(); ++i) {
      const auto [begin, end] = span_of(s, r, i);
      if (end > begin) shortest = std::min(shortest, end - begin);
      longest = std::max(longest, static_cast<double>(label_of(s.table.ranks[r][i]).size()));
    }
  const double wanted = (longest + 1) / shortest;
  return wanted * s.makespan() <= columns ? wanted : 0;
}

}  // namespace

std::string schedule_text(const Scheduled& s, size_t columns) {
  const size_t name = str_cat("rank ", s.table.ranks.size() - 1).size() + 2;
  const double room = static_cast<double>(columns > name + 8 ? columns - name : 8);
  const double labelled = letters_of_a_unit(s, room),
               letters = labelled > 0 ? labelled : room / std::max(s.makespan(), 1e-300);
  std::string text = str_cat(s.title(), s.chunks > 1 ? str_cat(", ", s.chunks, " stages a rank") : std::string(), "\n");
  for (size_t r = 0; r < s.table.ranks.size(); ++r) {
    std::string line(static_cast<size_t>(std::lround(s.makespan() * letters)), '.');
    for (size_t i = 0; i < s.table.ranks[r].size(); ++i) {
      const Action& a = s.table.ranks[r][i];
      const auto [begin, end] = span_of(s, r, i);
      const auto from = static_cast<size_t>(std::lround(begin * letters)),
                 to = std::min(line.size(), static_cast<size_t>(std::lround(end * letters)));
      if (to <= from) continue;
      std::string mark = labelled > 0 ? label_of(a) : std::string(to - from, to_string_view(a.kind)[0]);
      if (labelled > 0) mark += std::string(to - from - mark.size() - 1, '-') + " ";
      line.replace(from, to - from, mark);
    }
    std::string head = str_cat("rank ", r);
    head.resize(name, ' ');
    text += head + line + "\n";
  }
  return text;
}

std::string comparison_text(const std::vector<Scheduled>& all) {
  std::vector<std::vector<std::string>> rows{
      {"schedule", "step", "bubble", "own", "efficiency", "bubble/ideal", "activations", "by rank"}};
  for (const Scheduled& s : all) {
    std::string by_rank;
    for (size_t r = 0; r < s.run.ranks.size() && r < 8; ++r)
      by_rank += str_cat(r ? " " : "", number_text(s.run.ranks[r].activation, 4));
    if (s.run.ranks.size() > 8) by_rank += " ...";
    rows.push_back({s.name, number_text(s.makespan(), 4), number_text(s.run.idle(), 4),
                    number_text(s.run.idle_inside(), 4), profiler::percent(s.efficiency()),
                    fixed(1 / s.efficiency() - 1, 4), number_text(s.peak(), 4), by_rank});
  }
  return profiler::table_text(rows) +
         "\nbubble: idle time of the worst rank until all ranks have ended, as in a step that commits on all at once; "
         "own: inside\nits own first and last action. bubble/ideal: the mean idle time of ranks over their mean time "
         "of work.\n"
         "activations: the most that a rank keeps, in microbatches of its share of the depth.\n";
}

std::string efficiency_text(const PipelineChoice& c) {
  std::vector<int> counts;
  for (int m = 1; m <= 64 * c.ranks && m <= 512; m *= 2) counts.push_back(m);
  std::vector<std::vector<std::string>> rows{{"efficiency over microbatches"}};
  for (const int m : counts) rows[0].push_back(str_cat(m));
  for (const std::string& name : c.schedules) {
    rows.push_back({name});
    for (const int m : counts) {
      PipelineChoice at = c;
      at.microbatches = m;
      std::string why;
      rows.back().push_back(exists(at, name, why) ? profiler::percent(scheduled(at, name).efficiency()) : "-");
    }
  }
  return profiler::table_text(rows);
}

std::string schedules_json(const PipelineChoice& c, const std::vector<Scheduled>& all) {
  io::OrderedJson json{{"ranks", c.ranks},     {"microbatches", c.microbatches},
                       {"forward", c.forward}, {"input", c.input},
                       {"weight", c.weight},   {"wire", c.wire}};
  for (const Scheduled& s : all) {
    io::OrderedJson one{{"name", s.name},         {"stages_per_rank", s.chunks}, {"step", s.makespan()},
                        {"bubble", s.run.idle()}, {"own", s.run.idle_inside()},  {"efficiency", s.efficiency()},
                        {"activations", s.peak()}};
    for (size_t r = 0; r < s.table.ranks.size(); ++r) {
      io::OrderedJson rank{{"busy", s.run.ranks[r].busy},
                           {"bubble", s.run.ranks[r].idle},
                           {"own", s.run.ranks[r].idle_inside},
                           {"activations", s.run.ranks[r].activation}};
      for (size_t i = 0; i < s.table.ranks[r].size(); ++i) {
        const Action& a = s.table.ranks[r][i];
        const auto [begin, end] = s.run.spans[r][i];
        rank["actions"].push_back({{"kind", to_string_view(a.kind)},
                                   {"stage", a.stage},
                                   {"microbatch", a.microbatch},
                                   {"begin", begin},
                                   {"end", end}});
      }
      one["ranks"].push_back(rank);
    }
    json["schedules"].push_back(one);
  }
  return io::write_json(json, 1);
}

}  // namespace weft::tools
