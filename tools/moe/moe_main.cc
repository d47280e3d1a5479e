// moe: why a mixture of experts is slower than the dense model of equal active FLOPs, and what uneven load costs.
#include "framework/cli/cli.h"
#include "framework/io/file.h"
#include "models/nn/expert_choice.h"
#include "tools/moe/gap.h"
#include "tools/moe/layouts.h"
#include "tools/moe/load.h"

namespace weft::moe_study {
namespace {

struct Options {
  tools::StepChoice step{.model = "moe", .config = "moe_small", .batch_size = 4};
  std::string route = "learned";
  double capacity = 0;
  int64_t rounds = 5;
  bool load = false, layouts = false, given_mesh = false, given_ranks = false, given_route = false, given_step = false;
  LoadOptions ranks;
  File json{File::Use::kWrite}, svg{File::Use::kWrite};
};

Flags flags_of(Options& o) {
  Flags flags;
  for (Flag& f : tools::step_flags(o.step))
    if (f.name == "config" || f.name == "batch_size" || f.name == "seq_len" || f.name == "dtype" || f.name == "mesh") {
      f.given = f.name == "mesh" ? &o.given_mesh : &o.given_step;
      flags.push_back(f);
    }
  flags.push_back(
      {"route", &o.route, str_cat("how tokens choose experts: ", nn::ExpertChoice::kNeed), {}, &o.given_route});
  flags.push_back({"capacity_factor",
                   &o.capacity,
                   "of an expert over an even load; 0: nothing is dropped or padded",
                   {.least = 0, .most = 1e6},
                   &o.given_step});
  flags.push_back({"rounds", &o.rounds, "measurements, of which the least counts", {.least = 1, .most = 1000}});
  flags.push_back({"load", &o.load, "instead: rows and time by rank for balanced, zipf:1.1 and skew:0.9"});
  flags.push_back(
      {"layouts", &o.layouts, "instead: memory, idle parameters and bytes of dp, tp and ep, from their plans"});
  flags.push_back({"ranks",
                   &o.ranks.ranks,
                   "with --load, ranks that share 8 experts; with --layouts, of each mesh",
                   {.least = 1, .most = 1024},
                   &o.given_ranks});
  flags.push_back({"json", &o.json, "write the figures to this file"});
  flags.push_back({"svg", &o.svg, "write charts to this file"});
  return flags;
}

int run(Options& o) {
  if (o.load && o.layouts) usage_error("--load and --layouts are two studies; give one");
  if (o.load && (o.given_step || o.given_mesh || o.given_route))
    usage_error("--load has its own layer; of the flags it takes --ranks and --rounds");
  if (o.layouts && (o.given_mesh || o.given_route || o.capacity > 0 || o.svg))
    usage_error("--layouts has its own meshes and even choices, and no chart; it takes --ranks and the model's flags");
  if (!o.load && !o.layouts && o.given_ranks)
    usage_error("--ranks is a flag of --load and --layouts; ranks of a step are those of --mesh");
  try {
    nn::ExpertChoice::parse(o.route);
  } catch (const Error&) {
    check_flag("route", false, str_cat("'", o.route, "'"), nn::ExpertChoice::kNeed);
  }
  o.ranks.rounds = o.rounds;
  const study::Report report = o.load      ? load_study(o.ranks, {"balanced", "zipf:1.1", "skew:0.9"})
                               : o.layouts ? layout_study(o.step, o.ranks.ranks)
                                           : gap_study(o.step, o.route, o.capacity, o.rounds);
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
                           "--load: what uneven choices cost its ranks.",
                           weft::moe_study::flags_of(o), [&] { return weft::moe_study::run(o); });
}
