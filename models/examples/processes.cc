// Your own step with processes as ranks: four on this host, or the processes that torchrun, mpirun or Slurm starts.
//
//   ./bazelw run //models/examples:processes -- fsdp2,tp2
#include <cstdio>
#include <cstdlib>

#include "distributed/distributed.h"
#include "distributed/job.h"
#include "weft.h"
using namespace weft;

int main(int argc, char** argv) try {
  const dist::Mesh mesh = dist::Mesh::parse(argc > 1 ? argv[1] : "dp2,tp2", {});
  const int64_t steps = argc > 2 ? std::atoi(argv[2]) : 100;
  dist::Job job({.ranks = mesh.size()});
  if (job.code()) return *job.code();  // this process has started the processes of the ranks

  manual_seed(0);
  nn::Linear up(16, 64), down(64, 1);
  optim::AdamW opt({up.weight, up.bias, down.weight, down.bias}, {.lr = 1e-2});
  auto step = dist::compile(
      [&](Tensor x, Tensor y) {
        Tensor loss = mse_loss(down(gelu(up(x))), y);
        opt.minimize(loss);
        return loss;
      },
      {.mesh = mesh});
  for (int64_t i = 1; i <= steps; ++i) try {
      const Tensor x = randn({32, 16}), y = x.slice(1, 0, 1) * x.slice(1, 1, 2);
      const Tensor loss = step(x, y);
      if (i == 1 || i == steps) std::printf("step %ld  loss %.9g\n", i, loss.item<double>());  // rank 0's loss
    } catch (const Error& e) {
      job.fail(e);  // the other processes end with this cause
      throw;
    }
  return 0;
} catch (const Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
