// plan: the fastest meshes for a model on a number of GPUs, their costs, and the effects of changes of the hardware.
#include <algorithm>
#include <cctype>
#include <cstring>
#include <optional>
#include <span>
#include <string>

#include "compiler/cost/machine/machine_file.h"
#include "distributed/launch/compile.h"
#include "distributed/pipeline/schedules.h"
#include "distributed/plan/plan_text.h"
#include "framework/base/error.h"
#include "framework/base/units.h"
#include "framework/cli/cli.h"
#include "framework/io/file.h"
#include "framework/mesh/mesh.h"
#include "models/weights/config.h"
#include "tools/plan/inference.h"
#include "tools/plan/report/charts.h"
#include "tools/plan/report/report.h"
#include "tools/plan/report/timeline.h"
#include "tools/plan/report/what_if.h"
#include "tools/plan/search.h"
#include "tools/step/model_step.h"

namespace weft::planner {
namespace {

struct Options {
  std::string model = "llama-70b", gpu = "h100-sxm", dtype = "bf16", mesh, schedule, recompute = "auto", what_if,
              kv_dtype = "bf16", attention = "weft";
  File curve{File::Use::kWrite}, collectives{File::Use::kWrite}, timeline{File::Use::kWrite},
      save_plan{File::Use::kWrite};
  File config{File::Use::kRead}, json{File::Use::kWrite};
  int gpus = 512, top = 5, measure = 0, replicas = 1;
  int64_t batch = 0, seq = 0, microbatches = 0, prompt = 1024, generated = 1024;
  bool inference = false, has_gpus = false;
  double batch_tokens = 4e6, usd_per_gpu_hour = 0, kw_per_gpu = 0, host_us = 0, memory_margin = kMemoryMargin;
  double replica_gbit = 0, replica_latency_us = 0;
  bool tf32 = false, async_tp = true;
  bool has_batch_tokens = false, has_model = false, has_prompt = false, has_generated = false;
};

// Sets --gpus to the ranks of --mesh if it is not given.
Fixed fixed_of(Options& o) {
  Fixed f{.replicas = o.replicas, .schedule = o.schedule, .microbatches = o.microbatches};
  check_flag("replicas", o.replicas == 1 || o.mesh.empty(), str_cat(o.replicas), "no --mesh, or replicas in it");
  if (!o.mesh.empty()) {
    dist::Mesh mesh;
    as_usage_error("--mesh: ", [&] { mesh = dist::Mesh::parse(o.mesh, {}); });
    check_flag("schedule", o.schedule.empty() || mesh.find("pp"), o.schedule, "a --mesh with pp");
    f.dimensions = {{"replica", 1}, {"dp", 1}, {"fsdp", 1}, {"tp", 1}, {"cp", 1}, {"ep", 1}, {"pp", 1}};
    for (const dist::Mesh::Dim& dim : mesh.dims()) {
      check_flag("mesh", f.dimensions.contains(dim.name) && dim.over.empty(), o.mesh,
                 "dimensions replica, dp, fsdp, tp, cp, ep and pp");
      f.dimensions[dim.name] = dim.size;
    }
    if (!o.has_gpus) o.gpus = mesh.size();
    check_flag("mesh", mesh.size() == o.gpus, str_cat(o.mesh, ", ", mesh.size(), " ranks"),
               str_cat("a mesh of --gpus ranks, ", o.gpus));
  }
  const bool has_replicas = o.replicas > 1 || (f.dimensions.contains("replica") && f.dimensions.at("replica") > 1);
  check_flag("replica_gbit", o.replica_gbit == 0 || has_replicas, str_cat(o.replica_gbit),
             "--replicas, or a --mesh with replica");
  const auto& schedules = dist::pipeline::schedule_names();
  check_flag("schedule", o.schedule.empty() || std::ranges::find(schedules, o.schedule) != schedules.end(), o.schedule,
             str_cat("one of ", schedules));
  check_flag("recompute", o.recompute == "auto" || o.recompute == "full" || o.recompute == "cheap", o.recompute,
             "auto, cheap or full");
  if (o.recompute != "auto") f.recompute = o.recompute == "full";
  return f;
}

// Turns an error of `fn` into an error of a flag's value. `begin`: the beginning of the error's text, left out.
template <class Fn>
void as_flag(const char* flag, std::string_view begin, const Fn& fn) {
  try {
    fn();
  } catch (const Error& e) {
    const std::string_view what = e.what();
    usage_error(str_cat("--", flag, ": ", what.substr(what.starts_with(begin) ? begin.size() : 0)));
  }
}

Workload setup_of(const Options& o) {
  Workload s;
  if (o.config) {
    s.model = hf_shape(io::read_file(o.config.path, 1 << 22), o.config.path);
  } else {
    as_flag("model", "model: ", [&] { s.model = preset_shape(o.model); });
  }
  const auto machine = [&] { s.machine = with_tf32(machine_named(o.gpu), o.tf32); };
  if (o.gpu.ends_with(".json")) {
    machine();
  } else {
    as_flag("gpu", "machine: ", machine);
  }
  WEFT_CHECK(s.machine.memory > 0, o.gpu,
             ": \"memory\" is missing or 0; need the bytes of a GPU's memory, such as 80e9");
  as_flag("attention", "attention: ", [&] { s.attention = attention_kernel(o.attention); });
  if (o.replica_gbit > 0) {
    // Each rank has its share of the link.
    Machine& m = s.between_replicas.emplace(s.machine);
    m.links = {.node = 1, .outer_hop = 1e-6 * o.replica_latency_us, .outer_bus = o.replica_gbit * 1e9 / 8};
  }
  check_flag("replica_latency_us", o.replica_latency_us == 0 || o.replica_gbit > 0, str_cat(o.replica_latency_us),
             "--replica_gbit");
  s.gpus = o.gpus;
  s.async_tp = o.async_tp;
  s.host_seconds = 1e-6 * o.host_us;
  s.memory_margin = o.memory_margin;
  s.sequence = o.seq ? o.seq : s.model.context;
  if (o.dtype == "f32") {
    s.activations = s.products = kFloat32;
  } else if (o.dtype == "fp8") {
    check_flag("dtype", s.machine.products8 > 0, "fp8",
               str_cat("a machine with 8-bit products; ", s.machine.name, " has none"));
    s.products = kFloat8E4M3;
  } else {
    check_flag("dtype", o.dtype == "bf16", o.dtype, "f32, bf16 or fp8");
  }
  check_flag("tf32", !o.tf32 || o.dtype == "f32", "true", "--dtype f32");
  check_flag("batch", !o.batch || !o.has_batch_tokens, str_cat(o.batch), "either --batch or --batch_tokens");
  const int64_t asked =
      std::max<int64_t>(1, static_cast<int64_t>(o.batch_tokens / static_cast<double>(s.sequence) + 0.5));
  s.batch = o.batch ? o.batch : batch_for(asked, s.gpus);
  return s;
}

int run_inference(const Options& o, const Workload& w) {
  check_flag("kv_dtype", o.kv_dtype == "bf16" || o.kv_dtype == "fp8" || o.kv_dtype == "f32", o.kv_dtype,
             "f32, bf16 or fp8");
  const auto bytes = [](const std::string& dtype) { return dtype == "f32" ? 4.0 : dtype == "bf16" ? 2.0 : 1.0; };
  InferenceWorkload s{.model = w.model,
                      .machine = w.machine,
                      .gpus = o.gpus,
                      .prompt = o.prompt,
                      .generated = o.generated,
                      .weight_bytes = bytes(o.dtype),
                      .kv_bytes = bytes(o.kv_dtype),
                      .products = w.products,
                      .memory_margin = w.memory_margin};
  const auto check_positions = [&](const char* flag, int64_t tokens) {
    check_flag(flag, w.model.positions == 0 || tokens <= w.model.positions, str_cat(tokens, " tokens of a sequence"),
               str_cat("at most ", w.model.positions, ", the positions of ", w.model.name));
  };
  if (const int64_t all = w.model.positions; all > 0) {  // the defaults are for longer contexts
    if (!o.has_prompt)
      s.prompt = std::max<int64_t>(1, std::min(s.prompt, o.has_generated ? all - s.generated : all / 2));
    if (!o.has_generated) s.generated = std::max<int64_t>(1, std::min(s.generated, all - s.prompt));
  }
  check_positions("prompt", s.prompt + s.generated);
  if (!o.has_gpus) s.gpus = std::max(1, gpus_needed(s));
  std::vector<InferenceChange> changes;
  std::string text;
  as_usage_error("--", [&] {
    if (!o.what_if.empty()) changes = inference_changes(s, o.what_if);
    text = inference_report(s, o.usd_per_gpu_hour, changes);
  });
  for (const InferenceChange& c : changes) check_positions("what_if", c.context.value_or(0));
  if (o.json) io::write_file_atomic(o.json.path, inference_json(s, o.usd_per_gpu_hour, changes));
  write_output(text);
  return 0;
}

// The model's step by a plan, for the partitioner.
tools::StepChoice step_of(const Workload& w, const Candidate& c) {
  tools::StepChoice choice{.model = w.model.family,
                           .config = w.model.name,
                           .batch_size = w.batch,
                           .seq_len = w.sequence,
                           .dtype = w.activations == kFloat32 ? "f32" : "bf16",
                           .mesh = c.mesh(),
                           .microbatches = c.microbatches};
  choice.plan.zero = c.zero;
  choice.plan.pipeline_gather = c.gather_once ? "once" : "each";
  choice.plan.cp = "ring";  // step_cost() prices a ring
  if (c.pp > 1)
    choice.plan.pipeline = c.stages_per_rank > 1 && c.schedule == "interleaved_1f1b"
                               ? str_cat(c.schedule, ":", c.stages_per_rank)
                               : c.schedule;
  return choice;
}

// A saved or run plan must equal the priced plan: saved plans and runs lack some of the priced options.
void check_use(const Options& o, const Workload& w) {
  if (!o.save_plan && o.measure == 0) return;
  const char* use = o.save_plan ? "save_plan" : "measure";
  const std::string got = o.save_plan ? o.save_plan.path : str_cat(o.measure);
  check_flag(use, !o.config, got, "--model: this program runs presets only");
  check_flag(use, o.dtype != "fp8", "--dtype fp8", "--dtype f32 or bf16: this program runs no fp8 products");
  check_flag(use, !o.tf32, "--tf32", "f32 products without it: ranks of a mesh run on the CPU");
  check_flag(use, o.async_tp, "--async_tp=false", "--async_tp=true: a saved plan does not store it");
  check_flag(use, o.recompute != "full", "--recompute full", "--recompute cheap: a saved plan does not store it");
  check_flag("save_plan", !o.save_plan || o.gpus > 1, got, "a plan of two GPUs or more");
  check_flag("measure", o.measure == 0 || w.machine.shares_cores, w.machine.name,
             "--gpu cpu or a file of doctor --measure --out");
}

// The best plan for a file or a step here: neither can express that backward recomputes layers.
std::optional<PricedCandidate> best_cheap(const Workload& w, Fixed fixed, const Search& search) {
  if (!search.best.empty() && !search.best[0].candidate.full_recompute) return search.best[0];
  fixed.recompute = false;
  const Search cheap = search_plans(w, fixed, 1);
  return cheap.best.empty() ? std::nullopt : std::optional(cheap.best[0]);
}

// One word of a shell.
std::string shell_word(const std::string& text) {
  const auto plain = [](unsigned char c) { return std::isalnum(c) || std::strchr("_-./=,:+@%", c); };
  if (!text.empty() && std::ranges::all_of(text, plain)) return text;
  std::string word = "'";
  for (char c : text) word += c == '\'' ? "'\\''" : std::string(1, c);
  return word + "'";
}

// Partitions the step for a plan and saves the plan for a trainer; returns the command for training.
std::string saved_text(const Options& o, const Workload& w, const Candidate& c) {
  const tools::StepChoice choice = step_of(w, c);
  tools::ModelStep step(choice, Device::meta());
  step.prepare();
  dist::save_plan(step.compiled().plan(o.gpu), o.save_plan.path, false);  // a trainer's step is a different step
  return str_cat("saved ", c.text(), "; a run with it, on ranks of the CPU:\n  ./bazelw run //models/", choice.model,
                 ":train -- --plan ", shell_word(o.save_plan.path), " --config ", choice.config, " --batch_size ",
                 choice.batch_size, " --seq_len ", choice.seq_len, " --microbatches ", choice.microbatches, " --dtype ",
                 choice.dtype,
                 w.model.vocab < 256 ? " --data synthetic\n" : "\n");  // the tokens of text are bytes
}

// Runs the step of the best plan here, and compares.
std::string measured_text(const Options& o, const Workload& w, const PricedCandidate& best) {
  tools::ModelStep step(step_of(w, best.candidate));
  step.run();
  double least = 1e30;
  for (int i = 0; i < o.measure; ++i) least = std::min(least, step.run());
  const dist::PlanReport plan = step.compiled().plan(o.gpu);
  const double predicted = plan.estimate().step_seconds(), more = 100 * (predicted / least - 1);
  return formatted(
      "measured here: %s, least of %d steps; predicted by the partitioned graph %s (%+.1f %%), by shapes %s "
      "(%+.1f %%); planned peak %s\n",
      seconds_text(least).c_str(), o.measure, seconds_text(predicted).c_str(), more,
      seconds_text(best.cost.step).c_str(), 100 * (best.cost.step / least - 1),
      bytes_text(static_cast<double>(plan.peak_bytes())).c_str());
}

// The subjects of the program's plans.
enum Part : unsigned { kStep = 1, kInference = 2, kAll = 3 };

PartFlags plan_flags(Options& o) {
  return PartFlags(
      {"the plan of a training step", "--inference"},
      {{{"model",
         &o.model,
         "a configuration of a model in models/: llama-70b, qwen-32b, mixtral-8x7b, gpt2 ...",
         {},
         &o.has_model},
        kAll},
       {{"config", &o.config,
         str_cat("a Hugging Face config.json, instead of --model; its model_type is one of ",
                 weights::model_types(weights::For::kPlan))},
        kAll},
       {{"gpu", &o.gpu,
         str_cat("h100-sxm, h100-pcie, h200, b200, gb200, a100, mi300x, rtx-pro-6000, cpu, or a JSON file as doctor "
                 "--measure "
                 "--out or compiler/cost/presets has it, such as {\"like\": \"h100-sxm\", \"memory\": 141e9}; its "
                 "numbers are in ",
                 kMachineUnits)},
        kAll},
       {{"gpus",
         &o.gpus,
         "number of GPUs; default: the ranks of --mesh, or with --inference the smallest number with enough memory",
         {1, 1 << 20},
         &o.has_gpus},
        kAll},
       {{"batch_tokens",
         &o.batch_tokens,
         "tokens of a step, rounded by at most 5 % to a batch that the GPUs can split",
         {1, 1e15},
         &o.has_batch_tokens},
        kStep},
       {{"batch", &o.batch, "sequences of a step, exactly, instead of --batch_tokens", {0, 1e9}}, kStep},
       {{"seq", &o.seq, "tokens of a sequence; 0: the model's context", {0, 1e9}}, kStep},
       {{"dtype", &o.dtype, "f32, bf16, or fp8 (products of layers alone)"}, kAll},
       {{"tf32", &o.tf32, "with --dtype f32: products on tensor cores, as CompileOptions::tf32"}, kAll},
       {{"recompute", &o.recompute, "values that backward recomputes: cheap values, full layers, or auto"}, kStep},
       {{"mesh", &o.mesh, "plan this mesh alone, such as pp8,fsdp8,tp8"}, kStep},
       {{"replicas",
         &o.replicas,
         "plan meshes with this number of replicas that may die and come back; the search proposes no others",
         {1, 1 << 20}},
        kStep},
       {{"replica_gbit",
         &o.replica_gbit,
         "Gbit/s of each GPU's share of the link between replicas; 0: they use the network between nodes",
         {0, 1e6}},
        kStep},
       {{"replica_latency_us", &o.replica_latency_us, "microseconds of a message over this link", {0, 1e9}}, kStep},
       {{"schedule", &o.schedule, "plan meshes with pp alone, with this schedule"}, kStep},
       {{"microbatches", &o.microbatches, "plan this number alone; 0: all", {0, 1e9}}, kStep},
       {{"attention", &o.attention, "the kernel of attention, whose rate on an H100 is known: weft, cudnn or flash2"},
        kStep},
       {{"async_tp", &o.async_tp, "products overlap with the tp collectives beside them"}, kStep},
       {{"host_us",
         &o.host_us,
         "microseconds of the host for each launch; 0: the step is replayed as one graph",
         {0, 1e6}},
        kStep},
       {{"usd_per_gpu_hour", &o.usd_per_gpu_hour, "price, for the cost of 10^9 tokens", {0, 1e6}}, kAll},
       {{"kw_per_gpu", &o.kw_per_gpu, "power, for the energy of 10^9 tokens; 0: the preset's", {0, 1e6}}, kStep},
       {{"memory_margin",
         &o.memory_margin,
         "share of a GPU's memory that stays free, for driver, libraries and gaps",
         {0, 0.99}},
        kAll},
       {{"what_if", &o.what_if,
         "also print the best plan for each changed value, and for all combinations of several names, such as "
         "network=0.1x,0.5x,gpus=2x"},
        kAll},
       {{"inference", &o.inference,
         "the cost of generating text instead of training; --what_if kv_heads=1,8,H,context=8192,32768 compares"},
        kAll},
       {{"prompt", &o.prompt, "tokens of a prompt", {1, 1e9}, &o.has_prompt}, kInference},
       {{"generated", &o.generated, "tokens generated for each prompt", {1, 1e9}, &o.has_generated}, kInference},
       {{"kv_dtype", &o.kv_dtype, "dtype of keys and values: f32, bf16 or fp8"}, kInference},
       {{"curve", &o.curve, "SVG of compute and communication over the number of GPUs, with both limits"}, kStep},
       {{"collectives", &o.collectives, "SVG of the bus bandwidth of collectives by size over 1 to 32 nodes"}, kStep},
       {{"timeline", &o.timeline,
         "page of a step by the best plan, DDP, ZeRO-1, ZeRO-3 and tp, exposed communication shaded; a picture if the "
         "file ends in .svg"},
        kStep},
       {{"save_plan", &o.save_plan, "file of the best plan for a trainer's --plan"}, kStep},
       {{"measure",
         &o.measure,
         "run the best plan this many times here, with --gpu cpu or a doctor's file, and compare",
         {0, 1e6}},
        kStep},
       {{"top", &o.top, "number of plans to print", {1, 1000}}, kStep},
       {{"json", &o.json, "also write the plans, or with --inference its figures, to this file"}, kAll}});
}

int run(Options o, const PartFlags& flags) {
  flags.check(o.inference ? kInference : kStep);
  check_flag("model", !o.config || !o.has_model, o.model, "either --model or --config");
  const Fixed fixed = fixed_of(o);
  Workload setup = setup_of(o);
  if (o.inference) return run_inference(o, setup);
  check_use(o, setup);
  std::vector<WhatIf> changes{{.workload = setup}};
  if (!o.what_if.empty()) as_flag("what_if", "what_if: ", [&] { changes = what_if(setup, o.what_if, !o.batch); });
  const int64_t positions = setup.model.positions;  // rows of a learned table; 0: there is no table
  for (const WhatIf& w : changes)
    check_flag(w.workload.sequence == setup.sequence ? "seq" : "what_if",
               positions == 0 || w.workload.sequence <= positions,
               str_cat(w.workload.sequence, " tokens of a sequence"),
               str_cat("at most ", positions, ", the positions of ", setup.model.name));
  const Price price{o.usd_per_gpu_hour, o.kw_per_gpu > 0 ? o.kw_per_gpu : setup.machine.watts / 1000};
  std::vector<Compared> all;
  for (const WhatIf& w : changes)
    all.push_back({w, search_plans(w.workload, fixed, all.empty() ? static_cast<size_t>(o.top) : 1)});
  const Search& search = all[0].search;
  if (std::ranges::all_of(all, [](const Compared& c) { return c.search.best.empty(); }))
    internal::fail(Code::kResourceExhausted, nothing_fits(setup, search));
  const std::span<const Compared> compared = all.size() > 1 ? all : std::span<const Compared>();
  std::string text = plan_report(setup, search, price);
  if (!compared.empty()) text += what_if_report(compared);
  if (o.save_plan || o.measure > 0) {
    const std::optional<PricedCandidate> cheap = best_cheap(setup, fixed, search);
    if (!cheap) {
      write_output(text);
      internal::fail(Code::kResourceExhausted,
                     str_cat("--", o.save_plan ? "save_plan: " : "measure: ",
                             search.best.empty() ? nothing_fits(setup, search)
                                                 : "all plans that fit compute layers again, which a saved plan "
                                                   "cannot hold; need more GPUs or a smaller batch"));
    }
    if (search.best[0].candidate.full_recompute)
      text += str_cat("the best plan computes layers again, which a saved plan cannot hold; the best without is ",
                      cheap->candidate.text(), ", ", seconds_text(cheap->cost.step), " a step\n");
    if (o.measure > 0) text += measured_text(o, setup, *cheap);
    if (o.save_plan) text += saved_text(o, setup, cheap->candidate);
  }
  if (o.json) io::write_file_atomic(o.json.path, plan_json(setup, search, price, compared));
  if (o.curve) io::write_file_atomic(o.curve.path, curve_svg(setup));
  if (o.collectives) io::write_file_atomic(o.collectives.path, collectives_svg(setup.machine));
  if (o.timeline)
    io::write_file_atomic(o.timeline.path,
                          o.timeline.path.ends_with(".svg") ? timeline_svg(setup) : timeline_page(setup));
  write_output(text);
  return 0;
}

}  // namespace
}  // namespace weft::planner

int main(int argc, char** argv) {
  using namespace weft::planner;
  Options o;
  const weft::PartFlags flags = plan_flags(o);
  return weft::run_program(
      argc, argv,
      "Finds the fastest meshes and schedules for a model on a number of GPUs.\n"
      "Names of --what_if: gpu_flops, network (all links), bandwidth (of a GPU's memory), memory, gpus, batch and seq.",
      flags.flags(), [&] { return run(o, flags); });
}
