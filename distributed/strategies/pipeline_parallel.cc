// Pipeline parallelism (pp): each rank along pp has stages of the model's depth, and microbatches run through them. It
// places no tensor: plan/pipeline_plan.h cuts the step that the other strategies have placed.
#include "distributed/strategies/strategy.h"

namespace weft::dist {
namespace {

void annotate(StrategyContext&) {}

std::string avoid(const Mesh&, const PlannedCollective& c) {
  return c.axes == "pp" ? "stages send each other activations and gradients: a mesh without pp has none of it" : "";
}

constexpr std::string_view kDimensions[] = {"pp"};

std::vector<std::string> schedules(const Mesh& mesh, const Plan& plan) {
  const Mesh::Dim* const pp = mesh.find("pp");
  if (!pp || pp->size == 1 || plan.pipeline.ends_with(".csv")) return {};
  return {"1f1b", "gpipe", "interleaved_1f1b", "interleaved_1f1b:4", "zb_h1", "zb_2p", "zb_v", "dualpipe_v"};
}

constexpr std::string_view kGathers[] = {"once", "each"};

// Tries both gathers if ranks have parts of parameters that stages read whole.
std::vector<std::string> gathers(const Mesh& mesh, const Plan& plan) {
  if (schedules(mesh, plan).empty() || (!mesh.find("fsdp") && plan.zero < 3)) return {};
  return {std::begin(kGathers), std::end(kGathers)};
}

constexpr OptionRow kOptions[] = {
    {.name = "pipeline",
     .field = &Plan::pipeline,
     .help = "the schedule of pipeline stages: gpipe, 1f1b, interleaved_1f1b, zb_h1, zb_2p, zb_v, dualpipe_v, with "
             "stages per rank as 'interleaved_1f1b:4', or a .csv file with a table of actions",
     .tried = schedules},
    {.name = "stages",
     .field = &Plan::stages,
     .need = "the modules with which stages 1, 2, ... begin, as 'blocks.3,blocks.6', or auto",
     .help = "the modules with which pipeline stages 1, 2, ... begin, as 'blocks.3,blocks.6', or auto: equal work"},
    {.name = "pipeline_gather",
     .field = &Plan::pipeline_gather,
     .allowed = kGathers,
     .help = "when stages gather sharded parameters: each, in each action that reads them, or once a "
             "step, which needs memory for the parameters of all the rank's stages",
     .tried = gathers},
};

}  // namespace

const Strategy pipeline_parallel = {.name = "pipeline_parallel",
                                    .dimensions = kDimensions,
                                    .options = kOptions,
                                    .annotate = annotate,
                                    .avoid = avoid,
                                    .level = 4};

}  // namespace weft::dist
