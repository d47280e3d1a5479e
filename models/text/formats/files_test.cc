// Tokenizers for other programs: the bytes, and the parts that GGUF files cannot describe.
#include "models/text/formats/files.h"

#include <gtest/gtest.h>

#include "framework/base/testing/error_of.h"
#include "framework/io/file.h"
#include "framework/io/json.h"
#include "models/text/formats/description.h"
#include "models/text/tokenizer.h"

namespace weft::text {
namespace {

using io::Json;
using weft::testing::error_of;

std::string temp(const std::string& name) {
  const std::string path = ::testing::TempDir() + "/files_test_" + name;
  io::remove_all(path);
  return path;
}

TEST(ByteTokenizer, HasEachByteOnce) {
  const std::vector<NamedFile> files = files_for_transformers("", {});
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[1].first, "tokenizer_config.json");
  const Json json = io::parse_json(files[0].second, "tokenizer.json"), &vocab = json["model"]["vocab"];
  ASSERT_EQ(vocab.size(), 256u);  // 256 different characters
  std::vector<int> seen(256);
  for (const auto& [token, id] : vocab.items()) ++seen.at(id.get<size_t>());
  EXPECT_EQ(seen, std::vector<int>(256, 1));
  // Characters of bytes_to_unicode() of GPT-2.
  const std::pair<const char*, int> known[] = {{"!", 33},  {"~", 126}, {"Ā", 0},   {"Ċ", 10},  {"Ġ", 32},
                                               {"ġ", 127}, {"ł", 160}, {"¡", 161}, {"Ń", 173}, {"ÿ", 255}};
  for (const auto& [token, id] : known) EXPECT_EQ(vocab.at(token), id) << token;
  EXPECT_EQ(json["pre_tokenizer"]["use_regex"], false);

  const std::string path = temp("bytes.gguf");
  std::vector<std::string> notes;
  io::write_file_atomic(path, io::gguf_of(metadata_for_gguf("", 260, {}, &notes)));
  EXPECT_TRUE(notes.empty());
  const io::GgufFile gguf(path);
  EXPECT_EQ(gguf.text("tokenizer.ggml.pre"), "gpt-2");
  EXPECT_EQ(gguf.texts("tokenizer.ggml.tokens").size(), 260u);
  EXPECT_EQ(gguf.texts("tokenizer.ggml.tokens")[259], "[unused259]");
  EXPECT_EQ(gguf.integers("tokenizer.ggml.token_type")[259], 5);
  EXPECT_FALSE(gguf.contains("tokenizer.ggml.eos_token_id"));
  const auto from_gguf = FileTokenizer::open(path);
  const FileTokenizer from_json(read_tokenizer_json(files[0].second, "tokenizer.json"));
  std::string all;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  for (const FileTokenizer* t : {from_gguf.get(), &from_json}) {
    std::vector<int32_t> ids = t->encode(all);
    for (int b = 0; b < 256; ++b) EXPECT_EQ(ids.at(static_cast<size_t>(b)), b);
    EXPECT_EQ(t->decode(ids), all);
  }
}

/// A byte-level tokenizer. No merges make "dab".
Json byte_level() {
  Json vocab;
  int id = 0;
  for (const char* t : {"a", "b", "c", "d", "\u0120", "ab", "abc", "cd", "dab"}) vocab[t] = id++;
  return {{"version", "1.0"},
          {"added_tokens", {{{"id", 9}, {"content", "<end>"}, {"special", true}}}},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"c d", "a b", "ab c"}}}}};
}

/// One of SentencePiece.
Json pieces() {
  Json vocab{{"<unk>", 0}};
  for (int b = 0; b < 256; ++b) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", b);
    vocab[name] = b + 1;
  }
  int id = 257;
  for (const char* t : {"\u2581", "a", "b", "c", "ab", "abc", "bc"}) vocab[t] = id++;
  return Json::parse(R"({
      "version": "1.0",
      "added_tokens": [{"id": 0, "content": "<unk>", "special": true}],
      "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"},
          {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
      "pre_tokenizer": null,
      "decoder": {"type": "Sequence", "decoders": [
          {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
          {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
      "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
          "merges": ["a b", "b c", "ab c"]}})")
      .patch(Json::array({{{"op", "add"}, {"path", "/model/vocab"}, {"value", vocab}}}));
}

TEST(Gguf, SaysWhatItCannotDescribe) {
  struct Row {
    Json (*base)();
    const char* pointer;
    Json value;
    const char *error, *note;  // their beginnings, after the file's name; "" for none
  };
  const Json bos = {
      {"type", "TemplateProcessing"},
      {"single",
       {{{"SpecialToken", {{"id", "<end>"}}}}, {{"SpecialToken", {{"id", "<end>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
      {"special_tokens", {{"<end>", {{"ids", {9}}}}}}};
  const auto metaspace = [](const char* scheme) {
    return Json{{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", scheme}, {"split", false}};
  };
  const Row rows[] = {
      {byte_level, "/normalizer", nullptr, "", ""},
      {byte_level, "/normalizer", {{"type", "NFC"}}, "", "normalizer is NFC; GGUF files have none"},
      {byte_level, "/normalizer", {{"type", "NFKC"}}, "normalizer changes texts", ""},
      {byte_level, "/added_tokens/0/lstrip", true, "", "the added token '<end>' has lstrip"},
      {byte_level, "/added_tokens/0/single_word", true, "", "the added token '<end>' has single_word"},
      {byte_level,
       "/added_tokens/0",
       {{"id", 5}, {"content", "ab"}, {"special", true}},
       "the special token 'ab' is in model.merges",
       ""},
      {byte_level, "/added_tokens/0/id", 20, "has 21 tokens; the model has 20", ""},
      {byte_level, "/added_tokens/0/content", "[unused10]", "two tokens are '[unused10]', one of them with id 10", ""},
      {byte_level, "/pre_tokenizer/use_regex", false,
       "pre_tokenizer is none that GGUF files have a name for: gpt-2, llama-bpe, smaug-bpe, qwen2", ""},
      {byte_level, "/pre_tokenizer/add_prefix_space", true, "pre_tokenizer is none", ""},
      {byte_level, "/model/ignore_merges", true, "model.ignore_merges is true, which decides about token 'dab'", ""},
      {byte_level, "/model/unk_token", "a", "", ""},
      {byte_level, "/post_processor", bos, "post_processor puts 2 tokens before and 0 after a text", ""},
      {byte_level, "/decoder", Json::parse(R"({"type": "Sequence", "decoders": [{"type": "ByteFallback"},
           {"type": "ByteLevel"}]})"),
       "decoder is not ByteLevel alone", ""},
      {pieces, "/truncation", nullptr, "", ""},
      {pieces, "/model/byte_fallback", false, "has no tokens for 256 of 256 bytes", ""},
      {pieces, "/model/merges", {"a b", "b c", "ab c", "a bc"}, "", ""},
      {pieces, "/model/merges", {"ab c", "a b", "a bc", "b c"}, "model.merges makes token 'abc' at several ranks", ""},
      {pieces, "/model/merges", {"a b", "b c"}, "token 'abc' differs from the result of model.merges on its text", ""},
      {pieces, "/normalizer", {{"type", "NFC"}}, "normalizer and pre_tokenizer belong neither to bytes", ""},
      {pieces, "/decoder", {{"type", "Fuse"}}, "decoder has other steps", ""},
      {pieces, "/added_tokens/0/rstrip", true, "", "the added token '<unk>' has rstrip"},
  };
  for (const Row& r : rows) {
    Json j = r.base();
    j[Json::json_pointer(r.pointer)] = r.value;
    const std::string text = j.dump();
    std::vector<std::string> notes;
    const auto write = [&] {
      const int64_t vocab = r.base == byte_level ? 20 : 270;
      return write_gguf_tokenizer(read_tokenizer_json(text, "t.json"), {}, vocab, {}, &notes);
    };
    const std::string where = str_cat(r.pointer, " = ", r.value.dump()), error = error_of(write);
    EXPECT_EQ(error.substr(0, 8 + std::string(r.error).size()), *r.error ? str_cat("t.json: ", r.error) : "") << where;
    EXPECT_EQ(notes.size(), *r.note ? 1u : 0u) << where;
    const std::string note = notes.empty() ? "" : notes[0].substr(0, 8 + std::string(r.note).size());
    EXPECT_EQ(note, *r.note ? str_cat("t.json: ", r.note) : "") << where;
  }
  for (const char* scheme : {"always", "first", "never"}) {
    Json j = pieces();
    j["normalizer"] = nullptr;
    j["pre_tokenizer"] = metaspace(scheme);
    if (scheme == std::string("never")) j["decoder"]["decoders"].erase(3);
    std::vector<std::string> notes;
    const std::string path = temp("metaspace.gguf");
    const Description d = read_tokenizer_json(j.dump(), "t.json");
    io::write_file_atomic(path, io::gguf_of(write_gguf_tokenizer(d, {}, 264, {}, &notes)));
    EXPECT_EQ(notes.size(), scheme == std::string("never") ? 0u : 1u) << scheme;
    EXPECT_EQ(FileTokenizer::open(path)->encode("ab c"), FileTokenizer(d).encode("ab c")) << scheme;
  }
}

// transformers 4 reads a tokenizer.json without settings as the tokenizer of the model_type, with tokens of that class.
TEST(Files, NameTheirClass) {
  const std::string folder = temp("class");
  io::make_folders(folder);
  io::write_file_atomic(folder + "/tokenizer.json", byte_level().dump());
  EXPECT_EQ(tokenizer_files(folder).size(), 1u);
  const std::vector<NamedFile> files = files_for_transformers(folder, {});
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[1].first, "tokenizer_config.json");
  EXPECT_EQ(Json::parse(files[1].second),
            (Json{{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}}));
  io::write_file_atomic(folder + "/tokenizer_config.json", "{}");
  EXPECT_EQ(files_for_transformers(folder, {}), tokenizer_files(folder));
}

// A checkpoint takes the ids that end a text from generation_config.json, else from config.json of a folder. An export
// writes the ids of the caller, who knows which of them the model has.
TEST(Files, HaveEndIds) {
  const std::string folder = temp("ends");
  io::make_folders(folder);
  io::write_file_atomic(folder + "/tokenizer.json", byte_level().dump());
  const auto ends = [](const std::vector<NamedFile>& files) {
    for (const auto& [name, text] : files)
      if (name == "generation_config.json") return Json::parse(text).value("eos_token_id", Json()).dump();
    return std::string("none");
  };
  const std::vector<int32_t> one{7}, two{7, 8};
  EXPECT_EQ(ends(tokenizer_files(folder)), "none");
  io::write_file_atomic(folder + "/generation_config.json", R"({"temperature": 0.5})");
  EXPECT_EQ(ends(tokenizer_files(folder)), "null");
  EXPECT_EQ(ends(files_for_transformers(folder, one)), "7");
  EXPECT_EQ(ends(files_for_transformers(folder, two)), "[7,8]");
  io::write_file_atomic(folder + "/config.json", R"({"eos_token_id": [1, 2]})");
  EXPECT_EQ(ends(tokenizer_files(folder)), "[1,2]");
  EXPECT_EQ(ends(files_for_transformers(folder, one)), "7");
  EXPECT_EQ(ends(files_for_transformers(folder, {})), "[1,2]");
  EXPECT_EQ(ends(tokenizer_files(folder + "/tokenizer.json")), "null");
  io::write_file_atomic(folder + "/generation_config.json", R"({"eos_token_id": 3})");
  EXPECT_EQ(ends(tokenizer_files(folder)), "3");
  io::remove_all(folder + "/generation_config.json");
  EXPECT_EQ(ends(tokenizer_files(folder)), "[1,2]");
}

}  // namespace
}  // namespace weft::text
