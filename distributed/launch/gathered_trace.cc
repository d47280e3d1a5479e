#include "distributed/launch/gathered_trace.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <set>

#include "distributed/comm/byte_stream.h"
#include "distributed/launch/processes.h"
#include "framework/base/clock.h"
#include "framework/base/error.h"

namespace weft::dist {

using weft::internal::Trace;

namespace {

// Fixed-size fields of an event, with texts as numbers of a table.
struct EventRecord {
  uint32_t name, scope, phase, file, line;
  int32_t rank, thread;
  int64_t begin_ns, end_ns, bytes;
  uint64_t flow;
  uint8_t kind, failed, starts, waits, on_device;
};

using StringWriter = internal::ByteWriter<std::string>;

// Processes of one start of a host have one clock.
std::string boot() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

std::string text_of(const Trace& trace, int64_t now_ns) {
  std::map<std::string_view, uint32_t> numbers;
  std::vector<std::string> texts;
  const auto number = [&](const char* text) {
    const auto [it, added] = numbers.try_emplace(text, static_cast<uint32_t>(texts.size()));
    if (added) texts.emplace_back(text);
    return it->second;
  };
  StringWriter events;
  for (const TraceEvent& e : trace.events)
    events.put(EventRecord{number(e.name), number(e.scope), number(e.phase), number(e.line.file), e.line.line, e.rank,
                           e.thread, e.begin_ns, e.end_ns, e.bytes, e.flow, e.kind, e.failed, e.starts, e.waits,
                           e.on_device});
  StringWriter w;
  w.put_text(boot());
  w.put(now_ns);
  w.put(trace.lost);
  for (const std::vector<std::string>* list : {&trace.threads, static_cast<const std::vector<std::string>*>(&texts)}) {
    w.put(static_cast<uint64_t>(list->size()));
    for (const std::string& s : *list) w.put_text(s);
  }
  w.put(static_cast<uint64_t>(trace.events.size()));
  return w.bytes + events.bytes;
}

// Texts of events live as long as the process.
const char* kept(const std::string& text) {
  static auto* const all = new std::set<std::string>;
  return all->insert(text).first->c_str();
}

// Adds a process's trace; `now_ns` here corresponds to the sent time on the clock of another host.
void add(Trace& all, const std::string& text, int process, int64_t now_ns) {
  internal::ByteReader r(text, "trace: the trace of another process");
  const bool one_clock = r.text() == boot();
  const int64_t other = r.get<int64_t>(), shift = one_clock ? 0 : now_ns - other;
  all.lost += r.get<int64_t>();
  const auto first = static_cast<int32_t>(all.threads.size());
  std::vector<std::string> lists[2];
  for (auto& list : lists)
    for (auto n = r.get<uint64_t>(); n > 0; --n) list.push_back(r.text());
  for (const std::string& name : lists[0]) all.threads.push_back(str_cat("process ", process, ", ", name));
  std::vector<const char*> texts;
  for (const std::string& t : lists[1]) texts.push_back(kept(t));
  const auto at = [&](uint32_t i) {
    r.check(i < texts.size());
    return texts[i];
  };
  for (auto n = r.get<uint64_t>(); n > 0; --n) {
    const auto e = r.get<EventRecord>();
    r.check(e.kind <= TraceEvent::kArena);
    all.events.push_back({.name = at(e.name),
                          .scope = at(e.scope),
                          .phase = at(e.phase),
                          .line = {at(e.file), e.line},
                          .begin_ns = e.begin_ns + shift,
                          .end_ns = e.end_ns + shift,
                          .flow = e.flow,
                          .bytes = e.bytes,
                          .rank = e.rank,
                          .thread = e.thread < 0 ? -1 : first + e.thread,
                          .kind = static_cast<TraceEvent::TraceKind>(e.kind),
                          .failed = e.failed != 0,
                          .starts = e.starts != 0,
                          .waits = e.waits != 0,
                          .on_device = e.on_device != 0});
  }
}

}  // namespace

Trace gather_traces(Trace mine) {
  Processes* const job = Processes::current();
  if (!job) return mine;
  job->barrier();  // the clocks are read at about the same time
  const int64_t now = weft::internal::now_ns();
  const std::vector<std::string> all = job->gather(text_of(mine, now));
  if (!is_first()) return mine;
  for (size_t p = 0; p < all.size(); ++p)
    if (static_cast<int>(p) != job->process()) add(mine, all[p], static_cast<int>(p), now);
  std::stable_sort(mine.events.begin(), mine.events.end(), [](const TraceEvent& a, const TraceEvent& b) {
    return std::pair(a.begin_ns, -a.end_ns) < std::pair(b.begin_ns, -b.end_ns);
  });
  return mine;
}

}  // namespace weft::dist
