// Command lines of all programs: strict flags, --help, exit codes (0 done, 1 failed, 2 bad usage), Ctrl-C.
// A flag is a row of the program's table or an ABSL_FLAG; absl parses and prints the values of both. The switches of
// framework/base/switches.h are flags too.
#pragma once
#include <functional>
#include <string>
#include <variant>
#include <vector>

namespace weft {

/// One flag: it sets `variable`. The variable's value before the command line is read is the flag's default.
struct Flag {
  std::string name;
  std::variant<bool*, int*, int64_t*, uint64_t*, double*, std::string*, std::vector<std::string>*> variable;
  std::string help;
};
using Flags = std::vector<Flag>;

/// Throws weft::UsageError for a wrong flag or argument; the program prints `message` and exits with code 2.
[[noreturn]] void usage_error(const std::string& message);

/// Parses flags and runs `body` with the remaining arguments; prints errors as one line "NAME: sentence" on stderr.
/// Returns the exit code for main(). `summary` is the first line of --help.
int run_program(int argc, char** argv, const char* summary,
                const std::function<int(const std::vector<std::string>&)>& body);

/// The same for a program with a table of flags and no other arguments.
int run_program(int argc, char** argv, const char* summary, const Flags& flags, const std::function<int()>& body);

/// True after Ctrl-C or SIGTERM (once watch_interrupts() was called); a second signal ends the process at once.
bool interrupted();
void watch_interrupts();

}  // namespace weft
