// moe: the extra time of a mixture of experts over the dense model of equal active FLOPs, and the cost of uneven load.
#include <algorithm>
#include <iterator>

#include "framework/cli/cli.h"
#include "framework/io/file.h"
#include "tools/moe/gap.h"
#include "tools/moe/layouts.h"
#include "tools/moe/load.h"
#include "tools/moe/remedies.h"

namespace weft::moe_study {
namespace {

struct MoeFlags {
  tools::StepChoice step{.model = "moe", .config = "moe_small", .batch_size = 4};
  RemedyOptions remedy;
  LoadStudyOptions load;
  int64_t rounds = 40;
  bool loads = false, layouts = false, remedies = false;
  File json{File::Use::kWrite}, svg{File::Use::kWrite};
  bool has_config = false, has_batch = false;
};

// The studies: parts of the program.
enum MoeStudies : unsigned { kGap = 1, kLoad = 2, kLayouts = 4, kRemedies = 8, kAll = 15 };

PartFlags study_flags(MoeFlags& o) {
  std::vector<PartFlag> table;
  for (Flag& f : tools::step_flags(o.step)) {
    const bool all = f.name == "config" || f.name == "set" || f.name == "batch_size" || f.name == "seq_len";
    const unsigned parts = all                 ? kAll & ~kLoad
                           : f.name == "dtype" ? kGap | kLayouts
                           : f.name == "mesh"  ? kGap | kRemedies
                                               : 0;
    if (f.name == "config") f.given = &o.has_config;
    if (f.name == "batch_size") f.given = &o.has_batch;
    if (parts) table.push_back({std::move(f), parts});
  }
  const PartFlag own[] = {
      {{"rounds",
        &o.rounds,
        "repetitions of each measurement; 0 with --layouts: plan, and measure nothing",
        {.least = 0, .most = 1000}},
       kAll},
      {{"load", &o.loads, "instead: rows and time by rank for balanced, zipf:1.1 and skew:0.9"}, kAll},
      {{"layouts", &o.layouts,
        "instead: memory, idle parameters and bytes of experts on every rank, cut by tp, and spread"},
       kAll},
      {{"remedies", &o.remedies,
        "instead: the effect of dropping, auxiliary loss and bias on a training that begins with 0.9 of the choices at "
        "one expert; --set sets their strengths: capacity_factor (1.25), aux_loss (0.05), bias_rate (0.005)"},
       kAll},
      {{"ranks",
        &o.load.ranks,
        "ranks that share 8 experts; with --layouts, the ranks of each mesh",
        {.least = 1, .most = 1024}},
       kLoad | kLayouts},
      {{"steps", &o.remedy.steps, "training steps", {.least = 1, .most = 1e6}}, kRemedies},
      {{"json", &o.json, "write the figures to this file"}, kAll},
      {{"svg", &o.svg, "write charts to this file"}, kAll}};
  table.insert(table.end(), std::begin(own), std::end(own));
  return PartFlags({"the study of the gap", "--load", "--layouts", "--remedies"}, std::move(table));
}

study::StudyReport report_of(MoeFlags& o, const PartFlags& flags) {
  unsigned asked = 0;
  for (const auto& [on, study] : {std::pair(o.loads, kLoad), {o.layouts, kLayouts}, {o.remedies, kRemedies}})
    if (on) asked |= study;
  const unsigned study = flags.only(asked, kGap);
  check_flag("rounds", o.rounds > 0 || study == kLayouts, "0", "1 or more, or --layouts");
  if (study == kLoad) {
    o.load.rounds = o.rounds;
    return load_study(o.load, {"balanced", "zipf:1.1", "skew:0.9"});
  }
  // A sequence or more for each rank.
  if (study == kLayouts && !o.has_batch) o.step.batch_size = std::max(o.step.batch_size, o.load.ranks);
  if (study == kLayouts) return layout_study(o.step, o.load.ranks, o.rounds);
  if (study == kRemedies) {
    if (!o.has_config) o.step.config = "moe_shakespeare";
    if (!o.has_batch) o.step.batch_size = 8;
    const moe::Config config = config_of(o.step);
    if (config.capacity_factor > 0) o.remedy.capacity_factor = config.capacity_factor;
    if (o.step.fields.count("aux_loss")) o.remedy.aux_loss = config.aux_loss;
    if (o.step.fields.count("bias_rate")) o.remedy.bias_rate = config.bias_rate;
    o.remedy.rounds = o.rounds;
    const int64_t length = o.step.seq_len > 0 ? o.step.seq_len : 64;
    return remedy_study({.config = o.step.config,
                         .fields = o.step.fields,
                         .mesh = o.step.mesh,
                         .batch_size = o.step.batch_size,
                         .seq_len = length},
                        o.remedy);
  }
  return gap_study(o.step, o.rounds);
}

int run(MoeFlags& o, const PartFlags& flags) {
  const study::StudyReport report = report_of(o, flags);
  write_output(report.text);
  if (o.json) io::write_file_atomic(o.json.path, report.json + "\n");
  if (o.svg) io::write_file_atomic(o.svg.path, draw::svg(report.charts));
  return 0;
}

}  // namespace
}  // namespace weft::moe_study

int main(int argc, char** argv) {
  weft::moe_study::MoeFlags o;
  const weft::PartFlags flags = weft::moe_study::study_flags(o);
  return weft::run_program(
      argc, argv,
      "Measures the extra time of a mixture of experts over the dense model of equal active FLOPs; "
      "--load, --layouts and --remedies measure the cost of uneven load and placement, and remedies.",
      flags.flags(), [&] { return weft::moe_study::run(o, flags); });
}
