#include "models/text/formats/files.h"

#include <algorithm>

#include "framework/base/error.h"
#include "framework/io/file.h"
#include "framework/io/json.h"
#include "models/text/bytes_as_text.h"
#include "models/text/formats/description.h"

namespace weft::text {
namespace {

constexpr int64_t kMostBytes = int64_t{64} << 20;
constexpr const char* kGeneration = "generation_config.json";
constexpr const char* kSettings = "tokenizer_config.json";

/// Settings with which transformers reads tokenizer.json as it is. Without a class, transformers 4 takes the class of
/// the model_type, which adds tokens of its own.
io::OrderedJson own_class() {
  return {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
}

/// The tokenizer of models whose tokens are bytes.
Description bytes() {
  Description d;
  d.where = "bytes";
  for (int b = 0; b < 256; ++b) d.tokens.push_back(text_of_byte(static_cast<unsigned char>(b)));
  d.split = {{.kind = SplitStep::Kind::kByteLevel, .use_regex = false}};
  d.decode = {{DecodeStep::Kind::kByteLevel, {}, {}}};
  d.byte_level = true;
  return d;
}

/// A text of generation_config.json with `ids` as eos_token_id, if there are any. `replace`: also if it has others.
std::string with_ends(const std::string& text, const std::string& where, const io::Json& ids, bool replace) {
  if (ids.is_null()) return text;
  io::Json config = io::parse_json(text, where);
  if (!config.is_object() || (!replace && !config.value("eos_token_id", io::Json()).is_null())) return text;
  config["eos_token_id"] = ids;
  return io::write_json(config, 2) + "\n";
}

}  // namespace

std::vector<NamedFile> tokenizer_files(const std::string& path, const std::string& pre) {
  if (path.empty()) return {};
  if (io::is_gguf(path)) {
    io::GgufMetadata metadata = io::GgufFile(path).metadata("tokenizer.");
    if (!pre.empty()) {
      constexpr const char* kPre = "tokenizer.ggml.pre";
      std::erase_if(metadata, [&](const auto& entry) { return entry.first == kPre; });
      metadata.emplace_back(kPre, pre);
      std::ranges::sort(metadata, {}, &io::GgufMetadata::value_type::first);  // as metadata() of the copy
    }
    return {{"tokenizer.gguf", io::gguf_of(metadata)}};
  }
  const std::string file = io::is_folder(path) ? path + "/tokenizer.json" : path, folder = io::folder_of(file);
  std::vector<NamedFile> files{{"tokenizer.json", io::read_file(file, kMostJson)}};
  const auto read = [&](const char* name) {
    const std::string other = str_cat(folder, "/", name);
    return io::exists(other) && !io::is_folder(other) ? io::read_file(other, kMostBytes) : "";
  };
  for (const char* name : {kSettings, "special_tokens_map.json", "chat_template.jinja"})
    if (std::string text = read(name); !text.empty()) files.emplace_back(name, std::move(text));
  // The end tokens may be in config.json alone.
  io::Json ends;
  if (const std::string config = io::is_folder(path) ? read("config.json") : ""; !config.empty())
    if (const io::Json json = io::parse_json(config, folder + "/config.json"); json.is_object())
      ends = json.value("eos_token_id", io::Json());
  std::string generation = read(kGeneration);
  if (generation.empty() && !ends.is_null()) generation = "{}";
  if (!generation.empty())
    files.emplace_back(kGeneration, with_ends(generation, str_cat(folder, "/", kGeneration), ends, /*replace=*/false));
  return files;
}

std::vector<NamedFile> files_for_transformers(const std::string& path, std::span<const int32_t> ends) {
  if (!path.empty() && !io::is_gguf(path)) {
    std::vector<NamedFile> files = tokenizer_files(path);
    if (std::none_of(files.begin(), files.end(), [](const NamedFile& f) { return f.first == kSettings; }))
      files.emplace_back(kSettings, io::write_json(own_class(), 2) + "\n");
    if (ends.empty()) return files;
    const io::Json ids =
        ends.size() == 1 ? io::Json(ends[0]) : io::Json(std::vector<int32_t>(ends.begin(), ends.end()));
    for (auto& [name, text] : files)
      if (name == kGeneration) text = with_ends(text, path + "/" + name, ids, /*replace=*/true);
    return files;
  }
  const Settings settings = read_settings(path);
  io::OrderedJson config = own_class();
  for (const auto& [name, text] : settings.tokens) config[name] = text;
  if (!settings.chat_template.empty()) config["chat_template"] = settings.chat_template;
  return {{"tokenizer.json", write_tokenizer_json(path.empty() ? bytes() : read_tokenizer(path))},
          {kSettings, io::write_json(config, 2) + "\n"}};
}

io::GgufMetadata metadata_for_gguf(const std::string& path, int64_t vocab, std::span<const int32_t> ends,
                                   std::vector<std::string>* notes) {
  if (io::is_gguf(path)) {
    const io::GgufFile file(path);
    if (std::ssize(file.texts("tokenizer.ggml.tokens")) == vocab) return file.metadata("tokenizer.");
  }
  return write_gguf_tokenizer(path.empty() ? bytes() : read_tokenizer(path), read_settings(path), vocab, ends, notes);
}

}  // namespace weft::text
