// The one table of switches (WEFT_* environment variables); programs expose each row as one flag.
// docs/debugging.md has the same rows; a test compares them.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

namespace internal {
/// One switch: its environment variable, the kind of its value, a help text, and its default.
struct Switch {
  enum SwitchKind {
    kText,    // any text
    kChoice,  // one of `values`, which are separated by commas; "0, 1" also takes true, on, yes, false, off, no
    kWords,   // some of `values`, separated by commas; none by default
    kNumber,  // a whole number from `least` to `most`
    kPath,    // a file or folder; a relative path starts at the folder where `bazel run` was typed
    kLookup,  // the same if it has a slash; otherwise a name that is looked up
  };
  const char* name;
  SwitchKind kind;
  const char* values;  // as in docs/debugging.md
  const char* fallback;
  const char* help;
  long least = 0, most = 0;
  const char* flag = nullptr;  // name of the flag; null: the variable in lower case
};
}  // namespace internal

/// The name of the flag of a switch: "weft_debug", "threads".
std::string flag_of(const internal::Switch& s);

/// Every switch that Weft reads.
std::span<const internal::Switch> all_switches();

/// The value of a switch: an override set by set_switch, else the environment, else the default. Paths are absolute
/// under `bazel run`. Throws on unknown names, and on a value that the switch does not take, naming both.
std::string switch_value(std::string_view name);

/// Overrides a switch for this process, as a program's flag does. Throws on unknown names.
void set_switch(std::string_view name, std::string value);

/// The value of a switch that is 0 or 1: true for 1, true, on, yes; false for 0, false, off, no and empty.
bool switch_on(std::string_view name);

/// Whether the value of a switch of kWords has this word.
bool switch_has(std::string_view name, std::string_view word);

/// The value of a switch that is a whole number.
long switch_int(std::string_view name);

/// Throws, naming it, if any switch has a value that it does not take.
void check_switches();

namespace internal {

/// One sentence for each environment variable WEFT_* that is not a switch, with the nearest one. The first read of a
/// switch prints them on standard error.
std::vector<std::string> unknown_switches();

/// A relative path made absolute against BUILD_WORKING_DIRECTORY, where `bazel run` was typed; others unchanged.
std::string in_working_folder(const std::string& path);

}  // namespace internal
}  // namespace weft
