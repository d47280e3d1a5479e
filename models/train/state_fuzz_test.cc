// Damaged state.json of checkpoints: each is refused, or gives numbers in range.
#include <gtest/gtest.h>

#include <cmath>

#include "framework/io/file.h"
#include "framework/io/json.h"
#include "framework/testing/fuzz.h"
#include "models/train/checkpoint.h"

namespace weft::train {
namespace {

TEST(StateFuzz, DamagedFiles) {
  const std::string folder = ::testing::TempDir() + "/fuzz_state";
  io::make_folders(folder);
  const TrainState state{.step = 12,
                         .samples = 48,
                         .metrics_bytes = 2345,
                         .seed = 18446744073709551615u,
                         .loss_scale = 65536,
                         .good_steps = 7,
                         .family = "gpt",
                         .model = {{"layers", "4"}, {"dim", "128"}, {"dropout", "0.1"}, {"tied", "false"}},
                         .run = {{"config", "gpt_tiny"}, {"lr", "0.001"}, {"dtype", "f16"}}};
  const std::string seed = io::read_file(save_checkpoint(folder, state, {}, {}, 0) + "/state.json");
  // Without a checksum the fields themselves are checked.
  io::Json plain = io::parse_json(seed, "seed");
  plain.erase("xxh3");
  weft::testing::FuzzFile file(folder + "/state.json");
  const std::vector<std::string_view> words = {
      "{",     "}",       "[",       "]",    "\"",           ":",      ",",     "null", "true",         "\"w\"", "{}",
      "[[[[[", "\\u0000", "\\ud800", "step", "\"step\": 1,", "format", "model", "run",  "\"a\": \"b\"", "1.0"};
  auto read = [&](const std::string& text) {
    file.set(text);
    const TrainState s = read_state(folder);
    EXPECT_GE(s.step, 0);
    EXPECT_GE(s.samples, 0);
    EXPECT_GE(s.metrics_bytes, 0);
    EXPECT_TRUE(std::isfinite(s.loss_scale));
  };
  weft::testing::fuzz(
      {.seeds = {seed, io::write_json(plain, 2)},
       .damage = [&](std::string& s, weft::testing::FuzzRandom& r) { weft::testing::damage_text(s, r, words); },
       .read = read,
       .names = file.path()});
}

}  // namespace
}  // namespace weft::train
