// Damaged files of text programs: end tokens, settings of a tokenizer, token ids, pairs. Each is read, or refused.
#include <gtest/gtest.h>

#include "framework/io/file.h"
#include "framework/testing/fuzz.h"
#include "models/gpt/config.h"
#include "models/text/settings.h"
#include "models/train/generate.h"
#include "models/train/load.h"

namespace weft::train {
namespace {

using testing::FuzzRandom;

const std::vector<std::string_view> kWords = {
    "{",  "}",   "[",   "]",       "\"",      ":",        ",",      "null",       "true",
    "-1", "1e9", "2.5", "\\u0000", "\\ud800", "[[[[[[[[", "\"\": ", "4294967296", "9223372036854775808"};

void damage(std::string& text, FuzzRandom& random) { testing::damage_text(text, random, kWords); }

std::string fresh_folder(const char* name) {
  const std::string folder = str_cat(::testing::TempDir(), "/fuzz_", name);
  io::remove_all(folder);
  io::make_folders(folder);
  return folder;
}

TEST(TextFilesFuzz, EndTokens) {
  const std::string folder = fresh_folder("ends");
  testing::FuzzFile file(folder + "/generation_config.json");
  testing::fuzz({.seeds = {R"({"bos_token_id": 0, "eos_token_id": [1, 2], "temperature": 0.5})",
                           R"({"eos_token_id": 7, "do_sample": true})", R"({"eos_token_id": null})"},
                 .damage = damage,
                 .read =
                     [&](const std::string& s) {
                       file.set(s);
                       for (const int32_t id : read_end_ids(folder)) EXPECT_GE(id, 0);
                     },
                 .names = file.path()});
}

TEST(TextFilesFuzz, Settings) {
  const std::string folder = fresh_folder("settings");
  testing::FuzzFile file(folder + "/tokenizer_config.json");
  testing::fuzz({.seeds = {R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "special": true},
 "pad_token": null, "unk_token": "<unk>", "chat_template": "{{ bos_token }}"})",
                           R"({"chat_template": [{"name": "tools", "template": "a"},
 {"name": "default", "template": "{{ messages }}"}], "eos_token": "</s>"})"},
                 .damage = damage,
                 .read =
                     [&](const std::string& s) {
                       file.set(s);
                       for (const auto& [role, token] : text::read_settings(folder).tokens)
                         EXPECT_TRUE(role.ends_with("_token")) << role;
                     },
                 .names = file.path()});
}

TEST(TextFilesFuzz, TokenIds) {
  const auto model = gpt::family().make(gpt::family().preset("gpt_tiny"));
  testing::FuzzFile file(fresh_folder("ids") + "/ids.txt");
  testing::fuzz({.seeds = {"1 2 3\n45\t6\r\n", "", "  0 "},
                 .damage = damage,
                 .read =
                     [&](const std::string& s) {
                       file.set(s);
                       for (const int32_t id : read_ids(file.path(), *model))
                         EXPECT_TRUE(id >= 0 && id < model->vocab());
                     },
                 .names = file.path()});
}

TEST(TextFilesFuzz, Pairs) {
  const LoadedModel bytes{.model = {}, .tokenizer = data::make_tokenizer("bytes"), .end_ids = {}, .folder = {}};
  testing::fuzz(
      {.seeds = {R"({"context": "A b \u00a0\n", "continuation": " c"})", R"({"context": "é", "continuation": "x"})"},
       .damage = damage,
       .read =
           [&](const std::string& s) {
             const TextPair p = read_pair(bytes, s, "pairs.jsonl:1");
             EXPECT_FALSE(p.context.empty() || p.continuation.empty());
           },
       .names = "pairs.jsonl:1"});
}

}  // namespace
}  // namespace weft::train
