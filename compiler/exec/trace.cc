#include "compiler/exec/trace.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <thread>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/mutex.h"
#include "framework/base/switches.h"
#include "framework/dispatch/rank.h"

namespace weft {
namespace {

struct Event {
  const char* name;
  const char* scope;
  double start, us;
  bool failed;
  uint64_t thread;
  int rank;  // of a mesh; -1: one device
};

struct Recorder {
  Mutex mutex;
  std::vector<Event> events WEFT_GUARDED_BY(mutex);
};

Recorder& recorder() {
  static Recorder* r = [] {
    std::atexit([] {
      try {
        flush_trace();
      } catch (const std::exception& e) {
        internal::warn(e.what());
      }
    });
    return new Recorder;
  }();
  return *r;
}

std::string escaped(const char* s) {
  std::string out;
  for (; *s; ++s) {
    if (*s == '"' || *s == '\\') out += '\\';
    if (static_cast<unsigned char>(*s) >= 0x20) out += *s;
  }
  return out;
}

}  // namespace

void flush_trace() {
  const std::string path = switch_value("WEFT_TRACE");
  if (path.empty()) return;
  Recorder& r = recorder();
  MutexLock lock(r.mutex);
  std::FILE* f = std::fopen(path.c_str(), "w");
  WEFT_CHECK_AS(kUnavailable, f, "WEFT_TRACE: cannot write '", path, "': ", std::strerror(errno));
  std::fputs("{\"traceEvents\":[", f);
  const char* comma = "";
  std::set<int> ranks;
  for (const Event& e : r.events) {
    // Viewers show one group of rows for each "pid".
    const std::string rank = e.rank < 0 ? "" : str_cat(",\"rank\":", e.rank);
    if (e.rank >= 0) ranks.insert(e.rank);
    std::fprintf(f,
                 "%s\n{\"name\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%llu,\"ts\":%.3f,\"dur\":%.3f,\"args\":{"
                 "\"scope\":\"%s\"%s%s}}",
                 comma, escaped(e.name).c_str(), e.rank + 2, static_cast<unsigned long long>(e.thread), e.start, e.us,
                 escaped(e.scope).c_str(), rank.c_str(), e.failed ? ",\"failed\":true" : "");
    comma = ",";
  }
  for (int rank : ranks) {
    std::fprintf(f, "%s\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"rank %d\"}}", comma,
                 rank + 2, rank);
    comma = ",";
  }
  std::fputs("\n]}\n", f);
  const bool ok = !std::ferror(f);
  WEFT_CHECK_AS(kUnavailable, (std::fclose(f) == 0) && ok, "WEFT_TRACE: writing '", path,
                "' failed: ", std::strerror(errno));
}

namespace internal {
namespace {

void record(const char* name, const char* scope, double start_us, double us, bool failed) {
  Recorder& r = recorder();
  const uint64_t thread = std::hash<std::thread::id>()(std::this_thread::get_id()) % 1000000;
  const RankContext* rank = RankContext::current();
  MutexLock lock(r.mutex);
  r.events.push_back({name, scope, start_us, us, failed, thread, rank ? rank->rank() : -1});
}

}  // namespace

void record_launch(const char* name, const char* scope, double start_us, double us) {
  record(name, scope, start_us, us, false);
}

void record_failed_launch(const char* name, const char* scope, double start_us) {
  record(name, scope, start_us, 0, true);
}

void print_failed_launch(const char* name, SourceLine line, const char* scope) {
  const std::string at = line.line ? str_cat(" at ", line) : std::string();
  std::fprintf(stderr, "%-24s failed%s  %s\n", name, at.c_str(), scope);
}

void print_launch(const char* name, const char* scope, double us, double bytes, double flops) {
  std::fprintf(stderr, "%-24s %10.1f us %8.2f GB/s %8.2f GFLOP/s  %s\n", name, us, us > 0 ? bytes / us / 1e3 : 0.0,
               us > 0 ? flops / us / 1e3 : 0.0, scope);
}

}  // namespace internal
}  // namespace weft
