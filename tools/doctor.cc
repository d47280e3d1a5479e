// doctor: prints the machine's hardware and libraries, and which of them Weft uses.
#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "compiler/cost/machine_file.h"
#include "framework/base/error.h"
#include "framework/cli/cli.h"
#include "framework/io/file.h"
#include "tools/gpus.h"
#include "tools/machine.h"
#include "tools/measure.h"

ABSL_FLAG(bool, measure, false,
          "also measure memory by working set, GEMM by size and dtype, and what GPUs copy (takes about ten seconds)");
ABSL_FLAG(bool, json, false, "print JSON instead of text");
ABSL_FLAG(std::string, out, "",
          "also write the JSON to this file; with --measure it is a machine file, for WEFT_MACHINE and "
          "CompileOptions::machine");

namespace {

int doctor(const std::vector<std::string>& arguments) {
  using namespace weft::tools;
  if (!arguments.empty()) weft::usage_error("unexpected argument " + arguments[0]);
  Facts facts;
  try {
    add_choice(facts);
  } catch (const weft::Error& error) {
    weft::usage_error(error.what());
  }
  add_machine(facts);
  add_gpus(facts);
  std::string machine;
  if (absl::GetFlag(FLAGS_measure)) {
    machine = weft::machine_to_json(add_cpu_rates(facts));
    add_gpu_rates(facts);
  }
  const std::string json = facts.to_json(machine);
  if (std::string out = absl::GetFlag(FLAGS_out); !out.empty())
    weft::io::write_file_atomic(weft::io::resolve_path(out), json);
  std::fputs((absl::GetFlag(FLAGS_json) ? json : facts.to_text()).c_str(), stdout);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return weft::run_program(argc, argv, "Prints the machine's hardware and libraries, and which of them Weft uses.",
                           doctor);
}
