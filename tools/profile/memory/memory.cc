#include "tools/profile/memory/memory.h"

#include <algorithm>
#include <map>
#include <set>

namespace weft::profiler {
namespace {

// The launch that writes a buffer, or uses it, first; null if none does.
const LaunchRecord* first_launch(const StepRecord& r, const BufferRecord& b) {
  return b.first >= 0 && static_cast<size_t>(b.first) < r.launches.size() ? &r.launches[b.first] : nullptr;
}

bool in_arena(const BufferRecord& b) { return b.home == "arena"; }

// Whether a buffer outside the arena is part of the peak: arguments and captured tensors are the caller's.
bool belongs_to_step(const BufferRecord& b) {
  return b.home == "constants" || b.home == "output" || (b.home == "cell" && b.first >= 0);
}

// The module of a cell: "blocks.0.up" of "blocks.0.up.weight", and of the optimiser's "blocks.0.up.weight.m".
std::string module_of_cell(const StepRecord& r, const std::string& cell) {
  const size_t dot = cell.rfind('.');
  if (dot == cell.npos) return "";
  const std::string rest = cell.substr(0, dot);
  const bool of_cell = std::any_of(r.buffers.begin(), r.buffers.end(),
                                   [&](const BufferRecord& b) { return b.home == "cell" && b.owner == rest; });
  return of_cell ? module_of_cell(r, rest) : rest;
}

Holder holder_of(const StepRecord& r, const BufferRecord& b) {
  const LaunchRecord* l = first_launch(r, b);
  Holder h{.name = b.owner,
           .module = {},
           .line = l ? l->line.to_string() : "",
           .phase = {},
           .home = b.home,
           .bytes = b.bytes};
  if (b.home == "cell") {
    h.module = module_of_cell(r, b.owner);
    return h;
  }
  if (!l) return h;
  h.name = l->name;
  h.module = l->scope;
  if (b.home != "constants") h.phase = weft::to_string(l->phase);
  if (in_arena(b)) h.first = b.first, h.last = b.last;
  return h;
}

// The buffers outside the arena that the peak counts, each once: a cell has up to two buffers in the same memory.
std::vector<const BufferRecord*> fixed_buffers(const StepRecord& r) {
  std::vector<const BufferRecord*> out;
  std::set<std::pair<std::string, int32_t>> seen;
  for (const BufferRecord& b : r.buffers)
    if (belongs_to_step(b) && (b.home == "constants" || seen.emplace(b.home, b.index).second)) out.push_back(&b);
  return out;
}

}  // namespace

MemoryUse memory_of(const StepRecord& r) {
  MemoryUse use{.holders = {}, .folds = ModuleFolds(r), .gaps = r.peak_bytes};
  for (const BufferRecord* b : fixed_buffers(r)) use.holders.push_back(holder_of(r, *b));
  for (int32_t i : r.at_peak) use.holders.push_back(holder_of(r, r.buffers[i]));
  std::stable_sort(use.holders.begin(), use.holders.end(),
                   [](const Holder& a, const Holder& b) { return a.bytes > b.bytes; });
  for (const Holder& h : use.holders) use.gaps -= h.bytes;
  return use;
}

std::vector<std::pair<std::string, int64_t>> bytes_by(const MemoryUse& use, std::string Holder::*part) {
  std::map<std::string, int64_t> sums;
  for (const Holder& h : use.holders)
    sums[part == &Holder::module && !h.module.empty() ? use.folds(h.module) : h.*part] += h.bytes;
  std::vector<std::pair<std::string, int64_t>> rows(sums.begin(), sums.end());
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return rows;
}

std::vector<MemorySeries> memory_timeline(const StepRecord& r, size_t most) {
  const size_t n = r.launches.size();
  std::vector<MemorySeries> series{{"cells", std::vector<double>(n)}, {"outputs, constants", std::vector<double>(n)}};
  for (const BufferRecord* b : fixed_buffers(r))
    for (double& bytes : series[b->home != "cell"].bytes) bytes += static_cast<double>(b->bytes);

  const ModuleFolds folds(r);
  const auto module_of = [&](const LaunchRecord* l) { return folds(l ? l->scope : ""); };
  std::map<std::string, int64_t> at_peak;
  for (int32_t i : r.at_peak) {
    const BufferRecord& b = r.buffers[i];
    at_peak[module_of(first_launch(r, b))] += b.bytes;
  }
  std::vector<std::pair<std::string, int64_t>> modules(at_peak.begin(), at_peak.end());
  std::stable_sort(modules.begin(), modules.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  if (modules.size() > most) modules.resize(most);
  std::map<std::string, size_t> numbers;
  for (const auto& [module, bytes] : modules) {
    numbers[module] = series.size();
    series.push_back({module, std::vector<double>(n)});
  }
  series.push_back({"other modules", std::vector<double>(n)});
  for (const BufferRecord& b : r.buffers) {
    if (!in_arena(b) || b.bytes == 0 || !first_launch(r, b)) continue;
    const auto at = numbers.find(module_of(first_launch(r, b)));
    std::vector<double>& live = at == numbers.end() ? series.back().bytes : series[at->second].bytes;
    for (auto t = static_cast<size_t>(b.first); t <= static_cast<size_t>(b.last) && t < n; ++t)
      live[t] += static_cast<double>(b.bytes);
  }
  return series;
}

}  // namespace weft::profiler
