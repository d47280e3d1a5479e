// A training step to plan, and one way to spread it over GPUs.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "compiler/cost/machine/machine.h"
#include "tools/plan/attention_rate.h"
#include "tools/plan/model/shape.h"

namespace weft::planner {

/// The share of a rank's memory that stays free for the driver, libraries and the allocator's gaps.
inline constexpr double kMemoryMargin = 0.06;

/// The inputs that all candidates share.
struct Workload {
  ModelShape model;
  Machine machine;  // machine with the rates of the run (with_tf32)
  int gpus = 1;
  int64_t batch = 1;  // sequences of a step
  int64_t sequence = 1;
  DType activations = kBFloat16;  // dtype of activations and of the weights at use
  DType products = kBFloat16;     // dtype of the operands of layers' products
  bool async_tp = true;           // products overlap with the tp collectives beside them
  AttentionKernel attention = AttentionKernel::kWeft;
  double host_seconds = 0;  // host time for each launch; 0: the step is replayed as one graph
  /// The machine with the link between replicas as its network; without it, replicas use the network of `machine`.
  std::optional<Machine> between_replicas = {};
  double memory_margin = kMemoryMargin;
  double peak_flops() const { return machine.products_of(products); }
  /// The number of ranks that share one device: all ranks if they are threads of one CPU.
  double sharing() const { return machine.shares_cores ? gpus : 1; }
  double tokens() const { return static_cast<double>(batch) * static_cast<double>(sequence); }
  /// Bytes that a rank may use; threads of one CPU share its memory.
  double usable_memory() const { return (1 - memory_margin) * machine.memory / sharing(); }
};

/// A mesh with its options. Ranks fill nodes in the order tp, cp, ep, fsdp, dp, pp, replica.
struct Candidate {
  int replica = 1;  // each has the whole state, and may die
  int dp = 1, fsdp = 1, tp = 1, cp = 1, ep = 1, pp = 1;
  int zero = 0;                   // 0, 1; 3 with fsdp
  std::string schedule = "1f1b";  // schedule of pp
  int stages_per_rank = 1;        // stages of pp
  int64_t microbatches = 1;
  bool full_recompute = false;  // backward recomputes each layer's forward; else only cheap values
  bool gather_once = true;      // gather once for all microbatches, with pp and zero 3
  int data() const { return replica * dp * fsdp * ep; }
  int ranks() const { return data() * tp * cp * pp; }
  std::string mesh() const;  // "pp8,fsdp8,tp8"; "" of one rank
  std::string text() const;  // "pp8,fsdp8,tp8  1f1b, 16 microbatches, full recompute"
};

}  // namespace weft::planner
