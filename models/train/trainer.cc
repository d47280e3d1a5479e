#include "models/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "compiler/exec/record/profile.h"
#include "distributed/diloco/diloco_replica.h"
#include "distributed/launch/compile.h"
#include "distributed/launch/step.h"
#include "distributed/placement/replica.h"
#include "distributed/replica/replica_run.h"
#include "framework/base/switches.h"
#include "framework/base/tracer.h"
#include "framework/dispatch/device/host_read.h"
#include "framework/dispatch/rank/first_process.h"
#include "framework/dispatch/rank/flight.h"
#include "framework/dispatch/state/generator.h"
#include "framework/io/file.h"
#include "models/data/dataset.h"
#include "models/data/loader.h"
#include "models/data/tokenizer.h"
#include "models/nn/nn.h"
#include "models/optim/optim.h"
#include "models/text/formats/files.h"
#include "models/text/tokenizer.h"
#include "models/train/checkpoint.h"
#include "models/train/checkpoint_saver.h"
#include "models/train/compute_check.h"
#include "models/train/diloco.h"
#include "models/train/elastic.h"
#include "models/train/evaluation.h"
#include "models/train/first_weights.h"
#include "models/train/generate.h"
#include "models/train/job.h"
#include "models/train/long_stage.h"
#include "models/train/memory.h"
#include "models/train/metrics.h"
#include "models/train/rank_meter.h"
#include "models/train/run_text.h"
#include "models/train/sizes.h"
#include "models/train/state_check.h"
#include "models/train/step_files.h"
#include "models/train/train_step.h"
#include "ops/core/core.h"

namespace weft::train {
namespace {

// On a GPU the host queues step t + 1 while step t runs, then reads the results of step t.
constexpr size_t kLookahead = 1;

// Seconds in which the replica that wrote before releases the folder: a process that was killed is ending.
constexpr double kForLock = 2;

// A queued step whose results have not been read yet.
struct Flight {
  int64_t step = 0;
  double begin = 0, lr = 0;
  dist::DataPart part;
  int64_t samples = 0;   // position of the loader after its batch
  bool show = false;     // its progress line is due
  bool collect = false;  // the ranks report their waiting times
  data::Batch batch;
  HostRead results;  // loss, norm, ok; mixtures of experts: also aux, dropped, counts
};

class Trainer {
 public:
  Trainer(const nn::ModelFamily& family, const TrainOptions& options, dist::Job& job)
      : options_(options), setup_(settled(family, options_)), family_(family), job_(job) {
    manual_seed(options_.seed);
    std::optional<LongStage> building(std::in_place, "building the model");
    model_ = family.make(setup_.config);
    check_model_fits(options_, setup_, *model_, memory_of_state(setup_.device));
    model_->to(setup_.device);
    if (setup_.dtype != kFloat32) model_->set_compute_dtype(setup_.dtype);
    if (options_.seq_len == 0) options_.seq_len = std::min<int64_t>(model_->context(), 256);
    tokenizer_ = text::open_or_bytes(setup_.tokenizer, setup_.pre);
    tokenizer_files_ = text::tokenizer_files(setup_.tokenizer, setup_.pre);
    check_vocabulary(options_, setup_, *model_, tokenizer_->vocab_size());
    const std::string path = options_.data.empty() || !setup_.on_text ? options_.data : io::resolve_path(options_.data);
    split_ = data::open_data(path, *tokenizer_, model_->vocab(), options_.seed).split(options_.seq_len);
    loader_.emplace(split_.train, data::LoaderOptions{options_.batch_size, options_.seq_len, options_.seed});
    optimizer_.emplace(optim::decay_groups(model_->parameters(), 0.1),
                       optim::AdamWOptions{.lr = options_.lr, .betas = {0.9, 0.95}, .eps = 1e-8});
    if (setup_.dtype == kFloat16) {
      scaler_.emplace(optim::GradScalerOptions{.device = setup_.device});
    } else if (lookahead() > 0) {
      healthy_ = Buffer(ones({}, {.dtype = kBool}).to(setup_.device), "healthy");
    }
    parameters_ = optimizer_->parameters(true);
    if (setup_.outer)
      diloco_.emplace(
          setup_, options_, exchanged(), [this] { (void)prepared(1); },
          [this](int64_t step, int64_t row, int64_t rows) { make_step(step, row, rows); }, state_);
    building.reset();
  }

  /// Locks the folder of checkpoints, which all processes must see, before run(). Returns false if a run wrote to it
  /// after the options were settled; another Trainer must settle them again.
  bool lock() {
    // The replica at place 0 of a view locks the folder. Another one may have removed the checkpoint meanwhile.
    if (setup_.replica) return value_of_first(setup_.resumed.empty() || io::is_folder(setup_.resumed));
    if (setup_.checkpoint_every == 0) return true;
    if (!saver_.lock()) return false;
    check_shared(setup_.dir);
    return true;
  }

  int run() {
    restore();
    if (setup_.replay) check_replay(setup_, options_, state_, flags());
    check_flag("profile_steps", setup_.profile_first == 0 || setup_.profile_first > state_.step, options_.profile_steps,
               str_cat("steps from ", state_.step + 1, " on: the run resumes there"));
    if (setup_.replica)
      elastic_.emplace(replica_options(setup_, options_, state_, flags(), job_),
                       diloco_ ? dist::DilocoReplica::made_before(*setup_.outer) : nullptr);
    if (diloco_) diloco_->begin(elastic_ ? &*elastic_ : nullptr, setup_.replay);
    std::optional<LongStage> tracing(std::in_place, "tracing the model");
    StepFiles files(options_, setup_, model_->flops_per_token(options_.seq_len));
    tracing.reset();
    const auto begin_files = [&] {
      announce(options_, setup_, family_.name, model_->num_parameters(), split_.train.size(), state_.step);
      files.open(state_.step);
    };
    if (!elastic_) begin_files();
    const bool moe = family_.has_experts;
    Progress progress(state_.step, options_.steps);
    std::deque<Flight> flights;
    const StateCheckOptions checking{options_.check_state, state_.step + 1, options_.check_state_errors == "continue",
                                     [&] { saver_.wait(progress); }};
    std::optional<StateCheck> check;
    std::optional<ComputeCheck> compute_check;
    if (checking.every > 0 && options_.step.mesh.size() <= 1) check.emplace(all_cells(), checking);
    std::optional<RankMeter> meter;         // on a mesh whose ranks stay
    double finished = 0, last_seconds = 0;  // when the previous step was read, and how long it took
    int64_t queued = state_.step;
    const auto note = [&](const std::string& text) { progress.note(text); };
    bool planned = false;  // the plan was reported
    // Before the first step there is nothing to save: a signal ends this process at once.
    bool watching = false;
    const auto watch = [&] {
      if (!std::exchange(watching, true)) watch_interrupts();
    };
    // Whether the state is wrong and the run has gone back to an earlier one, from which it continues.
    const auto went_back = [&] {
      bool differed = false;  // one device makes steps again without a difference
      if (!check || check->passes(state_, [&](auto& s) { differed = true, note(s); })) return false;
      flights.clear();
      loader_->seek(state_.samples);
      queued = state_.step;
      files.go_back(state_.step, /*events=*/differed);
      return true;
    };
    // Reads the results of the oldest steps until only `left` steps are queued.
    auto finish = [&](size_t left) {
      while (flights.size() > left) {
        Flight f = std::move(flights.front());
        flights.pop_front();
        const std::vector<Tensor>& got = f.results.wait();
        StepMetrics m{.step = f.step, .loss = got[0].item<double>(), .grad_norm = got[1].item<double>(), .lr = f.lr};
        if (!got[2].item<bool>() && !scaler_) {
          if (went_back()) return;
          saver_.wait(progress);
          progress.finish();
          const std::string found = nonfinite_text(m);
          WEFT_CHECK_AS(kInternal, !elastic_ || diloco_, found, "--replay with the journal names the op");
          // Steps queued after the failed step also changed nothing (healthy_), so the cells still contain its inputs.
          optimizer_->set_lr(f.lr);
          internal::fail(Code::kInternal,
                         str_cat(found, step_of(f.part.live)
                                            .first_nonfinite(to_tensor(f.batch.tokens, f.batch.rows),
                                                             to_tensor(f.batch.targets, f.batch.rows))));
        }
        state_.step = f.step;
        state_.samples = f.samples;
        state_.state_view = f.part.view;
        const double now = now_seconds();
        m.step_ms = (now - std::max(f.begin, finished)) * 1e3;
        finished = now;
        const auto tokens = static_cast<double>(f.batch.rows * options_.seq_len);
        m.tokens_per_s = tokens / (m.step_ms * 1e-3);
        m.moe = moe;
        if (moe) {
          m.aux_loss = got[3].item<double>();
          m.load = ExpertLoad(got[5].to_vector<int64_t>(), got[4].to_vector<double>());
        }
        last_seconds = m.step_ms * 1e-3;
        if (meter) {
          meter->count(last_seconds, tokens);
          if (f.collect) m.ranks = meter->last();
        }
        files.write(m);
        if (f.show) progress.update(m);
      }
    };
    const auto save_last = [&] {
      saver_.wait(progress);
      if (diloco_ && !diloco_->between()) return;  // steps since the last exchange are no state of the run
      if (setup_.checkpoint_every == 0 || (elastic_ && !elastic_->writes()) || saver_.saved() == state_.step) return;
      WEFT_CHECK_AS(kFailedPrecondition, !elastic_ || take_folder(saver_, setup_, options_.step.timeout), "step ",
                    state_.step, " is not saved: another process holds ", setup_.dir);
      if (saver_.saved() == state_.step) return;  // another replica has saved it
      saver_.save(checkpoint(), /*last=*/true, progress);
      progress.note(str_cat("checkpoint: ", setup_.dir, "/step_", state_.step));
    };
    // Waits for the next view of live replicas. Its first replica writes the files from now on. False: the run ended.
    const auto enters_view = [&] {
      const bool goes_on = diloco_ ? diloco_->enter() : elastic_->enter(exchanged());
      watch();
      stops_ = elastic_->stops();
      code_ = elastic_->code();
      if (!goes_on) return false;
      loader_->seek(state_.samples);
      queued = state_.step;
      if (!elastic_->writes()) {
        saver_.wait(progress);
        saver_.unlock();
        files.close();
        return true;
      }
      take_folder(saver_, setup_, kForLock);
      if (!files.is_open()) begin_files();
      progress.note(elastic_->text());
      return true;
    };
    const auto ends_here = [&] { return (stops_ || queued == options_.steps) && (!diloco_ || diloco_->between()); };
    bool evaluates = false, saves = false;  // after the latest step, or after the exchange that follows it
    const auto evaluate_and_save = [&] {
      if (std::exchange(evaluates, false)) {
        const double loss = evaluate();
        files.write_eval(state_.step, loss);
        if (writes()) progress.note(str_cat("step ", state_.step, ": held-out loss ", std::round(loss * 1e4) / 1e4));
      }
      if (std::exchange(saves, false) && (!elastic_ || (elastic_->writes() && take_folder(saver_, setup_, 0))))
        saver_.save(checkpoint(), /*last=*/false, progress);
    };
    if (!setup_.memory.empty()) memory_.begin(checkpoint());
    model_->train();
    while (elastic_ || queued < options_.steps || (diloco_ && !diloco_->between())) {
      const bool trains = diloco_ && diloco_->ready();  // needs no view
      if (elastic_ && !trains && !elastic_->has_view() && !enters_view()) {
        if (ends_here() && elastic_->member().live().view.number > 0) save_last();  // others finished before it
        break;
      }
      if (elastic_ && ends_here()) {
        save_last();
        elastic_->finish();
        continue;
      }
      if (diloco_ && !diloco_->ready()) {
        if (diloco_->exchange()) {
          if (elastic_) stops_ = elastic_->stops(), code_ = elastic_->code();
          saves |= elastic_ && (stops_ || queued == options_.steps) && setup_.checkpoint_every != 0;
          evaluate_and_save();
        }
        continue;
      }
      const NextStep next =
          next_step(progress.due(queued + 1, last_seconds), saver_.due(queued + 1), memory_.due(queued + 1));
      if (!next.saving) saver_.advance();
      if (!next.keeping) memory_.advance();
      if (stops_ && went_back()) continue;
      if (stops_) break;
      if (queued + 1 == setup_.profile_first) {
        finish(0);
        profile_.emplace(setup_.profile_last - queued);
      }
      std::optional<internal::TraceScope> trace(std::in_place, TraceEvent::kStep, "training step");
      job_.progress(queued + 1);
      Flight f{.step = queued + 1,
               .begin = now_seconds(),
               .lr = lr_at(queued),
               .part = part_at(queued),
               .show = next.show,
               .collect = next.collect};
      {
        const flight::HostPhase phase(flight::Phase::kLoader);
        if (diloco_) loader_->seek(diloco_->row());
        // A replica has the rows of all: each may compute with whole arguments, such as a count of targets.
        f.batch = loader_->next(diloco_ ? diloco_->rows() : f.part.live * setup_.rows);
      }
      f.samples = diloco_ ? diloco_->position().samples : loader_->position();
      optimizer_->set_lr(f.lr);
      {
        // Released before the next step allocates its batch, which then reuses their memory.
        const Tensor tokens = to_tensor(f.batch.tokens, f.batch.rows),
                     targets = to_tensor(f.batch.targets, f.batch.rows);
        Compiled<StepFn>& step = step_of(f.part.live);
        if (!watching && options_.step.enabled) prepare(step, tokens, targets);
        watch();
        if (options_.step.mesh.size() > 1 && !std::exchange(planned, true)) {
          const std::string measured = switch_value("WEFT_MACHINE");
          const flight::HostPhase phase(flight::Phase::kPlan);
          dist::PlanReport plan = step.plan(measured.empty() ? "cpu" : measured);
          if (checking.every > 0 && !has_views()) check.emplace(all_cells(), checking, &step.world(), &plan);
          if (options_.check_compute > 0 && !has_views())
            compute_check.emplace(all_cells(), options_.check_compute, checking, step.world(), plan);
          if (writes()) report_plan(plan, options_, setup_, memory_.host_bytes());
          if (!has_views()) meter.emplace(step.world());
        }
        if (meter) meter->begin();
        StepOut out;
        const auto make = [&] { out = step(tokens, targets); };
        try {
          if (!compute_check)
            make();
          else if (!compute_check->make_step(queued + 1, make, note, went_back))
            continue;
        } catch (const dist::Uncommitted&) {  // no cell has changed; another view follows
          loader_->seek(state_.samples);
          continue;
        }
        if (meter) meter->end();
        std::vector<Tensor> wanted{out.loss, out.grad_norm, out.ok};
        if (moe) wanted.insert(wanted.end(), {out.aux, out.dropped, out.expert_counts});
        f.results = HostRead(wanted);
      }
      flights.push_back(std::move(f));
      ++queued;
      if (diloco_) diloco_->made();
      evaluates |= options_.eval_every > 0 && (queued % options_.eval_every == 0 || queued == options_.steps);
      saves |= next.saves;
      const bool checks = check && check->due(queued, next.saves || next.keeps || queued == options_.steps);
      const bool drains =
          evaluates || next.saves || next.keeps || checks || queued == options_.steps || queued == setup_.profile_last;
      const int64_t made = queued;
      finish(drains ? 0 : lookahead());
      trace.reset();
      if (profile_ && queued == setup_.profile_last) end_profile(progress);  // once, also if the step is made again
      if (queued < made || (checks && went_back())) {
        evaluates = saves = false;
        continue;
      }
      if (diloco_) continue;
      if (elastic_) {
        stops_ = elastic_->stops();
        code_ = elastic_->code();
        if (elastic_->has_view()) elastic_->prepare_next(exchanged());
      }
      evaluate_and_save();
      if (next.keeps && !next.saves) memory_.save(checkpoint(), saver_.saved());
    }
    finish(0);
    if (profile_) end_profile(progress);  // interrupted before its last step
    progress.finish();
    if (diloco_ && elastic_) std::printf("%s\n", diloco_->end_text().c_str());
    if (meter && meter->steps() > 0) {
      const std::vector<RankMetrics> ranks = meter->all();
      std::fputs(ranks_text(ranks, meter->steps(), meter->tokens_per_s()).c_str(), stdout);
    }
    // If the replica that writes has died at the end, another one writes the last checkpoint.
    if (elastic_ && value_of_first(newest_step(setup_.dir) == state_.step)) saver_.set_saved(state_.step);
    save_last();
    memory_.end();
    if (stops_) {
      const std::string where = str_cat(
          "after step ", state_.step, setup_.checkpoint_every != 0 ? "; go on with --resume" : "; checkpoints are off");
      WEFT_CHECK_AS(kAborted, !output_closed(), "standard output was closed; stopped ", where);
      std::printf("interrupted %s\n", where.c_str());
      return code_;
    }
    if (options_.sample_tokens > 0 && files.is_open()) sample();
    return interrupted_code();
  }

 private:
  size_t lookahead() const { return setup_.device.type == DeviceType::kCuda ? kLookahead : 0; }

  // The agreement of all processes before a step: whether a signal to one of them ends the run here, whether the step
  // gets a line, whether the ranks report their waiting times, whether a checkpoint or a state in memory follows, and
  // whether a process still writes the newest checkpoint or state. The first process prints the line, writes --metrics,
  // and measures the time of saves.
  struct NextStep {
    bool show, collect, saves, keeps, saving, keeping;
  };
  NextStep next_step(bool show, bool saves, bool keeps) {
    if (elastic_ && interrupted()) elastic_->stop(interrupted_code());
    const bool first = writes();
    uint8_t word[] = {interrupted(),
                      static_cast<uint8_t>(interrupted_code()),
                      first && show,
                      first && (show || !options_.metrics.empty()),
                      saves && (diloco_ ? dist::is_first() : first),
                      first && keeps,
                      saver_.busy(),
                      memory_.busy()};
    if (dist::Processes* job = dist::Processes::current()) job->max({word, kUInt8, {std::size(word)}, {1}});
    if (!elastic_) stops_ = word[0], code_ = word[1];
    return {word[2] != 0, word[3] != 0, word[4] != 0, word[5] != 0, word[6] != 0, word[7] != 0};
  }

  static Setup settled(const nn::ModelFamily& family, TrainOptions& options) {
    Setup s = settle(family, options);
    // The first process may have written to these folders since.
    s.dir = value_of_first(s.dir);
    s.memory = value_of_first(s.memory);
    s.resumed = value_of_first(s.resumed);
    if (dist::Processes* job = dist::Processes::current()) job->barrier();
    return s;
  }

  void end_profile(Progress& progress) {
    save_profile(profile_->stop(state_.step - setup_.profile_first + 1), options_, setup_, state_.step, progress);
    profile_.reset();
  }

  std::map<std::string, std::string> flags() const {
    return run_flags(options_, setup_, family_, options_.tokenizer.empty() ? "" : tokenizer_->name());
  }

  // Whether views decide on the replicas of a step.
  bool has_views() const { return setup_.replay || elastic_; }
  // Whether this process prints and writes the files of the run.
  bool writes() const { return dist::is_first() && (!elastic_ || elastic_->writes()); }

  // The parts of the data that a step takes. Without views, one part is the whole batch.
  dist::DataPart part_at(int64_t step) const {
    if (diloco_) return {.view = diloco_->position().view};
    if (elastic_) return elastic_->part(loader_->position() / setup_.rows);
    return setup_.replay ? setup_.replay->at(step) : dist::DataPart();
  }

  Compiled<StepFn>& prepared(int64_t live) {
    const int64_t rows = live * setup_.rows;
    const Tensor ids = to_tensor(std::vector<int32_t>(static_cast<size_t>(rows * options_.seq_len)), rows);
    prepare(step_of(live), ids, ids);
    return step_of(live);
  }

  // The state of this run for the other replicas, and theirs for this run.
  dist::ReplicaState exchanged() {
    return {.prepare = [this](int64_t live) -> dist::World& { return prepared(live).world(); },
            .shards = [this](int64_t live, bool made) { return dist::shards_of(step_of(live), made); },
            .cells = all_cells(),
            .record = [this] { return record_of(checkpoint().state); },
            .adopt = [this](const std::string& record) { state_.set_position(state_of(record)); }};
  }

  // A training step of another replica with --diloco, for a replay.
  void make_step(int64_t step, int64_t row, int64_t rows) {
    loader_->seek(row);
    const data::Batch batch = loader_->next(rows);
    optimizer_->set_lr(lr_at(step));
    (void)step_of(1)(to_tensor(batch.tokens, batch.rows), to_tensor(batch.targets, batch.rows));
  }

  static void prepare(Compiled<StepFn>& step, const Tensor& tokens, const Tensor& targets) {
    const flight::HostPhase phase(flight::Phase::kPlan);
    const LongStage stage("planning the step");
    step.prepare(tokens, targets);
  }

  // The compiled step for a number of live replicas.
  Compiled<StepFn>& step_of(int64_t live) {
    if (const auto at = steps_.find(live); at != steps_.end()) return at->second;
    CompileOptions options = options_.step;
    if (has_views())
      options.mesh = diloco_ ? dist::replica_mesh(options.mesh) : dist::with_replicas(options.mesh, live);
    const StepParts parts{*model_,  *optimizer_, scaler_ ? &*scaler_ : nullptr,
                          healthy_, parameters_, options_.microbatches};
    const StepFn fn = [parts](const Tensor& x, const Tensor& y) { return train_step(parts, x, y); };
    return steps_.emplace(live, dist::compile(fn, options)).first->second;
  }

  double lr_at(int64_t step) const {
    return optim::CosineWarmup(options_.lr, options_.warmup, options_.steps, 0.1).at(step);
  }

  Tensor to_tensor(const std::vector<int32_t>& ids, int64_t rows) const {
    return Tensor::from_vector<int32_t>(ids, {rows, options_.seq_len}).to(setup_.device);
  }

  // On the mesh of one replica if replicas come and go: all make it, with equal bits.
  double evaluate() {
    const dist::Mesh& all = options_.step.mesh;
    if (!evaluation_)
      evaluation_.emplace(*model_, split_.validation, options_, has_views() ? dist::replica_mesh(all) : all,
                          setup_.device);
    return evaluation_->loss();
  }

  NamedCells model_cells() const { return model_->named_cells(); }
  NamedCells optimizer_cells() const {
    NamedCells cells = optimizer_->named_cells();
    cells.emplace_back("rng.seed", default_generator(setup_.device).seed);
    cells.emplace_back("rng.step", default_generator(setup_.device).step);
    if (diloco_) std::ranges::copy(diloco_->cells(), std::back_inserter(cells));
    return cells;
  }

  // The cells of a checkpoint, and of the loss scale.
  NamedCells all_cells() const {
    NamedCells all = model_cells();
    std::ranges::move(optimizer_cells(), std::back_inserter(all));
    if (scaler_) std::ranges::move(scaler_->named_cells(), std::back_inserter(all));
    return all;
  }

  CheckpointSaver::Content checkpoint() const {
    TrainState state = state_;
    state.seed = options_.seed;
    state.family = family_.name;
    state.model = setup_.config;
    state.run = flags();
    if (scaler_) {
      state.loss_scale = scaler_->get_scale();
      state.good_steps = scaler_->good_steps.value().item<int64_t>();
    }
    return {state,
            model_cells(),
            optimizer_cells(),
            {.origin = setup_.origin, .flags = flag_lines(options_, flags_before_), .tokenizer = tokenizer_files_}};
  }

  void restore() {
    const std::string& folder = setup_.resumed;
    if (options_.resume && folder.empty() && !setup_.replica)  // the line of a view says where replicas start
      std::printf("no checkpoint in %s yet: starting from the beginning\n", setup_.dir.c_str());
    if (folder.empty()) return load_first_weights(setup_, model_cells(), later());
    const std::string tokenizer = options_.tokenizer.empty() ? "" : tokenizer_->name();
    TrainState s = load_resumed(setup_, flags(), tokenizer, model_cells(), optimizer_cells(), later());
    flags_before_ = read_flags(folder);
    state_ = s;
    loader_->seek(s.samples);
    // Only an f16 run stores a loss scale.
    if (scaler_ && s.run["dtype"] == "f16") {
      scaler_->scale_factor.set(full({}, s.loss_scale).to(setup_.device));
      scaler_->good_steps.set(full({}, s.good_steps, {.dtype = kInt64}).to(setup_.device));
    }
    if (folder == str_cat(setup_.dir, "/step_", s.step)) saver_.set_saved(s.step);  // not a state in memory
    std::printf("resumed from %s\n", folder.c_str());
  }

  // Whether values are read when the step needs them: a mesh reads its own shards alone.
  bool later() const { return options_.step.mesh.size() > 1; }
  void sample() {
    const dist::GatheredCells whole(model_cells());
    if (dist::is_first()) print_sample(*model_, *tokenizer_, options_.sample_tokens, options_.seed);
  }

  TrainOptions options_;
  const Setup setup_;
  CheckpointSaver saver_{setup_, options_};
  MemorySaver memory_{setup_};
  const nn::ModelFamily& family_;
  dist::Job& job_;
  std::unique_ptr<nn::LanguageModel> model_;
  std::shared_ptr<const data::Tokenizer> tokenizer_;
  std::vector<text::NamedFile> tokenizer_files_;  // for checkpoints
  data::TokenDataset::Split split_;
  std::optional<data::ShuffledLoader> loader_;
  std::optional<optim::AdamW> optimizer_;
  std::optional<dist::ReplicaRun> elastic_;    // this run is a replica of a group
  std::optional<DilocoRun> diloco_;            // replicas exchange outer gradients
  std::map<int64_t, Compiled<StepFn>> steps_;  // key: live replicas
  std::optional<Evaluation> evaluation_;
  std::vector<Parameter> parameters_;
  std::optional<optim::GradScaler> scaler_;  // f16 only
  Buffer healthy_;  // other types with lookahead: false after the first failed step; later steps do not commit
  TrainState state_;
  std::string flags_before_;  // flags of the resumed run
  bool stops_ = false;
  int code_ = 0;  // exit code if a signal stops the program
  std::optional<internal::ProfileWindow> profile_;
};

}  // namespace

int train(const nn::ModelFamily& family, const TrainOptions& options) {
  TrainOptions o = options;
  const Setup setup = settle(family, o);
  measure_before_ranks(o);
  if (const std::optional<int> code = run_replicas(o, setup)) return *code;
  const std::unique_ptr<dist::Job> job = make_job(o, setup.dir);
  if (job->code()) return *job->code();
  // Inside the scope of the Trainer, so that the other processes get the cause before its communicators end.
  const auto reported = [&](auto&& fn) {
    try {
      return fn();
    } catch (const Error& e) {
      job->fail(e);
      throw;
    } catch (const std::exception& e) {
      job->fail(Error(Code::kInternal, e.what()));
      throw;
    }
  };
  for (;;) {
    if (o.resume) reported([&] { share_newest_state(setup.dir, setup.memory); });
    const auto trainer = reported([&] { return std::make_unique<Trainer>(family, options, *job); });
    if (reported([&] { return trainer->lock(); })) return reported([&] { return trainer->run(); });
  }
}

}  // namespace weft::train
