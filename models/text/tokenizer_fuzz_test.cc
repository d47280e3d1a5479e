// Damaged tokenizer.json files: each is read in full and encodes, or is refused.
#include <gtest/gtest.h>

#include "framework/base/error.h"
#include "framework/io/file.h"
#include "framework/io/gguf.h"
#include "framework/testing/fuzz.h"
#include "models/text/formats/description.h"
#include "models/text/tokenizer.h"

namespace weft::text {
namespace {

using weft::testing::FuzzRandom;

constexpr const char* kByteLevel = R"({"version":"1.0","truncation":null,"padding":null,
"added_tokens":[{"id":9,"content":"<e>","single_word":false,"lstrip":true,"rstrip":false,"normalized":false,
 "special":true},
{"id":8,"content":"ab","single_word":true,"lstrip":false,"rstrip":true,"normalized":true,"special":false}],
"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Strip","strip_left":true,"strip_right":true}]},
"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"\\s+(?!\\S)|[^\\s]+|\\s"},
"behavior":"Isolated","invert":false},{"type":"Digits","individual_digits":true},
{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true}]},
"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<e>","type_id":0}},
{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{"<e>":{"id":"<e>","ids":[9],"tokens":["<e>"]}}},
"decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true},
"model":{"type":"BPE","dropout":null,"unk_token":null,"fuse_unk":false,"byte_fallback":false,"ignore_merges":true,
"vocab":{"a":0,"b":1,"c":2,"Ġ":3,"Ã":4,"ca":5,"Ġc":6},"merges":["c a",["Ġ","c"]]}})";

constexpr const char* kSpm = R"({"version":"1.0","added_tokens":[{"id":0,"content":"<unk>","special":true}],
"normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},
{"type":"Replace","pattern":{"String":" "},"content":"▁"}]},
"pre_tokenizer":{"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":true},
"post_processor":null,"decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},
"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]},
"model":{"type":"BPE","unk_token":"<unk>","fuse_unk":true,"byte_fallback":true,
"vocab":{"<unk>":0,"▁":1,"a":2,"▁a":3,"<0xC3>":4,"<0xA9>":5},"merges":[["▁","a"]]}})";

TEST(TokenizerFuzz, Json) {
  const std::vector<std::string_view> words = {"null",
                                               "true",
                                               "-1",
                                               "1e9",
                                               "\"\"",
                                               "\"Sequence\"",
                                               "\"MergedWithNext\"",
                                               "\"Removed\"",
                                               "\"Contiguous\"",
                                               "\"NFKC\"",
                                               "\"never\"",
                                               "\\u0000",
                                               "\\ud800",
                                               "(a*)*",
                                               "(?<=a)",
                                               "[^",
                                               "\\K",
                                               "|",
                                               "$",
                                               "\"String\"",
                                               "\"Fuse\"",
                                               "[[[[[[[[[[[[",
                                               "{\"type\":\"Sequence\"}",
                                               "\"a\"",
                                               "▁",
                                               "ab"};
  std::vector<std::string> texts = {"", "ab ca  c<e> 12 \n\xc3\xa9\xff", "▁a a\u0301  ab a",
                                    "bytes that are no character: \xc3 ab\xf0"};
  texts.emplace_back(300, 'a');
  texts.back() += 'b';
  weft::testing::fuzz(
      {.seeds = {kByteLevel, kSpm},
       .damage = [&](std::string& s, FuzzRandom& random) { weft::testing::damage_text(s, random, words); },
       .read =
           [&](const std::string& s) {
             const FileTokenizer t(read_tokenizer_json(s, "f.json"));
             for (const std::string& text : texts) {
               std::vector<int32_t> ids;
               try {
                 const Segment part{text, true};
                 ids = t.encode({&part, 1}, true);
               } catch (const Error& e) {  // limits of an expression
                 ASSERT_NE(std::string(e.what()).find("tokenizer: the pattern"), std::string::npos);
                 continue;
               }
               for (int32_t id : ids) ASSERT_TRUE(id >= 0 && id < t.vocab_size()) << id;
               t.decode(ids);
               ASSERT_LE(t.cut(text, 10), text.size());
             }
           },
       .names = "f.json",
       .inputs = 5000});
}

TEST(TokenizerFuzz, Gguf) {
  weft::testing::FuzzFile file(::testing::TempDir() + "/fuzz_tokenizer.gguf");
  const auto seed = [&](const char* model) {
    const std::string path = ::testing::TempDir() + "/fuzz_tokenizer_seed.gguf";
    const std::string t = "tokenizer.ggml.";
    io::write_gguf(
        path,
        {{t + "model", std::string(model)},
         {t + "pre", std::string("llama-bpe")},
         {t + "tokens", std::vector<std::string>{"<s>", "<0x41>", "a", "b", "ab", "\u0120", "\u2581", "\u2581a"}},
         {t + "token_type", std::vector<int32_t>{3, 6, 1, 1, 1, 1, 1, 1}},
         {t + "scores", std::vector<float>{0, 0, -1, -2, -3, -4, -5, -3}},
         {t + "merges", std::vector<std::string>{"a b"}},
         {t + "bos_token_id", uint32_t{0}},
         {t + "add_space_prefix", true}},
        {});
    return io::read_file(path);
  };
  weft::testing::fuzz({.seeds = {seed("gpt2"), seed("llama")},
                       .damage = weft::testing::damage_bytes,
                       .read =
                           [&](const std::string& s) {
                             file.set(s);
                             const FileTokenizer t(read_gguf_tokenizer(file.path(), ""));
                             const std::vector<int32_t> ids = t.encode("ab a\n\xff <s>ab");
                             for (int32_t id : ids) ASSERT_TRUE(id >= 0 && id < t.vocab_size()) << id;
                             t.decode(ids);
                           },
                       .names = file.path(),
                       .inputs = 5000});
}

}  // namespace
}  // namespace weft::text
