// doctor: prints the machine's hardware and libraries, and which of them Weft uses.
#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "framework/base/error.h"
#include "framework/cli/cli.h"
#include "framework/io/file.h"
#include "tools/libraries.h"
#include "tools/machine.h"
#include "tools/measure.h"

ABSL_FLAG(bool, measure, false, "also measure the copy rate and the GEMM rate by dtype (takes a few seconds)");
ABSL_FLAG(bool, json, false, "print JSON instead of text");
ABSL_FLAG(std::string, out, "", "also write the JSON to this file");

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
  add_libraries(facts);
  if (absl::GetFlag(FLAGS_measure)) add_measured(facts);
  if (std::string out = absl::GetFlag(FLAGS_out); !out.empty())
    weft::io::write_file_atomic(weft::io::resolve_path(out), facts.to_json());
  std::fputs((absl::GetFlag(FLAGS_json) ? facts.to_json() : facts.to_text()).c_str(), stdout);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return weft::run_program(argc, argv, "Prints the machine's hardware and libraries, and which of them Weft uses.",
                           doctor);
}
