// Damaged metrics files and charts are drawn or refused with one line.
#include "framework/testing/fuzz.h"

#include <gtest/gtest.h>

#include "tools/draw/chart_files.h"

namespace weft {
namespace {

constexpr const char* kMetrics =
    "{\"step\": 1, \"loss\": 2.5, \"expert_load\": [0.5, 0.5]}\n"
    "{\"step\": 2, \"loss\": 2.0, \"expert_load\": [0.4, 0.6]}\n"
    "{\"step\": 2, \"eval_loss\": 2.25}\n";

constexpr const char* kChart = R"({"panels": [
  {"title": "t", "x": {"label": "n", "from": 1, "to": 64, "base": 2},
   "y": {"label": "ms", "from": 0.1, "to": 9, "base": 10},
   "lines": [{"label": "a", "points": [[1, 1], [64, 8]]}], "limits": [{"label": "b", "points": [[1, 2], [64, 2]]}],
   "dots": [{"label": "c", "points": [[8, 3]]}]},
  {"title": "u", "x": {"names": ["p", "q"]}, "y": {"label": "%", "from": 0, "to": 100},
   "bars": {"labels": ["d", "e"], "width": 0.3, "bars": [{"at": 0, "parts": [[0, 60], [1, 40]]}]}}]})";

TEST(Fuzz, Metrics) {
  testing::fuzz({.seeds = {kMetrics},
                 .damage =
                     [](std::string& text, testing::FuzzRandom& random) {
                       testing::damage_text(text, random, {"step", "loss", "eval_loss", "1e300", "null", "true", "[]"});
                     },
                 .read = [](const std::string& text) { draw::svg(draw::metrics_charts(text, "m.jsonl", "t")); },
                 .names = "m.jsonl",
                 .inputs = 5000});
}

TEST(Fuzz, Charts) {
  testing::fuzz({.seeds = {kChart},
                 .damage =
                     [](std::string& text, testing::FuzzRandom& random) {
                       testing::damage_text(text, random, {"from", "to", "base", "1e300", "-1", "0", "null", "[]"});
                     },
                 .read = [](const std::string& text) { draw::svg(draw::json_charts(text, "c.json")); },
                 .names = "c.json",
                 .inputs = 5000});
}

}  // namespace
}  // namespace weft
