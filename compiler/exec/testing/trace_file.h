// Checks of trace files, for tests.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "framework/base/str_cat.h"
#include "framework/io/json.h"

namespace weft::testing {

/// The events of a trace file; fails the test if it is not JSON.
struct TraceFile {
  std::vector<io::Json> events;
  int64_t lost = -1;

  explicit TraceFile(const std::string& path) {
    std::ifstream in(path);
    const io::Json all = io::parse_json(std::string(std::istreambuf_iterator<char>(in), {}), path);
    for (const io::Json& e : all.at("traceEvents")) events.push_back(e);
    lost = all.at("otherData").at("lost_events").get<int64_t>();
  }

  static int64_t ns(const io::Json& us) { return std::llround(us.get<double>() * 1e3); }
  std::vector<io::Json> of(const std::string& ph, const std::string& cat = {}) const {
    std::vector<io::Json> all;
    for (const io::Json& e : events)
      if (e.at("ph") == ph && (cat.empty() || e.at("cat") == cat)) all.push_back(e);
    return all;
  }

  /// Expects that the slices of each track nest, that each track has a name, and that each flow's end is in a slice.
  void expect_sound() const {
    std::map<std::pair<int64_t, int64_t>, std::vector<io::Json>> tracks;
    std::map<std::pair<int64_t, int64_t>, int> names;
    const auto track = [](const io::Json& e) {
      return std::pair(e.at("pid").get<int64_t>(), e.at("tid").get<int64_t>());
    };
    for (const io::Json& e : events) {
      if (e.at("ph") == "X") tracks[track(e)].push_back(e);
      if (e.at("ph") == "M" && e.at("name") == "thread_name") ++names[track(e)];
    }
    for (auto& [where, slices] : tracks) {
      EXPECT_EQ(names[where], 1);
      std::vector<int64_t> open;  // ends of the slices around
      int64_t before = 0;
      for (const io::Json& e : slices) {
        const int64_t begin = ns(e.at("ts")), end = begin + ns(e.at("dur"));
        EXPECT_GE(begin, before) << "not sorted: " << e;
        EXPECT_GE(end, begin) << e;
        before = begin;
        while (!open.empty() && open.back() <= begin) open.pop_back();
        EXPECT_TRUE(open.empty() || end <= open.back()) << "does not nest: " << e;
        open.push_back(end);
      }
    }
    for (const io::Json& e : events) {
      if (e.at("ph") != "s" && e.at("ph") != "f") continue;
      bool inside = false;
      for (const io::Json& x : tracks[track(e)])
        inside |= x.at("cat") == "collective" && ns(x.at("ts")) <= ns(e.at("ts")) &&
                  ns(e.at("ts")) <= ns(x.at("ts")) + ns(x.at("dur"));
      EXPECT_TRUE(inside) << e;
    }
  }
};

}  // namespace weft::testing
