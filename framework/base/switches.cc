#include "framework/base/switches.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <functional>
#include <map>

#include "framework/base/error.h"
#include "framework/base/mutex.h"
#include "framework/base/nearest.h"
#include "framework/base/parse_number.h"

namespace weft {

using internal::Switch;

namespace {

constexpr Switch kSwitches[] = {
    {"WEFT_DEBUG", Switch::kChoice, "0, 1, 2", "0", "1: one line per launch, 2: also one line per pass"},
    {"WEFT_DUMP", Switch::kPath, "folder", "", "folder for the graph after each pass that changed it"},
    {"WEFT_DISABLE", Switch::kText, "names, or `all`", "", "comma-separated names of passes to skip, or all"},
    {"WEFT_EXEC", Switch::kChoice, "compiled, interp, eager", "compiled",
     "how compile(fn) runs: compiled, interp (graph interpreter) or eager"},
    {"WEFT_VERIFY", Switch::kChoice, "0, 1, auto", "auto",
     "compare the first results of each kernel with the reference: 0, 1, or auto (fused kernels, in tests)"},
    {"WEFT_VERIFY_IR", Switch::kChoice, "0, 1, 2", "1", "verify graphs: 0 off, 1 at stage ends, 2 after each pass"},
    {"WEFT_TRACE", Switch::kPath, "file", "", "file for a Chrome trace of launches"},
    {"WEFT_CACHE", Switch::kPath, "folder, or `off`", "", "folder of the kernel cache, or off"},
    {"WEFT_CXX", Switch::kLookup, "path", "", "the compiler of kernels; empty: g++, c++ or clang++ from PATH"},
    {"WEFT_CXX_SECONDS", Switch::kNumber, "seconds", "60",
     "time limit of one run of that compiler; then kernels are interpreted", 1, 1000000},
    {"WEFT_NVRTC", Switch::kLookup, "path", "",
     "path of libnvrtc, the compiler of CUDA kernels; empty: the usual locations"},
    {"WEFT_CUBLASLT", Switch::kLookup, "path", "",
     "path of libcublasLt, matrix products on a GPU; empty: the usual locations"},
    {"WEFT_CUDA", Switch::kWords, "nograph, nobatch, sm80", "",
     "on a GPU, a list of nograph (replay no step as one CUDA graph), nobatch (operations with equal kernels are "
     "separate launches) and sm80 (no instructions of sm_90a: TMA, WGMMA)"},
    {"WEFT_SYNC", Switch::kChoice, "0, 1", "0", "run devices synchronously: 0 or 1"},
    {"WEFT_MACHINE", Switch::kPath, "file", "",
     "rates of this machine, a file of //tools:doctor -- --measure --out; empty: measured once, and kept"},
    {"WEFT_ISA", Switch::kChoice, "auto, baseline, avx2, avx512", "auto",
     "instruction set of CPU kernels: auto, baseline, avx2 or avx512"},
    {"WEFT_THREADS", Switch::kNumber, "number", "0",
     "threads of each process; 0: all cores of the host, which the processes of a mesh share", 0, 4096, "threads"},
};

// Variables of our tests and scripts, which are not switches.
constexpr std::string_view kOthers[] = {"WEFT_BAZEL", "WEFT_GPU_CHECK", "WEFT_GPU_CHECK_SMALL",
                                        "WEFT_GPU_TEST_SECONDS"};

struct Overrides {
  Mutex mutex;
  std::map<std::string, std::string, std::less<>> values WEFT_GUARDED_BY(mutex);
};
Overrides& overrides() {
  static Overrides* o = new Overrides;
  return *o;
}

// "; did you mean NAME?", or nothing if no switch is near.
std::string did_you_mean(std::string_view name) {
  std::vector<std::string> names;
  for (const Switch& s : kSwitches) names.emplace_back(s.name);
  const std::string near = nearest_name(name, names);
  return near.empty() ? "" : str_cat("; did you mean ", near, "?");
}

const Switch* find_switch(std::string_view name) {
  for (const Switch& s : kSwitches)
    if (name == s.name) return &s;
  return nullptr;
}

const Switch& find(std::string_view name) {
  const Switch* s = find_switch(name);
  WEFT_CHECK_AS(kNotFound, s, "unknown switch ", name, did_you_mean(name));
  return *s;
}

std::vector<std::string> split(std::string_view all, std::string_view separator) {
  std::vector<std::string> out;
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.find(separator, at), all.size());
    out.emplace_back(all.substr(at, end - at));
    at = end + separator.size();
  }
  return out;
}

std::vector<std::string> choices_of(const Switch& s) { return split(s.values, ", "); }

std::string need_of(const Switch& s) {
  if (s.kind == Switch::kNumber) return str_cat("a whole number from ", s.least, " to ", s.most);
  const std::vector<std::string> choices = choices_of(s);
  std::string text;
  for (size_t i = 0; i < choices.size(); ++i)
    text += str_cat(i == 0 ? "" : i + 1 < choices.size() ? ", " : " or ", choices[i]);
  return s.kind == Switch::kWords ? str_cat("words separated by commas: ", text) : text;
}

bool is_true(std::string_view v) { return v == "1" || v == "true" || v == "on" || v == "yes"; }
bool is_false(std::string_view v) { return v.empty() || v == "0" || v == "false" || v == "off" || v == "no"; }

bool takes(const Switch& s, const std::string& v) {
  if (s.kind == Switch::kChoice) {
    const std::vector<std::string> choices = choices_of(s);
    const bool on_off = choices[0] == "0" && choices.back() != "2";  // levels (0, 1, 2) do not take true or false
    return std::find(choices.begin(), choices.end(), v) != choices.end() || (on_off && (is_true(v) || is_false(v)));
  }
  if (s.kind == Switch::kWords) {
    const std::vector<std::string> words = choices_of(s);
    return std::ranges::all_of(split(v, ","), [&](const std::string& w) { return std::ranges::count(words, w) > 0; });
  }
  if (s.kind != Switch::kNumber) return true;
  return parse_number<long>(v, s.least, s.most).has_value();
}

}  // namespace

std::span<const Switch> all_switches() { return kSwitches; }

std::string flag_of(const Switch& s) {
  if (s.flag) return s.flag;
  std::string name = s.name;
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

std::string switch_value(std::string_view name) {
  static const bool reported = [] {
    for (const std::string& line : internal::unknown_switches()) internal::warn(line);
    return true;
  }();
  (void)reported;
  const Switch& s = find(name);
  const char* env = std::getenv(s.name);
  std::string value = env && *env ? env : s.fallback;
  {
    MutexLock lock(overrides().mutex);
    auto it = overrides().values.find(name);
    if (it != overrides().values.end()) value = it->second;
  }
  WEFT_CHECK(takes(s, value), name, ": got '", value, "'; need ", need_of(s));
  const bool path =
      s.kind == Switch::kPath ? value != "off" : s.kind == Switch::kLookup && value.find('/') != value.npos;
  return path ? internal::in_working_folder(value) : value;
}

void set_switch(std::string_view name, std::string value) {
  find(name);
  MutexLock lock(overrides().mutex);
  overrides().values[std::string(name)] = std::move(value);
}

bool switch_on(std::string_view name) {
  const std::string v = switch_value(name);
  WEFT_CHECK(is_true(v) || is_false(v), name, ": got '", v, "'; need 0 or 1");
  return is_true(v);
}

bool switch_has(std::string_view name, std::string_view word) {
  const Switch& s = find(name);
  WEFT_BUG_IF(s.kind != Switch::kWords || std::ranges::count(choices_of(s), word) == 0, name, " has no word ", word);
  return std::ranges::count(split(switch_value(name), ","), word) > 0;
}

long switch_int(std::string_view name) { return std::stol(switch_value(name)); }

void check_switches() {
  for (const Switch& s : kSwitches) switch_value(s.name);
}

namespace internal {

std::vector<std::string> unknown_switches() {
  std::vector<std::string> out;
  for (char** e = environ; e && *e; ++e) {
    const std::string_view entry = *e, name = entry.substr(0, entry.find('='));
    if (!name.starts_with("WEFT_") || std::find(std::begin(kOthers), std::end(kOthers), name) != std::end(kOthers) ||
        find_switch(name))
      continue;
    out.push_back(
        str_cat("the environment variable ", name, " is not a switch of Weft and changes nothing", did_you_mean(name)));
  }
  return out;
}

std::string in_working_folder(const std::string& path) {
  if (path.empty() || path[0] == '/') return path;
  const char* base = std::getenv("BUILD_WORKING_DIRECTORY");
  return base && *base ? str_cat(base, "/", path) : path;
}

}  // namespace internal
}  // namespace weft
