// Files that are read and refused, options of the model, long pieces.
#include "models/text/tokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "framework/base/testing/error_of.h"
#include "framework/io/json.h"
#include "models/text/formats/description.h"

namespace weft::text {
namespace {

using io::Json;
using weft::testing::error_of;

/// A byte-level tokenizer with the letters a to d and a few merges.
Json small() {
  Json vocab;
  int id = 0;
  for (const char* t : {"a", "b", "c", "d", "\u0120", "ab", "abc", "\u0120a", "cd", "x y", "dab", "^", "^^"})
    vocab[t] = id++;
  return {{"version", "1.0"},
          {"added_tokens", {{{"id", 13}, {"content", "<end>"}, {"special", true}}}},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"c d", "a b", "ab c", "\u0120 a", "^ ^"}}}}};
}

FileTokenizer tokenizer_of(const Json& j) { return FileTokenizer(read_tokenizer_json(j.dump(), "t.json")); }
std::vector<int32_t> ids(const Json& j, std::string_view text) { return tokenizer_of(j).encode(text); }
using Ids = std::vector<int32_t>;

TEST(TokenizerJson, MergesInOrder) {
  EXPECT_EQ(ids(small(), "abcd"), (Ids{5, 8}));  // c d goes first
  EXPECT_EQ(ids(small(), "abca"), (Ids{6, 0}));
  EXPECT_EQ(ids(small(), "ab abc"), (Ids{5, 4, 6}));
  EXPECT_EQ(ids(small(), ""), Ids{});
  EXPECT_EQ(ids(small(), "azb"), Ids{5});  // a byte without a token disappears, as in `tokenizers`
}

TEST(TokenizerJson, BothFormsOfMerges) {
  Json j = small();
  j["model"]["vocab"]["\u0120ab"] = 14;
  j["model"]["merges"] = Json::parse(R"([["a", "b"], ["\u0120", "ab"]])");
  EXPECT_EQ(ids(j, " ab"), Ids{14});
  // The pairs can have tokens with spaces.
  Json spm = small();
  spm["pre_tokenizer"] = nullptr;
  spm["model"]["vocab"] = {{"x", 0}, {"y", 1}, {" ", 2}, {"x ", 3}, {"x y", 4}};
  spm["model"]["merges"] = Json::parse(R"([["x", " "], ["x ", "y"]])");
  EXPECT_EQ(ids(spm, "x yx"), (Ids{4, 0}));
}

TEST(TokenizerJson, OptionsOfTheModel) {
  Json j = small();
  j["model"]["vocab"]["dabc"] = 14;
  EXPECT_EQ(ids(j, "dabc"), (Ids{3, 6}));
  j["model"]["ignore_merges"] = true;
  EXPECT_EQ(ids(j, "dabc"), Ids{14});  // whole, though no merge makes it
  EXPECT_EQ(ids(j, "dabca"), (Ids{3, 6, 0}));

  Json u = small();
  u["pre_tokenizer"] = nullptr;
  u["decoder"] = {{"type", "Fuse"}};
  u["model"]["vocab"] = {{"<unk>", 0}, {"a", 1}, {"<0xC3>", 2}, {"<0xA9>", 3}};
  u["model"]["merges"] = Json::array();
  u["added_tokens"] = Json::array();
  EXPECT_EQ(ids(u, "a\u00e9zza"), (Ids{1, 1}));
  u["model"]["unk_token"] = "<unk>";
  EXPECT_EQ(ids(u, "a\u00e9zza"), (Ids{1, 0, 0, 0, 1}));
  u["model"]["fuse_unk"] = true;
  EXPECT_EQ(ids(u, "a\u00e9zza"), (Ids{1, 0, 1}));
  u["model"]["byte_fallback"] = true;
  EXPECT_EQ(ids(u, "a\u00e9zza"), (Ids{1, 2, 3, 0, 1}));
  EXPECT_EQ(ids(u, "a\xc3"), (Ids{1, 2}));  // not UTF-8
}

TEST(TokenizerJson, PreTokenizers) {
  const auto split = [](const char* behavior, bool invert, const Json& pattern) {
    Json j = small();
    j["pre_tokenizer"] = {{"type", "Sequence"},
                          {"pretokenizers",
                           {{{"type", "Split"}, {"pattern", pattern}, {"behavior", behavior}, {"invert", invert}},
                            {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
    return j;
  };
  const Json b = {{"String", "b"}};
  EXPECT_EQ(ids(split("Isolated", false, b), "abc"), (Ids{0, 1, 2}));
  EXPECT_EQ(ids(split("Removed", false, b), "abcd"), (Ids{0, 8}));
  EXPECT_EQ(ids(split("Removed", true, b), "abcd"), Ids{1});
  EXPECT_EQ(ids(split("MergedWithPrevious", false, b), "abcab"), (Ids{5, 2, 5}));
  EXPECT_EQ(ids(split("MergedWithNext", false, {{"Regex", "a"}}), "abcab"), (Ids{6, 5}));
  EXPECT_EQ(ids(split("MergedWithNext", false, b), "cdbb"), (Ids{8, 1, 1}));
  EXPECT_EQ(ids(split("Contiguous", false, {{"Regex", "[ab]"}}), "abcd"), (Ids{5, 8}));
  // Empty matches are matches, too.
  EXPECT_EQ(ids(split("Contiguous", false, {{"Regex", "d*"}}), "abcd"), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(ids(split("MergedWithPrevious", false, {{"Regex", "d*"}}), "abcd"), (Ids{0, 1, 8}));
  EXPECT_EQ(ids(split("MergedWithPrevious", true, {{"Regex", "c*"}}), "abcd"), (Ids{0, 1, 8}));
  EXPECT_EQ(ids(split("MergedWithNext", false, {{"Regex", "c*"}}), "abcd"), (Ids{0, 1, 8}));
  EXPECT_EQ(ids(split("MergedWithNext", true, {{"Regex", "b*"}}), "cdab"), (Ids{2, 3, 5}));
  EXPECT_EQ(ids(split("Removed", true, {{"Regex", "b*"}}), "abab"), (Ids{1, 1}));
  Json prefix = small();
  prefix["pre_tokenizer"]["add_prefix_space"] = true;
  EXPECT_EQ(ids(prefix, "ab"), (Ids{4, 5}));
  EXPECT_EQ(ids(prefix, " ab"), (Ids{4, 5}));
}

/// prepend_scheme first: not after a special token.
TEST(TokenizerJson, Metaspace) {
  Json j = small();
  j["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "first"}, {"split", true}};
  j["decoder"] = {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "first"}, {"split", true}};
  j["model"]["vocab"] = {{"\u2581", 0}, {"a", 1}, {"\u2581a", 2}, {"a\u2581", 3}};
  j["model"]["merges"] = {"\u2581 a", "a \u2581"};
  const FileTokenizer t = tokenizer_of(j);
  EXPECT_NE(t.describe().find("split by spaces, written \"\u2581\"; one is put before a text: first\n"),
            std::string::npos)
      << t.describe();
  const std::vector<Segment> after = {{"a<end>a a", true}};
  EXPECT_EQ(t.encode(after, false), (Ids{2, 13, 1, 2}));
  EXPECT_EQ(t.encode("a a"), (Ids{2, 2}));
  EXPECT_EQ(t.decode(t.encode("a a")), "a a");
  j["pre_tokenizer"]["prepend_scheme"] = "always";
  EXPECT_EQ(tokenizer_of(j).encode(after, false), (Ids{2, 13, 2, 2}));
  j["pre_tokenizer"]["prepend_scheme"] = "never";
  EXPECT_EQ(tokenizer_of(j).encode(after, false), (Ids{1, 13, 1, 2}));
}

TEST(TokenizerJson, AddedTokens) {
  Json j = small();
  const auto add = [&](int id, const char* content, Json more) {
    more["id"] = id, more["content"] = content;
    j["added_tokens"].push_back(more);
  };
  add(5, "ab", {{"single_word", true}, {"normalized", false}});
  add(8, "cd", {{"lstrip", true}, {"rstrip", true}, {"normalized", false}});
  add(14, "cdc", {{"normalized", false}});
  EXPECT_EQ(ids(j, "ab abc"), (Ids{5, 4, 6}));
  EXPECT_EQ(ids(j, "abx"), Ids{5});
  EXPECT_EQ(ids(j, "a  cd  b"), (Ids{0, 8, 1}));
  EXPECT_EQ(ids(j, "cdcd"), (Ids{14, 3}));  // the longest one
  // Tokens of normalised text come after the others.
  add(15, "bd", {{"normalized", true}});
  add(16, "dc", {{"normalized", false}});
  EXPECT_EQ(ids(j, "bdc"), (Ids{1, 16}));
  EXPECT_EQ(ids(j, "bd"), Ids{15});
}

/// ByteFallback makes bytes, which ByteLevel reads as characters.
TEST(TokenizerJson, ByteLevelKeepsBytesThatAreNoCharacter) {
  Json j = small();
  j["model"]["vocab"]["<0xC4>"] = 14;
  j["decoder"] = Json::parse(R"({"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "ByteLevel"}]})");
  EXPECT_EQ(tokenizer_of(j).decode(Ids{4, 14}), " \xC4");
}

TEST(TokenizerJson, Described) {
  Json j = small();
  j["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", "x"}}}, {"content", "y"}};
  j["pre_tokenizer"] = {{"type", "Sequence"},
                        {"pretokenizers", {{{"type", "Digits"}, {"individual_digits", true}}, j["pre_tokenizer"]}}};
  j["added_tokens"].push_back({{"id", 14}, {"content", "\n\n"}, {"special", false}});
  const std::string text = tokenizer_of(j).describe();
  EXPECT_EQ(text.substr(0, text.find("large")),
            "ids 15\nmerges of bytes; 250 of 256 have no token and disappear\nspecial tokens 1: 13 \"<end>\"\n"
            "other added tokens 1: 14 \"\\n\\n\"\nend of text nothing\nbefore a text nothing\nafter a text nothing\n"
            "normalised by Replace of \"x\" by \"y\"\nsplit by digits, one by one\n");
}

TEST(TokenizerJson, Refused) {
  struct Row {
    const char* pointer;
    Json value;
    const char* message;
  };
  const Json unicode = {{"type", "UnicodeScripts"}};
  const Row rows[] = {
      {"/version", "2.0", "version is '2.0'; need 1.0"},
      {"/strange", 1, "strange is 1; not known"},
      {"/model/strange", {1, 2}, "model.strange is [1,2]; not known"},
      {"/model/type", "Unigram", "model.type is 'Unigram'; not known; need BPE"},
      {"/model/dropout", 0.1, "model.dropout is 0.1; need null"},
      {"/model/end_of_word_suffix", "</w>", "model.end_of_word_suffix is '</w>'; need none"},
      {"/model/unk_token", "<unk>", "model.unk_token is '<unk>', which model.vocab does not have"},
      {"/model/fuse_unk", "yes", "model.fuse_unk is \"yes\"; need true or false"},
      {"/model/vocab/a", -1, "model.vocab['a'] is -1; need 0 to"},
      {"/model/vocab/a", 1, "model.vocab has two tokens of id 1"},
      {"/model/vocab/a", 2000000000, "model.vocab['a'] is 2000000000; need 0 to"},
      {"/model/merges/0", "a", "model.merges[0] is \"a\"; need two tokens"},
      {"/model/merges/0", "a b c", "model.merges[0] is \"a b c\"; need two tokens"},
      {"/model/merges/0", {"a"}, "model.merges[0] is [\"a\"]; need two tokens"},
      {"/model/merges/0", "a zz", "model.merges[0] has the token 'zz', which model.vocab does not have"},
      {"/model/merges/0", "b a", "model.merges[0] has the token 'ba', which model.vocab does not have"},
      {"/added_tokens/0/id", 3, "id 3 belongs to 'd' and to the added token '<end>'; need different ids"},
      {"/added_tokens/0/id", 1 << 29, "the added token '<end>' has id 536870912; need less than"},
      {"/added_tokens/0/content", "a", "the added token 'a' has id 13; model.vocab gives it 0"},
      {"/added_tokens/0/fold", true, "added_tokens[0].fold is true; not known"},
      {"/normalizer", {{"type", "Lowercase"}}, "normalizer.type is 'Lowercase'; not known; need NFC"},
      {"/normalizer",
       {{"type", "Replace"}, {"pattern", {{"Regex", " +"}}}, {"content", ""}},
       "normalizer.pattern is a regular expression; need a text"},
      {"/pre_tokenizer",
       {{"type", "Sequence"}, {"pretokenizers", {{{"type", "Digits"}}, unicode}}},
       "pre_tokenizer[1].type is 'UnicodeScripts'; not known; need Split"},
      {"/pre_tokenizer",
       {{"type", "Sequence"}, {"pretokenizers", {{{"type", "ByteLevel"}}, {{"type", "Digits"}}}}},
       "pre_tokenizer[1] follows ByteLevel; need ByteLevel last"},
      {"/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"Regex", "("}}}, {"behavior", "Isolated"}},
       "the pattern is no regular expression: missing closing parenthesis at byte 1"},
      {"/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"Regex", "\\h"}}}, {"behavior", "Isolated"}},
       "the pattern has \\h, whose meaning differs between libraries"},
      {"/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"Regex", "[a[^b]]"}}}, {"behavior", "Isolated"}},
       "the pattern has a class within a class"},
      {"/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "Joined"}},
       "pre_tokenizer.behavior is 'Joined'; not known; need Isolated"},
      {"/pre_tokenizer/trim", 1, "pre_tokenizer.trim is 1; not known"},
      {"/post_processor", {{"type", "BertProcessing"}}, "post_processor.type is 'BertProcessing'; not known"},
      {"/decoder", {{"type", "WordPiece"}}, "decoder.type is 'WordPiece'; not known; need ByteLevel"},
      {"/decoder", nullptr, "decoder is missing"},
      {"/decoder/type", 3, "decoder.type is 3; need a text"},
  };
  for (const Row& r : rows) {
    Json j = small();
    j[Json::json_pointer(r.pointer)] = r.value;
    const std::string error = error_of([&] { tokenizer_of(j); });
    EXPECT_NE(error.find(r.message), error.npos) << r.pointer << ": got '" << error << "'\nneed '" << r.message << "'";
    EXPECT_EQ(error.find("t.json: "), 0u) << error;
  }
  std::string many = "{\"added_tokens\": [";
  for (int i = 0; i < 1'000'000; ++i) many += "{\"content\": \"a\"},";
  EXPECT_EQ(error_of([&] { read_tokenizer_json(many, "t.json"); }),
            "t.json: has 1000000 added tokens; need at most 65536");
  EXPECT_NE(error_of([] { read_tokenizer_json("{\"a\": \"\\ud800\"}", "t.json"); }).find("t.json: "),
            std::string::npos);
}

/// A piece of a million characters, and a pattern that backtracks without end.
TEST(TokenizerJson, LongPieces) {
  const size_t n = 1'000'000;
  const FileTokenizer t = tokenizer_of(small());
  EXPECT_EQ(t.encode(std::string(n, 'a')), Ids(n, 0));
  EXPECT_EQ(t.encode(std::string(n, '^')), Ids(n / 2, 12));
  std::string random;
  std::mt19937 letters(5);
  for (size_t i = 0; i < n; ++i) random += static_cast<char>('a' + letters() % 4);
  EXPECT_EQ(t.decode(t.encode(random)), random);
  // Long and short pieces are merged alike.
  for (size_t i = 0; i < 2000; ++i) {
    const std::string part = random.substr(i * 400, 20 + i % 300);
    Json one = small();
    one["model"]["ignore_merges"] = true;  // long pieces are not parted
    static const FileTokenizer whole = tokenizer_of(one);
    ASSERT_EQ(t.encode(part), whole.encode(part)) << part;
  }
  Json slow = small();
  slow["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "(a+)+$"}}}, {"behavior", "Isolated"}};
  slow["decoder"] = {{"type", "Fuse"}};
  const FileTokenizer s = tokenizer_of(slow);
  std::string text(200, 'a');
  text += 'b';
  EXPECT_NE(error_of([&] { s.encode(text); }).find("needs too much work"), std::string::npos);
}

}  // namespace
}  // namespace weft::text
