// Tokenizers trained by `tokenizers`: the ids of 100,000 texts, cuts, bytes, special tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>

#include "framework/io/checksum.h"
#include "framework/io/file.h"
#include "framework/io/json.h"
#include "framework/io/utf8.h"
#include "models/text/formats/description.h"
#include "models/text/formats/files.h"
#include "models/text/tokenizer.h"

namespace weft::text {
namespace {

const std::string kFolder = "models/testing/hf/fixtures/tokenizers/";

std::shared_ptr<const FileTokenizer> style(const std::string& name) {
  return FileTokenizer::open(kFolder + name + ".json");
}

/// SplitMix64, as make_tokenizers.py has it.
struct Random {
  uint64_t state;
  uint64_t operator()(uint64_t below) {
    uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (z ^ z >> 31) % below;
  }
};

struct Texts {
  io::Json json = io::parse_json(io::read_file(kFolder + "texts.json"), "texts.json");
  std::vector<std::string> fragments = json["fragments"];
  int64_t count = json["texts"], block = json["block"];
  Random random{json["seed"].get<uint64_t>()};

  std::string next() {
    std::string out;
    for (uint64_t i = 1 + random(16); i > 0; --i) {
      const std::string& f = fragments[random(fragments.size())];
      unsigned low = 0, high = 0;
      if (std::sscanf(f.c_str(), "U+%X-%X", &low, &high) == 2)
        io::append_character(out, low + unsigned(random(high - low + 1)));
      else
        out += f;
    }
    return out;
  }
};

class Styles : public ::testing::TestWithParam<const char*> {};

TEST_P(Styles, IdsOfTokenizers) {
  const auto t = style(GetParam());
  Texts texts;
  const std::string expected = io::read_file(kFolder + GetParam() + ".hashes");
  ASSERT_EQ(static_cast<int64_t>(expected.size()), texts.count / texts.block * 16);
  for (int64_t b = 0; b < texts.count / texts.block; ++b) {
    io::Checksum ids_sum, text_sum;
    std::string first;
    for (int64_t i = 0; i < texts.block; ++i) {
      const std::string text = texts.next();
      if (i == 0) first = text;
      std::vector<int32_t> ids = t->encode(text);
      const std::string decoded = t->decode(ids);
      text_sum.update(decoded);
      if (i == 0 && !ids.empty()) {  // token by token
        std::string parts = t->decode({ids.data(), 1});
        for (size_t k = 1; k < ids.size(); ++k) parts += t->decode_continued({&ids[k], 1});
        EXPECT_EQ(parts, decoded);
      }
      ids.insert(ids.begin(), static_cast<int32_t>(ids.size()));
      ids_sum.update(std::as_bytes(std::span(ids)));
    }
    uint64_t want[2];
    std::memcpy(want, expected.data() + b * 16, 16);
    EXPECT_EQ(ids_sum.value(), want[0]) << "ids of block " << b << ", which begins with '" << first << "'";
    EXPECT_EQ(text_sum.value(), want[1]) << "decoded block " << b << ", which begins with '" << first << "'";
    if (HasFailure()) return;
  }
}

/// encode() of the parts, cut where cut() says, is encode() of the whole.
TEST_P(Styles, CutsChangeNothing) {
  const auto t = style(GetParam());
  Texts texts;
  std::mt19937 random(7);
  int64_t cuts = 0;
  for (int trial = 0; cuts < 10'000; ++trial) {
    ASSERT_LT(trial, 20'000);
    std::string text;
    for (int i = 0; i < 40; ++i) {
      text += texts.next();
      // Places that look like a cut.
      constexpr const char* kJoints[] = {"x\ny",   "x \ny", ".\ny", "x\n y", "a b",
                                         "a\n\nb", "5\nx",  "'\ns", " \n",   "king\nking"};
      if (random() % 2) text += kJoints[random() % std::size(kJoints)];
    }
    std::vector<int32_t> joined;
    bool continued = false;
    for (std::string_view rest = text; !rest.empty(); continued = true) {
      size_t n = t->cut(rest, random() % 40);
      if (n == 0) n = t->cut(rest, random() % 400);
      cuts += n != 0;
      if (n == 0) n = rest.size();
      ASSERT_LE(n, rest.size());
      const std::string_view part = rest.substr(0, n);
      const std::vector<int32_t> ids = continued ? t->encode_continued(part) : t->encode(part);
      joined.insert(joined.end(), ids.begin(), ids.end());
      rest.remove_prefix(n);
    }
    ASSERT_EQ(joined, t->encode(text)) << text;
    std::vector<int32_t> parts;
    t->encode_parts(text, random() % 100,
                    [&](std::span<const int32_t> ids) { parts.insert(parts.end(), ids.begin(), ids.end()); });
    ASSERT_EQ(parts, joined);
  }
}

TEST_P(Styles, AnyBytesComeBack) {
  const auto t = style(GetParam());
  const bool forms = std::string(GetParam()) == "qwen";  // NFC changes valid text
  std::mt19937 random(3);
  for (int i = 0; i < 3000; ++i) {
    std::string bytes;
    for (size_t n = random() % 60; bytes.size() < n;)
      bytes += static_cast<char>(random() % 4 ? random() % 128 : forms ? 0x80 + random() % 0x40 : random());
    EXPECT_EQ(t->decode(t->encode(bytes)), bytes);
  }
  std::string all;
  for (int b = 255; b >= 0; --b) all += static_cast<char>(b);
  EXPECT_EQ(t->decode(t->encode(all)), all);
}

/// Only the template has special tokens, even where a user writes their names.
TEST_P(Styles, SpecialTokensOfTemplatesOnly) {
  const auto t = style(GetParam());
  const std::string end = std::string(GetParam()) == "spm"      ? "</s>"
                          : std::string(GetParam()) == "llama3" ? "<|eot_id|>"
                                                                : "<|endoftext|>";
  const int32_t id = t->id_of(end).value();
  EXPECT_TRUE(t->is_special(id));
  EXPECT_EQ(t->token(id), end);
  const auto count = [&](const std::vector<Segment>& s) {
    const std::vector<int32_t> ids = t->encode(s, false);
    return std::count(ids.begin(), ids.end(), id);
  };
  EXPECT_EQ(count({{"a" + end + "b" + end, true}}), 2);
  EXPECT_EQ(count({{"a", true}, {end, false}, {end, true}}), 1);
  EXPECT_EQ(count({{end.substr(0, 3), true}, {end.substr(3), false}}), 0);
  EXPECT_EQ(count({{end.substr(0, 3), true}, {end.substr(3), true}}), 1);
  const std::vector<int32_t> plain = t->encode("a" + end);
  EXPECT_EQ(std::count(plain.begin(), plain.end(), id), 0);
  // Text around a special token is one text: a cut into segments changes nothing.
  const std::vector<Segment> cut = {{"\nThe k", true}, {"ing ", false}, {"love", true}};
  EXPECT_EQ(t->encode(cut, false), t->encode("\nThe king love"));
  std::vector<int32_t> with = t->encode(cut, true), want(t->before().begin(), t->before().end());
  const std::vector<int32_t> ids = t->encode(cut, false);
  want.insert(want.end(), ids.begin(), ids.end());
  EXPECT_EQ(with, want);
}

/// All that a tokenizer does with `texts`, and its tokens, is equal.
void expect_equal(const FileTokenizer& a, const FileTokenizer& b, int texts_to_read) {
  ASSERT_LE(a.vocab_size(), b.vocab_size());
  EXPECT_EQ(a.end_of_text(), b.end_of_text());
  EXPECT_TRUE(std::ranges::equal(a.before(), b.before()));
  EXPECT_TRUE(std::ranges::equal(a.after(), b.after()));
  std::vector<std::string> specials;
  for (int32_t id = 0; id < b.vocab_size(); ++id) {
    ASSERT_EQ(id < a.vocab_size() ? a.token(id) : "", b.token(id)) << id;
    ASSERT_EQ(a.is_special(id), b.is_special(id)) << a.token(id);
    if (a.is_special(id)) specials.push_back(a.token(id));
  }
  ASSERT_FALSE(specials.empty());
  Texts texts;
  for (int i = 0; i < texts_to_read; ++i) {
    const std::string first = texts.next(), second = texts.next(), &special = specials[texts.random(specials.size())];
    const std::vector<Segment> parts{{first, false}, {special, true}, {second + special, false}};
    const std::vector<int32_t> ids = a.encode(parts, true);
    ASSERT_EQ(ids, b.encode(parts, true)) << first << special << second;
    ASSERT_EQ(a.decode(ids), b.decode(ids));
    ASSERT_EQ(a.decode_plain(ids), b.decode_plain(ids));
  }
}

/// A tokenizer.json, the GGUF file made of it, and the tokenizer.json made of that have the same ids.
TEST_P(Styles, OtherFormatsHaveTheIds) {
  const std::string name = GetParam(), folder = ::testing::TempDir() + "/formats_" + name;
  io::remove_all(folder);
  io::make_folders(folder + "/plain"), io::make_folders(folder + "/back");
  const std::string text = io::read_file(kFolder + name + ".json");
  // GGUF files lack some parts of `text`: a note names each part, and the reference tokenizer is without them.
  io::write_file_atomic(folder + "/tokenizer.json", text);
  io::Json json = io::parse_json(text, name), plain = json;
  const bool qwen = name == "qwen";
  if (qwen) plain["normalizer"] = nullptr;
  for (io::Json& t : plain["added_tokens"]) t["lstrip"] = t["rstrip"] = t["single_word"] = false;
  io::write_file_atomic(folder + "/plain/tokenizer.json", plain.dump());
  const auto original = FileTokenizer::open(folder), reference = FileTokenizer::open(folder + "/plain");
  const std::string end = original->token(original->end_of_text() < 0 ? 0 : original->end_of_text());
  const io::Json config{{"eos_token", end}, {"bos_token", {{"content", end}}}, {"chat_template", "{{ bos_token }}"}};
  for (const char* file : {"/tokenizer_config.json", "/plain/tokenizer_config.json"})
    io::write_file_atomic(folder + file, config.dump());

  std::vector<std::string> notes;
  const std::vector<int32_t> ends{original->end_of_text(), 3, 5};
  const std::string gguf = folder + "/tokenizer.gguf";
  io::write_file_atomic(gguf, io::gguf_of(metadata_for_gguf(folder, original->vocab_size() + 3, ends, &notes)));
  const std::string where = folder + "/tokenizer.json: ";
  const std::string nfc = "normalizer is NFC; GGUF files have none, so text in other forms gets other ids";
  EXPECT_EQ(notes, qwen ? (std::vector<std::string>{
                              where + "the added token 'king' has single_word; GGUF files do not have it, so text "
                                      "beside it gets other ids",
                              where + nfc})
                        : std::vector<std::string>());
  constexpr int kTexts = 10'000;
  expect_equal(*reference, *FileTokenizer::open(gguf), kTexts);
  const io::GgufFile file(gguf);
  const std::map<std::string, std::pair<const char*, const char*>> kinds{{"gpt2", {"gpt2", "gpt-2"}},
                                                                         {"llama3", {"gpt2", "llama-bpe"}},
                                                                         {"qwen", {"gpt2", "qwen2"}},
                                                                         {"spm", {"llama", ""}}};
  if (name == "spm") {  // as in llama.cpp, merges make the token of a byte of the text that is its name
    const int32_t byte = original->id_of("<0x0A>").value();
    EXPECT_EQ(Tokenizer::open(gguf)->encode("a<0x0A>").back(), byte);
    EXPECT_EQ(original->encode("a<0x0A>").back(), byte);
  }
  EXPECT_EQ(file.text("tokenizer.ggml.model"), kinds.at(name).first);
  EXPECT_EQ(file.text("tokenizer.ggml.pre").value_or(""), kinds.at(name).second);
  EXPECT_EQ(file.integer("tokenizer.ggml.eos_token_id"), ends[0]);
  EXPECT_EQ(file.integer("tokenizer.ggml.eot_token_id"), 3);
  EXPECT_EQ(file.integer("tokenizer.ggml.eom_token_id"), 5);

  for (const auto& [part, content] : files_for_transformers(gguf, {}))
    io::write_file_atomic(folder + "/back/" + part, content);
  expect_equal(*reference, *FileTokenizer::open(folder + "/back"), kTexts);
  for (const std::string& path : {gguf, folder + "/back"}) {
    const Settings settings = read_settings(path);
    EXPECT_EQ(settings.chat_template, "{{ bos_token }}") << path;
    EXPECT_EQ(settings.tokens.at("eos_token"), end) << path;
  }
  // A copy for a checkpoint is the same tokenizer, with its name.
  const std::vector<NamedFile> copies = tokenizer_files(gguf);
  ASSERT_EQ(copies.size(), 1u);
  io::write_file_atomic(folder + "/copy.gguf", copies[0].second);
  EXPECT_EQ(FileTokenizer::open(folder + "/copy.gguf")->name(), FileTokenizer::open(gguf)->name());
  // Flags and normal forms, too, are written to a tokenizer.json.
  io::write_file_atomic(folder + "/back/tokenizer.json", write_tokenizer_json(read_tokenizer(folder)));
  expect_equal(*FileTokenizer::open(folder), *FileTokenizer::open(folder + "/back"), kTexts);
}

INSTANTIATE_TEST_SUITE_P(All, Styles, ::testing::Values("gpt2", "llama3", "qwen", "spm"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace weft::text
