#include "tools/profile/timeline.h"

#include <algorithm>
#include <map>
#include <vector>

#include "framework/base/error.h"
#include "tools/draw/chart.h"

namespace weft::profiler {
namespace {

enum LaneKind : size_t { kHost, kForward, kBackward, kUpdate, kTasks, kCollective, kWaiting, kKinds };
const std::vector<std::string>& labels() {
  static const std::vector<std::string> all{"host",           "forward",    "backward",         "update",
                                            "part of a loop", "collective", "waiting for ranks"};
  return all;
}

constexpr size_t kMostRows = 32;
constexpr double kWidth = 1100, kRow = 26;

using Track = std::pair<int32_t, int32_t>;  // rank, thread

bool drawn(const TraceEvent& e) { return e.kind != TraceEvent::kArena && e.kind != TraceEvent::kStep && !e.on_device; }

size_t kind_of(const TraceEvent& e) {
  if (e.kind == TraceEvent::kCollective) return e.waits && !e.starts ? kWaiting : kCollective;
  if (e.kind == TraceEvent::kTasks) return kTasks;
  if (e.kind == TraceEvent::kOp) return kForward;
  if (e.kind != TraceEvent::kLaunch) return kHost;
  const std::string_view phase = e.phase;
  return phase == "backward" ? kBackward : phase == "update" ? kUpdate : kForward;
}

// Joins bars of one kind without a visible gap between them.
std::vector<draw::Span> joined(const std::vector<draw::Span>& spans, double gap) {
  std::vector<draw::Span> out;
  std::map<std::pair<size_t, size_t>, size_t> last;  // key: row and label
  for (const draw::Span& s : spans) {
    const auto at = last.find({s.row, s.label});
    if (at != last.end() && s.from - out[at->second].to <= gap) {
      out[at->second].to = std::max(out[at->second].to, s.to);
      continue;
    }
    last[{s.row, s.label}] = out.size();
    out.push_back(s);
  }
  return out;
}

}  // namespace

std::string timeline_svg(const Profile& profile, const std::string& title) {
  // A part of a loop on a thread with launches is inside its launch.
  std::map<Track, bool> tracks;  // whether it has launches or ops
  int64_t begin = INT64_MAX, end = 0;
  for (const TraceEvent& e : profile.events()) {
    if (!drawn(e)) continue;
    tracks[{e.rank, e.thread}] |= e.kind == TraceEvent::kLaunch || e.kind == TraceEvent::kOp;
    begin = std::min(begin, e.begin_ns);
    end = std::max(end, e.end_ns);
  }
  WEFT_CHECK(!tracks.empty(), "timeline: the profile has no events; need one of a step that ran");
  std::vector<std::string> names;
  std::map<Track, size_t> rows;
  for (const auto& [track, launches] : tracks) {
    if (rows.size() == kMostRows) break;
    rows.emplace(track, rows.size());
    const auto& [rank, thread] = track;
    const std::string name = thread >= 0 ? profile.trace().threads[thread] : "";
    names.push_back(rank < 0 ? name : str_cat("rank ", rank, launches || name.empty() ? "" : str_cat(", ", name)));
  }
  std::vector<draw::Span> by_kind[kKinds];
  for (const TraceEvent& e : profile.events()) {
    const auto row = rows.find({e.rank, e.thread});
    if (!drawn(e) || row == rows.end() || (e.kind == TraceEvent::kTasks && tracks[row->first])) continue;
    const size_t kind = kind_of(e);
    by_kind[kind].push_back({.row = row->second,
                             .from = static_cast<double>(e.begin_ns - begin) * 1e-6,
                             .to = static_cast<double>(e.end_ns - begin) * 1e-6,
                             .label = kind});
  }
  const double whole = static_cast<double>(end - begin) * 1e-6;
  std::vector<draw::Span> spans;
  for (const std::vector<draw::Span>& one : by_kind) {  // inner spans come later
    const std::vector<draw::Span> fewer = joined(one, whole / kWidth);
    spans.insert(spans.end(), fewer.begin(), fewer.end());
  }
  draw::Chart chart(title, {.label = "ms", .from = 0, .to = whole}, draw::y_names(names),
                    {.width = kWidth, .height = 90 + kRow * static_cast<double>(names.size()), .left = 130});
  std::vector<std::string> kinds;  // the occurring kinds
  size_t numbers[kKinds] = {};
  for (size_t kind = 0; kind < kKinds; ++kind)
    if (!by_kind[kind].empty()) numbers[kind] = kinds.size(), kinds.push_back(labels()[kind]);
  for (draw::Span& s : spans) s.label = numbers[s.label];
  chart.spans(kinds, spans);
  if (tracks.size() > rows.size()) chart.remark(str_cat(rows.size(), " of ", tracks.size(), " threads"));
  return draw::svg({&chart, 1});
}

}  // namespace weft::profiler
