// trainer STEP VALUES|- STEPS OUT: runs an exported training step, prints the bits of each loss, and writes the final
// state to OUT. It contains no compiler: it links only exported files and compiler/aot:step.
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "compiler/aot/gpt_bf16_step.h"
#include "compiler/aot/gpt_step.h"
#include "compiler/aot/mlp_step.h"
#include "compiler/aot/testing/batches.h"

namespace {

template <class Step>
void train(bool mlp, const std::string& values, int steps, const std::string& out) {
  Step step;
  if (values != "-") step.load(values);
  for (int i = 0; i < steps; ++i) {
    const auto in = weft::aot_example::batch(mlp, i);
    std::printf("%08x\n", std::bit_cast<uint32_t>(step(in[0], in[1]).template item<float>()));
  }
  step.save(out);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return std::fprintf(stderr, "usage: trainer STEP VALUES|- STEPS OUT\n"), 2;
  const std::string name = argv[1];
  try {
    if (name == "mlp_step") train<mlp_step>(true, argv[2], std::atoi(argv[3]), argv[4]);
    if (name == "gpt_step") train<gpt_step>(false, argv[2], std::atoi(argv[3]), argv[4]);
    if (name == "gpt_bf16_step") train<gpt_bf16_step>(false, argv[2], std::atoi(argv[3]), argv[4]);
  } catch (const std::exception& e) {
    return std::fprintf(stderr, "%s\n", e.what()), 1;
  }
}
