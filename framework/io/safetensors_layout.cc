#include "framework/io/safetensors_layout.h"

#include <algorithm>
#include <cstdio>
#include <unordered_set>

#include "framework/base/error.h"
#include "framework/base/one_line.h"
#include "framework/io/checksum.h"
#include "framework/io/file.h"
#include "framework/io/json.h"
#include "framework/io/safetensors_format.h"
#include "framework/io/utf8.h"

namespace weft::io {
namespace {

// Appends `"key":` to an object of JSON, and a comma before it if it has members. A layout is made between two steps of
// a training run, and as a tree of values its header took five times as long.
void add_key(std::string& object, const std::string& key) {
  if (object.back() != '{') object += ',';
  const bool is_plain =
      std::none_of(key.begin(), key.end(), [](unsigned char c) { return c < ' ' || c == '"' || c == '\\'; });
  object += is_plain ? str_cat('"', key, '"') : write_json(Json(key));
  object += ':';
}

// "STEM-00001-of-00003.safetensors" of "STEM.safetensors".
std::string numbered(const std::string& path, size_t i, size_t n) {
  char text[40];
  std::snprintf(text, sizeof text, "-%05zu-of-%05zu", i + 1, n);
  return str_cat(path.ends_with(kFile) ? path.substr(0, path.size() - kFile.size()) : path, text, kFile);
}

void check_names(const std::string& path, std::span<const TensorEntry> tensors) {
  std::unordered_set<std::string_view> names;
  for (const TensorEntry& t : tensors) {
    WEFT_CHECK(!t.name.empty() && t.name != "__metadata__", path, ": '", t.name, "' is not the name of a tensor");
    WEFT_CHECK(is_utf8(t.name), path, ": the name '", one_line(t.name, 200),
               "' of a tensor is not UTF-8, which the format requires; need another name");
    WEFT_CHECK(names.insert(t.name).second, path, ": two tensors are named '", t.name, "'");
  }
}

}  // namespace

SafetensorsLayout::SafetensorsLayout(const std::string& path, std::span<const TensorEntry> tensors,
                                     const Metadata& metadata, int64_t max_file_bytes) {
  WEFT_CHECK(max_file_bytes > 0, path, ": got max_file_bytes ", max_file_bytes, "; need more than 0");
  check_names(path, tensors);
  Json meta = Json::object();
  for (const auto& [key, value] : metadata) {
    WEFT_CHECK(!key.starts_with(kCrcKey) && !key.starts_with(kXxhKey), path, ": metadata key \"", key,
               "\" is reserved");
    meta[key] = value;
  }
  int64_t total = 0, in_file = 0;
  files_.resize(1);
  tensors_.reserve(tensors.size());
  for (const TensorEntry& t : tensors) {
    const int64_t bytes = t.shape.numel() * itemsize(t.dtype);
    if (in_file > 0 && bytes > max_file_bytes - in_file) {
      files_.emplace_back();
      in_file = 0;
    }
    files_.back().tensors.push_back(tensors_.size());
    tensors_.push_back({{t.name, t.dtype, t.shape, 0, bytes}, files_.size() - 1, blocks_});
    blocks_ += static_cast<size_t>(blocks_of(bytes));
    in_file += bytes;
    total += bytes;
  }
  for (size_t f = 0; f < files_.size(); ++f) {
    files_[f].path = files_.size() == 1 ? path : numbered(path, f, files_.size());
    files_[f].metadata = write_json(meta);
    files_[f].metadata.pop_back();  // the checksums follow
    place(files_[f], f);
  }
  if (files_.size() == 1) return;
  Json map = Json::object();
  for (const PlacedTensor& t : tensors_) map[t.info.name] = base_name(files_[t.file].path);
  index_path_ = str_cat(path, kIndexEnding);
  index_ = write_json(Json{{"metadata", {{"total_size", total}}}, {"weight_map", std::move(map)}}, 2) + "\n";
}

// Gives the tensors of a file their places. The size of the header is known before the checksums are.
void SafetensorsLayout::place(File& file, size_t number) {
  file.by_name = file.tensors;
  std::sort(file.by_name.begin(), file.by_name.end(),
            [&](size_t a, size_t b) { return tensors_[a].info.name < tensors_[b].info.name; });
  std::stable_sort(file.tensors.begin(), file.tensors.end(), [&](size_t a, size_t b) {
    return itemsize(tensors_[a].info.dtype) > itemsize(tensors_[b].info.dtype);
  });
  int64_t at = 0;
  for (const size_t i : file.tensors) {
    TensorInfo& t = tensors_[i].info;
    t.begin = at, t.end = at += t.end;
  }
  std::string entries = "{";
  for (const size_t i : file.by_name) {
    const TensorInfo& t = tensors_[i].info;
    add_key(entries, t.name);
    entries += str_cat("{\"data_offsets\":[", t.begin, ',', t.end, "],\"dtype\":\"", kNames[static_cast<int>(t.dtype)],
                       "\",\"shape\":[");
    for (int d = 0; d < t.shape.size(); ++d) entries += str_cat(d > 0 ? "," : "", t.shape[d]);
    entries += "]}";
  }
  file.entries = entries.substr(1);
  const auto data = static_cast<int64_t>(header(number, std::vector<uint32_t>(blocks_)).size());
  WEFT_CHECK(data - 8 <= kMaxHeader, file.path, ": ", file.tensors.size(), " tensors make a header of ", data - 8,
             " bytes; at most ", kMaxHeader, " are allowed");
  for (const size_t i : file.tensors) tensors_[i].info.begin += data, tensors_[i].info.end += data;
  file.size = data + at;
}

// The metadata comes first, then the checksums, then the entries sorted by name.
std::string SafetensorsLayout::header(size_t file, std::span<const uint32_t> checksums) const {
  const File& f = files_[file];
  std::string text = f.metadata;
  for (const size_t i : f.by_name) {
    const PlacedTensor& t = tensors_[i];
    add_key(text, str_cat(kCrcKey, t.info.name));
    text += '"';
    for (int64_t b = 0; b < blocks_of(t.info.nbytes()); ++b)
      text += std::string_view(hex64(checksums[t.first_block + static_cast<size_t>(b)])).substr(8);
    text += '"';
  }
  text = str_cat("{\"__metadata__\":", text, '}', f.entries.empty() ? "" : ",", f.entries, '}');
  const uint64_t length = (text.size() + 7) / 8 * 8;
  std::string all(reinterpret_cast<const char*>(&length), 8);
  all += text;
  all.resize(8 + length, ' ');
  return all;
}

}  // namespace weft::io
