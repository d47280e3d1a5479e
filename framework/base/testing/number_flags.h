// Flags of test programs with a main() of their own: how many cases they try, and from which seed.
#pragma once
#include <gtest/gtest.h>

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <variant>

namespace weft::testing {

struct NumberFlag {
  std::string_view name;
  std::variant<int64_t*, uint64_t*, bool*> value;  // bool: the flag has no number, and sets true
};

/// Initialises gtest and reads the other arguments: --NAME=NUMBER, or --NAME. Prints the first one that is no flag, and
/// returns false.
inline bool read_flags(int argc, char** argv, std::initializer_list<NumberFlag> flags) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    bool known = false;
    for (const auto& [name, value] : flags) {
      if (!argument.starts_with("--") || !argument.substr(2).starts_with(name)) continue;
      const std::string_view rest = argument.substr(2 + name.size());
      std::visit(
          [&](auto* v) {
            if constexpr (std::is_same_v<decltype(v), bool*>) {
              *v = rest.empty();
              known |= *v;
            } else if (rest.starts_with("=")) {
              const auto read = std::from_chars(rest.data() + 1, rest.data() + rest.size(), *v);
              known |= read.ec == std::errc() && read.ptr == rest.data() + rest.size();
            }
          },
          value);
    }
    if (known) continue;
    std::fprintf(stderr, "%s: unknown flag %s; need", argv[0], argv[i]);
    for (const auto& [name, value] : flags)
      std::fprintf(stderr, " --%.*s%s", static_cast<int>(name.size()), name.data(),
                   std::holds_alternative<bool*>(value) ? "" : "=N");
    std::fprintf(stderr, "\n");
    return false;
  }
  return true;
}

}  // namespace weft::testing
