// doctor: prints the machine's hardware and libraries, and which of them Weft uses.
#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "compiler/cost/rates.h"
#include "framework/base/error.h"
#include "framework/base/thread_pool.h"
#include "framework/cli/cli.h"
#include "framework/io/file.h"
#include "tools/gpus.h"
#include "tools/machine.h"

ABSL_FLAG(bool, measure, false, "also measure the copy rate and the GEMM rate by dtype (takes about a second)");
ABSL_FLAG(bool, json, false, "print JSON instead of text");
ABSL_FLAG(std::string, out, "", "also write the JSON to this file");

namespace {

// Copies count the bytes read and the bytes written.
void add_measured(weft::tools::Facts& facts) {
  auto add = [&](const std::string& threads) {
    const weft::Machine m = weft::measured_cpu();
    facts.add("measured", "copy_" + threads, m.bytes * 1e-9, "GB/s");
    facts.add("measured", "gemm_f32_" + threads, m.products * 1e-9, "GFLOP/s");
    facts.add("measured", "gemm_bf16_" + threads, m.products16 * 1e-9, "GFLOP/s");
  };
  {
    weft::ThreadPool one(1);
    const weft::ScopedPool pool(one);
    add("1_thread");
  }
  if (weft::num_threads() > 1) add("all_cores");
}

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
