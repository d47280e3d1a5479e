// Processes: the processes of a job, each with an equal number of ranks. Without a job, all ranks are threads of this
// process.
//
// All processes run the same program: they make the same collective calls in the same order. Process 0 makes the
// decisions that depend on a clock, a signal or a file system, and sends them to all: from_first(). One thread of each
// process makes all steps and collectives, because the order of two threads may differ between processes.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "distributed/comm/process_world.h"
#include "distributed/comm/store.h"
#include "framework/dispatch/rank/first_process.h"
#include "framework/tensor/view.h"

namespace weft::dist {

class Processes final : public weft::internal::JobProcesses {
 public:
  /// Joins a job of `size` ranks; this process has ranks [first, first + count). Returns when all have joined.
  /// `transport` is "shared" (memory of one host), "gloo" (TCP) or "auto": shared memory if all are on one host.
  /// TCP uses the address in the variable JOB_ADDRESS, or the address of the network interface in JOB_INTERFACE, or
  /// else `address`.
  Processes(Store& store, int size, int first, int count, std::chrono::nanoseconds timeout,
            const std::string& transport = "auto", const std::string& address = "");
  ~Processes();
  Processes(const Processes&) = delete;

  /// The job of this process, or null.
  static Processes* current();
  /// Sets the job of this process, until the process ends. Call it before the first step on a mesh.
  static void set_current(std::unique_ptr<Processes> job);

  int size() const { return size_; }    // number of ranks
  int first() const { return first_; }  // first rank of this process
  int count() const { return count_; }  // number of ranks of each process
  bool owns(int rank) const { return rank >= first_ && rank < first_ + count_; }
  int process_of(int rank) const { return rank / count_; }
  bool is_on_this_host(int rank) const {
    return hosts_of_[static_cast<size_t>(process_of(rank))] == hosts_of_[static_cast<size_t>(process())];
  }
  int process() const override { return process_of(first_); }
  const std::vector<int>& hosts() const override { return hosts_of_; }
  ProcessWorld& world() { return *world_; }

  /// Copies the data of process `root` into `data` on all processes. A collective.
  void broadcast(int root, const StridedView& data);
  /// Sets each element to its largest value over all processes. A collective.
  void max(const StridedView& data);
  /// Returns process 0's value of `mine`. A collective.
  std::string from_first(const std::string& mine);
  bool from_first(bool mine);
  /// Returns `mine` of each process, by process. A collective.
  std::vector<std::string> gather(const std::string& mine);
  // JobProcesses; collective()s.
  void on_first(const std::string& what, const std::function<void()>& fn) override;
  std::vector<std::string> on_all(const std::string& what, const std::function<std::string()>& fn) override;
  bool any(const std::string& what, bool mine) override;
  void check_equal(const std::string& what, const Facts& mine, const std::string& need) override;
  /// Calls fn, whose collectives all processes must start. If one does not, the errors and the diagnosis of the flight
  /// records say where this process called `what`, such as "reading the sharded parameter 'w'".
  void collective(const std::string& what, const std::function<void()>& fn);
  /// Returns when all processes have called it.
  void barrier();
  /// Makes this thread the thread of the job's steps, until it ends. Throws as check_thread() if there is another one.
  void take_thread(std::string_view what);
  /// Throws FailedPrecondition, naming the call `what`, if another thread is the thread of the job's steps. A rank of
  /// dist::run acts for the thread that called it.
  void check_thread(std::string_view what) const;
  /// Ends the steps of this thread. Any thread may make the next step.
  void free_thread();

 private:
  const int size_, first_, count_;
  std::vector<int> hosts_of_;
  const std::chrono::nanoseconds timeout_;
  std::unique_ptr<ProcessWorld> world_;
  void run(CommRequest request);
  [[noreturn]] void fail_on_all(const Error& cause);
  std::string from(int process, const std::string& mine);
  Ref<Communicator> hosts_;  // communicator of the first ranks of all processes
};

/// Calls fn. Returns its error as text, from which error_in() makes it again; "": no error.
std::string failure_of(const std::function<void()>& fn);
Error error_in(const std::string& failure);

/// Whether a rank is in this process.
bool is_local(int rank);
/// Whether this process prints and writes files: it is the first of its job, or has no job.
bool is_first();

}  // namespace weft::dist
