// Membership: this process in the job that //tools:launch, torchrun, mpirun, Slurm or Kubernetes has started.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "distributed/control/identity.h"
#include "framework/base/error.h"

namespace weft::dist {

struct MembershipOptions {
  /// Ranks of the mesh, a multiple of the processes of the job: each process has an equal number, as threads.
  int ranks = 1;
  /// What must be equal in all processes, by name, beside the binary and the switches that change results. At most 48,
  /// of 256 bytes.
  std::vector<std::pair<std::string, std::string>> facts;
  std::chrono::nanoseconds timeout = std::chrono::seconds(600);  // of the join
  std::string transport = "auto";                                // see Processes
};

class Membership {
 public:
  /// Joins the coordination service of the job, which the process of rank 0 starts, and makes the job that of this
  /// process (Processes::current()). Throws if a process differs in a fact, naming it and both values. Between hosts
  /// the environment must have JOB_TOKEN, or JOB_TOKEN_FILE with the path of a file: one secret for all processes.
  Membership(const control::Identity& identity, const MembershipOptions& options);
  /// Leaves the job. Drop all steps on the mesh first.
  ~Membership();
  Membership(const Membership&) = delete;

  /// The step that heartbeats report of this process.
  void progress(int64_t step);
  /// This process fails: the others end with this cause.
  void fail(const Error& cause);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::dist
