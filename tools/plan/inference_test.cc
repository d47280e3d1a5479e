#include "tools/plan/inference.h"

#include <gtest/gtest.h>

#include "compiler/cost/machine/machine_file.h"

namespace weft::planner {
namespace {

InferenceWorkload workload(const std::string& model, int gpus) {
  return {.model = preset_shape(model), .machine = machine_preset("h100-sxm"), .gpus = gpus};
}

TEST(Inference, NoStepIsFasterThanTheBoundOfItsWeights) {
  for (const char* model : {"llama-8b", "llama-70b", "qwen-32b", "mixtral-8x7b", "deepseek-moe-16b"})
    for (int gpus : {1, 2, 8}) {
      const InferenceWorkload s = workload(model, gpus);
      EXPECT_LT(1 / decode(s, 1, 0).seconds, decode_bound(s, gpus)) << model << " " << gpus;
    }
}

// Mixtral: 46.7 B parameters, of which a token uses 12.9 B: 2 of 8 experts.
TEST(Inference, TheBoundOfExpertsIsThatOfTheChosenOnes) {
  EXPECT_NEAR(bound_bytes(workload("mixtral-8x7b", 1)), 2 * 12.9e9, 0.2e9);
}

// Each of 8 GPUs has all of 1 head of keys and values: the bytes equal 8 heads on 8 GPUs.
TEST(Inference, GpusBeyondTheHeadsHaveCopiesOfKeysAndValues) {
  InferenceWorkload s = workload("llama-70b", 8);
  ASSERT_EQ(s.model.kv_heads, 8);
  const int64_t eight = largest_batch(s);
  s.model = s.model.with_kv_heads(1);
  EXPECT_NEAR(static_cast<double>(largest_batch(s)) / static_cast<double>(eight), 1, 0.03);
  s.gpus = 1;
  const double one = decode(s, 1, 1000).cache;
  s.gpus = 4;
  EXPECT_DOUBLE_EQ(decode(s, 1, 1000).cache, 4 * one);
}

// Keys and values of a token, 2 x 80 layers x 8 heads x 128 x 2 bytes, times 2048 tokens.
TEST(Inference, BytesOfKeysAndValues) {
  EXPECT_DOUBLE_EQ(decode(workload("llama-70b", 8), 1, 0).cache, 2.0 * 80 * 8 * 128 * 2 * 2048);
}

// A batch of 1 reads all weights but the table of embeddings, at the rate of copies.
TEST(Inference, TimeOfOneSequence) {
  const InferenceWorkload s = workload("llama-8b", 1);
  const double read = 2 * static_cast<double>(s.model.parameters() - s.model.table_parameters());
  EXPECT_NEAR(decode(s, 1, 0).weight_seconds, read / s.machine.bytes, 1e-6);
}

// One row of a product has an operation for each byte of weights in bf16: the ridge is the batch.
TEST(Inference, TurnsComputeBoundAtTheRidge) {
  InferenceWorkload s = workload("llama-8b", 1);
  const double ridge = s.machine.reached * s.machine.products16 / s.machine.bytes;
  EXPECT_NEAR(compute_bound_batch(s), ridge, 1.5);
  s.weight_bytes = 1;
  EXPECT_NEAR(compute_bound_batch(s), ridge / 2, 1.5);
}

TEST(Inference, TheMarginOfMemoryStaysFree) {
  InferenceWorkload s = workload("llama-70b", 1);
  EXPECT_EQ(gpus_needed(s), 2);
  s.memory_margin = 0.2;
  EXPECT_EQ(gpus_needed(s), 4);
  s.prompt = int64_t{1} << 40;  // copies of the keys and values are on all GPUs beyond the heads
  EXPECT_EQ(gpus_needed(s), 0);
  s.machine.shares_cores = true;
  s.gpus = 4;
  EXPECT_EQ(s.usable_memory(), 0.8 * s.machine.memory);
}

TEST(Inference, AMachineWithItsOwnMemoryHasNoDataSheetOfThePreset) {
  InferenceWorkload s = workload("llama-8b", 1);
  s.machine = machine_from_json(R"({"like": "h100-sxm", "bytes": 4.8e12})", "mine");
  EXPECT_NEAR(decode_bound(s, 1), 4.8e12 / 16.06e9, 1);
}

}  // namespace
}  // namespace weft::planner
