// moe: why a mixture of experts is slower than the dense model of equal active FLOPs, and what uneven load costs.
#include <algorithm>
#include <map>

#include "framework/cli/cli.h"
#include "framework/io/file.h"
#include "models/nn/expert_choice.h"
#include "tools/moe/gap.h"
#include "tools/moe/layouts.h"
#include "tools/moe/load.h"
#include "tools/moe/remedies.h"

namespace weft::moe_study {
namespace {

struct Options {
  tools::StepChoice step{.model = "moe", .config = "moe_small", .batch_size = 4};
  std::string route = "learned";
  double capacity = 0;
  RemedyOptions remedy;
  LoadOptions load;
  int64_t rounds = 40;
  bool loads = false, layouts = false, remedies = false;
  File json{File::Use::kWrite}, svg{File::Use::kWrite};
  std::map<std::string, bool> given;  // by flag
};

// A study and the flags that it takes.
struct Study {
  const char* name;
  std::vector<std::string> flags;
};
const Study kStudies[] = {
    {"load", {"ranks", "rounds"}},
    {"layouts", {"config", "batch_size", "seq_len", "dtype", "ranks", "rounds"}},
    {"remedies",
     {"config", "batch_size", "seq_len", "mesh", "capacity_factor", "aux_loss", "bias_rate", "steps", "rounds"}},
    {"", {"config", "batch_size", "seq_len", "dtype", "mesh", "route", "capacity_factor", "rounds"}},
};

Flags flags_of(Options& o) {
  Flags flags;
  for (const Flag& f : tools::step_flags(o.step))
    if (f.name == "config" || f.name == "batch_size" || f.name == "seq_len" || f.name == "dtype" || f.name == "mesh")
      flags.push_back(f);
  const Flags own{
      {"route", &o.route, str_cat("how tokens choose experts: ", nn::ExpertChoice::kNeed)},
      {"capacity_factor",
       &o.capacity,
       "of an expert over an even load; 0: nothing is dropped or padded; with --remedies 0 is 1.25",
       {.least = 0, .most = 1e6}},
      {"rounds", &o.rounds, "measurements; 0, with --layouts: plans alone", {.least = 0, .most = 1000}},
      {"load", &o.loads, "instead: rows and time by rank for balanced, zipf:1.1 and skew:0.9"},
      {"layouts", &o.layouts,
       "instead: memory, idle parameters and bytes of experts on every rank, cut by tp, and spread"},
      {"remedies", &o.remedies,
       "instead: what dropping, the auxiliary loss and the bias recover in training, where 0.9 of the choices go to "
       "one "
       "expert at the start"},
      {"ranks",
       &o.load.ranks,
       "with --load, ranks that share 8 experts; with --layouts, of each mesh",
       {.least = 1, .most = 1024}},
      {"aux_loss", &o.remedy.aux_loss, "with --remedies, the coefficient", {.least = 0, .most = 1e6}},
      {"bias_rate", &o.remedy.bias_rate, "with --remedies, how far a step moves a bias", {.least = 0, .most = 1e6}},
      {"steps", &o.remedy.steps, "with --remedies, of training", {.least = 1, .most = 1e6}},
      {"json", &o.json, "write the figures to this file"},
      {"svg", &o.svg, "write charts to this file"}};
  flags.insert(flags.end(), own.begin(), own.end());
  for (Flag& f : flags) f.given = &o.given[f.name];
  return flags;
}

// The study that the flags name. Others' flags are errors.
std::string study_of(const Options& o) {
  std::vector<std::string> named;
  for (const auto& [on, name] : {std::pair{o.loads, "load"}, {o.layouts, "layouts"}, {o.remedies, "remedies"}})
    if (on) named.emplace_back(name);
  if (named.size() > 1) usage_error(str_cat("--", named[0], " and --", named[1], " are two studies; give one"));
  const std::string name = named.empty() ? "" : named[0];
  for (const Study& s : kStudies) {
    if (name != s.name) continue;
    for (const auto& [flag, given] : o.given) {
      const bool common = flag == "json" || flag == "svg" || flag == "load" || flag == "layouts" || flag == "remedies";
      if (!given || common || std::find(s.flags.begin(), s.flags.end(), flag) != s.flags.end()) continue;
      std::string list;
      for (const std::string& f : s.flags) list += str_cat(list.empty() ? "--" : ", --", f);
      usage_error(str_cat("--", flag, " is no flag of ", name.empty() ? "this study" : str_cat("--", name),
                          "; need one of ", list, ", --json, --svg"));
    }
  }
  return name;
}

study::Report report_of(Options& o) {
  const std::string study = study_of(o);
  check_flag("rounds", o.rounds > 0 || study == "layouts", "0", "1 or more, or --layouts");
  if (study == "load") {
    o.load.rounds = o.rounds;
    return load_study(o.load, {"balanced", "zipf:1.1", "skew:0.9"});
  }
  // A sequence or more for each rank.
  if (study == "layouts" && !o.given["batch_size"]) o.step.batch_size = std::max(o.step.batch_size, o.load.ranks);
  if (study == "layouts") return layout_study(o.step, o.load.ranks, o.rounds);
  if (study == "remedies") {
    if (!o.given["config"]) o.step.config = "moe_shakespeare";
    if (!o.given["batch_size"]) o.step.batch_size = 8;
    config_of(o.step);
    if (o.capacity > 0) o.remedy.capacity_factor = o.capacity;
    o.remedy.rounds = o.rounds;
    const int64_t length = o.step.seq_len > 0 ? o.step.seq_len : 64;
    return remedy_study(
        {.config = o.step.config, .mesh = o.step.mesh, .batch_size = o.step.batch_size, .seq_len = length}, o.remedy);
  }
  try {
    nn::ExpertChoice::parse(o.route);
  } catch (const Error&) {
    check_flag("route", false, str_cat("'", o.route, "'"), nn::ExpertChoice::kNeed);
  }
  return gap_study(o.step, o.route, o.capacity, o.rounds);
}

int run(Options& o) {
  const study::Report report = report_of(o);
  write_output(report.text);
  if (o.json) io::write_file_atomic(o.json.path, report.json + "\n");
  if (o.svg) io::write_file_atomic(o.svg.path, draw::svg(report.charts));
  return 0;
}

}  // namespace
}  // namespace weft::moe_study

int main(int argc, char** argv) {
  weft::moe_study::Options o;
  return weft::run_program(argc, argv,
                           "Measures why a mixture of experts is slower than the dense model of equal active FLOPs; "
                           "--load, --layouts and --remedies: what uneven load and placement cost, and what helps.",
                           weft::moe_study::flags_of(o), [&] { return weft::moe_study::run(o); });
}
