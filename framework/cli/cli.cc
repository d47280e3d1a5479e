#include "framework/cli/cli.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <strings.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <sstream>
#include <thread>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/marshalling.h"
#include "absl/flags/reflection.h"
#include "framework/base/end_work.h"
#include "framework/base/error.h"
#include "framework/base/failure_report.h"
#include "framework/base/nearest.h"
#include "framework/base/one_line.h"
#include "framework/base/signals.h"
#include "framework/base/switches.h"
#include "framework/io/file.h"

namespace weft {

using internal::Switch;

// How absl reads and prints a file.
static bool AbslParseFlag(absl::string_view text, File* file, std::string*) {
  file->path = io::resolve_path(std::string(text.data(), text.size()));
  return true;
}
static std::string AbslUnparseFlag(const File& file) { return file.path; }

static bool parse_value(const std::string& text, Settings* settings) {
  Settings all = *settings;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size()), equals = text.find('=', at);
    if (equals >= end || equals == at) return false;
    all[text.substr(at, equals - at)] = text.substr(equals + 1, end - equals - 1);
    at = end + 1;
  }
  *settings = std::move(all);
  return true;
}
static std::string value_text(const Settings& settings) {
  std::string text;
  for (const auto& [name, value] : settings) text += str_cat(text.empty() ? "" : ",", name, "=", value);
  return text;
}
template <class T>
bool parse_value(const std::string& text, T* value) {
  std::string error;
  return absl::ParseFlag(text, value, &error);
}
template <class T>
std::string value_text(const T& value) {
  const auto text = absl::UnparseFlag(value);
  return {text.data(), text.size()};
}

namespace {

class UsageError : public Error {
 public:
  explicit UsageError(const std::string& m) : Error(Code::kInvalidArgument, m) {}
};

std::string to_std(absl::string_view s) { return std::string(s.data(), s.size()); }

// A flag of either kind.
struct KnownFlag {
  std::string help, fallback;
  std::string need;  // the rule that a value must meet
  bool is_bool, is_file;
  std::function<bool(const std::string&)> parse;
  std::string most = {};  // the largest value of the type, if the flag's range has no end
  bool* given = nullptr;
};
using KnownFlags = std::map<std::string, KnownFlag>;

template <class T>
std::string needed(const Range& r = {}) {
  if (std::is_same_v<T, bool>) return "true or false";
  if (std::is_same_v<T, File>) return "a path";
  if (std::is_same_v<T, Settings>) return "NAME=VALUE";
  if (!std::is_arithmetic_v<T>) return "another value";
  const std::string kind = std::is_same_v<T, double> && !r.whole ? "a number" : "a whole number";
  const bool from = std::isfinite(r.least), to = std::isfinite(r.most);
  const auto text = [](double v) {
    return v == std::floor(v) && std::abs(v) < 1e15 ? str_cat(static_cast<int64_t>(v)) : str_cat(v);
  };
  if (from && to)
    return str_cat(kind, r.open ? " above " : " from ", text(r.least), r.open ? " and at most " : " to ", text(r.most));
  if (from) return r.open ? str_cat(kind, " above ", text(r.least)) : str_cat(kind, ", ", text(r.least), " or more");
  return str_cat(kind, std::is_same_v<T, uint64_t> ? ", 0 or more" : "");
}

template <class T>
std::string largest() {
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) return str_cat(std::numeric_limits<T>::max());
  return {};
}

KnownFlags known_flags(const Flags& table) {
  KnownFlags flags;
  for (auto& [name, flag] : absl::GetAllFlags()) {
    if (to_std(flag->Filename()).find("absl/") != std::string::npos) continue;  // absl's own
    const std::string need = flag->IsOfType<bool>()      ? needed<bool>()
                             : flag->IsOfType<int64_t>() ? needed<int64_t>()
                             : flag->IsOfType<double>()  ? needed<double>()
                                                         : needed<std::string>();
    flags[to_std(name)] = {to_std(flag->Help()),
                           flag->DefaultValue(),
                           need,
                           flag->IsOfType<bool>(),
                           false,
                           [flag = flag](const std::string& text) {
                             std::string error;
                             return flag->ParseFrom(text, &error);
                           }};
  }
  for (const Flag& row : table)
    std::visit(
        [&]<class T>(T* variable) {
          flags[row.name] = {row.help,
                             value_text(*variable),
                             needed<T>(row.range),
                             std::is_same_v<T, bool>,
                             std::is_same_v<T, File>,
                             [&row](const std::string& text) { return set_flag(row, text); },
                             std::isfinite(row.range.most) ? "" : largest<T>(),
                             row.given};
        },
        row.variable);
  return flags;
}

// The switch with this flag, in any case; null if there is none.
const Switch* find_switch(std::string name, std::span<const Switch> switches) {
  for (char& c : name) c = static_cast<char>(tolower(c));
  for (const Switch& s : switches)
    if (name == flag_of(s)) return &s;
  return nullptr;
}

// The flag that an unknown name may mean; empty if none is near.
std::string nearest_flag(const std::string& name, const KnownFlags& flags, std::span<const Switch> switches) {
  std::vector<std::string> names;
  for (auto& [known, flag] : flags) names.push_back(known);
  for (const Switch& s : switches) {
    if (strcasecmp(name.c_str(), s.name) == 0) return flag_of(s);
    names.push_back(flag_of(s));
  }
  return nearest_name(name, names);
}

// Sets a switch, and throws UsageError if it does not take the value.
void set_switch_flag(const Switch& s, std::string value) {
  set_switch(s.name, std::move(value));
  try {
    switch_value(s.name);
  } catch (const Error& e) {
    const std::string_view error = e.what(), name = s.name;
    if (!error.starts_with(name)) throw;
    usage_error(str_cat("--", flag_of(s), error.substr(name.size()), " (", s.help, ")"));
  }
}

bool writes(const File& file) { return file.use != File::Use::kRead; }

constexpr const char* kFlagFile = "flagfile";
constexpr const char* kFlagFileHelp =
    "file with a flag on each line, as --steps=100; lines that begin with # are skipped";

void print_help(const char* program, const char* summary, const Flags& table, const KnownFlags& flags,
                std::span<const Switch> switches) {
  std::ostringstream out;
  out << summary << "\n\nusage: " << program << " [flags]\nThe last value of a repeated flag counts.\n";
  if (std::ranges::any_of(table, [](const Flag& flag) { return std::holds_alternative<Settings*>(flag.variable); }))
    out << "A flag of NAME=VALUE may be repeated: its values add up.\n";
  if (std::any_of(table.begin(), table.end(), [](const Flag& flag) {
        File* const* const file = std::get_if<File*>(&flag.variable);
        return file && writes(**file);
      }))
    out << "A flag of a file is given once. Files and folders are written into folders that exist.\n";
  out << "\n";
  for (auto& [name, flag] : flags)
    out << "  --" << name << "  (default " << (flag.fallback.empty() ? "\"\"" : flag.fallback) << ")\n      "
        << flag.help << "\n";
  out << "  --" << kFlagFile << "\n      " << kFlagFileHelp << "\n";
  if (!switches.empty()) out << "\nswitches, also environment variables (--weft_NAME is WEFT_NAME):\n";
  for (const Switch& s : switches)
    out << "  --" << flag_of(s) << "  (default " << (*s.fallback ? s.fallback : "\"\"") << ")  " << s.help
        << (s.flag ? str_cat(" (", s.name, ")") : "") << "\n";
  write_output(out.str());
}

// The flags in the file of --flagfile.
std::vector<std::string> flags_of_file(const std::string& given) {
  const std::string path = io::resolve_path(given), text = io::read_file(path, int64_t{1} << 20);
  const std::string own = str_cat("--", kFlagFile);
  std::vector<std::string> lines;
  int line_number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1, ++line_number;
    if (line.empty() || line[0] == '#') continue;
    if (!line.starts_with("--") || line.size() <= 2 || line.starts_with(own))
      usage_error(
          str_cat(own, ": ", path, ":", line_number, " is '", one_line(line, 60), "'; need a flag, as --steps=100"));
    lines.push_back(line);
  }
  return lines;
}

std::vector<std::string> parse(std::vector<std::string> args, const KnownFlags& flags,
                               std::span<const Switch> switches) {
  std::vector<std::string> rest;
  std::set<std::string> files;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string arg = args[i];
    if (arg == "--") {
      rest.insert(rest.end(), args.begin() + static_cast<ptrdiff_t>(i) + 1, args.end());
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
    // The value of a flag that needs one.
    const auto need_value = [&](const std::string& flag, const std::string& help) {
      if (has_value) return;
      if (i + 1 >= args.size()) usage_error(str_cat("--", flag, " needs a value: ", help));
      value = args[++i];
    };
    if (name == kFlagFile) {
      need_value(name, kFlagFileHelp);
      const std::vector<std::string> lines = flags_of_file(value);
      args.insert(args.begin() + static_cast<ptrdiff_t>(i) + 1, lines.begin(), lines.end());
      continue;
    }
    auto it = flags.find(name);
    if (const Switch* s = it == flags.end() ? find_switch(name, switches) : nullptr) {
      need_value(flag_of(*s), s->help);
      set_switch_flag(*s, value);
      continue;
    }
    const bool negated = it == flags.end() && name.rfind("no", 0) == 0 && flags.count(name.substr(2)) &&
                         flags.at(name.substr(2)).is_bool && !has_value;
    if (negated) {
      it = flags.find(name.substr(2));
      value = "false";
    } else if (it == flags.end()) {
      const std::string nearest = nearest_flag(name, flags, switches);
      usage_error(str_cat("unknown flag --", name, nearest.empty() ? ";" : str_cat("; did you mean --", nearest, "?"),
                          " --help lists all"));
    } else if (!it->second.is_bool) {
      need_value(name, it->second.help);
    } else if (!has_value) {
      const std::string next = i + 1 < args.size() ? args[i + 1] : "";
      value = next == "true" || next == "false" ? args[++i] : "true";
    }
    const KnownFlag& flag = it->second;
    if (flag.is_file && !files.insert(it->first).second)
      usage_error(str_cat("--", it->first, " is given twice; give it once"));
    const bool large = value.size() > 9 && value.find_first_not_of("0123456789") == value.npos;
    if ((flag.is_file && value.empty()) || !flag.parse(value))
      usage_error(str_cat("--", it->first, ": got '", value, "'; need ", flag.need,
                          large && !flag.most.empty() ? str_cat(", at most ", flag.most) : "", " (", flag.help, ")"));
    if (flag.given) *flag.given = true;
  }
  if (!switches.empty()) as_usage_error("", check_switches);
  return rest;
}

std::atomic<int> interrupt_signal{0};
std::atomic<int64_t> interrupt_time{0};  // time of the first signal, in ns
static_assert(std::atomic<int64_t>::is_always_lock_free);

// `timeout` and shells send one signal twice, to the process and to its group: a repeat within a second is the same
// request.
void on_interrupt(int signal) {
  const int before = errno;
  timespec t = {};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  const int64_t now = int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
  int64_t first = 0;
  if (interrupt_time.compare_exchange_strong(first, now)) {
    interrupt_signal = signal;
  } else if (now - first > 1'000'000'000) {
    _exit(128 + signal);
  }
  errno = before;
}

std::atomic<bool> pipe_closed{false};
void on_closed_pipe(int) { pipe_closed.store(true, std::memory_order_relaxed); }

std::string output_error(int error) {
  return str_cat("cannot write to standard output", error ? ": " : "", error ? std::strerror(error) : "");
}

// Writes the buffered standard output. False, with errno, if any of it was lost.
bool flush_output() {
  errno = 0;
  const bool streams = static_cast<bool>(std::cout.flush());
  const bool written = std::fflush(stdout) == 0 && !std::ferror(stdout) && streams;
  // An earlier write failed and its reason is lost: another write fails for the same reason.
  if (!written && errno == 0) static_cast<void>(!::write(STDOUT_FILENO, "\n", 1));
  return written;
}

// `ulimit -s` limits the stack of the first thread, and is the default for all others. If it is too small, the default
// for new threads is raised, and the program runs in a new thread. The first thread accepts no signals: a signal that
// the program's thread blocks would end the process there.
template <class F>
void with_enough_stack(const F& f) {
  constexpr size_t kEnough = size_t{8} << 20;
  rlimit limit;
  if (::getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= kEnough) return f();
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kEnough);
  const int error = pthread_setattr_default_np(&attributes);
  pthread_attr_destroy(&attributes);
  WEFT_CHECK_AS(kResourceExhausted, error == 0, "the stack limit (ulimit -s) is ", limit.rlim_cur >> 10,
                " KiB; need at least ", kEnough >> 10);
  const internal::BlockedSignals blocked;
  std::thread([&] {
    pthread_sigmask(SIG_SETMASK, &blocked.before(), nullptr);
    f();
  }).join();
}

// A file that is opened while a standard descriptor is closed would get the descriptor's number and the program's
// output. Reads and writes of the replacement fail, like reads and writes of a closed descriptor.
void fill_closed_descriptors() {
  for (const int fd : {0, 1, 2})
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF)
      static_cast<void>(::open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY));
}

int run(int argc, char** argv, const char* summary, const Flags& table,
        const std::function<int(const std::vector<std::string>&)>& body,
        std::span<const Switch> switches = all_switches()) {
  fill_closed_descriptors();
  ::signal(SIGXFSZ, SIG_IGN);  // `ulimit -f`: the write fails and says so
  // A write to a pipe without a reader fails likewise. SIGPIPE gets a handler, because commands that this program
  // starts would inherit SIG_IGN.
  ::signal(SIGPIPE, on_closed_pipe);
  std::string name = argc > 0 ? argv[0] : "weft";
  name = name.substr(name.rfind('/') + 1);
  int code = 1;
  const auto fail = [&](const char* what, int exit_code, Code reason = Code::kInternal) {
    report_failure(reason, what);
    std::fflush(stdout);
    std::fprintf(stderr, "%s: %s\n", name.c_str(), what);
    tell_others(reason, what);
    code = exit_code;
  };
  const auto guarded = [&] {
    try {
      const KnownFlags flags = known_flags(table);
      for (int i = 1; i < argc && std::string(argv[i]) != "--"; ++i) {
        std::string a = argv[i];
        if (a == "--help" || a == "-help" || a == "-h") {
          print_help(name.c_str(), summary, table, flags, switches);
          code = 0;
          return;
        }
      }
      const std::vector<std::string> rest = parse({argv + std::min(argc, 1), argv + argc}, flags, switches);
      check_files(table);
      code = body(rest);
    } catch (const UsageError& e) {
      fail(e.what(), 2, e.code());
    } catch (const Error& e) {
      fail(e.what(), 1, e.code());
    } catch (const std::bad_alloc&) {
      fail("out of memory: the system refused an allocation; is there a limit (ulimit -v)?", 1);
    } catch (const std::exception& e) {
      fail(e.what(), 1);
    }
  };
  try {
    with_enough_stack(guarded);
  } catch (const std::exception& e) {
    fail(e.what(), 1);
  }
  try {
    internal::do_end_work();
  } catch (const std::exception& e) {
    fail(e.what(), code == 0 ? 1 : code);
  }
  if (!flush_output() && code == 0) {
    if (output_closed()) return 128 + SIGPIPE;
    fail(output_error(errno).c_str(), 1);
  }
  return code;
}

}  // namespace

PartFlags::PartFlags(std::vector<std::string> names, std::vector<PartFlag> table)
    : names_(std::move(names)), given_(std::make_unique<bool[]>(table.size())) {
  for (PartFlag& row : table) {
    if (!row.flag.given) row.flag.given = &given_[parts_.size()];
    parts_.push_back(row.parts);
    flags_.push_back(std::move(row.flag));
  }
}

std::string PartFlags::text(unsigned parts) const {
  std::vector<std::string> all;
  for (size_t i = 0; i < names_.size(); ++i)
    if (parts >> i & 1) all.push_back(names_[i]);
  std::string text;
  for (size_t i = 0; i < all.size(); ++i) text += str_cat(i == 0 ? "" : i + 1 < all.size() ? ", " : " and ", all[i]);
  return text;
}

void PartFlags::check(unsigned parts) const {
  for (size_t i = 0; i < flags_.size(); ++i)
    if (*flags_[i].given && !(parts_[i] & parts))
      usage_error(str_cat("--", flags_[i].name, " is a flag of ", text(parts_[i]), "; this is ", text(parts)));
}

unsigned PartFlags::only(unsigned asked, unsigned otherwise) const {
  if (std::popcount(asked) > 1) usage_error(str_cat(text(asked), " exclude each other; give one"));
  const unsigned part = asked ? asked : otherwise;
  check(part);
  return part;
}

std::string flag_text(const Flag& flag) {
  return std::visit([](auto* variable) { return value_text(*variable); }, flag.variable);
}

static bool is_in(const Range& range, double v) {
  return std::isfinite(v) && v >= range.least && v <= range.most && !(range.open && v == range.least) &&
         !(range.whole && v != std::floor(v));
}

bool in_range(const Flag& flag) {
  return std::visit(
      [&]<class T>(const T* variable) {
        if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>)
          return is_in(flag.range, static_cast<double>(*variable));
        else
          return true;
      },
      flag.variable);
}

bool same_value(const Flag& a, const Flag& b) {
  return std::visit(
      [&]<class T>(const T* variable) {
        const T& other = *std::get<T*>(b.variable);
        if constexpr (std::is_same_v<T, File>)
          return variable->path == other.path;
        else
          return *variable == other;
      },
      a.variable);
}

bool set_flag(const Flag& flag, const std::string& text) {
  return std::visit(
      [&]<class T>(T* variable) {
        T value = *variable;
        if (!parse_value(text, &value)) return false;
        if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>)
          if (!is_in(flag.range, static_cast<double>(value))) return false;
        *variable = std::move(value);
        return true;
      },
      flag.variable);
}

void check_files(const Flags& flags) {
  std::vector<std::pair<const Flag*, const File*>> files;
  for (const Flag& flag : flags)
    if (File* const* const file = std::get_if<File*>(&flag.variable); file && **file) files.emplace_back(&flag, *file);
  const auto place = [](const std::string& path) {
    std::error_code error;
    const std::filesystem::path whole = std::filesystem::weakly_canonical(std::filesystem::absolute(path), error);
    return error ? path : whole.string();
  };
  for (size_t j = 0; j < files.size(); ++j)
    for (size_t i = 0; i < j; ++i)
      if ((writes(*files[i].second) || writes(*files[j].second)) &&
          place(files[i].second->path) == place(files[j].second->path))
        usage_error(str_cat("--", files[i].first->name, " and --", files[j].first->name, " name the same file: '",
                            files[j].second->path, "'"));
  for (const auto& [flag, file] : files) try {
      if (file->use == File::Use::kWrite) io::check_file(file->path);
      if (file->use == File::Use::kMakeFolder) io::check_folder(file->path);
    } catch (const Error& e) {
      throw Error(e.code(), str_cat("--", flag->name, ": ", e.what(),
                                    e.code() == Code::kNotFound ? "; need a path in a folder that exists" : ""));
    }
}

void usage_error(const std::string& message) { throw UsageError(message); }

void as_usage_error(const char* prefix, const std::function<void()>& fn) {
  try {
    fn();
  } catch (const Error& e) {
    usage_error(str_cat(prefix, e.what()));
  }
}

void check_flag(const char* flag, bool ok, const std::string& got, const std::string& need) {
  if (!ok) usage_error(str_cat("--", flag, ": got ", got, "; need ", need));
}

int run_program(int argc, char** argv, const char* summary,
                const std::function<int(const std::vector<std::string>&)>& body) {
  return run(argc, argv, summary, {}, body);
}

int run_program(int argc, char** argv, const char* summary, const Flags& flags,
                const std::function<int(const std::vector<std::string>&)>& body) {
  return run(argc, argv, summary, flags, body);
}

int run_program(int argc, char** argv, const char* summary, const Flags& flags, const std::function<int()>& body,
                Switches switches) {
  const auto without_arguments = [&](const std::vector<std::string>& rest) {
    if (!rest.empty()) usage_error(str_cat("unexpected argument '", rest[0], "'; --help lists the flags"));
    return body();
  };
  return run(argc, argv, summary, flags, without_arguments,
             switches == Switches::kAll ? all_switches() : std::span<const Switch>());
}

void write_output(std::string_view text) {
  errno = 0;
  const bool written =
      static_cast<bool>(std::cout.write(text.data(), static_cast<std::streamsize>(text.size())).flush());
  if (!written && !output_closed()) throw Error(Code::kFailedPrecondition, output_error(errno));
}

bool interrupted() { return interrupt_signal.load(std::memory_order_relaxed) != 0 || output_closed(); }

bool output_closed() { return pipe_closed.load(std::memory_order_relaxed) && std::ferror(stdout); }

int interrupted_code() {
  const int signal = interrupt_signal.load(std::memory_order_relaxed);
  return signal ? 128 + signal : 0;
}

void watch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  struct sigaction before = {};
  if (sigaction(SIGHUP, nullptr, &before) == 0 && before.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
}

}  // namespace weft
