// Command lines of all programs: strict flags, --help, exit codes (0 done, 1 failed, 2 bad usage, 129, 130, 141 and 143
// ended by SIGHUP, SIGINT, a closed pipe and SIGTERM), Ctrl-C. A program whose standard output cannot be written fails;
// if its reader ended, it prints no error. SIGPIPE does not end it. A flag is a row of the program's table or an
// ABSL_FLAG; absl parses and prints the values of both. The last value of a repeated flag counts, so that a script can
// add flags to common ones; a flag of a file is given at most once; flags of Settings add up. The switches of
// framework/base/switches.h are flags too, and --flagfile stands for the flags in a file.
#pragma once
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace weft {

/// The values that a flag of a number takes: from `least` to `most`, without `least` if `open`; finite ones only.
struct Range {
  double least = -HUGE_VAL, most = HUGE_VAL;
  bool open = false;
  bool whole = false;  // whole numbers only; a double may hold a count that people write as 4e6
};

/// A file or folder that a flag names. An empty path and a repeated flag are errors. Before the program runs,
/// check_files() checks its files.
struct File {
  enum class Use : uint8_t { kRead, kWrite, kMakeFolder };
  Use use = Use::kRead;
  std::string path = {};  // absolute under `bazel run`; empty: none
  explicit operator bool() const { return !path.empty(); }
};

/// Values by name, from NAME=VALUE or NAME=VALUE,NAME=VALUE. Each use of the flag adds to them.
using Settings = std::map<std::string, std::string>;

/// One flag: it sets `variable`. The variable's value before the command line is read is the flag's default.
struct Flag {
  std::string name;
  std::variant<bool*, int*, int64_t*, uint64_t*, double*, std::string*, std::vector<std::string>*, Settings*, File*>
      variable;
  std::string help;
  Range range = {};
  bool* given = nullptr;  // if set: becomes true if the command line contains the flag
};
using Flags = std::vector<Flag>;

/// A flag of a program with several parts, such as modes or kinds of output; a run uses some of the parts. `parts` has
/// the bits of the parts that read the flag.
struct PartFlag {
  Flag flag;
  unsigned parts;
};

/// A table of such flags.
class PartFlags {
 public:
  /// names[i] is how errors name the part of bit i: a flag, or words as "the study of failures".
  PartFlags(std::vector<std::string> names, std::vector<PartFlag> table);
  PartFlags(const PartFlags&) = delete;  // flags() point to given_

  /// The flags for run_program().
  const Flags& flags() const { return flags_; }
  /// The names of parts, as "a, b and c".
  std::string text(unsigned parts) const;
  /// Throws UsageError if the command line contains a flag and no part in `parts`, the parts of this run, reads it.
  void check(unsigned parts) const;
  /// For programs that run one part at a time: checks and returns `asked`, or `otherwise` if `asked` is empty. Throws
  /// UsageError if several parts are asked for.
  unsigned only(unsigned asked, unsigned otherwise) const;

 private:
  std::vector<std::string> names_;
  std::vector<unsigned> parts_;  // parts of each flag
  std::unique_ptr<bool[]> given_;
  Flags flags_;
};

/// The value of a flag's variable as text that set_flag() reads.
std::string flag_text(const Flag& flag);

/// Sets a flag's variable from text; false, and the variable keeps its value, if the text is not a value of it.
bool set_flag(const Flag& flag, const std::string& text);

/// Whether the value of a flag's variable is in the flag's range.
bool in_range(const Flag& flag);

/// Whether the variables of two flags of one type have equal values.
bool same_value(const Flag& a, const Flag& b);

/// Throws UsageError if two flags name the same file and one of them writes it. Throws Error, naming the flag, if a
/// file or folder cannot be written: the folder that it is in must exist. Looks at the flags of files only; changes
/// nothing.
void check_files(const Flags& flags);

/// Throws weft::UsageError for a wrong flag or argument; the program prints `message` and exits with code 2.
[[noreturn]] void usage_error(const std::string& message);
/// Calls `fn`; its Error becomes a UsageError that begins with `prefix`: "--mesh: ".
void as_usage_error(const char* prefix, const std::function<void()>& fn);
/// Throws UsageError "--FLAG: got GOT; need NEED" unless `ok`.
void check_flag(const char* flag, bool ok, const std::string& got, const std::string& need);

/// Whether the switches are flags of a program. kNone is for a program that neither runs nor plans kernels.
enum class Switches : uint8_t { kAll, kNone };

/// Parses flags and runs `body` with the remaining arguments; prints errors as one line "NAME: sentence" on stderr.
/// Returns the exit code for main(). `summary` is the first line of --help.
int run_program(int argc, char** argv, const char* summary,
                const std::function<int(const std::vector<std::string>&)>& body);

/// The same for a program with a table of flags.
int run_program(int argc, char** argv, const char* summary, const Flags& flags,
                const std::function<int(const std::vector<std::string>&)>& body);
/// The same for a program with a table of flags and no other arguments.
int run_program(int argc, char** argv, const char* summary, const Flags& flags, const std::function<int()>& body,
                Switches switches = Switches::kAll);

/// Writes text to standard output. If that fails, throws Error with the system's reason, unless output_closed().
void write_output(std::string_view text);

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
