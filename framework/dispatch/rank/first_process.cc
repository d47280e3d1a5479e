#include "framework/dispatch/rank/first_process.h"

#include <atomic>

namespace weft::internal {

static std::atomic<JobProcesses* (*)()> current{nullptr};

JobProcesses* job_processes() {
  JobProcesses* (*const of_this_thread)() = current;
  return of_this_thread ? of_this_thread() : nullptr;
}

void set_job_processes(JobProcesses* (*of_this_thread)()) { current = of_this_thread; }

void on_first_process(const std::string& what, const std::function<void()>& fn) {
  JobProcesses* const job = job_processes();
  if (job)
    job->on_first(what, fn);
  else
    fn();
}

void on_each_host(const std::string& what, const std::function<void()>& fn) {
  JobProcesses* const job = job_processes();
  if (!job) return fn();
  job->on_all(what, [&] {
    if (job->is_first_on_host()) fn();
    return std::string();
  });
}

}  // namespace weft::internal
