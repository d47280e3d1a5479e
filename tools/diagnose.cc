// diagnose: names the faulty rank of a job, its fault and its collective, from the job's flight records; or the replica
// for which other replicas wait.
#include "distributed/diagnose/diagnosis.h"
#include "distributed/diagnose/replicas.h"
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
      "(JOB_FLIGHT; the launcher prints it when a job fails). Given the folders of several replicas that train "
      "together, names the replica for which the others wait.",
      flags, [&](const std::vector<std::string>& arguments) {
        if (arguments.empty()) usage_error("need a folder of flight records, or one for each replica");
        std::vector<std::pair<std::string, dist::diagnose::TracedJob>> jobs;
        for (const std::string& folder : arguments)
          jobs.emplace_back(folder, dist::diagnose::read_job(io::resolve_path(folder), look));
        const auto print = [&](const auto& diagnosis) {
          write_output(json ? diagnosis.to_json() + "\n" : diagnosis.to_string());
          return 0;
        };
        const dist::diagnose::DiagnosisOptions options{patience, slow};
        return jobs.size() == 1 ? print(dist::diagnose::diagnose(jobs[0].second, options))
                                : print(dist::diagnose::diagnose_replicas(jobs, options));
      });
}
