#include "tools/plan/report/what_if.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "framework/base/error.h"
#include "framework/base/one_line.h"
#include "framework/base/parse_number.h"
#include "tools/plan/search.h"

namespace weft::planner {
namespace {

constexpr std::string_view kNames[] = {"gpu_flops", "network", "bandwidth", "memory", "gpus", "batch", "seq"};
constexpr std::string_view kNeed =
    "need gpu_flops, network, bandwidth, memory, gpus, batch or seq with a number above 0 and below 10^18, or a factor "
    "such as 8x";
constexpr size_t kMostWorkloads = 64;

std::string part(std::string_view text) { return str_cat("what_if: got '", one_line(text, 40), "'"); }

// One value of one name.
struct Change {
  std::string_view name;
  std::string text;
  double number = 0;
  bool factor = false;
  std::string to_string() const { return str_cat(name, "=", text); }
  double of(double before) const { return factor ? before * number : number; }
  int64_t whole(int64_t before, double most) const {
    const double n = std::floor(of(static_cast<double>(before)) + 0.5);
    WEFT_CHECK(n >= 1 && n <= most, "what_if: ", name, " becomes ", of(static_cast<double>(before)), "; need 1 to ",
               most);
    return static_cast<int64_t>(n);
  }
};

Change change_of(std::string_view name, const std::string& text) {
  Change c{.name = name, .text = text, .factor = text.ends_with('x')};
  const std::optional<double> number =
      parse_number<double>(std::string_view(text).substr(0, text.size() - (c.factor ? 1 : 0)));
  WEFT_CHECK(number && *number > 0 && *number < 1e18, part(c.to_string()), "; ", kNeed);
  c.number = *number;
  WEFT_CHECK(c.factor || name != "network", part(c.to_string()), "; need a factor such as network=0.1x");
  return c;
}

void scale(std::vector<LinkPoint>& points, double by) {
  for (LinkPoint& p : points) p.bandwidth *= by;
}

Workload changed(Workload s, const std::vector<Change>& changes, bool fit_batch) {
  const Workload before = s;
  Machine& m = s.machine;
  std::optional<Change> batch, sequence;
  for (const Change& c : changes) {
    if (c.name == "gpu_flops") {
      const double by = c.of(s.peak_flops()) / s.peak_flops();
      for (double Machine::*rate : {&Machine::flops, &Machine::products, &Machine::products_tf32, &Machine::products16,
                                    &Machine::products64, &Machine::products8, &Machine::products4})
        m.*rate *= by;
    } else if (c.name == "network") {
      for (double Links::*rate : {&Links::inner_bus, &Links::outer_bus, &Links::inner_all_to_all})
        m.links.*rate *= c.number;
      for (auto* points : {&m.links.inner_gather, &m.links.inner_reduce, &m.links.outer_gather, &m.links.outer_reduce})
        scale(*points, c.number);
      if (s.between_replicas) s.between_replicas->links.outer_bus *= c.number;
    } else if (c.name == "bandwidth") {
      const double by = c.of(m.bytes) / m.bytes;
      m.bytes *= by;
      for (MemoryRate& r : m.memory_rates) r.read *= by, r.write *= by, r.copy *= by;
    } else if (c.name == "memory") {
      m.memory = c.of(m.memory);
    } else if (c.name == "gpus") {
      s.gpus = static_cast<int>(c.whole(s.gpus, 1 << 20));
    } else if (c.name == "batch") {
      batch = c;
    } else {
      sequence = c;
    }
  }
  if (sequence) {
    s.sequence = sequence->whole(s.sequence, 1e9);
    s.batch = std::max<int64_t>(1, static_cast<int64_t>(before.tokens() / static_cast<double>(s.sequence) + 0.5));
  }
  if (batch) {
    s.batch = batch->whole(s.batch, 1e9);
  } else if (fit_batch && (s.gpus != before.gpus || sequence)) {
    s.batch = batch_for(s.batch, s.gpus);
  }
  check_machine(m);
  return s;
}

}  // namespace

std::vector<ChangeList> change_lists(std::string_view text, std::span<const std::string_view> names,
                                     std::string_view need) {
  std::vector<ChangeList> lists;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string_view one = text.substr(at, end - at);
    at = end + 1;
    const size_t equals = one.find('=');
    if (equals != one.npos) {
      const std::string name(one.substr(0, equals));
      WEFT_CHECK(std::ranges::find(names, name) != names.end(), part(one), "; ", need);
      WEFT_CHECK(std::ranges::find(lists, name, &ChangeList::name) == lists.end(), part(one), ", the second ", name,
                 "; need each name once, with all its values: ", name, "=A,B");
      lists.push_back({name, {}});
    }
    const std::string value(one.substr(equals == one.npos ? 0 : equals + 1));
    WEFT_CHECK(!lists.empty() && !value.empty(), part(one), "; ", need);
    std::vector<std::string>& values = lists.back().values;
    WEFT_CHECK(std::ranges::find(values, value) == values.end(), part(one), ", the second one of ", lists.back().name,
               "; need each value once");
    values.push_back(value);
  }
  return lists;
}

std::vector<WhatIf> what_if(const Workload& setup, const std::string& text, bool fit_batch) {
  const std::vector<ChangeList> lists = change_lists(text, kNames, kNeed);
  const bool several = lists.size() > 1;
  std::vector<std::vector<Change>> rows{{}}, together{{}};
  for (const ChangeList& list : lists) {
    std::vector<Change> values;
    for (const std::string& value : list.values) values.push_back(change_of(list.name, value));
    for (const Change& c : values) rows.push_back({c});
    std::vector<std::vector<Change>> longer;
    for (const std::vector<Change>& changes : together)
      for (const Change& c : values) {
        longer.push_back(changes);
        longer.back().push_back(c);
      }
    together = std::move(longer);
    WEFT_CHECK(rows.size() + (several ? together.size() : 0) <= kMostWorkloads, part(text), ", more than ",
               kMostWorkloads, " workloads; need fewer values");
  }
  if (several) rows.insert(rows.end(), together.begin(), together.end());
  std::vector<WhatIf> all;
  for (const std::vector<Change>& changes : rows) {
    std::string name;
    for (const Change& c : changes) name += str_cat(name.empty() ? "" : ",", c.to_string());
    all.push_back({name.empty() ? "as it is" : name, changed(setup, changes, fit_batch)});
  }
  return all;
}

}  // namespace weft::planner
