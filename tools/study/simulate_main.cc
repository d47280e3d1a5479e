// simulate: the cost of failures in a training run, DiLoCo's use of a network, and the walls of large runs.
#include <algorithm>
#include <cmath>

#include "compiler/cost/machine/machine_file.h"
#include "framework/base/error.h"
#include "framework/cli/cli.h"
#include "framework/io/file.h"
#include "tools/study/studies.h"

namespace weft::study {
namespace {

constexpr int64_t kMostDrillSteps = 1000000;  // a few seconds for each 100,000

// The studies: parts of the program.
enum Study : unsigned { kFailures = 1, kRun = 2, kDiloco = 4, kLatency = 8, kTp = 16, kFaults = 32, kAll = 63 };

struct SimulateFlags {
  bool diloco = false, latency_wall = false, tp_wall = false;
  StudyRunOptions run = {.flops = 0};
  FailureOptions failures = {.days = 0};
  FaultOptions faults = {.seeds = 0};
  DilocoOptions outer;
  LatencyWall wall;
  TpBlock block;
  double gpu_tflops = 200, latency_us = 30, bandwidth_gbit = 1;
  std::string gpu = "h100-sxm";
  Seeded seeded;
  File json{File::Use::kWrite}, svg{File::Use::kWrite};
};

PartFlags study_flags(SimulateFlags& o) {
  const Range positive{.least = 1e-12, .most = 1e30}, any{.least = 0, .most = 1e30},
      seconds{.least = 0.001, .most = 86400}, any_seconds{.least = 0, .most = 86400},
      count{.least = 1, .most = 1e9, .whole = true};
  return PartFlags(
      {"the study of failures", "--train_flops", "--diloco", "--latency_wall", "--tp_wall", "--faults"},
      {
          {{"train_flops", &o.run.flops, "days, GPU-hours and failures of a training run of this number of operations",
            positive},
           kAll},
          {{"diloco", &o.diloco, "bytes and utilisation of DiLoCo beside data parallelism"}, kAll},
          {{"latency_wall", &o.latency_wall, "the largest run that the latency of dependent collectives allows"}, kAll},
          {{"tp_wall", &o.tp_wall, "time of a block over the ranks of tensor parallelism"}, kAll},

          {{"faults", &o.faults.seeds,
            "runs the protocol of replicas that may die in virtual time: this number of schedules of faults from "
            "--seed on, and a drill in which replicas fail again and again; the events of a schedule, if it is one",
            count},
           kAll},

          {{"nodes", &o.failures.nodes, "nodes of the cluster; --train_flops calculates the number from --gpus", count},
           kFailures},
          {{"failures", &o.failures.failures, "failures in 1000 node-days", {.least = 1e-12, .most = 1e7}},
           kFailures | kRun},
          {{"checkpoint", &o.failures.checkpoint, "seconds that training stops for a checkpoint", positive},
           kFailures | kRun},
          {{"restart", &o.failures.restart, "seconds from a failure until training continues from a checkpoint", any},
           kFailures | kRun},
          {{"interval", &o.failures.interval, "seconds of training between checkpoints; 0: the best (Daly 2006)", any},
           kFailures | kRun},
          {{"nodes_per_replica", &o.failures.nodes_per_replica, "nodes of a replica that is dropped as a whole", count},
           kFailures | kRun},
          {{"stall", &o.failures.stall, "seconds that all replicas stop when one is dropped", any}, kFailures | kRun},
          {{"rejoin", &o.failures.rejoin, "seconds after the stall until the replica is back", any}, kFailures | kRun},
          {{"days", &o.failures.days, "days of the run; 0: 1 for failures, 90 with --latency_wall", any},
           kFailures | kLatency},
          {{"gpus", &o.run.gpus, "GPUs of the run", count}, kRun},
          {{"gpus_per_node", &o.run.gpus_per_node, "GPUs of a node", {.least = 1, .most = 1024, .whole = true}}, kRun},
          {{"gpu_tflops", &o.gpu_tflops, "TFLOP/s that a GPU reaches", positive}, kRun | kLatency},

          {{"parameters", &o.outer.parameters, "parameters of the model", positive}, kDiloco},
          {{"replicas", &o.outer.replicas, "replicas that exchange", {.least = 2, .most = 1e6, .whole = true}},
           kDiloco},
          {{"inner_steps", &o.outer.inner_steps, "steps between two exchanges of a parameter", count}, kDiloco},
          {{"fragments", &o.outer.fragments, "parts in which streaming exchanges the parameters", count}, kDiloco},
          {{"overlap_steps",
            &o.outer.overlap_steps,
            "steps during which streaming exchanges a part",
            {.least = 0, .most = 1e9, .whole = true}},
           kDiloco},
          {{"outer_bits",
            &o.outer.outer_bits,
            "bits of a parameter in an exchange of streaming",
            {.least = 1, .most = 64}},
           kDiloco},
          {{"bandwidth_gbit", &o.bandwidth_gbit, "Gbit/s of each replica", positive}, kDiloco},
          {{"exchange_latency", &o.outer.latency,
            "latency of an exchange in seconds, without the transfer of its bytes", any},
           kDiloco},
          {{"step_seconds", &o.outer.step_seconds, "seconds that a step computes", positive}, kDiloco},
          {{"jitter", &o.outer.jitter, "standard deviation of step_seconds, by replica and step", any}, kDiloco},
          {{"steps", &o.outer.steps, "steps of the run", count}, kDiloco},

          {{"layers", &o.wall.layers, "layers", count}, kLatency},
          {{"collectives", &o.wall.collectives, "collectives of a layer that wait for each other", count}, kLatency},
          {{"latency_us", &o.latency_us, "latency of a collective in microseconds, without the transfer of its bytes",
            positive},
           kLatency},
          {{"batch_tokens",
            &o.wall.batch_tokens,
            "critical batch size in tokens: larger batches save no steps",
            {.least = 1, .most = 1e15, .whole = true}},
           kLatency},
          {{"tokens_per_parameter", &o.wall.tokens_per_parameter, "tokens of the run for each parameter", positive},
           kLatency},

          {{"tokens", &o.block.tokens, "tokens of a block's input", count}, kTp},
          {{"dim", &o.block.dim, "values of a token", count}, kTp},
          {{"block_parameters", &o.block.parameters, "parameters of a block; 855.6e6: Llama 70B", positive}, kTp},
          {{"all_reduces",
            &o.block.all_reduces,
            "all-reduces of a block's forward pass",
            {.least = 1, .most = 100, .whole = true}},
           kTp},
          {{"gpu", &o.gpu, "the GPU and its links: h100-sxm, gb200 ..., or a JSON file as for //tools:plan"}, kTp},

          {{"drill_replicas", &o.faults.replicas, "replicas", {.least = 2, .most = 64, .whole = true}}, kFaults},
          {{"drill_minutes", &o.faults.minutes, "minutes of virtual time", {.least = 0.1, .most = 1440}}, kFaults},
          {{"drill_between", &o.faults.between, "seconds; in each such interval one replica fails", seconds}, kFaults},
          {{"drill_step", &o.faults.step, "seconds of a step", {.least = 0.003, .most = 3600}}, kFaults},
          {{"drill_stall", &o.faults.stall, "seconds that the replicas of a new view need for its groups", any_seconds},
           kFaults},
          {{"drill_return", &o.faults.again, "seconds from a failure until the replica's next process joins",
            any_seconds},
           kFaults},
          {{"drill_heal", &o.faults.heal, "seconds that a replica needs for the state of the others, which wait",
            any_seconds},
           kFaults},
          {{"drill_checkpoint", &o.faults.checkpoint, "for restarts: seconds that training stops for a checkpoint",
            seconds},
           kFaults},
          {{"drill_restart", &o.faults.restart,
            "for restarts: seconds from a failure until all train again from a checkpoint", any_seconds},
           kFaults},

          {{"seed", &o.seeded.seed, "seed of the simulations"}, kFailures | kRun | kDiloco | kFaults},
          {{"samples",
            &o.seeded.samples,
            "most samples of a figure: intervals, runs that drop replicas (a twentieth of them), 20 exchanges each of "
            "DiLoCo",
            {.least = 30, .most = 1e6}},
           kFailures | kRun | kDiloco},
          {{"json", &o.json, "write the figures to this file"}, kAll},
          {{"svg", &o.svg, "write charts to this file"}, kAll},
      });
}

Study chosen(const SimulateFlags& o, const PartFlags& flags) {
  unsigned asked = 0;
  for (const auto& [study, given] : {std::pair(kRun, o.run.flops > 0),
                                     {kDiloco, o.diloco},
                                     {kLatency, o.latency_wall},
                                     {kTp, o.tp_wall},
                                     {kFaults, o.faults.seeds > 0}})
    if (given) asked |= study;
  return static_cast<Study>(flags.only(asked, kFailures));
}

StudyReport report_of(SimulateFlags& o, Study study) {
  check_flag("interval", o.failures.interval == 0 || o.failures.interval >= 1e-3, str_cat(o.failures.interval),
             "0, or 0.001 or more");
  o.run.gpu_flops = o.wall.gpu_flops = o.gpu_tflops * 1e12;
  switch (study) {
    case kRun:
      return run_study(o.run, o.failures, o.seeded);
    case kDiloco:
      o.outer.bandwidth = o.bandwidth_gbit * 1e9 / 8;
      if (o.outer.fragments > o.outer.inner_steps)
        usage_error(str_cat("--fragments is ", o.outer.fragments, "; need at most ", o.outer.inner_steps,
                            ", the --inner_steps"));
      if (o.outer.overlap_steps * o.outer.fragments > o.outer.inner_steps)
        usage_error(str_cat("--overlap_steps is ", o.outer.overlap_steps, "; need ",
                            std::floor(o.outer.inner_steps / o.outer.fragments),
                            " or less, --inner_steps / --fragments"));
      return diloco_study(o.outer, o.seeded);
    case kLatency:
      o.wall.latency = o.latency_us * 1e-6;
      if (o.failures.days > 0) o.wall.seconds = o.failures.days * 86400;
      return latency_wall_study(o.wall);
    case kTp:
      check_flag("gpu", o.gpu.ends_with(".json") || std::ranges::count(machine_names(), o.gpu), o.gpu,
                 str_cat("a JSON file or one of ", machine_names()));
      o.block.machine = machine_named(o.gpu);
      check_flag("gpu", !o.block.machine.shares_cores, o.gpu, "GPUs; ranks on a CPU share its cores");
      return tp_wall_study(o.block);
    case kFaults:
      if (const auto steps = static_cast<int64_t>(o.faults.minutes * 60 / o.faults.step); steps > kMostDrillSteps)
        usage_error(str_cat("--drill_minutes ", o.faults.minutes, " has ", steps, " steps; need at most ",
                            kMostDrillSteps, ", by a longer --drill_step or a shorter time"));
      return fault_study(o.faults, o.seeded);
    default:
      if (o.failures.days == 0) o.failures.days = 1;
      return failure_study(o.failures, o.seeded);
  }
}

int run(SimulateFlags& o, const PartFlags& flags) {
  const StudyReport report = report_of(o, chosen(o, flags));
  write_output(report.text);
  if (o.json) io::write_file_atomic(o.json.path, report.json + "\n");
  if (o.svg) io::write_file_atomic(o.svg.path, draw::svg(report.charts));
  if (!report.problem.empty()) internal::fail(Code::kInternal, report.problem);
  return 0;
}

}  // namespace
}  // namespace weft::study

int main(int argc, char** argv) {
  weft::study::SimulateFlags o;
  const weft::PartFlags flags = weft::study::study_flags(o);
  return weft::run_program(
      argc, argv,
      "Shows the cost of failures in a training run. --train_flops, --diloco, --latency_wall, --tp_wall and "
      "--faults are other studies. Closed forms, beside simulations from a seed.",
      flags.flags(), [&] { return weft::study::run(o, flags); }, weft::Switches::kNone);
}
