// doctor: prints the machine's hardware and libraries, and which of them Weft uses.
#include <string>

#include "compiler/cost/machine/machine_file.h"
#include "distributed/control/identity.h"
#include "framework/base/error.h"
#include "framework/cli/cli.h"
#include "framework/io/file.h"
#include "tools/doctor/gpus.h"
#include "tools/doctor/job.h"
#include "tools/doctor/machine.h"
#include "tools/doctor/measure.h"
#include "tools/doctor/nccl_variables.h"
#include "tools/doctor/reached.h"

namespace {

struct DoctorFlags {
  bool measure = false, json = false;
  weft::File out{weft::File::Use::kWrite};
};

int doctor(const DoctorFlags& o) {
  using namespace weft::tools;
  FactList facts;
  try {
    add_choice(facts);
  } catch (const weft::Error& error) {
    weft::usage_error(error.what());
  }
  add_machine(facts);
  add_gpus(facts);
  const weft::control::Environment environment = weft::control::environment();
  add_nccl_variables(facts, environment);
  add_job(facts, environment);
  std::string machine;
  if (o.measure) {
    weft::Machine cpu = add_cpu_rates(facts);
    cpu.attention_shares = attention_shares(cpu);
    for (const weft::ProductShare& a : cpu.attention_shares)
      facts.add("measured", weft::str_cat("attention_f32_head_", a.side, "_share"), 100 * a.f32, "%");
    cpu.reached = reached_share(cpu);
    facts.add("measured", "reached_by_a_step", 100 * cpu.reached, "%");
    machine = weft::machine_to_json(cpu);
    add_gpu_rates(facts);
  }
  const std::string json = facts.to_json(machine);
  if (o.out) weft::io::write_file_atomic(o.out.path, json);
  weft::write_output(o.json ? json : facts.to_text());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  DoctorFlags o;
  const weft::Flags flags{
      {"measure", &o.measure,
       "also measure memory by working set, GEMM by size and dtype, and the copy rates of GPUs (takes about ten "
       "seconds)"},
      {"json", &o.json, "print JSON instead of text"},
      {"out", &o.out,
       "also write the JSON to this file; with --measure it is a machine file, for WEFT_MACHINE and "
       "CompileOptions::machine"}};
  return weft::run_program(argc, argv, "Prints the machine's hardware and libraries, and which of them Weft uses.",
                           flags, [&] { return doctor(o); });
}
