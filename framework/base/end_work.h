// Work that is left for the end of the process, such as a file of what happened in it. run_program() (framework/cli)
// does it before it returns, and fails if the work fails. Other programs do it at exit, where a failure is a warning.
#pragma once
#include <functional>

namespace weft::internal {

/// `work` is done once, at the end of the process.
void at_end(std::function<void()> work);
/// Does what is left. Throws the first error, after all of it.
void do_end_work();

}  // namespace weft::internal
