// Work for the end of the process, such as writing the trace to a file. run_program() (framework/cli) does the work
// before it returns, and fails if the work fails. Other programs do it at exit, where a failure is a warning.
#pragma once
#include <functional>

namespace weft::internal {

/// `work` is done once, at the end of the process.
void at_end(std::function<void()> work);
/// Does all remaining work, then throws the first error.
void do_end_work();

}  // namespace weft::internal
