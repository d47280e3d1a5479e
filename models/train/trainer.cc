#include "models/train/trainer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <optional>

#include "distributed/launch/compile.h"
#include "distributed/plan/forbid.h"
#include "distributed/plan/plan_text.h"
#include "framework/base/cpu.h"
#include "framework/base/thread_pool.h"
#include "framework/cli/cli.h"
#include "framework/cuda/gpu.h"
#include "framework/dispatch/host_read.h"
#include "framework/io/file.h"
#include "models/data/dataset.h"
#include "models/data/loader.h"
#include "models/data/tokenizer.h"
#include "models/train/checkpoint.h"
#include "models/train/device.h"
#include "models/train/generate.h"
#include "models/train/metrics.h"
#include "weft.h"

namespace weft::train {
namespace {

constexpr double kClip = 1.0;

struct StepOut {
  Tensor loss, grad_norm, ok, aux, expert_load, dropped;
};

// A GPU computes step t while the host prepares and queues step t + 1, then reads the results of t.
constexpr size_t kLookahead = 1;

// A step that was queued and whose results are on their way.
struct Flight {
  int64_t step = 0;
  double begin = 0, lr = 0;
  int64_t samples = 0;  // of the loader, behind its batch
  data::Batch batch;
  HostRead results;  // loss, norm, ok; of mixtures of experts aux, dropped, load
};

std::string join(const std::vector<std::string>& v) {
  std::string s;
  for (const std::string& x : v) s += (s.empty() ? "" : ", ") + x;
  return s;
}

// Matrix products per second in `dtype`: what MFU is a share of.
double measured_gemm_rate(DType dtype, Device device) {
  NoGrad guard;
  // A GPU shows its rate at a size that the host's calls do not matter for, if it has the memory.
  const bool large = device.type == DeviceType::kCuda && cuda::gpu_properties(device.index).memory > (int64_t{4} << 30);
  const int64_t n = large ? 8192 : 1024;
  Tensor a = randn({n, n}).to(dtype).to(device), b = randn({n, n}).to(dtype).to(device);
  double best = 0;
  for (int i = 0; i < 4; ++i) {
    const double t = now_seconds();
    const Tensor c = matmul(a, b);
    if (device.type != DeviceType::kCpu) c.slice(0, 0, 1).slice(1, 0, 1).to_vector<float>();  // waits
    best = std::max(best, 2.0 * n * n * n / (now_seconds() - t));
  }
  return best;
}

void check(const char* flag, bool ok, const std::string& got, const char* need) {
  if (!ok) usage_error(str_cat("--", flag, ": got ", got, "; need ", need));
}

// Everything a flag may leave open, settled and checked.
struct Plan {
  nn::ConfigMap config;
  std::string config_name;
  DType dtype = kFloat32;
  Device device;
  int64_t checkpoint_every = 0;  // -1: auto
  std::string dir;
  bool on_text = true;
  dist::Mesh mesh;
  dist::Plan placements;
  uint64_t saved_hash = 0;  // of the plan of --plan; 0: none
};

// Names of the mesh and what must divide over them, before anything is made: plans a step that has the batch alone.
void check_batch(const Plan& p, const TrainOptions& o) {
  const int64_t context = std::stoll(p.config.at("context")),
                length = o.seq_len > 0 ? o.seq_len : std::min<int64_t>(context, 256);
  // Set member by member: for a braced list g++ 12 warns of members "used uninitialized".
  dist::CompileOptions how;
  how.mesh = p.mesh;
  how.plan = p.placements;
  how.plan.rules.clear();
  try {
    dist::plan([](const Tensor& ids) { return sum(ids); }, how,
               zeros({o.batch_size / o.grad_accum, length}, {.dtype = kInt32}));
  } catch (const Error& e) {
    usage_error(str_cat("--", e.what()));
  }
}

// --plan and --mesh, and what only means something with them.
void settle_mesh(Plan& p, const TrainOptions& o) {
  check("ranks", o.ranks == "threads", str_cat("'", o.ranks, "'"), "threads");
  check("timeout", o.timeout > 0 && o.timeout <= 1e9, str_cat(o.timeout), "seconds: more than 0 and at most 1e9");
  const auto option = [&](const char* name, const std::string& text) {
    const dist::OptionRow& row = *dist::find_option(name);
    check(name, text == dist::text_of(row, {}) || dist::is_allowed(row, text),
          row.allowed.empty() ? text : str_cat("'", text, "'"), dist::need_of(row).c_str());
  };
  option("zero", std::to_string(o.zero));
  option("cp", o.cp);
  option("cp_layout", o.cp_layout);
  try {
    p.mesh = dist::Mesh::parse(o.mesh);
  } catch (const Error& e) {
    usage_error(str_cat("--mesh: ", e.what()));
  }
  p.placements.zero = static_cast<int>(o.zero);
  p.placements.cp = o.cp;
  p.placements.cp_layout = o.cp_layout;
  p.placements.sequence = o.sequence;
  if (!o.plan.empty()) {
    const dist::SavedPlan saved = dist::load_plan(io::resolve_path(o.plan));
    if (!o.mesh.empty() && !(p.mesh == saved.mesh))
      usage_error(str_cat("--mesh: got ", o.mesh, "; --plan ", o.plan, " is of mesh ", saved.mesh.to_string(),
                          ", which needs no --mesh"));
    check("zero", o.zero < 0 || o.zero == saved.plan.zero, std::to_string(o.zero),
          str_cat("none: --plan ", o.plan, " has stage ", saved.plan.zero).c_str());
    check("cp_layout", o.cp_layout == "auto" || o.cp_layout == saved.plan.cp_layout, o.cp_layout,
          str_cat("none: --plan ", o.plan, " has ", saved.plan.cp_layout).c_str());
    check("sequence", o.sequence || !saved.plan.sequence, "false",
          str_cat("none: --plan ", o.plan, " has sequence on").c_str());
    check("cp", o.cp == "allgather" || o.cp == saved.plan.cp, o.cp,
          str_cat("none: --plan ", o.plan, " has ", saved.plan.cp).c_str());
    p.mesh = saved.mesh;
    p.placements = saved.plan;
    p.saved_hash = saved.hash;
  }
  const bool many = p.mesh.size() > 1;
  check("mesh", !many || !o.device.starts_with("cuda"), p.mesh.to_string(),
        "none with --device cuda: the ranks of a mesh run on the CPU");
  check("mesh", !many || o.compile, p.mesh.to_string(), "--compile as well: only captured steps are laid over a mesh");
  if (many) check_batch(p, o);
  check("verify", !many || !o.verify, "true with --mesh", "one device; --verify_numerics gives its bits on a mesh");
  check("show_plan", many || !o.show_plan, "true", "--mesh");
  check("save_plan", many || o.save_plan.empty(), o.save_plan, "--mesh");
  check("forbid", many || o.forbid.empty(), o.forbid.empty() ? "" : o.forbid[0], "--mesh");
  try {
    dist::parse_forbid(p.mesh, o.forbid);
  } catch (const Error& e) {
    usage_error(str_cat("--", e.what()));
  }
}

std::string pick_folder(const std::string& base, bool resume) {
  std::string found = base;
  for (int n = 2; !latest_checkpoint(found).empty(); ++n) {
    std::string next = str_cat(base, "-", n);
    if (resume && latest_checkpoint(next).empty()) break;
    found = next;
  }
  return found;
}

Plan settle(const nn::ModelFamily& family, TrainOptions& o) {
  Plan p;
  p.on_text = o.data != "synthetic";
  p.config_name = o.config.empty() ? family.default_preset : o.config;
  if (o.config != "" && std::find(family.presets.begin(), family.presets.end(), o.config) == family.presets.end())
    usage_error(str_cat("--config: got '", o.config, "'; need one of ", join(family.presets)));
  p.config = family.preset(p.config_name);
  const bool own = p.config_name == family.default_preset;
  if (o.steps == 0) o.steps = own ? 600 : 200;
  if (o.batch_size == 0) o.batch_size = own ? 24 : 12;
  if (o.lr == 0) o.lr = own ? 2e-3 : 1e-3;
  check("steps", o.steps > 0, std::to_string(o.steps), "more than 0");
  check("batch_size", o.batch_size > 0, std::to_string(o.batch_size), "more than 0");
  check("seq_len", o.seq_len >= 0, std::to_string(o.seq_len), "more than 0");
  check("lr", o.lr > 0 && std::isfinite(o.lr), str_cat(o.lr), "a number above 0");
  if (o.warmup < 0) o.warmup = std::max<int64_t>(1, o.steps / 20);
  if (o.eval_every < 0) o.eval_every = p.on_text ? std::max<int64_t>(1, o.steps / 4) : 0;
  if (o.sample_tokens < 0) o.sample_tokens = p.on_text ? 400 : 0;
  check("grad_accum", o.grad_accum > 0, std::to_string(o.grad_accum), "more than 0");
  check("grad_accum", o.batch_size % o.grad_accum == 0, std::to_string(o.grad_accum), "a divisor of --batch_size");
  check("keep", o.keep >= 0, std::to_string(o.keep), "0 or more");
  check("threads", o.threads >= 0, std::to_string(o.threads), "0 or more");
  check("memory_budget", o.memory_budget >= 0, std::to_string(o.memory_budget), "0 or more bytes");
  check("numerics", o.numerics == "fast" || o.numerics == "eager", str_cat("'", o.numerics, "'"), "fast or eager");
  check("dtype", o.dtype == "f32" || o.dtype == "bf16" || o.dtype == "f16", str_cat("'", o.dtype, "'"),
        "f32, bf16 or f16");
  check("verify_numerics", !o.verify_numerics || o.compile, "--compile=false",
        "--compile=true: it works on the captured step");
  p.dtype = parse_dtype(o.dtype);
  settle_mesh(p, o);
  p.device = parse_device(o.device);
  check("tf32", p.device.type == DeviceType::kCuda || !o.tf32, "true", "--device cuda: it is how a GPU multiplies f32");
  if (o.checkpoint_every == "auto") {
    p.checkpoint_every = -1;
  } else {
    const char* end = o.checkpoint_every.data() + o.checkpoint_every.size();
    auto r = std::from_chars(o.checkpoint_every.data(), end, p.checkpoint_every);
    check("checkpoint_every", r.ec == std::errc() && r.ptr == end && p.checkpoint_every >= 0,
          str_cat("'", o.checkpoint_every, "'"), "a number of steps, 0 or auto");
  }
  if (o.checkpoint_dir.empty()) {
    p.dir = pick_folder(io::resolve_path(str_cat("runs/", family.name, "-", p.config_name)), o.resume);
  } else {
    p.dir = io::resolve_path(o.checkpoint_dir);
    if (!o.resume && p.checkpoint_every != 0 && !latest_checkpoint(p.dir).empty())
      usage_error(str_cat("--checkpoint_dir: ", p.dir,
                          " holds the checkpoints of an earlier run; add --resume to go on, or name another folder"));
  }
  return p;
}

class Trainer {
 public:
  Trainer(const nn::ModelFamily& family, const TrainOptions& options)
      : options_(options), plan_(settle(family, options_)), family_(family) {
    if (options_.threads > 0) set_num_threads(static_cast<int>(options_.threads));
    manual_seed(options_.seed);
    model_ = family.make(plan_.config);
    model_->to(plan_.device);
    if (plan_.dtype != kFloat32) model_->set_compute_dtype(plan_.dtype);
    if (options_.seq_len == 0) options_.seq_len = std::min<int64_t>(model_->context(), 256);
    check("seq_len", options_.seq_len <= model_->context(), std::to_string(options_.seq_len),
          str_cat("at most the model's context of ", model_->context()).c_str());
    tokenizer_ = data::make_tokenizer("bytes");
    if (plan_.on_text && model_->vocab() < tokenizer_->vocab_size())
      usage_error(str_cat("--config: '", plan_.config_name, "' knows ", model_->vocab(), " tokens and text needs ",
                          tokenizer_->vocab_size(), "; use --data synthetic or another configuration"));
    const std::string path = options_.data.empty() || !plan_.on_text ? options_.data : io::resolve_path(options_.data);
    split_ = data::open_data(path, *tokenizer_, model_->vocab(), options_.seed).split(options_.seq_len);
    loader_.emplace(split_.train, data::LoaderOptions{options_.batch_size, options_.seq_len, options_.seed});
    optimizer_.emplace(optim::decay_groups(model_->parameters(), 0.1),
                       optim::AdamWOptions{.lr = options_.lr, .betas = {0.9, 0.95}, .eps = 1e-8});
    if (plan_.dtype == kFloat16) {
      scaler_.emplace(optim::GradScalerOptions{.device = plan_.device});
    } else if (lookahead() > 0) {
      healthy_ = Buffer(ones({}, {.dtype = kBool}).to(plan_.device), "healthy");
    }
    parameters_ = optimizer_->parameters(true);
  }

  int run() {
    restore();
    watch_interrupts();
    announce();
    MetricsFile no_metrics;
    std::optional<MetricsFile> file;
    if (!options_.metrics.empty())
      file.emplace(io::resolve_path(options_.metrics), options_.resume ? state_.metrics_bytes : -1);
    MetricsFile& metrics = file ? *file : no_metrics;
    const double rate = measured_gemm_rate(plan_.dtype, plan_.device);
    const optim::CosineWarmup schedule(options_.lr, options_.warmup, options_.steps, 0.1);
    auto step =
        compile([this](Tensor tokens, Tensor targets) { return train_step(tokens, targets); }, compile_options());
    const bool moe = family_.name == "moe";

    Progress progress(state_.step, options_.steps);
    std::deque<Flight> flights;
    double finished = 0;  // when the last one was
    // Takes the results of the oldest steps until `left` are under way.
    auto finish = [&](size_t left) {
      while (flights.size() > left) {
        Flight f = std::move(flights.front());
        flights.pop_front();
        const std::vector<Tensor>& got = f.results.wait();
        StepMetrics m{.step = f.step, .loss = got[0].item<double>(), .grad_norm = got[1].item<double>(), .lr = f.lr};
        if (!got[2].item<bool>() && !scaler_) {
          progress.finish();
          // Steps queued since changed nothing either (healthy_): the cells are those that this one met.
          optimizer_->set_lr(f.lr);
          internal::fail(Code::kInternal,
                         str_cat("step ", m.step, ": the ", std::isfinite(m.loss) ? "gradient norm" : "loss", " is ",
                                 std::isfinite(m.loss) ? m.grad_norm : m.loss, " and nothing was changed; ",
                                 step.first_nonfinite(to_tensor(f.batch.tokens, f.batch.rows),
                                                      to_tensor(f.batch.targets, f.batch.rows))));
        }
        state_.step = f.step;
        state_.samples = f.samples;
        const double now = now_seconds();
        m.step_ms = (now - std::max(f.begin, finished)) * 1e3;
        finished = now;
        m.tokens_per_s = options_.batch_size * options_.seq_len / (m.step_ms * 1e-3);
        m.mfu = model_->flops_per_token(options_.seq_len) * m.tokens_per_s / rate;
        m.moe = moe;
        if (moe) {
          m.aux_loss = got[3].item<double>();
          m.dropped = got[4].item<double>();
          m.expert_load = got[5].to_vector<double>();
        }
        metrics.write(m);
        progress.update(m);
      }
    };
    model_->train();
    int64_t queued = state_.step;
    while (queued < options_.steps && !interrupted()) {
      Flight f{.step = queued + 1, .begin = now_seconds(), .lr = schedule.at(queued)};
      f.batch = loader_->next();
      f.samples = loader_->position();
      optimizer_->set_lr(f.lr);
      {
        // Let go before the next step takes such tensors: they lie where these do.
        const Tensor tokens = to_tensor(f.batch.tokens, f.batch.rows),
                     targets = to_tensor(f.batch.targets, f.batch.rows);
        if (plan_.mesh.size() > 1 && !planned_) {
          step.prepare(tokens, targets);
          tell_plan(internal::plan_report(*step.core(), "cpu"));
          planned_ = true;
        }
        const StepOut out = step(tokens, targets);
        std::vector<Tensor> wanted{out.loss, out.grad_norm, out.ok};
        if (moe) wanted.insert(wanted.end(), {out.aux, out.dropped, out.expert_load});
        f.results = HostRead(wanted);
      }
      flights.push_back(std::move(f));
      ++queued;
      const bool evaluates = options_.eval_every > 0 && (queued % options_.eval_every == 0 || queued == options_.steps);
      const bool saves = checkpoint_due(queued);
      finish(evaluates || saves || queued == options_.steps ? 0 : lookahead());
      if (evaluates) {
        const double loss = evaluate();
        metrics.write_eval(state_.step, loss);
        progress.note(str_cat("step ", state_.step, ": held-out loss ", std::round(loss * 1e4) / 1e4));
      }
      if (saves) save(metrics, progress, false);
    }
    finish(0);
    progress.finish();
    if (plan_.checkpoint_every != 0 && last_saved_ != state_.step) save(metrics, progress, true);
    if (interrupted()) {
      std::printf("interrupted after step %ld%s\n", state_.step,
                  plan_.checkpoint_every != 0 ? "; go on with --resume" : "; no checkpoint was asked for");
      return 0;
    }
    if (options_.sample_tokens > 0) sample();
    return 0;
  }

 private:
  size_t lookahead() const { return plan_.device.type == DeviceType::kCuda ? kLookahead : 0; }

  // How the step is laid over the mesh, before it first runs.
  void tell_plan(const dist::PlanReport& report) {
    if (plan_.saved_hash != 0 && plan_.saved_hash != report.hash())
      std::printf("note: %s was saved of another step or setting; its placements hold, its collectives may differ\n",
                  options_.plan.c_str());
    if (!options_.save_plan.empty()) dist::save_plan(report, io::resolve_path(options_.save_plan));
    if (options_.show_plan) std::printf("%s\n", report.to_string().c_str());
    std::fflush(stdout);
  }

  CompileOptions compile_options(bool evaluating = false) const {
    if (plan_.mesh.size() > 1) {
      dist::CompileOptions o;  // see check_batch
      o.mesh = plan_.mesh;
      o.plan = plan_.placements;
      o.memory_budget = options_.memory_budget;
      o.numerics = options_.numerics;
      o.verify_numerics = options_.verify_numerics;
      o.kernel_cache = options_.kernel_cache;
      o.timeout = options_.timeout;
      if (!evaluating) o.forbid = options_.forbid;
      return o.for_one_rank();
    }
    return {.enabled = options_.compile,
            .memory_budget = options_.memory_budget,
            .numerics = options_.numerics,
            .verify_numerics = options_.verify_numerics,
            .verify = options_.verify,
            .tf32 = options_.tf32,
            .kernel_cache = options_.kernel_cache};
  }

  Tensor to_tensor(const std::vector<int32_t>& ids, int64_t rows) const {
    return Tensor::from_vector<int32_t>(ids, {rows, options_.seq_len}).to(plan_.device);
  }

  // Forward, backward and optimiser: what compile() captures. The batch goes through in grad_accum parts.
  StepOut train_step(const Tensor& tokens, const Tensor& targets) {
    const int64_t parts = options_.grad_accum, rows = options_.batch_size / parts;
    nn::LossOut sum;
    std::vector<Tensor> grads;
    auto add_to = [](Tensor& a, const Tensor& b) { a = a.defined() ? a + b : b; };
    for (int64_t i = 0; i < parts; ++i) {
      NameScope scope(parts > 1 ? str_cat("part", i).c_str() : "model");
      Tensor x = parts > 1 ? tokens.slice(0, i * rows, (i + 1) * rows) : tokens;
      Tensor y = parts > 1 ? targets.slice(0, i * rows, (i + 1) * rows) : targets;
      nn::LossOut out = model_->loss(x, y);
      std::vector<Tensor> g = grad(scaler_ ? scaler_->scale(out.loss) : out.loss, parameters_);
      if (grads.empty()) {
        grads = g;
      } else {
        for (size_t k = 0; k < g.size(); ++k) grads[k] = grads[k] + g[k];
      }
      add_to(sum.ce, out.ce);
      add_to(sum.aux, out.aux);
      add_to(sum.expert_load, out.expert_load);
      add_to(sum.dropped, out.dropped);
      add_to(sum.expert_counts, out.expert_counts);
    }
    NoGrad guard;
    NameScope scope("update");
    const double share = 1.0 / static_cast<double>(parts);
    if (scaler_) {
      grads = scaler_->unscale(grads, share);
    } else if (parts > 1) {
      for (Tensor& g : grads) g = g * share;
    }
    auto mean = [&](const Tensor& t) { return parts > 1 ? t * share : t; };
    auto [clipped, norm] = optim::clip_grad_norm(grads, kClip);
    StepOut out{mean(sum.ce), norm, {}, mean(sum.aux), mean(sum.expert_load), mean(sum.dropped)};
    out.ok = logical_and(isfinite(out.loss), isfinite(norm));
    if (scaler_) scaler_->update(out.ok);
    Tensor commits = out.ok;
    if (healthy_.defined()) {
      commits = logical_and(healthy_.value(), out.ok);
      CommitAlways always;
      healthy_.set(commits);
    }
    commit_if(commits);
    optimizer_->step(clipped);
    model_->update_balance(sum.expert_counts);
    return out;
  }

  double evaluate() {
    if (!eval_) {
      eval_loader_.emplace(split_.validation,
                           data::LoaderOptions{options_.batch_size, options_.seq_len, options_.seed, "validation"});
      eval_.emplace(
          [this](const Tensor& tokens, const Tensor& targets) {
            NoGrad guard;
            return model_->loss(tokens, targets).ce;
          },
          compile_options(true));
    }
    model_->eval();
    const int64_t batches = std::min<int64_t>(eval_loader_->batches(), 8);
    std::vector<HostRead> losses;
    for (int64_t i = 0; i < batches; ++i) {
      const data::Batch b = eval_loader_->batch(i);
      losses.emplace_back(std::vector{(*eval_)(to_tensor(b.tokens, b.rows), to_tensor(b.targets, b.rows))});
    }
    double total = 0;
    for (HostRead& loss : losses) total += loss.wait()[0].item<double>();
    model_->train();
    return total / static_cast<double>(batches);
  }

  bool checkpoint_due(int64_t step) {
    if (plan_.checkpoint_every > 0) return step % plan_.checkpoint_every == 0;
    if (plan_.checkpoint_every == 0) return false;
    // auto: as often as keeps writing near 1 % of the time, and at most every 30 s.
    const double now = now_seconds();
    if (last_save_time_ == 0) last_save_time_ = now;
    return now - last_save_time_ > std::max(30.0, 100 * save_seconds_);
  }

  NamedCells model_cells() const { return model_->named_cells(); }
  NamedCells optimizer_cells() const {
    NamedCells cells = optimizer_->named_cells();
    cells.emplace_back("rng.seed", default_generator(plan_.device).seed);
    cells.emplace_back("rng.step", default_generator(plan_.device).step);
    return cells;
  }

  void save(MetricsFile& metrics, Progress& progress, bool tell) {
    const double begin = now_seconds();
    state_.metrics_bytes = metrics.size();
    state_.seed = options_.seed;
    state_.family = family_.name;
    state_.model = plan_.config;
    state_.run = run_flags();
    if (scaler_) {
      state_.loss_scale = scaler_->get_scale();
      state_.good_steps = scaler_->good_steps.value().item<int64_t>();
    }
    const std::string folder = save_checkpoint(plan_.dir, state_, model_cells(), optimizer_cells(), options_.keep);
    last_saved_ = state_.step;
    last_save_time_ = now_seconds();
    save_seconds_ = last_save_time_ - begin;
    if (tell) progress.note(str_cat("checkpoint: ", folder));
  }

  std::map<std::string, std::string> run_flags() const {
    return {{"config", plan_.config_name},
            {"data", options_.data},
            {"steps", str_cat(options_.steps)},
            {"batch_size", str_cat(options_.batch_size)},
            {"seq_len", str_cat(options_.seq_len)},
            {"lr", str_cat(options_.lr)},
            {"warmup", str_cat(options_.warmup)},
            {"grad_accum", str_cat(options_.grad_accum)},
            {"dtype", options_.dtype},
            {"seed", str_cat(options_.seed)}};
  }

  void restore() {
    if (!options_.resume) return;
    const std::string folder = latest_checkpoint(plan_.dir);
    if (folder.empty()) {
      std::printf("no checkpoint in %s yet: starting from the beginning\n", plan_.dir.c_str());
      return;
    }
    TrainState s = read_state(folder);
    WEFT_CHECK(s.family == family_.name && s.model == plan_.config, folder, ": holds another model (", s.family,
               "); give the --config it was made with (", s.run.count("config") ? s.run["config"] : "unknown", ")");
    for (auto& [flag, value] : run_flags())
      if (s.run.count(flag) && s.run[flag] != value)
        std::printf("note: --%s was '%s' and is now '%s'; the run goes on with the new one\n", flag.c_str(),
                    s.run[flag].c_str(), value.c_str());
    load_cells(folder, "model", model_cells());
    load_cells(folder, "optimizer", optimizer_cells());
    state_ = s;
    loader_->seek(s.samples);
    // A run in another type knew no scale.
    if (scaler_ && s.run["dtype"] == "f16") {
      scaler_->scale_factor.set(full({}, s.loss_scale).to(plan_.device));
      scaler_->good_steps.set(full({}, s.good_steps, {.dtype = kInt64}).to(plan_.device));
    }
    last_saved_ = s.step;
    std::printf("resumed from %s\n", folder.c_str());
  }

  void announce() {
    const int64_t n = model_->num_parameters();
    std::printf("%s %s: %.2f M parameters, %s, %s\n", family_.name.c_str(), plan_.config_name.c_str(), n * 1e-6,
                options_.dtype.c_str(),
                plan_.on_text ? str_cat(split_.train.size(), " tokens of text").c_str() : "random tokens");
    const int ranks = plan_.mesh.size();
    std::printf("%ld steps of %ld x %ld tokens on %d threads (%s)%s\n", options_.steps, options_.batch_size,
                options_.seq_len, num_threads(), str_cat(selected_isa()).c_str(),
                ranks > 1 ? str_cat(", ", ranks, " ranks as ", plan_.mesh.to_string()).c_str() : "");
    std::fflush(stdout);
  }

  void sample() {
    std::printf("\nA sample of its writing:\n\n");
    const std::string prompt = "\n";
    std::vector<int32_t> ids = tokenizer_->encode(prompt);
    model_->eval();
    generate(*model_, ids,
             {.max_new_tokens = options_.sample_tokens, .temperature = 0.8, .top_k = 40, .seed = options_.seed},
             [&](int32_t id) {
               std::fputs(tokenizer_->decode({&id, 1}).c_str(), stdout);
               std::fflush(stdout);
               return !interrupted();
             });
    std::printf("\n");
  }

  TrainOptions options_;
  const Plan plan_;
  const nn::ModelFamily& family_;
  std::unique_ptr<nn::LanguageModel> model_;
  std::shared_ptr<const data::Tokenizer> tokenizer_;
  data::TokenDataset::Split split_;
  std::optional<data::ShuffledLoader> loader_;
  std::optional<data::SequentialLoader> eval_loader_;
  std::optional<optim::AdamW> optimizer_;
  std::optional<Compiled<std::function<Tensor(Tensor, Tensor)>>> eval_;
  std::vector<Parameter> parameters_;
  std::optional<optim::GradScaler> scaler_;  // f16
  Buffer healthy_;  // else, where steps are queued ahead: no step has failed yet; after one that did none commits
  TrainState state_;
  int64_t last_saved_ = -1;
  bool planned_ = false;
  double last_save_time_ = 0, save_seconds_ = 0;
};

}  // namespace

int train(const nn::ModelFamily& family, const TrainOptions& options) { return Trainer(family, options).run(); }

}  // namespace weft::train
