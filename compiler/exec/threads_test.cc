// Threads that use the cells of a step while it runs: a tensor is a value for them, too.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <thread>

#include "framework/base/thread_pool.h"
#include "framework/testing/compare.h"
#include "ops/core/functions/custom_op.h"
#include "weft.h"

namespace weft {
namespace {

using testing::error_of;

constexpr int64_t kSize = 1 << 16;
constexpr int kSteps = 300;

// Writes the count of steps into each element.
struct Counter {
  Parameter w{zeros({kSize}), "w"};
  std::function<Tensor(Tensor)> step = compile([w = w](Tensor by) {
    w.set(w + by);
    return by * 2;
  });
  void run(int steps) {
    for (int i = 0; i < steps; ++i) step(ones({}));
  }
};

// The number that all elements of a value of Counter are; -1 if they differ.
double only_number(const Tensor& v) {
  const std::vector<float> all = v.to_vector<float>();
  for (float x : all)
    if (x != all[0]) return -1;
  return all[0];
}

// Runs `step` in this thread, and `read` again and again in another one until it ends.
void beside(const std::function<void()>& step, const std::function<void()>& read) {
  std::atomic<bool> done{false};
  std::thread reader([&] {
    while (!done) read();
  });
  step();
  done = true;
  reader.join();
}

TEST(Threads, AValueIsOldOrNew) {
  Counter c;
  double last = 0;
  int64_t torn = 0, changed = 0, backwards = 0;
  beside([&] { c.run(kSteps); },
         [&] {
           const Tensor v = c.w.value();
           const double first = only_number(v), second = only_number(v);
           torn += first < 0;
           changed += first != second;
           backwards += first < last;
           last = first;
         });
  EXPECT_EQ(torn, 0);
  EXPECT_EQ(changed, 0);
  EXPECT_EQ(backwards, 0);
  EXPECT_EQ(only_number(c.w.value()), kSteps);
}

// A thread that waits for a step comes before the next step.
TEST(Threads, AReadWaitsForOneCommit) {
  CellGate gate;
  int first = 0;
  for (int k = 0; k < 20; ++k) {
    std::atomic<bool> entered = false, waits = false;
    EXPECT_TRUE(gate.own());
    std::thread reader([&] {
      waits = true;
      EXPECT_TRUE(gate.enter());
      entered = true;
      gate.leave();
    });
    while (!waits) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    gate.release();
    EXPECT_TRUE(gate.own());
    first += entered;
    gate.release();
    reader.join();
  }
  EXPECT_GE(first, 10);  // a loaded machine may run a woken thread too late
}

TEST(Threads, AnEarlierReferenceKeepsItsValue) {
  Counter c;
  c.run(3);
  const Tensor before = c.w.value();
  c.run(2);
  EXPECT_EQ(only_number(before), 3);
  EXPECT_EQ(only_number(c.w.value()), 5);
}

TEST(Threads, ACompiledEvaluationReadsOneValue) {
  Counter c;
  const auto spread = compile([w = c.w](Tensor scale) { return amax(w * scale) - amin(w * scale); });
  int64_t wrong = 0, runs = 0;
  beside([&] { c.run(kSteps); }, [&] { wrong += spread(ones({})).item() != 0, ++runs; });
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(runs, 0);
}

TEST(Threads, AnAverageFollows) {
  Counter c;
  const Buffer average(zeros({kSize}), "average");
  const auto update = compile([w = c.w, average](Tensor keep) {
    average.set(average * keep + w * (1 - keep));
    return keep;
  });
  int64_t torn = 0;
  beside([&] { c.run(kSteps); },
         [&] {
           update(full({}, 0.5));
           torn += only_number(average.value()) < 0;
         });
  EXPECT_EQ(torn, 0);
}

// Two steps write one cell from two threads: none of the additions is lost.
TEST(Threads, StepsThatWriteOneCellTakeTurns) {
  Counter c;
  const Buffer other(zeros({16}), "other");
  const auto step = [&] {
    return compile([w = c.w, other](Tensor by) {
      w.set(w + by);
      other.set(other + by);
      return by;
    });
  };
  const auto a = step(), b = step();
  std::thread second([&] {
    for (int i = 0; i < kSteps; ++i) a(ones({}));
  });
  for (int i = 0; i < kSteps; ++i) b(ones({}));
  second.join();
  EXPECT_EQ(only_number(c.w.value()), 2 * kSteps);
  EXPECT_EQ(only_number(other.value()), 2 * kSteps);
}

TEST(Threads, SetWaitsForTheCommit) {
  Counter c;
  int64_t sets = 0;
  beside([&] { c.run(kSteps); }, [&] { c.w.set(full({kSize}, 1000.0 * static_cast<double>(++sets))); });
  EXPECT_GE(only_number(c.w.value()), 0);
}

// Reads `cell` while the step that writes it runs: in the kernel of an op, or in a loop of it with several threads.
Tensor read_inside(const Buffer& cell, bool threads) {
  static const Buffer* seen = nullptr;
  static bool parallel = false;
  seen = &cell, parallel = threads;
  static const CustomOp op{{
      .name = "test.reads_a_cell",
      .num_inputs = 1,
      .infer = [](const InferCall& c) { return Types{c.in[0]}; },
      .kernel =
          [](const KernelCall& c) {
            const auto read = [&](int64_t i) {
              c.out[0].as<float>()[i] = c.in[0].as<float>()[i] + seen->value().item<float>();
            };
            if (parallel) return parallel_for(4, read);
            for (int64_t i = 0; i < 4; ++i) read(i);
          },
  }};
  const auto step = compile([&cell](Tensor x) {
    cell.set(cell + 1);
    return op({x});
  });
  return step(zeros({4}));
}

TEST(Threads, AnOpOfTheStepCannotReadItsCells) {
  set_num_threads(2);
  for (const bool threads : {false, true}) {
    const Buffer cell(ones({}), "count");
    const std::string error = error_of([&] { read_inside(cell, threads); });
    EXPECT_NE(
        error.find("value: cell 'count' belongs to the step that calls this function and writes the cell; need an "
                   "operand instead: read the cell in the captured function, and pass the value to the op"),
        std::string::npos)
        << error;
    EXPECT_EQ(cell.value().item(), 1);  // and it is free again
  }
}

// The initialiser of a cell between the others: a step of the main thread runs between the reads of two cells.
struct Three : nn::Module {
  Parameter a{zeros({4}), "a"}, lazy, z{zeros({4}), "z"};
  std::promise<void> reached, go_on;
  std::function<Tensor(Tensor)> step = compile([this](Tensor by) {
    a.set(a + by);
    z.set(z + by);
    return by * 2;
  });
  static inline Three* current = nullptr;

  Three() {
    static const CustomOp op{{
        .name = "test.waits_for_a_step",
        .num_inputs = 1,
        .infer = [](const InferCall& c) { return Types{c.in[0]}; },
        .kernel =
            [](const KernelCall& c) {
              for (int64_t i = 0; i < 4; ++i) c.out[0].as<float>()[i] = c.in[0].as<float>()[i];
              current->reached.set_value();
              current->go_on.get_future().wait();
            },
    }};
    current = this;
    lazy = Parameter(
        {kFloat32, Device::cpu(), {4}}, [] { return op({zeros({4})}); }, "lazy");
    register_parameter("a", a), register_parameter("lazy", lazy), register_parameter("z", z);
  }

  // Runs `read` in another thread, with a step at the hold.
  void around_a_step(const std::function<void()>& read) {
    std::thread reader(read);
    reached.get_future().wait();
    step(ones({}));
    go_on.set_value();
    reader.join();
  }
};

TEST(Threads, AStateDictIsOfOneStep) {
  Three m;
  nn::StateDict values;
  m.around_a_step([&] { values = m.state_dict(); });
  EXPECT_EQ(only_number(values.at("a")), 1);
  EXPECT_EQ(only_number(values.at("z")), 1);
}

TEST(Threads, ASaveIsOfOneStep) {
  Three m;
  const std::string path = ::testing::TempDir() + "/three.safetensors";
  m.around_a_step([&] { save(m, path); });
  const nn::StateDict values = load(path);
  EXPECT_EQ(only_number(values.at("a")), 1);
  EXPECT_EQ(only_number(values.at("z")), 1);
}

}  // namespace
}  // namespace weft
