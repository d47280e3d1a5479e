// diagnose: names the faulty rank of a job, its fault and its collective, from the job's flight records.
#include "distributed/diagnose/diagnosis.h"
#include "framework/cli/cli.h"
#include "framework/io/file.h"

int main(int argc, char** argv) {
  using namespace weft;
  bool json = false, look = true;
  double patience = 1, slow = 0.5;
  const Flags flags{
      {"json", &json, "print JSON"},
      {"look", &look, "see in /proc which processes of this host run"},
      {"patience", &patience, "seconds that a rank of a running job may wait", {0, 1e6}},
      {"slow", &slow, "seconds by which a rank may enter a collective later than the others", {0, 1e6}},
  };
  return run_program(
      argc, argv,
      "Names the rank of a job that is at fault: diagnose [flags] FOLDER, the folder of its flight records "
      "(JOB_FLIGHT; the launcher prints it when a job fails).",
      flags, [&](const std::vector<std::string>& arguments) {
        if (arguments.size() != 1) usage_error("need one folder of flight records");
        const dist::diagnose::TracedJob job = dist::diagnose::read_job(io::resolve_path(arguments[0]), look);
        const dist::diagnose::Diagnosis d = dist::diagnose::diagnose(job, {patience, slow});
        write_output(json ? d.to_json() + "\n" : d.to_string());
        return 0;
      });
}
