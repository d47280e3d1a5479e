// The processes of a job, for code that knows no transport. Without a job there is one process.
#pragma once
#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace weft::internal {

/// The job of this process. Its functions that accept `what` are collectives of all processes; errors name `what`.
class JobProcesses {
 public:
  /// Facts about a process, by name: {"argument 0", "f32[8, 4]"}.
  using Facts = std::vector<std::pair<std::string, std::string>>;
  /// The number of this process.
  virtual int process() const = 0;
  /// The first process on the host of each process, by process.
  virtual const std::vector<int>& hosts() const = 0;
  bool on_one_host() const {
    return std::ranges::all_of(hosts(), [](int first) { return first == 0; });
  }
  bool is_first_on_host() const { return hosts()[static_cast<size_t>(process())] == process(); }
  /// Calls `fn` in the first process. When `fn` has ended, all processes return, or all throw its error.
  virtual void on_first(const std::string& what, const std::function<void()>& fn) = 0;
  /// Calls `fn` in each process and returns all results, by process. If it throws in some, all throw the error of the
  /// first of these.
  virtual std::vector<std::string> on_all(const std::string& what, const std::function<std::string()>& fn) = 0;
  /// Whether `mine` is true in some process.
  virtual bool any(const std::string& what, bool mine) = 0;
  /// If facts differ, throws "NAME is X on rank R and Y on rank S; need NEED" for the first difference, on all
  /// processes.
  virtual void check_equal(const std::string& what, const Facts& mine, const std::string& need) = 0;

 protected:
  ~JobProcesses() = default;
};

/// The job, or null: there is none, or this thread is a rank of dist::run, which acts by itself.
JobProcesses* job_processes();
/// Sets the function that job_processes() calls; null: there is no job.
void set_job_processes(JobProcesses* (*of_this_thread)());

/// JobProcesses::on_first() of the job; without a job, calls `fn`.
void on_first_process(const std::string& what, const std::function<void()>& fn);
/// Calls `fn` in the first process on each host; all return, or all throw. Without a job, calls `fn`.
void on_each_host(const std::string& what, const std::function<void()>& fn);

}  // namespace weft::internal
