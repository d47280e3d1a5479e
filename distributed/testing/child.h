// For tests that start processes of a job: helpers for these processes and for the files that they leave.
#pragma once
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>

#include "distributed/launch/job.h"
#include "framework/base/failure_report.h"

namespace weft::testing {

/// The text of a file; empty if there is none.
inline std::string content(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

/// Calls `body`, which may join a job, and reports its error as trainers do. Returns the exit code of the process.
inline int run_child(const std::function<void(std::unique_ptr<dist::Job>&)>& body) {
  std::unique_ptr<dist::Job> job;
  try {
    body(job);
    return 0;
  } catch (const Error& e) {
    if (job) job->fail(e);
    report_failure(e.code(), e.what());
    std::fprintf(stderr, "%s\n", e.what());
    tell_others(e.code(), e.what());
    return 1;
  }
}

}  // namespace weft::testing
