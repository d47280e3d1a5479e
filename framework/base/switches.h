// The one table of switches (WEFT_* environment variables); programs expose each row as a flag of the same name.
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace weft {

/// One switch: its environment variable, a help text, and its default.
struct Switch {
  const char* name;
  const char* help;
  const char* fallback;
};

/// Every switch that Weft reads.
std::span<const Switch> all_switches();

/// The value of a switch: an override set by set_switch, else the environment, else the default.
/// Throws on unknown names.
std::string switch_value(std::string_view name);

/// Overrides a switch for this process, as a program's flag does. Throws on unknown names.
void set_switch(std::string_view name, std::string value);

/// True for 1, true, on, yes; false for 0, false, off, no and empty. Throws, naming the switch, on anything else.
bool switch_on(std::string_view name);

/// The value of an integer switch; throws, naming the switch, if it is not a whole number.
long switch_int(std::string_view name);

}  // namespace weft
