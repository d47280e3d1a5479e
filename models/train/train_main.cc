// Flags of the train programs.
#include <cstdio>

#include "absl/flags/flag.h"
#include "framework/base/error.h"
#include "framework/cli/cli.h"
#include "framework/dispatch/tf32.h"
#include "models/train/trainer.h"

ABSL_FLAG(std::string, config, "", "configuration by name (--config list prints them); empty: the program's default");
ABSL_FLAG(std::string, data, "",
          "text file, folder of .txt files, token shards, or synthetic; empty: the works of Shakespeare");
ABSL_FLAG(int64_t, steps, 0, "optimiser steps; 0: the configuration's default");
ABSL_FLAG(int64_t, batch_size, 0, "sequences per step; 0: the configuration's default");
ABSL_FLAG(int64_t, seq_len, 0, "tokens per sequence; 0: the configuration's context");
ABSL_FLAG(double, lr, 0, "peak learning rate; 0: the configuration's default");
ABSL_FLAG(int64_t, warmup, -1, "steps of linear warm-up before the cosine; -1: a twentieth of the steps");
ABSL_FLAG(int64_t, grad_accum, 1, "parts a batch is split into, one after the other, to save memory");
ABSL_FLAG(int64_t, eval_every, -1, "steps between evaluations on held-out text; 0: never; -1: a quarter of the steps");
ABSL_FLAG(std::string, checkpoint_every, "auto",
          "steps between checkpoints, 0 for none, or auto: about 1 % of the time");
ABSL_FLAG(int64_t, keep, 3, "checkpoints to keep, the newest; 0: all");
ABSL_FLAG(std::string, device, "cpu", "cpu, cuda or cuda:N: where the model is trained");
ABSL_FLAG(std::string, dtype, "f32",
          "f32, bf16 or f16: what activations are computed in; master weights are always f32");
ABSL_FLAG(bool, compile, true, "capture the step as one graph and replay it; false: run it op by op");
ABSL_FLAG(int64_t, memory_budget, 0, "most bytes a step may plan for; 0: no limit");
ABSL_FLAG(std::string, numerics, "fast", "fast, or eager: round exactly as op-by-op execution does");
ABSL_FLAG(bool, tf32, false, "with --device cuda and f32: products on tensor cores, which round operands to 11 bits");
ABSL_FLAG(bool, verify_numerics, false,
          "sums that give the same bits on one device and on any mesh: slow; numerics are eager");
ABSL_FLAG(bool, verify, false,
          "compare the compiled step with the interpreter on the first batch; with --device cuda each of its launches "
          "with the CPU");
ABSL_FLAG(std::string, kernel_cache, "",
          "folder of compiled kernels, or off; empty: ~/.cache/weft/kernels, or as WEFT_CACHE says");
ABSL_FLAG(std::string, mesh, "",
          "ranks along dimensions dp, fsdp, tp, cp, ep, outermost first, as in dp2,tp2 or dp2,tp2,ep4(dp,tp); empty: "
          "one device");
ABSL_FLAG(std::string, ranks, "threads", "what the ranks of --mesh are: threads of this process");
ABSL_FLAG(double, timeout, 600,
          "with --mesh, seconds that a rank waits for the others in a collective before the run fails and names the "
          "missing ranks");
ABSL_FLAG(int64_t, zero, -1,
          "with --mesh, ZeRO stage: 1 shards optimiser state over the data ranks, 2 gradients too, 3 parameters too; "
          "-1: 3 over fsdp, else 0");
ABSL_FLAG(std::string, cp, "allgather",
          "with --mesh and a dimension cp, how attention sees the whole sequence: allgather, ring or ulysses");
ABSL_FLAG(std::string, cp_layout, "auto",
          "with --mesh and a dimension cp, which positions a rank has: contiguous, headtail (equal work under a causal "
          "mask), documents (equal work for packed documents), or auto");
ABSL_FLAG(bool, sequence, true,
          "with --mesh and a dimension tp, split sequences where tp does not split features (sequence parallelism)");
ABSL_FLAG(bool, show_plan, false,
          "print how the step is laid over the mesh, every collective with its reason, before the first step");
ABSL_FLAG(std::vector<std::string>, forbid, {},
          "with --mesh, collectives the plan may not have, as in allgather@dp:activations,allreduce@tp: "
          "KIND@DIMENSION[:WHAT], * for any; one that it has is an error");
ABSL_FLAG(std::string, plan, "", "file that --save_plan wrote: mesh and placements are those of that plan");
ABSL_FLAG(std::string, save_plan, "", "with --mesh, file for the plan, written before the first step");
ABSL_FLAG(std::string, checkpoint_dir, "",
          "folder for checkpoints; empty: runs/FAMILY-CONFIG where you are, numbered if there is one");
ABSL_FLAG(bool, resume, false, "go on from the newest checkpoint in --checkpoint_dir, if there is one");
ABSL_FLAG(std::string, metrics, "", "file for one JSON object a step");
ABSL_FLAG(int64_t, seed, 0, "seed of weights, dropout and the order of data");
ABSL_FLAG(int64_t, threads, 0, "threads; 0: all cores");
ABSL_FLAG(int64_t, sample, -1, "tokens of text to write at the end; 0: none; -1: 400 after training on text");

namespace weft::train {

int train_main(int argc, char** argv, const nn::ModelFamily& family) {
  const std::string summary = str_cat("Trains a ", family.name, " language model.");
  return run_program(argc, argv, summary.c_str(), [&](const std::vector<std::string>& rest) {
    if (!rest.empty()) usage_error(str_cat("unexpected argument '", rest[0], "'; --help lists the flags"));
    if (absl::GetFlag(FLAGS_config) == "list") {
      for (const std::string& name : family.presets)
        std::printf("%s%s\n", name.c_str(), name == family.default_preset ? "  (the default)" : "");
      return 0;
    }
    TrainOptions o;
    o.config = absl::GetFlag(FLAGS_config);
    o.data = absl::GetFlag(FLAGS_data);
    o.steps = absl::GetFlag(FLAGS_steps);
    o.batch_size = absl::GetFlag(FLAGS_batch_size);
    o.seq_len = absl::GetFlag(FLAGS_seq_len);
    o.lr = absl::GetFlag(FLAGS_lr);
    o.warmup = absl::GetFlag(FLAGS_warmup);
    o.grad_accum = absl::GetFlag(FLAGS_grad_accum);
    o.eval_every = absl::GetFlag(FLAGS_eval_every);
    o.checkpoint_every = absl::GetFlag(FLAGS_checkpoint_every);
    o.keep = absl::GetFlag(FLAGS_keep);
    o.device = absl::GetFlag(FLAGS_device);
    o.dtype = absl::GetFlag(FLAGS_dtype);
    o.compile = absl::GetFlag(FLAGS_compile);
    o.memory_budget = absl::GetFlag(FLAGS_memory_budget);
    o.numerics = absl::GetFlag(FLAGS_numerics);
    o.tf32 = absl::GetFlag(FLAGS_tf32);
    set_tf32(o.tf32);  // what runs outside of compiled steps
    o.verify_numerics = absl::GetFlag(FLAGS_verify_numerics);
    o.verify = absl::GetFlag(FLAGS_verify);
    o.kernel_cache = absl::GetFlag(FLAGS_kernel_cache);
    o.mesh = absl::GetFlag(FLAGS_mesh);
    o.ranks = absl::GetFlag(FLAGS_ranks);
    o.timeout = absl::GetFlag(FLAGS_timeout);
    o.zero = absl::GetFlag(FLAGS_zero);
    o.cp = absl::GetFlag(FLAGS_cp);
    o.cp_layout = absl::GetFlag(FLAGS_cp_layout);
    o.sequence = absl::GetFlag(FLAGS_sequence);
    o.show_plan = absl::GetFlag(FLAGS_show_plan);
    o.forbid = absl::GetFlag(FLAGS_forbid);
    o.plan = absl::GetFlag(FLAGS_plan);
    o.save_plan = absl::GetFlag(FLAGS_save_plan);
    o.checkpoint_dir = absl::GetFlag(FLAGS_checkpoint_dir);
    o.resume = absl::GetFlag(FLAGS_resume);
    o.metrics = absl::GetFlag(FLAGS_metrics);
    const int64_t seed = absl::GetFlag(FLAGS_seed);
    if (seed < 0) usage_error(str_cat("--seed: got ", seed, "; need 0 or more"));
    o.seed = static_cast<uint64_t>(seed);
    o.threads = absl::GetFlag(FLAGS_threads);
    o.sample_tokens = absl::GetFlag(FLAGS_sample);
    return train(family, o);
  });
}

}  // namespace weft::train
