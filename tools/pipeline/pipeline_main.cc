// pipeline: draws the schedules of a pipeline, and compares their bubbles, efficiency and activations.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "distributed/pipeline/schedules.h"
#include "framework/base/error.h"
#include "framework/cli/cli.h"
#include "framework/io/file.h"
#include "tools/draw/page.h"
#include "tools/pipeline/pipeline_texts.h"
#include "tools/pipeline/schedules.h"

namespace weft::tools {
namespace {

constexpr int kPageRanks = 16, kPageMicrobatches = 64;
constexpr int kMostRanks = 64, kMostMicrobatches = 256;  // limits of the drawing

struct PipelineFlags {
  PipelineChoice choice;
  std::vector<std::string> schedules;
  std::string forward = "1", input = "1", weight = "1";
  bool chunks_given = false;
  int columns = 118;
  File json{File::Use::kWrite}, svg{File::Use::kWrite}, html{File::Use::kWrite};
};

std::vector<double> parse_times(const char* flag, const std::string& text, int stages) {
  std::vector<double> times;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    double value = -1;
    const auto [rest, error] = std::from_chars(text.data() + at, text.data() + end, value);
    check_flag(flag,
               error == std::errc() && rest == text.data() + end && std::isfinite(value) && value >= 0 && value <= 1e9,
               str_cat("'", text, "'"), "a time from 0 to 1e9, or one for each stage: 1,1,1,2");
    times.push_back(value);
    at = end + 1;
  }
  check_flag(flag, times.size() == 1 || times.size() == static_cast<size_t>(stages), str_cat(times.size(), " times"),
             str_cat("one, or one for each of the ", stages, " stages of --stages"));
  return times;
}

int run(PipelineFlags& o) {
  PipelineChoice& c = o.choice;
  const bool some = !o.schedules.empty();  // not all schedules
  c.forward = parse_times("forward", o.forward, c.ranks);
  c.input = parse_times("input", o.input, c.ranks);
  c.weight = parse_times("weight", o.weight, c.ranks);
  const auto sum = [](const std::vector<double>& times) {
    double all = 0;
    for (const double t : times) all += t;
    return all;
  };
  if (sum(c.forward) + sum(c.input) + sum(c.weight) == 0)
    usage_error("--forward, --input and --weight are all 0; need a time above 0");
  const std::vector<std::string>& names = dist::pipeline::schedule_names();
  std::string left_out;
  for (const std::string& name : some ? o.schedules : names) {
    std::string why;
    if (exists(c, name, why)) {
      c.schedules.push_back(name);
    } else if (some) {
      usage_error(str_cat("--schedule: ", why));
    } else {
      left_out += str_cat("left out: ", why, "\n");
    }
  }
  const auto has = [&](const char* name) {
    return std::find(c.schedules.begin(), c.schedules.end(), name) != c.schedules.end();
  };
  if (o.chunks_given && !has("interleaved_1f1b"))
    usage_error("--stages_per_rank works with interleaved_1f1b only; add interleaved_1f1b to --schedule");
  if (c.pairs && !has("dualpipe_v"))
    usage_error(str_cat("--pairs works with dualpipe_v only, which is not drawn; ",
                        some ? "add it to --schedule" : "need --microbatches of twice --stages or more"));
  if (o.html && (c.forward.size() > 1 || c.input.size() > 1 || c.weight.size() > 1))
    usage_error("--html has a slider for the stages; need one time each for --forward, --input and --weight");
  if (o.html && c.stages_per_rank > 6) usage_error("--html draws at most 6 stages of a rank; lower --stages_per_rank");
  if (o.html && (c.ranks > kPageRanks || c.microbatches > kPageMicrobatches))
    usage_error(str_cat("--html has up to ", kPageRanks, " stages and ", kPageMicrobatches,
                        " microbatches; lower --stages and --microbatches"));

  std::vector<Scheduled> all;
  std::string text;
  for (const std::string& name : c.schedules) {
    all.push_back(scheduled(c, name));
    text += schedule_text(all.back(), static_cast<size_t>(o.columns)) + "\n";
  }
  text += str_cat("F: forward, I: gradient of the inputs, W: of the weights, B: both; the number is the microbatch\n\n",
                  comparison_text(all), "\n", efficiency_text(c), left_out.empty() ? "" : "\n", left_out);
  write_output(text);
  if (o.json) io::write_file_atomic(o.json.path, schedules_json(c, all) + "\n");
  if (o.svg) io::write_file_atomic(o.svg.path, draw::svg(schedule_charts(c, all)));
  if (o.html)
    io::write_file_atomic(o.html.path,
                          make_document("Pipeline schedules", pipeline_texts("page_html"), pipeline_texts("page_css"),
                                        pipeline_texts("page_js"), page_json(c, kPageRanks, kPageMicrobatches)));
  return 0;
}

}  // namespace
}  // namespace weft::tools

int main(int argc, char** argv) {
  weft::tools::PipelineFlags o;
  const weft::Flags flags{
      {"schedule", &o.schedules, "schedules, separated by commas; empty: all that suit the other flags"},
      {"stages", &o.choice.ranks, "ranks of the pipeline", {1, weft::tools::kMostRanks}},
      {"microbatches", &o.choice.microbatches, "parts of the batch", {1, weft::tools::kMostMicrobatches}},
      {"stages_per_rank",
       &o.choice.stages_per_rank,
       "stages of each rank of interleaved_1f1b",
       {2, 64},
       &o.chunks_given},
      {"pairs", &o.choice.pairs, "dualpipe_v: a forward and the backward beside it run as one action, as published"},
      {"forward", &o.forward, "time of a microbatch's forward pass on one rank, or a list with one for each stage"},
      {"input", &o.input,
       "time of a microbatch's gradient of the inputs on one rank, or a list with one for each stage"},
      {"weight", &o.weight,
       "time of a microbatch's gradient of the weights on one rank, or a list with one for each stage"},
      {"wire", &o.choice.wire, "time of a transfer between two ranks", {0, 1e9}},
      {"columns", &o.columns, "letters of a line", {40, 100000}},
      {"json", &o.json, "write the figures and the times of all actions to this file"},
      {"svg", &o.svg, "write the pictures to this file"},
      {"html", &o.html, "write a page with sliders to this file"},
  };
  return weft::run_program(
      argc, argv, "Draws the schedules of a pipeline, and compares their bubbles, efficiency and activations.", flags,
      [&] { return weft::tools::run(o); }, weft::Switches::kNone);
}
