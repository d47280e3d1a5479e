#include "models/train/options.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>

#include "distributed/launch/free_memory.h"
#include "distributed/launch/held_memory.h"
#include "distributed/overlap/arrange.h"
#include "distributed/placement/replica.h"
#include "distributed/plan/forbid.h"
#include "distributed/plan/plan_text.h"
#include "distributed/strategies/strategies.h"
#include "framework/base/parse_number.h"
#include "framework/io/file.h"
#include "framework/io/gguf.h"
#include "models/text/tokenizer.h"
#include "models/train/checkpoint.h"
#include "models/train/device.h"
#include "models/train/diloco.h"
#include "models/train/memory.h"
#include "models/train/microbatches.h"
#include "models/train/plan_flags.h"
#include "models/train/set_fields.h"
#include "models/train/sizes.h"
#include "models/weights/load.h"

namespace weft::train {

Flags train_flags(TrainOptions& o) {
  CompileOptions& step = o.step;
  Flags flags{
      {"config", &o.config, "configuration by name (--config list prints them); empty: the program's default"},
      {"hf", &o.hf,
       "start from weights of transformers instead of a configuration: folder with config.json and safetensors, .gguf "
       "file, or org/name in the local cache"},
      {"init_from", &o.init_from,
       "start from the weights of a checkpoint: a folder step_N, or a folder of such folders (the newest)"},
      {"context", &o.context, "with --hf, a shorter context than the model's; 0: the model's", {0}},
      field_flag(o.set),
      {"data", &o.data, "text file, folder of .txt files, token shards, or synthetic; empty: the works of Shakespeare"},
      {"tokenizer", &o.tokenizer,
       "tokenizer.json, a folder with one, or GGUF file, for --data; empty: the tokenizer beside --hf, else bytes"},
      {"pre", &o.pre, "the pattern of a GGUF file's tokenizer that names none: gpt-2, llama-bpe, qwen2, ..."},
      {"steps", &o.steps, "optimiser steps; 0: the configuration's default", {0}},
      {"batch_size", &o.batch_size, "sequences per step; 0: the configuration's default", {0, 1e9}},
      {"seq_len", &o.seq_len, "tokens per sequence; 0: the configuration's context", {0, 1e9}},
      {"lr", &o.lr, "peak learning rate; 0: the configuration's default, and 5e-5 with --hf or --init_from", {0, 1e30}},
      {"warmup", &o.warmup, "steps of linear warm-up before the cosine; -1: a twentieth of the steps", {-1}},
      {"microbatches",
       &o.microbatches,
       "equal parts of a batch whose gradients are summed one after another, to save memory, or which run through the "
       "stages of a mesh with pp; 0: 1, and with pp about twice its ranks",
       {0}},
      {"eval_every",
       &o.eval_every,
       "steps between evaluations on held-out text; 0: never; -1: a quarter of the steps",
       {-1}},
      {"checkpoint_every", &o.checkpoint_every,
       "steps between checkpoints, 0 for none, or auto: the interval that loses the least time, from the measured time "
       "of a save and --mtbf"},
      {"mtbf", &o.mtbf, "with --checkpoint_every auto, hours between failures of the run, on average", {0, 1e9, true}},
      {"checkpoint_errors", &o.checkpoint_errors,
       "if a checkpoint cannot be saved: warn (the run goes on) or stop; the last one of a run always stops it"},
      {"checkpoint_async", &o.checkpoint_async,
       "go on while a checkpoint is written; the weights and the optimiser state then need memory a second time"},
      {"keep", &o.keep, "checkpoints to keep, the newest; 0: all", {0}},
      {"check_state",
       &o.check_state,
       "steps between checks of the state for wrong bits: on a mesh, ranks with equal shards compare them, before each "
       "checkpoint too; on one device the step is made twice; 0: never",
       {0}},
      {"check_compute",
       &o.check_compute,
       "with --mesh, steps between checks of the computation: a neighbour makes the part of each rank as well, from "
       "the "
       "same rows, and the bits are compared; such a step takes twice the time; 0: never",
       {0}},
      {"check_state_errors", &o.check_state_errors,
       "with --check_state or --check_compute, the reaction when the rank with wrong bits is known: stop, or continue "
       "from the right state"},
      {"restarts",
       &o.restarts,
       "restarts from the newest checkpoint, or from a newer state in memory, after a signal has killed a process or "
       "stopped it for 2 s; a new one resets the count",
       {0, 1000}},
      {"memory_every", &o.memory_every,
       "steps between states in memory, from which killed processes go on, 0 for none, or auto: about 2 % of the time; "
       "the newest two stay in memory of --restarts, or in --memory_dir"},
      {"memory_dir", &o.memory_dir,
       "with --memory_every, folder in memory, such as /dev/shm, if torchrun, Slurm or mpirun has started the run"},
      {"device", &o.device, "cpu, cuda or cuda:N: where the model is trained"},
      {"dtype", &o.dtype, "f32, bf16 or f16: dtype of activations; master weights are always f32"},
      {"compile", &step.enabled, "capture the step as one graph and replay it; false: run it op by op"},
      {"memory_budget", &step.memory_budget, "most bytes a step may plan for; 0: no limit", {0}},
      {"numerics", &step.numerics, "fast, or eager: round exactly as op-by-op execution does"},
      {"tf32", &step.tf32, "with --device cuda and f32: products on tensor cores, which round operands to 11 bits"},
      {"verify_numerics", &step.verify_numerics,
       "sums that give the same bits on one device and on any mesh: slow; numerics are eager"},
      {"check_capture",
       &step.check_capture,
       "steps between new traces of the step; fails if a host value that the trace fixed has changed; 0: never",
       {0}},
      {"verify", &step.verify,
       "compare the compiled step with the interpreter on the first batch; with --mesh or --device cuda each of its "
       "launches with its ops on the CPU"},
      {"mesh", &o.mesh,
       "ranks along dimensions replica, pp, dp, fsdp, tp, cp, ep, outermost first, as in dp2,tp2 or "
       "dp2,tp2,ep4(dp,tp); "
       "replicas may die and come back with --restarts, or if REPLICAS is set; empty: one device"},
      {"ranks", &o.ranks,
       "kind of the ranks of --mesh: processes (started on this host, unless torchrun, mpirun, Slurm, Kubernetes or "
       "//tools:launch has started them), or threads of this process"},
      {"transport", &o.transport,
       "transport between --ranks processes: shared (memory of one host), gloo (TCP), or auto (shared if all processes "
       "are on one host)"},
      {"timeout",
       &step.timeout,
       "with --mesh, seconds that a rank waits for the others in a collective before the run fails and names the "
       "missing ranks",
       {0, 1e9, true}},
      {"async_tp", &o.async_tp,
       "with --mesh, gathers and scatters become rings with their products, which hide the transfers: auto (where the "
       "cost model predicts a gain), on or off; a ring sums in another order, so the last digits of results differ"},
      {"show_plan", &o.show_plan,
       "before the first step, print the placement on the mesh and each collective with its reason"},
      {"forbid", &step.forbid,
       "with --mesh, forbidden collectives, as in allgather@dp:activations,allreduce@tp: KIND@DIMENSION[:WHAT], * for "
       "any; a plan with one is an error"},
      {"plan", &o.plan, "file that --save_plan wrote; mesh and placements follow this plan"},
      {"save_plan", &o.save_plan, "with --mesh, file for the plan, written before the first step"},
      {"checkpoint_dir", &o.checkpoint_dir,
       "folder for checkpoints; empty: runs/FAMILY-CONFIG in the current folder, with a number if that folder is used"},
      {"resume", &o.resume,
       "resume from the newest checkpoint in --checkpoint_dir, if there is one, with the flags of its run, except "
       "--mesh and its flags, so any mesh can resume; given flags win"},
      {"replay", &o.replay,
       "make an elastic run again, to the bit, in one process with the replicas as threads: file with the journal of "
       "its service; give the flags of that run, and another --checkpoint_dir; state and compute are not checked"},
      {"metrics", &o.metrics, "file for one JSON object a step"},
      {"log_dir", &o.log_dir, "folder for event files of TensorBoard with losses and rates"},
      {"profile_steps", &o.profile_steps, "first and last step to trace, as in 10-12; empty: none"},
      {"profile_out", &o.profile_out, "with --profile_steps, file for the trace of these steps, for ui.perfetto.dev"},
      {"seed", &o.seed, "seed of weights, dropout and the order of data"},
      {"sample", &o.sample_tokens, "tokens of text to write at the end; 0: none; -1: 400 after training on text", {-1}},
  };
  for (Flag& flag : diloco_flags(o)) flags.push_back(std::move(flag));
  for (Flag& flag : plan_flags(step.plan)) flags.push_back(std::move(flag));
  for (Flag& flag : flags) flag.given = &o.given[flag.name];
  return flags;
}

const char* source_flag(const TrainOptions& o) {
  return !o.hf.empty() ? "hf" : !o.init_from.empty() ? "init_from" : "config";
}

namespace {

std::string in_quotes(const std::string& s) { return str_cat("'", s, "'"); }

// The tokens of a sequence, of the settled options.
int64_t length_of(const Setup& p, const TrainOptions& o) {
  return o.seq_len > 0 ? o.seq_len : std::min<int64_t>(std::stoll(p.config.at("context")), 256);
}

// Refuses a mesh with an unknown dimension, and a batch that does not divide over it, before anything is made.
void check_batch(const Setup& p, const TrainOptions& o, const dist::Mesh& mesh, const char* flag, int64_t rows) {
  const TensorType tokens{.dtype = kInt32, .shape = {rows / o.microbatches, length_of(p, o)}};
  try {
    dist::check_arguments(mesh, o.step.plan, {&tokens, 1});
  } catch (const Error& e) {
    const std::string part = str_cat(" (a microbatch: ", rows, " of --", flag, " / ", o.microbatches, " microbatches)");
    usage_error(
        str_cat(o.plan.empty() ? "--" : str_cat("--plan ", o.plan, ": "), e.what(), o.microbatches > 1 ? part : ""));
  }
}

// Reads mesh and placements from --plan. A contradicting flag is an error.
void load_saved_plan(Setup& p, TrainOptions& o) {
  const dist::SavedPlan saved = dist::load_plan(io::resolve_path(o.plan));
  const dist::Plan &asked = o.step.plan, &has = saved.plan;
  if (!o.mesh.empty() && !(o.step.mesh == saved.mesh))
    usage_error(
        str_cat("--mesh: got ", o.mesh, "; drop the flag: --plan ", o.plan, " has mesh ", saved.mesh.to_string()));
  for (const dist::OptionRow* row : dist::options_of({})) {
    const std::string name(row->name);
    const bool open = dist::is_same(*row, asked, {}) && !o.given[name];
    if (!open && !dist::is_same(*row, asked, has))
      usage_error(str_cat("--", name, ": got ", dist::text_of(*row, asked), "; drop the flag: --plan ", o.plan, " has ",
                          name, " ", dist::text_of(*row, has)));
  }
  o.step.mesh = saved.mesh;
  o.step.plan = saved.plan;
  p.saved_hash = saved.hash;
}

// Applies --async_tp, an option of the arrangement of collectives.
void settle_async_tp(TrainOptions& o) {
  dist::CommunicationOptions how = o.step.communication ? *o.step.communication : dist::CommunicationOptions();
  as_usage_error("--", [&] { how.async_tp = dist::parse_async_tp(o.async_tp); });
  const bool many = o.step.mesh.size() > 1;
  check_flag("async_tp", many || o.async_tp != "on", "on", "--mesh as well");
  check_flag("async_tp", !o.step.mesh.find("pp") || o.async_tp != "on", "on",
             "a mesh without pp: the stages of a pipeline have no rings");
  if (many) o.step.communication = std::make_shared<const dist::CommunicationOptions>(how);
}

// Settles --mesh, --plan and the flags that need a mesh.
void settle_mesh(Setup& p, TrainOptions& o) {
  check_flag("transport", o.transport == "auto" || o.transport == "shared" || o.transport == "gloo",
             in_quotes(o.transport), "auto, shared or gloo");
  check_flag("ranks", o.ranks == "threads" || o.ranks == "processes", in_quotes(o.ranks), "threads or processes");
  check_plan_flags(o.step.plan);
  as_usage_error("--mesh: ", [&] { o.step.mesh = dist::Mesh::parse(o.mesh, {}); });
  if (!o.plan.empty()) load_saved_plan(p, o);
  const std::string mesh = o.step.mesh.to_string();
  const bool many = o.step.mesh.size() > 1;
  o.asked_microbatches = o.microbatches;
  o.microbatches = settle_microbatches(o.step.mesh, o.step.plan, o.batch_size, o.microbatches);
  const char* from = o.plan.empty() ? "mesh" : "plan";
  const std::string got = o.plan.empty() ? mesh : str_cat(o.plan, " of mesh ", mesh);
  if (many && o.device.rfind("cuda", 0) == 0)
    usage_error(str_cat("--", from, " ", got, " does not work with --device ", o.device,
                        ": meshes run on the CPU; drop one flag"));
  check_flag(from, !many || o.step.enabled, got, "--compile as well: only captured steps run on a mesh");
  if (many) check_batch(p, o, o.step.mesh, "batch_size", o.batch_size);
  settle_async_tp(o);
  check_flag("show_plan", many || !o.show_plan, "true", "--mesh");
  check_flag("wire", many || !o.given["wire"], in_quotes(o.step.plan.wire), "--mesh");
  check_flag("transport", (many && o.ranks == "processes") || !o.given["transport"], in_quotes(o.transport),
             "--mesh with --ranks processes");
  check_flag("timeout", many || !o.given["timeout"], str_cat(o.step.timeout), "--mesh");
  check_flag("save_plan", many || o.save_plan.empty(), o.save_plan, "--mesh");
  check_flag("forbid", many || o.step.forbid.empty(), o.step.forbid.empty() ? "" : o.step.forbid[0], "--mesh");
  as_usage_error("--", [&] { dist::parse_forbid(o.step.mesh, o.step.forbid); });
}

// Settles --profile_steps and --profile_out.
void settle_profile(Setup& p, const TrainOptions& o) {
  const bool on = !o.profile_steps.empty();
  check_flag("profile_out", on || o.profile_out == TrainOptions().profile_out, o.profile_out,
             "--profile_steps as well");
  if (!on) return;
  const char *at = o.profile_steps.data(), *end = at + o.profile_steps.size();
  const auto first = std::from_chars(at, end, p.profile_first);
  const bool dash = first.ec == std::errc() && first.ptr < end && *first.ptr == '-';
  const auto last = std::from_chars(dash ? first.ptr + 1 : end, end, p.profile_last);
  const bool read = dash && last.ec == std::errc() && last.ptr == end;
  check_flag("profile_steps",
             read && p.profile_first >= 1 && p.profile_first <= p.profile_last && p.profile_last <= o.steps,
             in_quotes(o.profile_steps),
             str_cat("A-B with 1 <= A <= B <= ", o.steps, ", the run's --steps; for example 1-",
                     std::min<int64_t>(3, o.steps)));
  const std::string path = io::resolve_path(o.profile_out);
  check_flag("profile_out", !path.empty() && !io::is_folder(path) && io::is_folder(io::folder_of(path)),
             in_quotes(o.profile_out), "a file in a folder that exists");
}

// The rows of this replica in a step. settle_mesh() has checked --batch_size.
int64_t rows_of_replica(const Setup& p, const TrainOptions& o) {
  if (o.diloco == 0 || o.outer_rows == 0) return dist::rows_of_part(o.batch_size, dist::replica_count(o.step.mesh));
  check_flag("outer_rows", o.outer_rows % o.microbatches == 0, str_cat(o.outer_rows),
             str_cat("a multiple of ", o.microbatches, ", the microbatches"));
  const dist::Mesh own = dist::replica_mesh(o.step.mesh);
  if (own.size() > 1) check_batch(p, o, own, "outer_rows", o.outer_rows);
  return o.outer_rows;
}

// Settles --replay, the replica of this run, and the rows of a replica.
void settle_replay(Setup& p, const TrainOptions& o) {
  p.rows = o.batch_size;
  const int64_t replicas = dist::replica_count(o.step.mesh);
  as_usage_error("", [&] { p.replica = control::replica_identity(); });
  if (p.replica || starts_replicas(o)) {
    const std::string mesh = o.mesh.empty() ? "no mesh" : o.step.mesh.to_string();
    const char* const why = ": REPLICAS is set, so this run is one of several replicas";
    check_flag("mesh", replicas > 1, mesh, str_cat("a dimension replica", why));
    check_flag("replay", o.replay.empty(), o.replay, str_cat("one process without REPLICAS", why));
    check_flag("checkpoint_dir", !p.replica || !o.checkpoint_dir.empty() || o.checkpoint_every == "0", "none",
               str_cat("one folder, which all replicas see", why));
    check_flag("check_state", o.check_state == 0, str_cat(o.check_state), "no replicas that may die: drop the flag");
    check_flag("check_compute", o.check_compute == 0, str_cat(o.check_compute),
               "no replicas that may die: drop the flag");
    check_flag("memory_every", o.memory_every == "0", o.memory_every,
               "no replicas that may die: a replica takes the state from the others; drop the flag");
    check_flag("profile_steps", o.profile_steps.empty(), o.profile_steps, "no replicas that may die: drop the flag");
    p.rows = rows_of_replica(p, o);
    return;
  }
  if (o.replay.empty()) return;
  as_usage_error("--replay: ", [&] { p.replay = std::make_shared<const dist::Replay>(io::resolve_path(o.replay)); });
  check_flag("replay", p.replay->replicas() == replicas, o.replay,
             str_cat("the --mesh of the elastic run, with replica", p.replay->replicas()));
  p.rows = rows_of_replica(p, o);
}

// The steps of --checkpoint_every and --memory_every; -1: auto.
int64_t interval(const char* flag, const std::string& text) {
  if (text == "auto") return -1;
  const std::optional<int64_t> steps = parse_number<int64_t>(text, 0);
  check_flag(flag, steps.has_value(), in_quotes(text), "a number of steps, 0 or auto");
  return *steps;
}

void settle_memory(Setup& p, const TrainOptions& o) {
  p.memory_every = interval("memory_every", o.memory_every);
  if (p.memory_every == 0) p.memory.clear();
  const bool on = p.memory_every != 0;
  check_flag("memory_dir", on || o.memory_dir.empty(), o.memory_dir, "--memory_every as well");
  check_flag("memory_every", !on || p.checkpoint_every != 0, o.memory_every,
             "--checkpoint_every above 0 or auto: states in memory are gone when the host is");
  const char* const refused = std::getenv(dist::kNoMemoryVariable);
  check_flag("memory_every", !on || !p.memory.empty() || o.restarts > 0, o.memory_every,
             refused && *refused
                 ? str_cat("--memory_dir with a folder in memory: the launcher cannot hold memory (", refused, ")")
                 : "--restarts above 0, whose launcher holds the memory, or --memory_dir with a folder in memory");
}

// The newest folder BASE, BASE-2, ... with checkpoints to resume from, or the first one that no run has used.
std::string pick_folder(const std::string& base, bool resume) {
  const auto used = [&](const std::string& dir) {
    return !latest_checkpoint(dir).empty() || (!resume && io::FileLock::is_held(lock_path(dir)));
  };
  std::string found = base;
  for (int n = 2; used(found); ++n) {
    std::string next = str_cat(base, "-", n);
    if (resume && !used(next)) break;
    found = next;
  }
  return found;
}

std::string join(const std::vector<std::string>& v) {
  std::string s;
  for (const std::string& x : v) s += (s.empty() ? "" : ", ") + x;
  return s;
}

// The state of a checkpoint of this family. `other`: other inputs that the user may give, for the error.
TrainState state_of(const std::string& folder, const nn::ModelFamily& family, const char* other) {
  TrainState state = read_state(folder);
  WEFT_CHECK(state.family == family.name, state_path(folder), ": \"family\" is '", state.family, "'; need '",
             family.name, "': use the program of that family", other);
  return state;
}

// The path of a flag as it is in any working folder.
std::string absolute(const std::string& path) {
  return std::filesystem::absolute(io::resolve_path(path)).lexically_normal().string();
}

// The name of weights: of their folder, of the model in the local cache of Hugging Face, or of a checkpoint's run.
std::string name_of(const std::string& folder, const nn::ModelFamily& family) {
  std::string name = io::base_name(folder);
  const std::string above = io::folder_of(folder), run = io::base_name(above);
  if (run == "snapshots") {
    name = io::base_name(io::folder_of(above));
    if (const size_t at = name.rfind("--"); at != name.npos) name.erase(0, at + 2);
  } else if (name.starts_with("step_")) {
    name = run;
  }
  return name.starts_with(family.name + "-") ? name.substr(family.name.size() + 1) : name;
}

// The name of the configuration: of the preset, or of the weights that the run starts from.
std::string name_of(const nn::ModelFamily& family, const Setup& p, const TrainOptions& o) {
  if (!o.config.empty()) return o.config;
  for (const std::string& source : {p.origin.source, o.hf, o.init_from})
    if (!source.empty()) return name_of(absolute(source), family);
  return family.default_preset;
}

// Copies flags from a resumed run if they are not given and have their default. Returns the run's state.
TrainState take_from_run(const std::string& folder, const nn::ModelFamily& family, TrainOptions& o) {
  const TrainState state = state_of(folder, family, ", or another --checkpoint_dir");
  TrainOptions defaults;
  const Flags flags = train_flags(o), plain = train_flags(defaults);
  for (size_t i = 0; i < flags.size(); ++i) {
    const auto stored = state.run.find(flags[i].name);
    if (stored == state.run.end() || *flags[i].given || !same_value(flags[i], plain[i])) continue;
    WEFT_CHECK_AS(kDataLoss, set_flag(flags[i], stored->second), state_path(folder), ": \"run\": '", flags[i].name,
                  "' is '", stored->second, "', which is not a value of --", flags[i].name);
  }
  return state;
}

// Throws UsageError if --set gives other shapes to the weights that the run starts from.
void check_shapes(const nn::ModelFamily& family, const nn::ConfigMap& stored, const nn::ConfigMap& now,
                  const TrainOptions& o) {
  const auto a = family.make(stored), b = family.make(now);
  const auto before = a->named_cells(), after = b->named_cells();
  std::map<std::string, Shape> shapes;
  for (const auto& [name, cell] : before) shapes.emplace(name, cell.shape());
  std::string set, other;
  for (const auto& [field, value] : o.set) set += str_cat(set.empty() ? "" : ",", field, "=", value);
  for (const auto& [name, cell] : after) {
    const auto it = shapes.find(name);
    if (it == shapes.end())
      other = str_cat("have no ", name);
    else if (!(it->second == cell.shape()))
      other = str_cat("have ", name, " of shape ", it->second, ", not ", cell.shape());
    if (!other.empty()) break;
    shapes.erase(it);
  }
  if (other.empty() && !shapes.empty()) other = str_cat("have ", shapes.begin()->first, " as well");
  const nn::KvCacheShape x = a->cache_shape(), y = b->cache_shape();
  if (other.empty() && (x.kv_heads != y.kv_heads || x.head_dim != y.head_dim))
    other = str_cat("are of ", x.kv_heads, " heads of ", x.head_dim);
  check_flag("set", other.empty(), set,
             str_cat("fields that keep the shapes of --", source_flag(o), ", whose weights ", other));
}

// Opens the weights of --hf or --init_from. If a checkpoint is resumed, only compares them with the origin of its run.
TrainState settle_origin(Setup& p, const nn::ModelFamily& family, const TrainOptions& o) {
  TrainState from;
  Origin given;
  if (!o.hf.empty()) {
    given.source = absolute(weights::find_hf(o.hf));
    given.config = config_hash(io::is_folder(given.source) ? given.source + "/config.json" : given.source);
  } else if (!o.init_from.empty()) {
    given.source = absolute(find_checkpoint(io::resolve_path(o.init_from)));
    given.config = config_hash(state_path(given.source));
  }
  if (!p.resumed.empty()) {
    p.origin = read_origin(p.resumed);
    if (!given.source.empty() && !(given == p.origin))
      p.other_origin = str_cat("--", source_flag(o), " is ", given.source, ", but the run in ", p.dir, " started from ",
                               p.origin.source.empty()           ? "weights of its own"
                               : p.origin.source != given.source ? p.origin.source
                                                                 : "another configuration there",
                               "; it continues from its checkpoint");
    return from;
  }
  p.origin = given;
  if (!o.hf.empty()) {
    p.hf = std::make_shared<weights::HfModel>(weights::open_hf(o.hf, o.context, family.name));
  } else if (!o.init_from.empty()) {
    p.init_from = given.source;
    from = state_of(p.init_from, family, "");
  }
  return from;
}

// Settles the configuration of the model. A resumed run keeps the fields of its model; `from`: of the checkpoint that
// the run starts from.
void settle_config(Setup& p, const nn::ModelFamily& family, const TrainState& run, const TrainState& from,
                   const TrainOptions& o) {
  if (o.config != "" && std::find(family.presets.begin(), family.presets.end(), o.config) == family.presets.end())
    usage_error(str_cat("--config: got '", o.config, "'; need one of ", join(family.presets)));
  p.config = family.preset(o.config.empty() ? family.default_preset : o.config);
  const auto name = run.run.find("config");
  const bool same = name != run.run.end() ? name->second == p.config_name
                                          : o.config.empty() && !p.resumed.empty() && !p.origin.source.empty();
  const auto stored = [&](const std::string& folder, const nn::ConfigMap& model) {
    try {
      return family.with_fields(p.config, model);
    } catch (const Error& e) {
      throw Error(Code::kDataLoss, str_cat(state_path(folder), ": \"model\": ", e.what()));
    }
  };
  if (same) p.config = stored(p.resumed, run.model);
  if (!p.init_from.empty()) p.config = stored(p.init_from, from.model);
  if (p.hf)
    p.config = weights::with_names(p.hf->config, p.hf->config_path(), [&] {
      const nn::ConfigMap config = family.with_fields(p.config, p.hf->config.config);
      family.make(config);
      return config;
    });
  const nn::ConfigMap before = p.config;
  p.config = set_fields(family, p.config, o.set);
  if ((p.hf || !p.init_from.empty()) && !o.set.empty()) check_shapes(family, before, p.config, o);
  if (!same) return;
  for (const auto& [field, value] : o.set)
    if (const auto it = run.model.find(field); it != run.model.end())
      check_flag("set", p.config.at(field) == it->second, str_cat(field, "=", value),
                 str_cat(it->second, ", as the resumed run in ", p.dir, " has it, or another --checkpoint_dir"));
}

// Settles the tokenizer: a checkpoint's own, else the given tokenizer, else the tokenizer beside the weights of --hf,
// else the tokenizer of the run of --init_from. The flag receives its path, which the run keeps.
void settle_tokenizer(Setup& p, const TrainState& run, const TrainState& from, TrainOptions& o) {
  const std::string checkpoint = !p.resumed.empty() ? p.resumed : p.init_from;
  const std::string own = checkpoint.empty() ? "" : tokenizer_path(checkpoint);
  if (!o.tokenizer.empty()) o.tokenizer = absolute(o.tokenizer);
  if (p.hf && o.tokenizer.empty() && p.on_text &&
      (io::is_gguf(p.hf->folder) || io::exists(p.hf->folder + "/tokenizer.json")))
    o.tokenizer = absolute(p.hf->folder);
  if (const auto read = from.run.find("tokenizer"); read != from.run.end() && o.tokenizer.empty() && own.empty())
    o.tokenizer = read->second;
  p.tokenizer = o.tokenizer;
  p.pre = o.pre;
  check_flag("tokenizer", p.resumed.empty() || !own.empty() || o.tokenizer.empty() || run.run.count("tokenizer"),
             o.tokenizer, str_cat("no --tokenizer: the run in ", p.dir, " reads bytes; or another --checkpoint_dir"));
  if (own.empty()) return;
  p.tokenizer = own;
  p.pre.clear();  // the copy in the checkpoint names it
  const auto name = [](const std::string& path, const std::string& pre) {
    return text::FileTokenizer::open(path, pre)->name();
  };
  check_flag("pre", o.pre.empty() || name(own, o.pre) == name(own, ""), o.pre,
             str_cat("the pattern of the checkpoint's tokenizer, ", own, ": drop the flag"));
  // The file that the run has read may be gone.
  const auto stored = run.run.find("tokenizer");
  if (!o.tokenizer.empty() && (stored == run.run.end() || stored->second != o.tokenizer))
    check_flag("tokenizer", name(o.tokenizer, o.pre) == name(own, ""), o.tokenizer,
               str_cat("the tokenizer of the checkpoint, ", own, ": drop the flag"));
}

}  // namespace

bool starts_replicas(const TrainOptions& o) {
  return o.restarts > 0 && o.ranks == "processes" && o.replay.empty() && dist::replica_count(o.step.mesh) > 1 &&
         !std::getenv("REPLICAS");
}

// The same text for "runs/a", "runs/a/" and "./runs/a": names beside the folder, and locks, follow from it.
std::string plain_path(const std::string& path) {
  std::filesystem::path plain;
  for (const std::filesystem::path& part : std::filesystem::path(path))
    if (!part.empty() && part != ".") plain /= part;
  return plain.empty() ? "." : plain.string();
}

Setup settle(const nn::ModelFamily& family, TrainOptions& o) {
  Setup p;
  for (const auto& [flag, value] : {std::pair("hf", &o.hf), std::pair("init_from", &o.init_from)})
    check_flag(flag, value->empty() || o.config.empty(), *value, "no --config: the weights have a configuration");
  check_flag("init_from", o.hf.empty() || o.init_from.empty(), o.init_from, "either --init_from or --hf");
  check_flag("context", o.context == 0 || !o.hf.empty(), str_cat(o.context), "--hf, or drop the flag");
  p.dir = o.checkpoint_dir.empty()
              ? pick_folder(io::resolve_path(str_cat("runs/", family.name, "-", name_of(family, p, o))), o.resume)
              : plain_path(io::resolve_path(o.checkpoint_dir));
  if (o.memory_every != "0") p.memory = memory_folder(o.memory_dir, p.dir);
  if (o.resume) p.resumed = newest_state(p.dir, p.memory);
  TrainState run;
  if (!p.resumed.empty()) run = take_from_run(p.resumed, family, o);
  p.on_text = o.data != "synthetic";
  const TrainState from = settle_origin(p, family, o);
  p.config_name = name_of(family, p, o);
  settle_config(p, family, run, from, o);
  settle_tokenizer(p, run, from, o);
  if (p.origin.source.empty()) o.config = p.config_name;  // for run.flags: a resumed run takes it from its checkpoint
  const bool own = p.config_name == family.default_preset;
  for (const Flag& flag : train_flags(o))  // a program may fill the options itself
    check_flag(flag.name.c_str(), in_range(flag), flag_text(flag), "a value in its range (--help)");
  if (o.steps == 0) o.steps = own ? 600 : 200;
  if (o.batch_size == 0) o.batch_size = own ? 24 : 12;
  if (o.lr == 0) o.lr = !p.origin.source.empty() ? 5e-5 : own ? 2e-3 : 1e-3;
  if (o.warmup < 0) o.warmup = std::max<int64_t>(1, o.steps / 20);
  if (o.eval_every < 0) o.eval_every = p.on_text ? std::max<int64_t>(1, o.steps / 4) : 0;
  if (o.sample_tokens < 0) o.sample_tokens = p.on_text ? 400 : 0;
  check_flag("numerics", o.step.numerics == "fast" || o.step.numerics == "eager", in_quotes(o.step.numerics),
             "fast or eager");
  check_flag("dtype", o.dtype == "f32" || o.dtype == "bf16" || o.dtype == "f16", in_quotes(o.dtype),
             "f32, bf16 or f16");
  check_flag("verify_numerics", !o.step.verify_numerics || o.step.enabled, "--compile=false",
             "--compile=true: it works on the captured step");
  p.dtype = parse_dtype(o.dtype);
  if (const auto at = p.config.find("context"); at != p.config.end()) check_length(o, std::stoll(at->second));
  for (const auto& [flag, rows] : {std::pair("batch_size", o.batch_size), {"outer_rows", o.outer_rows}})
    check_batch_fits(flag, rows, length_of(p, o), dist::host_memory());
  settle_mesh(p, o);
  restart_diloco(o);
  settle_replay(p, o);
  settle_diloco(p, o);
  settle_profile(p, o);
  p.device = parse_device(o.device);
  check_flag("tf32", p.device.type == DeviceType::kCuda || !o.step.tf32, "true",
             "--device cuda: only GPUs have TF32 products");
  p.checkpoint_every = interval("checkpoint_every", o.checkpoint_every);
  settle_memory(p, o);
  check_flag("mtbf", p.checkpoint_every < 0 || !o.given["mtbf"], str_cat(o.mtbf), "--checkpoint_every auto as well");
  check_flag("checkpoint_errors", o.checkpoint_errors == "warn" || o.checkpoint_errors == "stop",
             in_quotes(o.checkpoint_errors), "warn or stop");
  for (const auto& [flag, text] : {std::pair("checkpoint_errors", o.checkpoint_errors), {"checkpoint_async", "true"}})
    check_flag(flag, p.checkpoint_every != 0 || !o.given[flag], text, "--checkpoint_every above 0 or auto");
  check_flag("check_state_errors", o.check_state_errors == "stop" || o.check_state_errors == "continue",
             in_quotes(o.check_state_errors), "stop or continue");
  check_flag("check_state_errors", o.check_state > 0 || o.check_compute > 0 || o.check_state_errors == "stop",
             o.check_state_errors, "--check_state or --check_compute above 0 as well");
  check_flag("check_compute", o.check_compute == 0 || o.step.mesh.size() > 1, str_cat(o.check_compute),
             "--mesh: one device has no neighbour; --check_state makes steps of one device twice");
  const std::string restarts = str_cat(o.restarts);
  check_flag("restarts", o.restarts == 0 || p.checkpoint_every != 0, restarts,
             "--checkpoint_every above 0 or auto: a restart continues from a checkpoint");
  check_flag("restarts", o.restarts == 0 || p.profile_first == 0, restarts,
             "no --profile_steps: a restart may begin after them");
  if (p.checkpoint_every == 0 && !o.resume) return p;
  if (!o.resume && !latest_checkpoint(p.dir).empty())
    usage_error(str_cat("--checkpoint_dir: ", p.dir,
                        " holds the checkpoints of an earlier run; add --resume to continue, or name another folder"));
  if (!o.resume && !p.memory.empty() && newest_step(p.memory) >= 0)
    usage_error(
        str_cat("--memory_dir: ", p.memory, " has states of an earlier run; add --resume to continue, or remove it"));
  check_only_checkpoints(p.dir);
  return p;
}

}  // namespace weft::train
