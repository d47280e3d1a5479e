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

#include "framework/base/error.h"

namespace weft::dist {

struct JobOptions {
  /// Ranks of the mesh, a multiple of the processes of the job: each process has an equal number, as threads.
  int ranks = 1;
  /// What must be equal in all processes, by name, beside the binary and the switches that change results; at most 60,
  /// of 256 bytes. Empty: the arguments of the program.
  std::vector<std::pair<std::string, std::string>> facts = {};
  std::chrono::nanoseconds timeout = std::chrono::seconds(600);  // of the join, and of communicators
  std::string transport = "auto";                                // see Processes
  /// A process has a share of the cores of its host, as threads that are ranks have.
  bool share_cores = true;
  /// The folder that gets the flight records if the job fails; empty: TMPDIR.
  std::string keep = "";
};

class Job {
 public:
  /// If torchrun, mpirun, Slurm, Kubernetes or //tools:launch has started this process, it joins the others: their
  /// coordination service is in the process of rank 0, and the ranks of a mesh are those of all processes from now on
  /// (Processes::current()). Only the first process keeps its standard output. Throws if a process differs in a fact,
  /// naming it and both values. Between hosts the environment must have JOB_TOKEN, or JOB_TOKEN_FILE with the path of a
  /// file: one secret for all processes.
  ///
  /// Otherwise it starts a process of this program, with the same arguments, for each rank on this host, and returns
  /// when they have ended. Call it before this process has threads. With one rank it does nothing.
  explicit Job(const JobOptions& options);
  /// Leaves the job. Drop all steps on the mesh first.
  ~Job();
  Job(const Job&) = delete;

  /// The exit code of the processes that this one has started; null in all others.
  std::optional<int> code() const { return code_; }
  /// The step that heartbeats report of this process.
  void progress(int64_t step);
  /// This process fails: the others end with this cause. To be called before communicators are dropped, so before an
  /// exception leaves the scope of the steps; a process that ends otherwise is reported as dead. All processes make the
  /// same steps: one that returns earlier without fail() lets the others wait for `timeout`.
  void fail(const Error& cause);

 private:
  struct Member;
  std::unique_ptr<Member> member_;  // null if this process has not joined
  std::optional<int> code_;
};

/// What has started several processes of this program.
struct Started {
  int64_t processes = 1;
  std::string text;  // "torchrun has started 4 processes of this program"
};
/// Null if nothing has. Throws if the variables that say so contradict each other.
std::optional<Started> started();

}  // namespace weft::dist
