// Shared by all programs of Weft: strict flags, --help, exit codes (0 done, 1 failed, 2 bad usage), Ctrl-C. Flags are
// absl flags, defined in the program's own files; the switches of framework/base/switches.h are flags, too.
#pragma once
#include <functional>
#include <string>
#include <vector>

namespace weft {

/// Throws weft::UsageError for a wrong flag or argument; the program prints `message` and exits with code 2.
[[noreturn]] void usage_error(const std::string& message);

/// Parses flags and runs `body` with the remaining arguments; prints errors as one line "NAME: sentence" on stderr.
/// Returns the exit code for main(). `summary` is the first line of --help.
int run_program(int argc, char** argv, const char* summary,
                const std::function<int(const std::vector<std::string>&)>& body);

/// True after Ctrl-C or SIGTERM (once watch_interrupts() was called); a second signal ends the process at once.
bool interrupted();
void watch_interrupts();

}  // namespace weft
