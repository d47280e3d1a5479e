// Processes: the processes of a job, each with an equal number of ranks. Without a job, all ranks are threads of this
// process.
//
// All processes run the same program: they make the same collective calls in the same order. Decisions that depend on a
// clock, a signal or a file system are made by process 0 and sent to all: from_first().
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "distributed/comm/process_world.h"
#include "distributed/comm/store.h"
#include "framework/tensor/view.h"

namespace weft::dist {

class Processes {
 public:
  /// Joins a job of `size` ranks; this process has ranks [first, first + count). Returns when all have joined.
  /// `transport` is "shared" (memory of one host), "gloo" (TCP) or "auto": shared memory if all are on one host.
  /// TCP uses the address of this host in the variable JOB_ADDRESS, or of the network interface in JOB_INTERFACE, or
  /// else `address`.
  Processes(Store& store, int size, int first, int count, std::chrono::nanoseconds timeout,
            const std::string& transport = "auto", const std::string& address = "");
  ~Processes();
  Processes(const Processes&) = delete;

  /// The job of this process, or null.
  static Processes* current();
  /// Makes a job the one of this process, until it ends. Call before the first step on a mesh.
  static void set_current(std::unique_ptr<Processes> job);

  int size() const { return size_; }    // ranks
  int first() const { return first_; }  // of this process
  int count() const { return count_; }  // of each process
  bool owns(int rank) const { return rank >= first_ && rank < first_ + count_; }
  int process_of(int rank) const { return rank / count_; }
  int process() const { return process_of(first_); }
  ProcessWorld& world() { return *world_; }

  /// Gives the data of process `root` to all, in its place. A collective.
  void broadcast(int root, const StridedView& data);
  /// Each element becomes the largest that a process gives. A collective.
  void max(const StridedView& data);
  /// What process 0 gives. A collective.
  std::string from_first(const std::string& mine);
  bool from_first(bool mine);
  /// What each process gives, by process. A collective.
  std::vector<std::string> gather(const std::string& mine);
  /// What a process has, by name: {"argument 0", "f32[8, 4]"}.
  using Facts = std::vector<std::pair<std::string, std::string>>;
  /// Throws "NAME is X on rank R and Y on rank S; need NEED", on all processes, if one gives other facts, of the first
  /// that differs. A collective() that errors name `what`.
  void check_equal(const std::string& what, const Facts& mine, const std::string& need);
  /// Calls fn, whose collectives all processes have to start. If they do not, its errors and the diagnosis of the
  /// flight records say where this process called `what`, such as "reading the sharded parameter 'w'".
  void collective(const std::string& what, const std::function<void()>& fn);
  /// Calls fn on process 0, and returns on all when it has ended; its error is thrown on all. A collective().
  void on_first(const std::string& what, const std::function<void()>& fn);
  /// Returns when all processes have called it.
  void barrier();

 private:
  const int size_, first_, count_;
  const std::chrono::nanoseconds timeout_;
  std::unique_ptr<ProcessWorld> world_;
  void run(CommRequest request);
  [[noreturn]] void fail_on_all(const Error& cause);
  std::string from(int process, const std::string& mine);
  Ref<Communicator> hosts_;  // of the first ranks of all processes
};

/// Whether a rank is of this process.
bool is_local(int rank);
/// Whether this process is the first of its job, or has none: the one that prints and writes files.
bool is_first();
/// Processes::on_first of the job of this process; without one, and on a thread that is a rank, calls fn.
void on_first(const std::string& what, const std::function<void()>& fn);

}  // namespace weft::dist
