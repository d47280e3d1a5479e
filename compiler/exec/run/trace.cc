#include "compiler/exec/run/trace.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "framework/base/end_work.h"
#include "framework/base/error.h"
#include "framework/base/mutex.h"
#include "framework/base/switches.h"
#include "framework/io/utf8.h"

namespace weft {

using internal::Trace;

namespace {

// Text of a JSON string. A user's scope may have any bytes.
std::string escaped(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t n = io::utf8_length(text);
    const auto first = static_cast<unsigned char>(text[0]);
    if (n == 0) {
      out += '?';
    } else if (first < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", first);
      out += code;
    } else {
      if (first == '"' || first == '\\') out += '\\';
      out.append(text.substr(0, n));
    }
    text.remove_prefix(std::max<size_t>(n, 1));
  }
  return out;
}

std::string quoted(std::string_view text) { return str_cat("\"", escaped(text), "\""); }

const char* category(TraceEvent::TraceKind kind) {
  constexpr const char* kNames[] = {"step", "host", "launch", "tasks", "op", "collective", "arena"};
  return kNames[kind];
}

class TraceWriter {
 public:
  TraceWriter(const Trace& trace, std::FILE* file) : trace_(trace), file_(file) {
    if (!trace.events.empty()) zero_ = trace.events[0].begin_ns;
  }

  void write() {
    std::fprintf(file_, "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"lost_events\":%lld},\"traceEvents\":[",
                 static_cast<long long>(trace_.lost));
    names();
    find_flows();
    for (const TraceEvent& e : trace_.events) {
      if (e.kind == TraceEvent::kLaunch && e.bytes >= 0) counter(e, e.bytes);
      if (e.kind == TraceEvent::kArena) {
        counter(e, 0);
        continue;
      }
      slice(e);
      if (e.flow) flow(e);
    }
    std::fputs("\n]}\n", file_);
  }

 private:
  struct CollectiveFlow {
    const TraceEvent* last = nullptr;  // the start of the rank that came last
    std::set<int32_t> ranks;
  };

  static int pid(const TraceEvent& e) { return e.rank + 2; }
  static int tid(const TraceEvent& e) { return 2 * e.thread + (e.on_device ? 2 : 1); }
  // Whole nanoseconds, so that slices nest in the file as they do here.
  std::string micros(int64_t ns) const {
    char text[40];
    std::snprintf(text, sizeof text, "%lld.%03lld", static_cast<long long>(ns / 1000),
                  static_cast<long long>(ns % 1000));
    return text;
  }
  std::string place(const TraceEvent& e, int64_t at) const {
    return str_cat("\"pid\":", pid(e), ",\"tid\":", tid(e), ",\"ts\":", micros(at - zero_));
  }
  void line(const std::string& text) {
    std::fprintf(file_, "%s\n%s", comma_, text.c_str());
    comma_ = ",";
  }

  void names() {
    std::set<int32_t> ranks;
    std::set<std::pair<int, int>> tracks;
    for (const TraceEvent& e : trace_.events) {
      if (ranks.insert(e.rank).second)
        line(str_cat("{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":", pid(e), ",\"args\":{\"name\":\"",
                     e.rank < 0 ? std::string("program") : str_cat("rank ", e.rank), "\"}}"));
      if (!tracks.insert({pid(e), tid(e)}).second) continue;
      const std::string& thread = trace_.threads[static_cast<size_t>(e.thread)];
      const bool worker = thread.rfind("worker", 0) == 0;
      const std::string name = e.on_device ? "device" : e.rank < 0 || worker ? thread : str_cat("rank ", e.rank);
      line(str_cat("{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":", pid(e), ",\"tid\":", tid(e),
                   ",\"args\":{\"name\":", quoted(name), "}}"));
    }
  }

  void slice(const TraceEvent& e) {
    std::string text =
        str_cat("{\"name\":", quoted(e.name), ",\"cat\":\"", category(e.kind), "\",\"ph\":\"X\",", place(e, e.begin_ns),
                ",\"dur\":", micros(e.end_ns - e.begin_ns), ",\"args\":{\"scope\":", quoted(e.scope));
    if (e.line.line) text += str_cat(",\"line\":", quoted(e.line.to_string()));
    if (*e.phase) text += str_cat(",\"phase\":\"", e.phase, "\"");
    if (e.kind == TraceEvent::kCollective && e.bytes >= 0) text += str_cat(",\"bytes\":", e.bytes);
    if (e.kind == TraceEvent::kCollective && e.starts != e.waits)
      text += str_cat(",\"part\":\"", e.starts ? "start" : "wait", "\"");
    if (e.failed) text += ",\"failed\":true";
    if (e.rank >= 0) text += str_cat(",\"rank\":", e.rank);
    line(text + "}}");
  }

  void counter(const TraceEvent& e, int64_t bytes) {
    line(str_cat("{\"name\":\"arena\",\"ph\":\"C\",", place(e, e.begin_ns), ",\"args\":{\"live bytes\":", bytes, "}}"));
  }

  void find_flows() {
    for (const TraceEvent& e : trace_.events) {
      if (!e.flow) continue;
      CollectiveFlow& f = flows_[e.flow];
      f.ranks.insert(e.rank);
      if (e.starts) f.last = &e;  // they are sorted
    }
  }

  // A flow begins where the rank that came last starts the collective, and ends where each other rank's wait ends.
  void flow(const TraceEvent& e) {
    const CollectiveFlow& f = flows_[e.flow];
    if (f.ranks.size() < 2 || !f.last) return;
    const auto arrow = [&](const char* ends, int64_t at) {
      char id[24];
      std::snprintf(id, sizeof id, "0x%llx", static_cast<unsigned long long>(e.flow));
      line(str_cat("{\"name\":\"collective\",\"cat\":\"collective\",\"ph\":", ends, ",\"id\":\"", id, "\",",
                   place(e, at), "}"));
    };
    if (&e == f.last) return arrow("\"s\"", e.begin_ns);
    if (!e.waits || e.rank == f.last->rank) return;
    // A slice does not have its own end.
    if (const int64_t at = std::max(e.begin_ns, e.end_ns - 1); at >= f.last->begin_ns) arrow("\"f\",\"bp\":\"e\"", at);
  }

  const Trace& trace_;
  std::FILE* const file_;
  int64_t zero_ = 0;
  const char* comma_ = "";
  std::map<uint64_t, CollectiveFlow> flows_;
};

}  // namespace

void save_trace(const Trace& trace, const std::string& path, const char* who) {
  std::FILE* f = std::fopen(path.c_str(), "w");
  WEFT_CHECK_AS(kUnavailable, f, who, ": cannot write '", path, "': ", std::strerror(errno));
  TraceWriter(trace, f).write();
  const bool ok = !std::ferror(f);
  WEFT_CHECK_AS(kUnavailable, (std::fclose(f) == 0) && ok, who, ": writing '", path,
                "' failed: ", std::strerror(errno));
}

void flush_trace() {
  static auto* mutex = new Mutex;  // ranks may fail at the same time
  MutexLock lock(*mutex);
  const std::string path = switch_value("WEFT_TRACE");
  if (!path.empty()) save_trace(internal::collect_trace(internal::TraceWindow::kFile), path, "WEFT_TRACE");
}

namespace internal {

bool follow_trace_switch() {
  static auto* mutex = new Mutex;
  static auto* followed = new std::string;
  MutexLock lock(*mutex);
  const std::string path = switch_value("WEFT_TRACE");
  if (path != *followed) close_trace(TraceWindow::kFile);
  *followed = path;
  if (path.empty()) return false;
  open_trace(TraceWindow::kFile,
             bit_of(TraceEvent::kLaunch) | bit_of(TraceEvent::kCollective) | bit_of(TraceEvent::kArena));
  [[maybe_unused]] static const bool registered = (at_end(flush_trace), true);
  return true;
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
