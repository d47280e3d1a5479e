// Acting once for all processes of a job, for code that knows no transport. Without a job there is one process.
#pragma once
#include <functional>
#include <string>

namespace weft::internal {

/// Calls `fn` in the first process of the job. When `fn` has ended, all processes return, or all throw its error. This
/// is a collective of all processes, which errors name `what`. A thread that is a rank of dist::run calls fn by itself.
void on_first_process(const std::string& what, const std::function<void()>& fn);

/// The job's implementation of on_first_process(); null: there is no job.
using OnFirstProcess = void (*)(const std::string& what, const std::function<void()>& fn);
void set_on_first_process(OnFirstProcess how);

}  // namespace weft::internal
