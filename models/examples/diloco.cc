// Replicas that train by themselves and exchange outer gradients after each 20 steps (docs/elastic.md).
//   diloco MESH STEPS FOLDER            one replica of a group, with REPLICA and REPLICAS
//   diloco MESH STEPS FOLDER JOURNAL    makes the run of a group again in one process
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "distributed/job.h"
#include "models/train/checkpoint.h"
#include "weft.h"
using namespace weft;

struct Net : nn::Module {
  nn::Linear up{2, 256}, down{256, 1};
  Net() { register_module("up", up), register_module("down", down); }
  Tensor operator()(const Tensor& x) const { return down(gelu(up(x))); }
};

// The rows `first` to first + rows - 1 of the data, which are equal in all replicas.
static std::tuple<Tensor, Tensor> batch(int64_t first, int64_t rows) {
  const Tensor row = arange(first, first + rows).reshape({rows, 1}).to(kFloat32);
  const Tensor a = sin(row * 0.7), b = cos(row * 1.3);
  return {cat({a, b}, 1), sin(a * 3) * b};
}

static volatile std::sig_atomic_t ended_by = 0;

int main(int argc, char** argv) try {
  if (argc < 4) return std::fprintf(stderr, "need MESH STEPS FOLDER\n"), 2;
  const dist::Mesh mesh = dist::Mesh::parse(argv[1]);
  const int64_t steps = std::atoll(argv[2]);
  const std::string folder = argv[3], journal = argc > 4 ? argv[4] : "";
  dist::Job job({.ranks = journal.empty() ? dist::ranks_of_job(mesh) : 1});
  if (job.code()) return *job.code();  // this process has started the processes of the ranks
  std::signal(SIGTERM, [](int signal) { ended_by = signal; });

  manual_seed(0);
  Net model;
  optim::AdamW opt(model.parameters(), {.lr = 1e-3});
  train::TrainState from;
  dist::Processes* const all = dist::Processes::current();  // null: one process
  const std::string latest = train::latest_checkpoint(folder), newest = all ? all->from_first(latest) : latest;
  if (!newest.empty()) from = train::read_state(newest);
  const auto train_step = [&](Tensor x, Tensor y) {
    Tensor loss = mse_loss(model(x), y);
    opt.minimize(loss);
    return loss;
  };
  train::NamedCells cells = model.named_cells();  // all that the step reads or writes
  for (const auto& cell : opt.named_cells()) cells.push_back(cell);
  dist::ReplicaStepOptions options{.rows = 64, .cells = cells, .journal = journal};
  options.position = {.step = from.step, .samples = from.samples, .view = from.state_view};
  dist::Diloco step(job, train_step, batch, {.mesh = mesh}, options, {.every = 20, .steps = steps});
  train::NamedCells kept = opt.named_cells();
  for (const auto& cell : step.outer_cells()) kept.push_back(cell);
  if (!newest.empty()) {
    train::load_cells(train::open_tensors(newest, "model", from), model.named_cells());
    train::load_cells(train::open_tensors(newest, "optimizer", from), kept);
  }
  const auto save = [&] {
    const dist::RunPosition& at = step.position();
    train::save_checkpoint(folder, {.step = at.step, .samples = at.samples, .state_view = at.view}, model.named_cells(),
                           kept, /*keep=*/0);
  };
  while (step.enter()) {  // false: all replicas have finished
    if (step.exchanged() && (step.position().step == steps || step.stopped())) {
      if (step.writes()) save();
      step.finish();
      continue;
    }
    if (ended_by) step.stop(128 + ended_by);
    const bool is_new = step.exchanged() && step.position().step > from.step;
    if (is_new && step.writes() && step.position().step % 100 == 0) save();
    step();  // null: no step was made, because other replicas have come or gone
  }
  return step.stopped().value_or(0);
} catch (const Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
