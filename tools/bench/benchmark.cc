#include "tools/bench/benchmark.h"

#include "absl/flags/flag.h"
#include "framework/cli/cli.h"

ABSL_FLAG(std::string, json, "", "also write the results to this file");

namespace weft::bench {

int run_benchmark(int argc, char** argv, const char* name, const char* doc, void (*run)(Report& report)) {
  return run_program(argc, argv, doc, [&](const std::vector<std::string>& arguments) {
    if (!arguments.empty()) usage_error("unexpected argument " + arguments[0]);
    Report report(name);
    run(report);
    if (!report.empty()) report.finish(absl::GetFlag(FLAGS_json));
    return 0;
  });
}

}  // namespace weft::bench
