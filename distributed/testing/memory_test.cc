// A process of a job needs memory for its shards and its plan, and never for whole values. The test starts itself.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "distributed/distributed.h"
#include "distributed/launch/launcher.h"
#include "distributed/launch/processes.h"
#include "weft.h"

namespace weft::testing {
namespace {

std::string self;

// Memory that no plan counts: pieces in shared memory, kernels, the graphs of a small step, and values while they are
// sharded.
constexpr int64_t kOther = int64_t{50} << 20;

// A line of /proc/self/status, in bytes.
int64_t status(const std::string& name) {
  std::ifstream file("/proc/self/status");
  std::string word;
  int64_t kb = 0;
  while (file >> word)
    if (word == name + ":") file >> kb;
  return kb << 10;
}

struct Memory {
  int64_t peak = 0, planned = 0;
};

struct Layers : nn::Module {
  std::vector<nn::Linear> layers;
  Layers(int count, int64_t dim) {
    for (int i = 0; i < count; ++i) register_module(str_cat("layers.", i), layers.emplace_back(dim, dim));
  }
};

// Trains 100 MB of parameters with 200 MB of optimiser state.
Memory train(const char* mesh) {
  const int64_t before = status("VmRSS");
  constexpr int64_t kDim = 1024;
  const Layers model(24, kDim);
  optim::AdamW opt(model.parameters(), {.lr = 1e-3});
  CompileOptions options;
  if (*mesh) options.mesh = dist::Mesh::parse(mesh);
  auto step = dist::compile(
      [&](Tensor x) {
        Tensor y = x;
        for (const nn::Linear& layer : model.layers) y = tanh(layer(y));
        Tensor loss = mean(square(y));
        opt.step(optim::clip_grad_norm(grad(loss, opt.parameters()), 1.0).grads);
        return loss;
      },
      options);
  const Tensor x = full({4, kDim}, 0.5);
  for (int i = 0; i < 2; ++i) step(x);
  return {status("VmHWM") - before, step.stats().planned_peak_bytes};
}

// Runs the processes, and returns the memory of each.
std::vector<Memory> run(int processes, const char* mesh) {
  const char* const folder = std::getenv("TEST_TMPDIR");
  const std::string out = str_cat(folder ? folder : "/tmp", "/memory", processes, ".");
  const auto job = dist::launch({.processes = processes, .command = {self, mesh, out}, .name = "test"});
  EXPECT_EQ(job.code, 0);
  std::vector<Memory> all(static_cast<size_t>(processes));
  for (int r = 0; r < processes; ++r) {
    Memory& m = all[static_cast<size_t>(r)];
    std::ifstream(str_cat(out, r)) >> m.peak >> m.planned;
    std::printf("%d processes: peak %.1f MB, planned %.1f MB\n", processes, static_cast<double>(m.peak) * 1e-6,
                static_cast<double>(m.planned) * 1e-6);
  }
  return all;
}

TEST(Memory, AProcessHasThatOfItsPlan) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizers' own memory is larger";
#endif
  const Memory one = run(1, "")[0];
  EXPECT_GT(one.planned, int64_t{300'000'000});
  for (const Memory& m : run(4, "fsdp4")) {
    EXPECT_GT(m.planned, int64_t{60} << 20);
    EXPECT_LT(m.peak, m.planned * 11 / 10 + kOther);
    EXPECT_LT(m.peak, one.peak * 35 / 100 + kOther);
  }
}

}  // namespace

void child(const std::string& mesh, const std::string& out) {
  const int rank = std::atoi(std::getenv("RANK")), size = std::atoi(std::getenv("WORLD_SIZE"));
  dist::FolderStore store(std::getenv("JOB_STORE"));
  if (size > 1)
    dist::Processes::set_current(std::make_unique<dist::Processes>(store, size, rank, 1, std::chrono::seconds(60)));
  const Memory m = train(mesh.c_str());
  std::ofstream(str_cat(out, rank)) << m.peak << " " << m.planned;
  if (size > 1) dist::Processes::current()->barrier();
  dist::Processes::set_current({});
}

}  // namespace weft::testing

int main(int argc, char** argv) {
  if (argc == 3) try {
      weft::testing::child(argv[1], argv[2]);
      return 0;
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s\n", e.what());
      return 1;
    }
  weft::testing::self = argv[0];
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
