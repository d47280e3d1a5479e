#include "tools/profile/rows.h"

#include <algorithm>
#include <array>
#include <map>

#include "compiler/cost/roofline.h"
#include "framework/base/error.h"
#include "framework/base/one_line.h"
#include "framework/cli/cli.h"
#include "tools/profile/table.h"

namespace weft::profiler {
namespace {

constexpr const char* kByNames[] = {"kernel", "module", "class", "line"};
constexpr size_t kBounds = 3;
constexpr double kNoise = .03;  // relative change of a step's time between runs

// The time of a launch or a sum: the measured time, or the predicted time in a record without measured times.
template <class T>
double time_of(const T& one, bool measured) {
  return measured ? one.measured_us : one.predicted_us;
}

}  // namespace

const char* to_string(By by) { return kByNames[static_cast<int>(by)]; }

By parse_by(const std::string& name) {
  for (size_t i = 0; i < std::size(kByNames); ++i)
    if (name == kByNames[i]) return static_cast<By>(i);
  usage_error(str_cat("--by is '", name, "'; need kernel, module, class or line"));
}

std::string place_of(const LaunchRecord& l, const ModuleFolds& folds) {
  const std::string module = folds(l.scope);
  return l.phase == Phase::kForward ? module : str_cat(module, ", ", weft::to_string(l.phase));
}

std::string name_of(const LaunchRecord& l, By by, const ModuleFolds& folds) {
  switch (by) {
    case By::kKernel:
      return l.name;
    case By::kModule:
      return folds(l.scope);
    case By::kClass:
      return weft::to_string(l.kind);
    case By::kLine:
      return str_cat(l.line.line ? l.line.to_string() : "(no line)", l.scope.empty() ? ", " : ", in ",
                     place_of(l, folds));
  }
  WEFT_BUG_IF(true, "profile: no such grouping");
}

std::vector<ProfileRow> rows_of(const StepRecord& record, By by) {
  const bool measured = record.sum().measured_us > 0;
  const ModuleFolds folds(record);
  std::vector<ProfileRow> rows;
  std::vector<std::array<double, kBounds>> bounds;    // time by bound
  std::vector<std::map<std::string, double>> places;  // time by place
  std::map<std::string, size_t> numbers;
  for (const LaunchRecord& l : record.launches) {
    const std::string name = one_line(name_of(l, by, folds));
    const auto [at, fresh] = numbers.try_emplace(name, rows.size());
    if (fresh) {
      rows.push_back({.name = name, .sum = {}});
      bounds.push_back({});
      places.emplace_back();
    }
    rows[at->second].sum += l;
    rows[at->second].collective &= l.kind == WorkClass::kCollective;
    bounds[at->second][static_cast<size_t>(l.bound)] += time_of(l, measured);
    places[at->second][one_line(place_of(l, folds))] += time_of(l, measured);
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].bound = static_cast<Bound>(std::max_element(bounds[i].begin(), bounds[i].end()) - bounds[i].begin());
    for (const auto& [place, us] : places[i]) rows[i].places.push_back(place);
    std::stable_sort(rows[i].places.begin(), rows[i].places.end(),
                     [&](const std::string& a, const std::string& b) { return places[i][a] > places[i][b]; });
  }
  std::stable_sort(rows.begin(), rows.end(), [&](const ProfileRow& a, const ProfileRow& b) {
    return time_of(a.sum, measured) > time_of(b.sum, measured);
  });
  return rows;
}

double overhead_us(const StepRecord& record) {
  const double launches = record.sum().measured_us;
  return launches > 0 && record.step_us > 0 ? record.step_us - launches : 0;
}

bool comparable(double step_us, double launches_us) { return launches_us <= (1 + kNoise) * step_us; }

bool comparable(const StepRecord& record) {
  return record.step_us <= 0 || comparable(record.step_us, record.sum().measured_us);
}

std::string busy_text(const StepRecord& record, const char* which) {
  if (comparable(record)) return {};
  return str_cat(which, "The launches took ", fixed(record.sum().measured_us / 1e3, 3),
                 " ms when they were timed, and the step ", fixed(record.step_us / 1e3, 3),
                 " ms without that: the machine was busy, and these times are not comparable; measure again on an idle "
                 "machine.\n");
}

StepParts parts_of(const StepRecord& record) {
  StepParts parts{.overhead = overhead_us(record)};
  for (const LaunchRecord& l : record.launches) {
    double& part = l.kind == WorkClass::kCollective ? parts.communication
                   : l.bound == Bound::kMemory      ? parts.memory
                                                    : parts.compute;
    part += l.measured_us;
  }
  return parts;
}

std::vector<ClassShare> class_shares(const StepRecord& record) { return what_if(record, {}).shares; }

Speedups parse_what_if(const std::string& text) {
  Speedups speedups;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string part = text.substr(at, end - at);
    at = end + 1;
    const size_t equals = part.find('=');
    const std::string name = part.substr(0, equals);
    std::string number = equals == part.npos ? "" : part.substr(equals + 1);
    if (!number.empty() && number.back() == 'x') number.pop_back();
    const auto kind = std::find_if(std::begin(kClasses), std::end(kClasses), [&](WorkClass k) {
      return name == weft::to_string(k) || (name == "products" && k == WorkClass::kContraction);
    });
    double factor = 0;
    const Flag flag{.name = "what_if", .variable = &factor, .help = "", .range = {.least = 0, .open = true}};
    if (kind == std::end(kClasses) || !set_flag(flag, number))
      usage_error(str_cat("--what_if has '", part,
                          "'; need CLASS=FACTOR such as contraction=10x, with a factor above 0 and one of "
                          "contraction (also called products), normalisation, elementwise, movement and collective"));
    for (const auto& [other, f] : speedups)
      if (other == *kind) usage_error(str_cat("--what_if has '", weft::to_string(*kind), "' twice; give it once"));
    speedups.emplace_back(*kind, factor);
  }
  return speedups;
}

FasterStep what_if(const StepRecord& record, const Speedups& speedups) {
  const StepRecord::WorkSum all = record.sum();
  const bool measured = all.measured_us > 0;
  FasterStep out{.launches_before_us = time_of(all, measured), .predicted = !measured};
  std::vector<double> times, factors;
  for (WorkClass kind : kClasses) {
    const StepRecord::WorkSum sum = record.sum(kind);
    if (sum.launches == 0) continue;
    out.shares.push_back(
        {.kind = kind, .launches = sum.launches, .flops = all.work.flops > 0 ? sum.work.flops / all.work.flops : 0});
    times.push_back(time_of(sum, measured));
    factors.push_back(1);
    for (const auto& [faster, factor] : speedups)
      if (faster == kind) factors.back() = factor;
    out.launches_us += times.back() / factors.back();
  }
  const std::vector<double> shares = shares_after_speedup(times, factors);
  for (size_t k = 0; k < shares.size(); ++k) out.shares[k].time = shares[k];
  const double overhead = overhead_us(record);
  if (measured && record.step_us > 0)
    out.step_us =
        overhead >= 0 ? out.launches_us + overhead : record.step_us * out.launches_us / out.launches_before_us;
  return out;
}

}  // namespace weft::profiler
