// A second thread in jobs of real processes: its collectives are errors at once, in whatever order the processes run
// the thread and the steps. The test starts itself for each rank:
//     job_threads_test TRANSPORT FOLDER
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "distributed/launch/compile.h"
#include "distributed/launch/launcher.h"
#include "distributed/launch/processes.h"
#include "distributed/launch/sharded_cell.h"
#include "distributed/testing/child.h"
#include "framework/base/one_line.h"
#include "framework/base/testing/error_of.h"
#include "framework/dispatch/rank/flight.h"
#include "ops/core/functions/custom_op.h"
#include "weft.h"

namespace weft::testing {
namespace {

std::string self;

std::function<void()> in_step;  // called by the op in a step

const CustomOp& hook() {
  static const CustomOp op{{
      .name = "test.hook",
      .num_inputs = 1,
      .infer = [](const InferCall& c) { return Types{c.in[0]}; },
      .kernel =
          [](const KernelCall& c) {
            for (int64_t i = 0; i < c.in[0].numel(); ++i) c.out[0].as<float>()[i] = c.in[0].as<float>()[i];
            if (in_step) in_step();
          },
  }};
  return op;
}

struct Model : nn::Module {
  Parameter w{zeros({4, 4})};
  Buffer count{zeros({})};
  Model() { register_parameter("w", w), register_buffer("count", count); }
};

struct Program {
  Model model;
  CompileOptions options{.mesh = dist::Mesh::parse("fsdp2"), .timeout = 20};
  std::function<Tensor(Tensor)> step = dist::compile(
      [this](Tensor x) {
        model.w.set(model.w + 1);
        model.count.set(model.count + 1);
        return hook()({x}).sum() + model.w.sum();
      },
      options);
  std::ofstream found;
  std::string folder;

  void run(const std::string& name, const std::function<void()>& call) {
    found << name << ": " << one_line(error_of(call)) << "\n";
  }
  void number(const std::string& name, const Tensor& v) {
    const Tensor f = v.to(kFloat32);
    found << name << ": " << amin(f).item<float>() << " to " << amax(f).item<float>() << std::endl;
  }
};

// Makes a call on a second thread: rank 0 before a step, rank 1 in the step.
void beside_a_step(Program& p, const std::string& name, const std::function<void()>& call) {
  std::atomic<bool> ended{false};
  std::string error;
  std::thread second;
  const auto start = [&] {
    second = std::thread([&] {
      error = error_of(call);
      ended = true;
    });
  };
  if (std::getenv("RANK") == std::string("0")) {
    const std::string records = str_cat(flight::folder(), "/", flight::ring_name(0));
    start();
    while (!ended && !has(content(records), "reading the sharded")) std::this_thread::yield();
  } else {
    in_step = [&] { start(), in_step = {}; };
  }
  p.step(ones({4}));
  second.join();
  p.found << name << ": " << one_line(error) << std::endl;
}

// Each call on a second thread while no step runs, then calls that the processes order differently.
void train(Program& p) {
  const Tensor x = ones({4});
  p.step(x);
  const Tensor before = p.model.w.value();
  const nn::StateDict values = p.model.state_dict();
  p.step(x);
  const auto scaled = [&p](Tensor by) { return (p.model.w * by).sum(); };
  const auto evaluation = compile(scaled);
  const auto on_mesh = dist::compile(scaled, p.options);
  std::thread([&] {
    p.run("value", [&] { p.model.w.value(); });
    p.run("state_dict", [&] { p.model.state_dict(); });
    p.run("save", [&] { save(p.model, p.folder + "/model.safetensors"); });
    p.run("gathered", [&] { dist::GatheredCells{p.model.named_cells()}; });
    p.run("evaluation", [&] { evaluation(ones({})); });
    p.run("evaluation on the mesh", [&] { on_mesh(ones({})); });
    p.run("step", [&] { p.step(x); });
    p.run("set", [&] { p.model.w.set(zeros({4, 4})); });
    p.run("set a replicated cell", [&] { p.model.count.set(zeros({})); });
    p.run("load_state_dict", [&] { p.model.load_state_dict(values); });
    p.number("a replicated cell", p.model.count);
    p.number("an earlier value", before);
  }).join();
  p.number("after two steps", p.model.w);

  beside_a_step(p, "set beside a step", [&] { p.model.w.set(full({4, 4}, 100)); });
  p.number("after three steps", p.model.w);
  p.step(x);  // the value of the read above is out of date
  beside_a_step(p, "read beside a step", [&] { p.model.w.value(); });
  p.number("after five steps", p.model.w);
}

TEST(JobThreads, OneThreadMakesTheCollectives) {
  const std::string need =
      ": got a call of another thread; need the thread that runs the steps of the job, because each process would "
      "order the calls of two threads differently; read and set values there between two steps, and pass tensors to "
      "other threads";
  const std::string read = "reading the sharded parameter 'w'" + need;
  const std::pair<std::string, std::string> want[] = {{"value", read},
                                                      {"state_dict", read},
                                                      {"save", "save" + need},
                                                      {"gathered", read},
                                                      {"evaluation", read},
                                                      {"evaluation on the mesh", "a step on the mesh" + need},
                                                      {"step", "a step on the mesh" + need},
                                                      {"set", "set: cell 'w'" + need},
                                                      {"set a replicated cell", "set: cell 'count'" + need},
                                                      {"load_state_dict", "set: cell "},
                                                      {"a replicated cell", "2 to 2"},
                                                      {"an earlier value", "1 to 1"},
                                                      {"after two steps", "2 to 2"},
                                                      {"set beside a step", "set: cell 'w'" + need},
                                                      {"after three steps", "3 to 3"},
                                                      {"read beside a step", read},
                                                      {"after five steps", "5 to 5"},
                                                      {"after the thread", "5 to 5"}};
  for (const std::string transport : {"shared", "gloo"}) {
    const std::string folder = str_cat(::testing::TempDir(), "/", transport);
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    setenv(flight::kFolderVariable, (folder + "/flight").c_str(), 1);
    EXPECT_EQ(dist::launch({.processes = 2, .command = {self, transport, folder}, .name = "job"}).code, 0);
    unsetenv(flight::kFolderVariable);
    for (const char* rank : {"0", "1"}) {
      const std::string found = content(str_cat(folder, "/found.", rank));
      for (const auto& [name, text] : want)
        EXPECT_TRUE(has("\n" + found, str_cat("\n", name, ": ", text)))
            << transport << ", rank " << rank << ", " << name << ":\n"
            << found;
    }
    EXPECT_FALSE(std::filesystem::exists(folder + "/model.safetensors"));
  }
}

}  // namespace

int child(const std::string& transport, const std::string& folder) {
  return run_child([&](std::unique_ptr<dist::Job>& job) {
    job = std::make_unique<dist::Job>(
        dist::JobOptions{.ranks = 2, .timeout = std::chrono::seconds(20), .transport = transport});
    Program p;
    p.folder = folder;
    p.found.open(str_cat(folder, "/found.", std::getenv("RANK")));
    std::optional<Error> failure;
    std::thread([&] {
      try {
        train(p);
      } catch (const Error& e) {
        failure = e;
      }
    }).join();
    if (failure) throw *failure;
    p.number("after the thread", p.model.w);  // the thread of the steps has ended
  });
}

}  // namespace weft::testing

int main(int argc, char** argv) {
  if (argc == 3) return weft::testing::child(argv[1], argv[2]);
  weft::testing::self = argv[0];
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
