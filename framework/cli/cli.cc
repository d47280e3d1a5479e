#include "framework/cli/cli.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <iostream>
#include <map>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/marshalling.h"
#include "absl/flags/reflection.h"
#include "framework/base/error.h"
#include "framework/base/one_line.h"
#include "framework/base/switches.h"

namespace weft {
namespace {

class UsageError : public Error {
 public:
  explicit UsageError(const std::string& m) : Error(Code::kInvalidArgument, m) {}
};

std::string to_std(absl::string_view s) { return std::string(s.data(), s.size()); }

// A flag of either kind.
struct KnownFlag {
  std::string help, fallback;
  const char* need;  // what a value must be
  bool is_bool;
  std::function<bool(const std::string&)> parse;
};
using KnownFlags = std::map<std::string, KnownFlag>;

template <class T>
constexpr const char* needed() {
  return std::is_same_v<T, bool>                                ? "true or false"
         : std::is_same_v<T, uint64_t>                          ? "a whole number, 0 or more"
         : std::is_same_v<T, int64_t> || std::is_same_v<T, int> ? "a whole number"
         : std::is_same_v<T, double>                            ? "a number"
                                                                : "another value";
}

KnownFlags known_flags(const Flags& table) {
  KnownFlags flags;
  for (auto& [name, flag] : absl::GetAllFlags()) {
    if (to_std(flag->Filename()).find("absl/") != std::string::npos) continue;  // absl's own
    const char* need = flag->IsOfType<bool>()      ? needed<bool>()
                       : flag->IsOfType<int64_t>() ? needed<int64_t>()
                       : flag->IsOfType<double>()  ? needed<double>()
                                                   : needed<std::string>();
    flags[to_std(name)] = {to_std(flag->Help()), flag->DefaultValue(), need, flag->IsOfType<bool>(),
                           [flag = flag](const std::string& text) {
                             std::string error;
                             return flag->ParseFrom(text, &error);
                           }};
  }
  for (const Flag& row : table)
    std::visit(
        [&]<class T>(T* variable) {
          flags[row.name] = {row.help, absl::UnparseFlag(*variable), needed<T>(), std::is_same_v<T, bool>,
                             [variable](const std::string& text) {
                               std::string error;
                               return absl::ParseFlag(text, variable, &error);
                             }};
        },
        row.variable);
  return flags;
}

int edit_distance(const std::string& a, const std::string& b) {
  std::vector<int> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      int next = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = row[j];
      row[j] = next;
    }
  }
  return row[b.size()];
}

// Upper-case name of a switch if `name` (any case, with or without a leading "no") is one, otherwise empty.
std::string switch_name(std::string name) {
  for (char& c : name) c = static_cast<char>(toupper(c));
  for (const Switch& s : all_switches())
    if (name == s.name) return name;
  return {};
}

void print_help(const char* program, const char* summary, const KnownFlags& flags) {
  std::cout << summary << "\n\nusage: " << program << " [flags]\n\n";
  for (auto& [name, flag] : flags)
    std::cout << "  --" << name << "  (default " << (flag.fallback.empty() ? "\"\"" : flag.fallback) << ")\n      "
              << flag.help << "\n";
  std::cout << "\nswitches, also environment variables of the same name in capitals:\n";
  for (const Switch& s : all_switches()) {
    std::string name = s.name;
    for (char& c : name) c = static_cast<char>(tolower(c));
    std::cout << "  --" << name << "  (default " << (*s.fallback ? s.fallback : "\"\"") << ")  " << s.help << "\n";
  }
}

std::vector<std::string> parse(int argc, char** argv, const KnownFlags& flags) {
  std::vector<std::string> rest;
  for (int i = 1; i < argc; ++i) {
    std::string arg = argv[i];
    if (arg == "--") {
      rest.insert(rest.end(), argv + i + 1, argv + argc);
      break;
    }
    if (arg.size() < 2 || arg[0] != '-' || isdigit(arg[1])) {
      rest.push_back(arg);
      continue;
    }
    std::string name = arg.substr(arg[1] == '-' ? 2 : 1), value;
    const size_t equals = name.find('=');
    const bool has_value = equals != std::string::npos;
    if (has_value) {
      value = name.substr(equals + 1);
      name = name.substr(0, equals);
    }
    if (std::string s = switch_name(name); !s.empty()) {
      if (!has_value) {
        if (i + 1 >= argc) usage_error(str_cat("--", name, " needs a value"));
        value = argv[++i];
      }
      set_switch(s, value);
      continue;
    }
    auto it = flags.find(name);
    const bool negated = it == flags.end() && name.rfind("no", 0) == 0 && flags.count(name.substr(2)) &&
                         flags.at(name.substr(2)).is_bool && !has_value;
    if (negated) {
      it = flags.find(name.substr(2));
      value = "false";
    } else if (it == flags.end()) {
      std::string nearest;
      int best = 4;
      for (auto& [known, flag] : flags) {
        int d = edit_distance(name, known);
        if (d < best) {
          best = d;
          nearest = known;
        }
      }
      usage_error(str_cat("unknown flag --", name, nearest.empty() ? "" : str_cat("; did you mean --", nearest, "?"),
                          "; --help lists all"));
    } else if (!has_value) {
      if (it->second.is_bool) {
        value = "true";
      } else {
        if (i + 1 >= argc) usage_error(str_cat("--", name, " needs a value: ", it->second.help));
        value = argv[++i];
      }
    }
    if (!it->second.parse(value))
      usage_error(str_cat("--", it->first, ": got '", value, "'; need ", it->second.need, " (", it->second.help, ")"));
  }
  return rest;
}

std::atomic<int> interrupts{0};
void on_interrupt(int) {
  if (interrupts.fetch_add(1) > 0) _exit(130);
}

int run(int argc, char** argv, const char* summary, const Flags& table,
        const std::function<int(const std::vector<std::string>&)>& body) {
  std::string name = argc > 0 ? argv[0] : "weft";
  name = name.substr(name.rfind('/') + 1);
  try {
    const KnownFlags flags = known_flags(table);
    for (int i = 1; i < argc && std::string(argv[i]) != "--"; ++i) {
      std::string a = argv[i];
      if (a == "--help" || a == "-help" || a == "-h") {
        print_help(name.c_str(), summary, flags);
        return 0;
      }
    }
    return body(parse(argc, argv, flags));
  } catch (const UsageError& e) {
    std::fflush(stdout);
    std::fprintf(stderr, "%s: %s\n", name.c_str(), e.what());
    return 2;
  } catch (const std::exception& e) {
    std::fflush(stdout);
    std::fprintf(stderr, "%s: %s\n", name.c_str(), e.what());
    return 1;
  }
}

}  // namespace

void usage_error(const std::string& message) { throw UsageError(one_line(message)); }

int run_program(int argc, char** argv, const char* summary,
                const std::function<int(const std::vector<std::string>&)>& body) {
  return run(argc, argv, summary, {}, body);
}

int run_program(int argc, char** argv, const char* summary, const Flags& flags, const std::function<int()>& body) {
  return run(argc, argv, summary, flags, [&](const std::vector<std::string>& rest) {
    if (!rest.empty()) usage_error(str_cat("unexpected argument '", rest[0], "'; --help lists the flags"));
    return body();
  });
}

bool interrupted() { return interrupts.load(std::memory_order_relaxed) > 0; }

void watch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace weft
