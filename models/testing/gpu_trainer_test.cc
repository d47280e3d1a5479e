// The training loop on a GPU (whose kernels are the CPU's) queues a step ahead, but its metrics, checkpoints and errors
// equal the CPU's.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "compiler/targets/cuda/testing/host_kernels_gpu.h"
#include "framework/base/switches.h"
#include "framework/io/file.h"
#include "framework/testing/compare.h"
#include "models/gpt/config.h"
#include "models/llama/config.h"
#include "models/train/checkpoint.h"
#include "models/train/generate.h"
#include "models/train/trainer.h"
#include "weft.h"

namespace weft {
namespace {

std::string folder(const std::string& name) { return ::testing::TempDir() + "/" + name; }

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream s;
  s << in.rdbuf();
  return s.str();
}

// The metrics file without the clock's values.
std::string plain(const std::string& path) {
  std::istringstream in(read(path));
  std::string all;
  for (std::string line; std::getline(in, line); all += line + "\n")
    for (const char* field : {"\"step_ms\":", "\"tokens_per_s\":", "\"mfu\":"})
      if (const size_t at = line.find(field); at != std::string::npos) {
        const size_t end = line.find_first_of(",}", at);
        line.erase(at, end - at + (line[end] == ','));
      }
  return all;
}

train::TrainOptions options(const std::string& name, const std::string& device) {
  train::TrainOptions o;
  o.config = "gpt_tiny";
  o.data = "synthetic";
  o.steps = 7;
  o.batch_size = 2;
  o.seq_len = 8;
  o.lr = 0.01;
  o.warmup = 0;
  o.seed = 7;
  o.eval_every = 4;
  o.checkpoint_every = "3";
  o.keep = 0;
  o.step.numerics = "eager";
  o.device = device;
  o.checkpoint_dir = folder(name + "-" + device);
  o.metrics = folder(name + "-" + device + ".jsonl");
  return o;
}

struct GpuTrainer : ::testing::Test {
  GpuTrainer() { set_switch("WEFT_CXX", "none"); }
};

void expect_same_run(const std::string& name, const nn::ModelFamily& family, const std::vector<int>& saved,
                     const std::function<void(train::TrainOptions&)>& change) {
  for (const std::string device : {"cpu", "cuda"}) {
    std::optional<internal::HostKernelsGpu> gpu;
    if (device == "cuda") gpu.emplace();
    train::TrainOptions o = options(name, device);
    change(o);
    ASSERT_EQ(train::train(family, o), 0);
  }
  const std::string cpu = folder(name + "-cpu"), cuda = folder(name + "-cuda");
  EXPECT_EQ(plain(cuda + ".jsonl"), plain(cpu + ".jsonl"));
  for (const int step : saved)
    for (const char* file : {"model", "optimizer"}) {
      const std::string at = str_cat("/step_", step, "/", file, ".safetensors");
      EXPECT_FALSE(read(cpu + at).empty()) << at;
      EXPECT_TRUE(read(cuda + at) == read(cpu + at)) << at;
    }
}

TEST_F(GpuTrainer, WritesWhatTheCpuWrites) {
  expect_same_run("gpt", gpt::family(), {3, 6, 7}, [](train::TrainOptions&) {});
}

TEST_F(GpuTrainer, InF16) {
  expect_same_run("f16", gpt::family(), {3, 4}, [](train::TrainOptions& o) {
    o.dtype = "f16";
    o.microbatches = 2;
    o.steps = 4;
  });
}

TEST_F(GpuTrainer, OpByOp) {
  expect_same_run("eager", gpt::family(), {2}, [](train::TrainOptions& o) {
    o.step.enabled = false;
    o.steps = 2;
    o.seq_len = 4;
  });
}

TEST_F(GpuTrainer, ResumesWhereItWas) {
  internal::HostKernelsGpu gpu;
  train::TrainOptions o = options("resumed", "cuda");
  ASSERT_EQ(train::train(gpt::family(), o), 0);
  const std::string end = read(o.checkpoint_dir + "/step_7/model.safetensors"), metrics = plain(o.metrics);
  for (const char* later : {"/step_6", "/step_7"}) io::remove_all(o.checkpoint_dir + later);
  o.resume = true;
  ASSERT_EQ(train::train(gpt::family(), o), 0);
  EXPECT_TRUE(read(o.checkpoint_dir + "/step_7/model.safetensors") == end);
  EXPECT_EQ(plain(o.metrics), metrics);
}

TEST_F(GpuTrainer, AFailedStepIsNamedThoughTheNextIsQueued) {
  std::vector<std::string> errors;
  for (const std::string device : {"cpu", "cuda"}) {
    std::optional<internal::HostKernelsGpu> gpu;
    if (device == "cuda") gpu.emplace();
    train::TrainOptions o = options("failed", device);
    o.lr = 1e30;
    o.warmup = 0;
    o.checkpoint_every = "0";
    errors.push_back(testing::error_of([&] { train::train(gpt::family(), o); }));
  }
  const auto without_device = [](std::string s) {
    for (size_t at; (at = s.find("@cuda:0")) != std::string::npos;) s.erase(at, 7);
    return s;
  };
  EXPECT_NE(errors[0].find("and nothing was changed; "), std::string::npos) << errors[0];
  EXPECT_EQ(without_device(errors[1]), errors[0]);
  EXPECT_EQ(plain(folder("failed-cuda.jsonl")), plain(folder("failed-cpu.jsonl")));
}

TEST_F(GpuTrainer, NothingIsSavedAfterAFault) {
  internal::HostKernelsGpu gpu;
  const Parameter w(ones({4}).to(Device::cuda()), "w"), unused(ones({4}).to(Device::cuda()), "unused");
  auto step = compile([&](const Tensor& x) {
    const Tensor loss = sum(w.value() * x);
    w.set(w.value() - grad(loss, std::vector{w})[0] * 0.1);
    return loss;
  });
  const Tensor x = ones({4}).to(Device::cuda());
  for (int i = 0; i < 3; ++i) step(x);
  const std::string dir = folder("fault");
  const auto save = [&](const Parameter& p) {
    return [&dir, p] { train::save_checkpoint(dir, {.step = 3, .family = "gpt"}, {{"p", p}}, {}, 0); };
  };
  using testing::error_of;
  gpu.driver().fail_launch_after(0, cuda::CUDA_ERROR_ILLEGAL_ADDRESS);
  step(x);  // not found yet
  const std::string found = error_of(save(w));
  EXPECT_NE(found.find("/fault/step_3 was not written: cuda: "), std::string::npos) << found;
  EXPECT_EQ(
      error_of(save(w)),
      str_cat(dir,
              "/step_3 was not written: cell 'w' was torn by a step that failed half-way; load a checkpoint first"));
  EXPECT_NE(error_of(save(unused)).find("/fault/step_3 was not written: cuda: "), std::string::npos);
  EXPECT_FALSE(io::exists(dir));
  gpu.driver().take_complaints();
}

TEST_F(GpuTrainer, ASteadyStepWaitsForThePreviousOneAlone) {
  internal::HostKernelsGpu gpu;
  std::map<std::string, int> calls[2];
  for (const int more : {0, 1}) {
    train::TrainOptions o = options(str_cat("steady", more), "cuda");
    o.steps = more ? 10 : 6;
    o.eval_every = 0;
    o.checkpoint_every = "0";
    gpu.take_calls();
    ASSERT_EQ(train::train(gpt::family(), o), 0);
    calls[more] = gpu.take_calls();
  }
  std::map<std::string, double> a_step;
  for (const auto& [name, count] : calls[1])
    if (const int more = count - calls[0][name]) a_step[name] = more / 4.0;
  const std::map<std::string, double> want{{"cuGraphLaunch", 1},
                                           {"cuMemcpyHtoDAsync_v2", 3},  // tokens, targets, learning rate
                                           {"cuMemcpyDtoDAsync_v2", 1},  // into the cell's memory
                                           {"cuMemcpyDtoHAsync_v2", 3},  // loss, norm, ok of the step
                                           {"cuEventRecord", 4},         // behind the copies
                                           {"cuEventSynchronize", 1}};   // waits for the previous step
  EXPECT_EQ(a_step, want);
}

TEST_F(GpuTrainer, TextAndScoresAreTheCpus) {
  internal::HostKernelsGpu gpu;
  manual_seed(5);
  const auto model = llama::family().make({{"vocab", "256"},
                                           {"context", "16"},
                                           {"layers", "1"},
                                           {"heads", "2"},
                                           {"kv_heads", "1"},
                                           {"dim", "32"},
                                           {"ffn", "64"}});
  model->eval();
  const std::vector<int32_t> prompt{1, 5, 9, 200, 3};
  const train::SampleOptions how{.max_new_tokens = 20, .seed = 3};  // past the context
  const std::vector<int32_t> text = train::generate(*model, prompt, how);
  const std::vector<double> scores = train::score(*model, text);
  model->to(Device::cuda());
  EXPECT_EQ(train::generate(*model, prompt, how), text);
  EXPECT_EQ(train::score(*model, text), scores);
}

}  // namespace
}  // namespace weft
