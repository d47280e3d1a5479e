// The closed forms against published and computed figures: one row per figure, by its number in the list of vectors.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tools/study/diloco.h"
#include "tools/study/failures.h"
#include "tools/study/training.h"

namespace weft::study {
namespace {

struct Row {
  const char *vector, *input, *formula;
  double got, expected, tolerance;
};

constexpr double kDay = 86400, kMany = 1e15;

// Figures with two or three digits are compared in these digits.
const Row kRows[] = {
    {"V22", "1 node, 10 failures in 1000 node-days", "1000 / 10 days", seconds_between_failures(1, 10) / kDay, 100,
     1e-9},
    {"V22", "100 nodes", "/ 100", seconds_between_failures(100, 10) / kDay, 1, 1e-9},
    {"V22 erratum", "10,000 nodes = 80,000 GPUs; the source says 15 minutes", "/ 10,000",
     seconds_between_failures(1e4, 10) / 60, 14.4, 1e-9},

    {"V23", "checkpoint 60 s, 864 s between failures", "sqrt(2 checkpoint between) (Young)",
     young_interval({.between = 864, .checkpoint = 60}), 322, 0.5},
    {"V23", "the same, interval 322 s, restart 300 s", "1 - (60/322 + (161 + 300)/864)",
     restart_goodput_first_order({.between = 864, .checkpoint = 60, .restart = 300}, 322), 0.2801, 1e-4},
    {"V23", "failures a thousand times rarer: first order and exact agree", "Daly 2006, equation 13",
     restart_goodput({.between = 864e3, .checkpoint = 60, .restart = 300}, 10182),
     restart_goodput_first_order({.between = 864e3, .checkpoint = 60, .restart = 300}, 10182), 1e-4},

    {"V24", "8 replicas", "(R - 1) / R of the batch", batch_share(8), 0.875, 1e-12},

    {"V25", "1e9 parameters, data parallel in bf16, many replicas", "2 x 2 N",
     bytes_a_step({.parameters = 1e9, .replicas = kMany, .bytes_each = 2, .steps = 1}), 4e9, 1},
    {"V25", "DiLoCo, H 500, f32", "4 N x 2 / H",
     bytes_a_step({.parameters = 1e9, .replicas = kMany, .bytes_each = 4, .steps = 500}), 16e6, 1},
    {"V25", "DiLoCo, H 500, bf16", "4 N / H",
     bytes_a_step({.parameters = 1e9, .replicas = kMany, .bytes_each = 2, .steps = 500}), 8e6, 1},

    {"V26", "N 1e9 in bf16, D 20e9, R 8, Q 1e15, 1e9 B/s, 0.1 s, 10,000 steps, H 500: seconds of the run",
     "6 N D / (R Q) + (2 N b / W (1 - 1/R) + eps) steps / H",
     15000 / utilisation({.parameters = 1e9, .replicas = 8, .bytes_each = 2, .steps = 500},
                         {.bandwidth = 1e9, .latency = 0.1}, {.mean = 6. * 1e9 * 20e9 / (8 * 1e15) / 1e4}),
     15000 + (3.5 + 0.1) * 20, 1e-6},
    {"V26", "the bandwidth for that utilisation", "the inverse",
     bandwidth_for(15000. / 15072, {.parameters = 1e9, .replicas = 8, .bytes_each = 2, .steps = 500}, 0.1, 1.5), 1e9,
     1},
    {"V26 (INTELLECT-1)", "38 minutes of compute, 7 of exchange: 83 to 96 % are published", "38 / (38 + 7)",
     utilisation({.parameters = 10e9, .replicas = 14, .bytes_each = 1, .steps = 100},
                 {.bandwidth = 2 * 13. / 14 * 10e9 / (7 * 60)}, {.mean = 22.8}),
     0.844, 5e-4},

    {"V37", "625 replicas of 16 nodes, 14.4 minutes between failures, 3 minutes to join again", "3 / 14.4 / 625",
     1 - drop_goodput_first_order({.between = 864, .replicas = 625, .stall = 0, .rejoin = 180}), 0.00033, 5e-6},
    {"V37", "restart of all takes 5 minutes, nothing else", "5 / 14.4",
     1 - restart_goodput_first_order({.between = 864, .checkpoint = 0, .restart = 300}, 1e-9), 0.347, 5e-4},

    {"V38", "1e24 operations, 4,000 GPUs at 200 TFLOP/s", "flops / (GPUs x rate), days",
     run_seconds(1e24, 4000, 200e12) / kDay, 14.5, 0.05},
    {"V38", "500 nodes for so long: node-days", "days x nodes", run_seconds(1e24, 4000, 200e12) / kDay * 500, 7234, 1},
    {"V38", "10 failures in 1000 node-days", "node-days x rate",
     expected_failures(run_seconds(1e24, 4000, 200e12), 500, 10), 72, 0.5},

    {"V39", "100 layers, 4 dependent collectives of 30 us", "layers x collectives x latency, ms",
     1e3 * least_step({.layers = 100, .collectives = 4, .latency = 30e-6}), 12, 1e-9},
    {"V39", "1e6 such steps", "hours", 1e6 * least_step({}) / 3600, 3.3, 0.05},
    {"V39", "on many GPUs the largest run is the wall", "6 tokens^2 / ratio, tokens = batch x time / step",
     largest_run({}, 1e30) / latency_wall({}), 1, 1e-6},
    {"V39", "on few GPUs the run is their compute", "GPUs x rate x time",
     largest_run({}, 100) / (100 * 200e12 * 90 * kDay), 1, 1e-3},

    {"V40", "8,192 tokens x 8,192 in bf16", "tokens x dim x 2, MB", all_reduce_bytes({}) / 1e6, 134, 0.5},
    {"V40 with V15", "the measured ring of a node of 8 H100", "latency + bytes / bandwidth = 0.031 + 0.503 ms",
     1e3 * tp_time({.all_reduces = 1}, 8).communication, 0.534, 5e-4},
    {"V40 with V17", "16 H100 of two nodes, a tree over the ports of all 16",
     "2 bytes / (204.8e9 x 2 15/16 x 0.87) + 2 log2(16) x 4.72 us", 1e3 * tp_time({.all_reduces = 1}, 16).communication,
     0.841, 5e-4},
    {"V40", "16-bit products of an H100 reach 0.7 x 989.5e12 FLOP/s", "2 x parameters x tokens / rate, ms",
     1e3 * tp_time({}, 1).compute, 20.24, 5e-3},

    {"V50", "a failure every 15 s, 4 replicas, stall 0.3 s, rejoin 3 s", "1 - .3/15 - (3/15)/4",
     drop_goodput_first_order({.between = 15, .replicas = 4, .stall = 0.3, .rejoin = 3}), 0.93, 1e-12},
    {"V50", "the same without the approximation", "exp(-(.3 + 3/4) / 15)",
     drop_goodput({.between = 15, .replicas = 4, .stall = 0.3, .rejoin = 3}), std::exp(-0.07), 1e-12},
    {"V50", "stall 0.03 s, rejoin 1.5 s", "1 - .03/15 - (1.5/15)/4",
     drop_goodput_first_order({.between = 15, .replicas = 4, .stall = 0.03, .rejoin = 1.5}), 0.973, 1e-12},
    {"V51", "restart beside it, checkpoint 0.1 s, restart 3 s, Young's interval", "1 - (t/tau + (tau/2 + 3)/15)",
     restart_goodput_first_order({.between = 15, .checkpoint = 0.1, .restart = 3}, std::sqrt(3.)),
     1 - (0.1 / std::sqrt(3.) + (std::sqrt(3.) / 2 + 3) / 15), 1e-12},

    {"V52", "N 1e6, R 2, 4 bit, H 100", "2 (R - 1) / R x N b / H",
     bytes_a_step({.parameters = 1e6, .replicas = 2, .bytes_each = 0.5, .steps = 100}), 5e3, 1e-9},
    {"V52", "data parallel in f32", "2 (R - 1) / R x 4 N",
     bytes_a_step({.parameters = 1e6, .replicas = 2, .bytes_each = 4, .steps = 1}), 4e6, 1e-9},
    {"V52", "the same over each other", "H x 4 / b = 800",
     bytes_a_step({.parameters = 1e6, .replicas = 2, .bytes_each = 4, .steps = 1}) /
         bytes_a_step({.parameters = 1e6, .replicas = 2, .bytes_each = 0.5, .steps = 100}),
     800, 1e-9},
    {"V52", "10 fragments", "the burst / P",
     burst_bytes({.parameters = 1e6, .replicas = 2, .bytes_each = 0.5, .steps = 100, .fragments = 10}), 5e4, 1e-9},
};

TEST(Vectors, ClosedForms) {
  for (const Row& r : kRows)
    EXPECT_NEAR(r.got, r.expected, r.tolerance) << r.vector << ": " << r.input << ": " << r.formula;
}

TEST(TpWall, ARingOverNodesIsNotFasterThanTheLinksInsideThem) {
  for (const char* name : {"gb200", "h100-pcie", "mi300x", "a100"}) {
    const TpBlock b{.machine = machine_preset(name)};
    const int node = b.machine.links.node, half = node > 64 ? 64 : node;
    EXPECT_GT(tp_time(b, 2 * half).communication, tp_time(b, half).communication) << name;
  }
}

// One token: a block of Llama 70B is 0.856 B parameters, which are read at 3 TB/s.
TEST(TpWall, FewTokensWaitForTheWeights) {
  TpBlock b;
  b.tokens = 1;
  EXPECT_NEAR(tp_time(b, 1).compute, b.parameters * 2 / b.machine.bytes, 1e-9);
  EXPECT_GT(tp_time(b, 1).step(), tp_time(b, 8).step());
}

}  // namespace
}  // namespace weft::study
