#include "models/train/microbatches.h"

#include <filesystem>

#include "distributed/plan/pipeline_plan.h"
#include "framework/cli/cli.h"
#include "framework/io/file.h"

namespace weft::train {

// ", such as 12": the next larger batch that the mesh and the schedule support; empty if it is far.
static std::string next_batch(const dist::Mesh& mesh, const dist::Plan& plan, int64_t batch) {
  constexpr int64_t kTried = 64, kMostBatch = 100000;  // the search takes time in proportion to the batch
  for (int64_t b = batch + 1; b <= batch + kTried && b <= kMostBatch; ++b)
    if (dist::default_microbatches(mesh, plan, b) > 1) return str_cat(", such as ", b);
  return "";
}

int64_t settle_microbatches(const dist::Mesh& mesh, dist::Plan& plan, int64_t batch, int64_t asked) {
  const int ranks = dist::pipeline_ranks(mesh);
  const bool open = asked == 0;
  const int64_t parts = !open ? asked : dist::default_microbatches(mesh, plan, batch);
  check_flag("microbatches", batch % parts == 0, std::to_string(parts),
             str_cat("a divisor of --batch_size, which is ", batch));
  if (ranks == 1) {
    const char* const need = "--mesh with a dimension pp as well";
    check_flag("pipeline", plan.pipeline == dist::Plan().pipeline, str_cat("'", plan.pipeline, "'"), need);
    check_flag("stages", plan.stages == dist::Plan().stages, str_cat("'", plan.stages, "'"), need);
    return parts;
  }
  // An absolute path lets a saved plan find the table from other folders too.
  if (plan.pipeline.ends_with(".csv"))
    plan.pipeline = std::filesystem::absolute(io::resolve_path(plan.pipeline)).string();
  try {
    dist::pipeline_table(plan.pipeline, ranks, open && parts == 1 ? batch : parts);
  } catch (const Error& e) {
    const std::string what = e.what();
    usage_error(str_cat(what.starts_with("pipeline: ") ? "--" : "--pipeline: ", what));
  }
  if (open && parts == 1)
    check_flag("batch_size", false, std::to_string(batch),
               str_cat("a batch that 2 or more microbatches divide as mesh ", mesh.to_string(), " and --pipeline ",
                       plan.pipeline, " require", next_batch(mesh, plan, batch)));
  check_flag("microbatches", parts > 1, std::to_string(parts),
             str_cat("2 or more on mesh ", mesh.to_string(), ": they run through its stages"));
  return parts;
}

}  // namespace weft::train
