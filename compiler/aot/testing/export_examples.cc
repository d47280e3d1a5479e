// Writes the examples of the ahead-of-time test to the folder given as its argument.
#include <cstdio>

#include "compiler/aot/export.h"
#include "compiler/aot/testing/batches.h"
#include "compiler/aot/testing/examples.h"

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: export_examples FOLDER\n"), 2;
  try {
    for (const char* name : {"mlp_step", "gpt_step", "gpt_bf16_step"}) {
      auto step = weft::aot_example::make(name);
      const auto in = weft::aot_example::batch(std::string(name) == "mlp_step", 0);
      step.prepare(in[0], in[1]);
      weft::aot_export(step, name, {.folder = argv[1], .include_folder = "compiler/aot"});
    }
  } catch (const std::exception& e) {
    return std::fprintf(stderr, "export_examples: %s\n", e.what()), 1;
  }
}
