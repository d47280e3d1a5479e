// Job: a program whose ranks are processes. At the beginning of main():
//
//   dist::Job job({.ranks = mesh.size()});
//   if (job.code()) return *job.code();                     // it has started the processes, and they have ended
//   auto step = dist::compile(train_step, {.mesh = mesh});  // each process has its ranks of the mesh
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "distributed/comm/store.h"
#include "distributed/launch/restarts.h"
#include "framework/base/error.h"

namespace weft::dist {

struct JobOptions {
  /// Ranks of the mesh, a multiple of the processes of the job: each process has an equal number, as threads.
  int ranks = 1;
  /// Values that must be equal in all processes, by name, besides the binary and the switches that change results; at
  /// most 60, of 256 bytes each. Empty: the arguments of the program.
  std::vector<std::pair<std::string, std::string>> facts = {};
  std::chrono::nanoseconds timeout = std::chrono::seconds(600);  // timeout of the join and of communicators
  std::string transport = "auto";                                // see Processes
  /// A process uses a share of its host's cores, as rank threads do.
  bool share_cores = true;
  /// The folder that gets the flight records if the job fails; empty: TMPDIR.
  std::string keep = "";
  /// Restarts by the process that starts the others. Its `arguments` have to switch restarts off in the others.
  RestartOptions restarts = {};
};

class Job {
 public:
  /// If torchrun, mpirun, Slurm, Kubernetes or //tools:launch has started this process, it joins the others: the
  /// process of rank 0 runs their coordination service, and from now on a mesh spans the ranks of all processes
  /// (Processes::current()). Only the first process keeps its standard output. If a fact differs between processes,
  /// throws an error with its name and both values. Between hosts the environment must have JOB_TOKEN, or
  /// JOB_TOKEN_FILE with the path of a file: one secret for all processes.
  ///
  /// Otherwise it starts a process of this program, with the same arguments, for each rank on this host, and returns
  /// when they have ended. Call it before this process has threads. For one rank it does nothing, unless `restarts`
  /// asks for restarts. Throws if `restarts` asks for restarts in a process that another launcher has started: that
  /// launcher restarts it.
  explicit Job(const JobOptions& options);
  /// Leaves the job. Drop all steps on the mesh first.
  ~Job();
  Job(const Job&) = delete;

  /// The exit code of the processes that this process has started; null in other processes.
  std::optional<int> code() const { return code_; }
  /// The store of the job's processes; null if this process has not joined.
  Store* store() const;
  /// JobOptions::facts.
  const std::vector<std::pair<std::string, std::string>>& facts() const { return facts_; }
  /// Sets the step that this process's heartbeats report.
  void progress(int64_t step);
  /// Reports that this process fails: the others end with this cause. Call it before communicators are dropped, so
  /// before an exception leaves the scope of the steps; a process that ends without it is reported as dead. All
  /// processes must run equal numbers of steps: if a process returns earlier without fail(), the others wait for
  /// `timeout`.
  void fail(const Error& cause);

 private:
  struct Member;
  const std::vector<std::pair<std::string, std::string>> facts_;
  std::unique_ptr<Member> member_;  // null if this process has not joined
  std::optional<int> code_;
};

/// Values that are equal in all processes of a job, and in all replicas, by name: the binary, the switches that change
/// results, and `given`, or the arguments of the program if it is empty. `any_instructions`: the instruction sets of
/// replicas may differ.
std::vector<std::pair<std::string, std::string>> program_facts(
    const std::vector<std::pair<std::string, std::string>>& given, bool any_instructions = false);

/// The launcher of several processes of this program.
struct Started {
  int64_t processes = 1;
  std::string text;  // "torchrun has started 4 processes of this program"
};
/// The launcher of this process, or null. Throws if its variables contradict each other.
std::optional<Started> started();

}  // namespace weft::dist
