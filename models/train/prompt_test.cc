// Stop strings, end tokens, whole characters, and prompts of models without special tokens.
#include "models/train/prompt.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "framework/base/testing/error_of.h"
#include "framework/io/file.h"

namespace weft::train {
namespace {

using testing::error_of;

LoadedModel bytes() { return {.model = {}, .tokenizer = data::make_tokenizer("bytes"), .end_ids = {0}, .folder = {}}; }

// The printed pieces of `text`, joined with '|', and how it ends.
std::string streamed(const std::string& text, const std::vector<std::string>& stops) {
  const LoadedModel m = bytes();
  TextStream stream(m, stops, {});
  std::string shown;
  for (char c : text) {
    if (const std::string part = stream.add(static_cast<unsigned char>(c)); !part.empty()) shown += part + "|";
    if (stream.ended()) break;
  }
  return shown + stream.rest() + " " + stream.finish();
}

TEST(TextStream, HoldsBackWhatMayBeginAStop) {
  EXPECT_EQ(streamed("abc", {}), "a|b|c| length");
  EXPECT_EQ(streamed("ab</s>cd", {"</s>"}), "a|b| stop");
  EXPECT_EQ(streamed("a</b", {"</s>"}), "a|</b| length");
  EXPECT_EQ(streamed("a</", {"</s>"}), "a|</ length");
  EXPECT_EQ(streamed("aaab", {"aab"}), "a| stop");
  EXPECT_EQ(streamed("xyz", {"yzq", "z"}), "x|y| stop");
  EXPECT_EQ(streamed(std::string("ab\0c", 4), {}), "a|b| end");
}

TEST(TextStream, PrintsWholeCharacters) {
  EXPECT_EQ(streamed("\u00e9\u20ac\U0001f600", {}), "\u00e9|\u20ac|\U0001f600| length");
  EXPECT_EQ(streamed("a\xf0\x9f", {}), "a|\xf0\x9f length");
  EXPECT_EQ(streamed("\xff\x80z", {}), "\xff|\x80|z| length");
}

TEST(PromptIds, TemplatesWithoutSpecialTokensAreBytes) {
  const std::vector<int32_t> ids = prompt_ids(bytes(), {.chat = true, .chat_template = "zephyr"}, "Hi");
  EXPECT_EQ(std::string(ids.begin(), ids.end()), "<|user|>\nHi\n<|assistant|>\n");
  const std::vector<int32_t> talk = chat_ids(bytes(), {{"user", "A"}, {"assistant", "B"}, {"user", "C"}}, "zephyr");
  EXPECT_EQ(std::string(talk.begin(), talk.end()), "<|user|>\nA\n<|assistant|>\nB\n<|user|>\nC\n<|assistant|>\n");
  EXPECT_EQ(error_of([] { prompt_ids(bytes(), {.chat = true}, "Hi"); }),
            "--chat: the model has no chat template; need --chat_template FILE, chatml, llama2, llama3, mistral or "
            "zephyr");
}

TEST(EndIds, AreANumberOrAListOfTwoFiles) {
  const std::string folder = ::testing::TempDir() + "/end_ids";
  std::filesystem::remove_all(folder);
  io::make_folders(folder);
  const auto write = [&](const std::string& name, const std::string& text) {
    io::AtomicFile file(folder + "/" + name);
    file.write(text);
    file.commit();
  };
  write("config.json", R"({"eos_token_id": 2})");
  EXPECT_EQ(read_end_ids(folder), std::vector<int32_t>{2});
  write("generation_config.json", R"({"eos_token_id": null})");
  EXPECT_EQ(read_end_ids(folder), std::vector<int32_t>{2});
  write("generation_config.json", R"({"eos_token_id": [128001, 128009]})");
  EXPECT_EQ(read_end_ids(folder), (std::vector<int32_t>{128001, 128009}));
  write("generation_config.json", R"({"eos_token_id": ["x"]})");
  EXPECT_TRUE(error_of([&] { read_end_ids(folder); }).ends_with("need a whole number or a list of them"));
}

}  // namespace
}  // namespace weft::train
