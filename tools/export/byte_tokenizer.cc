#include "tools/export/byte_tokenizer.h"

#include "framework/base/error.h"
#include "framework/io/json.h"
#include "models/text/bytes_as_text.h"

namespace weft::tools {

std::string byte_tokenizer_json() {
  io::OrderedJson vocab = io::OrderedJson::object();
  for (int b = 0; b < 256; ++b) vocab[text::text_of_byte(static_cast<unsigned char>(b))] = b;
  const io::OrderedJson level{
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}};
  const io::OrderedJson json{{"version", "1.0"},
                             {"truncation", nullptr},
                             {"padding", nullptr},
                             {"added_tokens", io::OrderedJson::array()},
                             {"normalizer", nullptr},
                             {"pre_tokenizer", level},
                             {"post_processor", nullptr},
                             {"decoder", level},
                             {"model",
                              {{"type", "BPE"},
                               {"dropout", nullptr},
                               {"unk_token", nullptr},
                               {"continuing_subword_prefix", nullptr},
                               {"end_of_word_suffix", nullptr},
                               {"fuse_unk", false},
                               {"byte_fallback", false},
                               {"ignore_merges", false},
                               {"vocab", vocab},
                               {"merges", io::OrderedJson::array()}}}};
  return io::write_json(json, 2) + "\n";
}

std::string byte_tokenizer_config() {
  return "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n  \"clean_up_tokenization_spaces\": false\n}\n";
}

io::GgufMetadata byte_tokenizer_gguf(int64_t vocab) {
  constexpr int32_t kNormal = 1, kUnused = 5;
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  for (int b = 0; b < 256; ++b)
    tokens.push_back(text::text_of_byte(static_cast<unsigned char>(b))), types.push_back(kNormal);
  for (int64_t i = 256; i < vocab; ++i) tokens.push_back(str_cat("[unused", i, "]")), types.push_back(kUnused);
  return {{"tokenizer.ggml.model", std::string("gpt2")},
          {"tokenizer.ggml.pre", std::string("gpt-2")},
          {"tokenizer.ggml.tokens", std::move(tokens)},
          {"tokenizer.ggml.token_type", std::move(types)},
          {"tokenizer.ggml.merges", std::vector<std::string>{}},
          {"tokenizer.ggml.add_bos_token", false},
          {"tokenizer.ggml.add_eos_token", false}};
}

}  // namespace weft::tools
