// Command lines of all programs: strict flags, --help, exit codes (0 done, 1 failed, 2 bad usage, 129, 130 and 143
// ended by SIGHUP, SIGINT and SIGTERM), Ctrl-C. A program whose standard output cannot be written fails; SIGPIPE does
// not end it. A flag is a row of the program's table or an ABSL_FLAG; absl parses and prints the values of both. The
// switches of framework/base/switches.h are flags too.
#pragma once
#include <cmath>
#include <functional>
#include <string>
#include <variant>
#include <vector>

namespace weft {

/// The values that a flag of a number takes: from `least` to `most`, without `least` if `open`; finite ones only.
struct Range {
  double least = -HUGE_VAL, most = HUGE_VAL;
  bool open = false;
};

/// One flag: it sets `variable`. The variable's value before the command line is read is the flag's default.
struct Flag {
  std::string name;
  std::variant<bool*, int*, int64_t*, uint64_t*, double*, std::string*, std::vector<std::string>*> variable;
  std::string help;
  Range range = {};
  bool* given = nullptr;  // if set: becomes true if the command line has the flag
};
using Flags = std::vector<Flag>;

/// The value of a flag's variable as text that set_flag() reads.
std::string flag_text(const Flag& flag);

/// Sets a flag's variable from text; false, and the variable keeps its value, if the text is not a value of it.
bool set_flag(const Flag& flag, const std::string& text);

/// Throws weft::UsageError for a wrong flag or argument; the program prints `message` and exits with code 2.
[[noreturn]] void usage_error(const std::string& message);

/// Parses flags and runs `body` with the remaining arguments; prints errors as one line "NAME: sentence" on stderr.
/// Returns the exit code for main(). `summary` is the first line of --help.
int run_program(int argc, char** argv, const char* summary,
                const std::function<int(const std::vector<std::string>&)>& body);

/// The same for a program with a table of flags.
int run_program(int argc, char** argv, const char* summary, const Flags& flags,
                const std::function<int(const std::vector<std::string>&)>& body);
/// The same for a program with a table of flags and no other arguments.
int run_program(int argc, char** argv, const char* summary, const Flags& flags, const std::function<int()>& body);

/// From now on SIGINT (Ctrl-C), SIGTERM and SIGHUP do not end the process; another one, more than a second after the
/// first, does. SIGHUP stays ignored if it is, as under nohup.
void watch_interrupts();
/// True after such a signal, and if output_closed(): nobody waits for the rest.
bool interrupted();
/// True if a write to standard output failed because its reader ended, as after `train | head -1`.
bool output_closed();
/// The exit code of a program that such a signal ended: 128 and the number of the signal; 0 without one.
int interrupted_code();

}  // namespace weft
