#include <cstdint>

#include "absl/flags/flag.h"
#include "framework/cli/cli.h"
#include "tools/gpu/bench.h"

ABSL_FLAG(std::string, json, "", "also write the results to this file");
ABSL_FLAG(std::string, only, "", "run only the parts whose name contains this: products, flex, steps, memory, chains");
ABSL_FLAG(int32_t, device, 0, "index of the GPU");

int main(int argc, char** argv) {
  return weft::run_program(argc, argv, "Times ops, attention and training steps on a GPU; exit code 77 without one.",
                           [](const std::vector<std::string>&) {
                             return weft::bench::run_gpu_bench(
                                 {absl::GetFlag(FLAGS_json), absl::GetFlag(FLAGS_only), absl::GetFlag(FLAGS_device)});
                           });
}
