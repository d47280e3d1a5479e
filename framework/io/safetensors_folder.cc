// Folders of safetensors files: splitting when writing, the index, and resolving a path.
#include <algorithm>
#include <cstdio>

#include "framework/base/error.h"
#include "framework/io/file.h"
#include "framework/io/json.h"
#include "framework/io/safetensors.h"

namespace weft::io {
namespace {

constexpr std::string_view kFile = ".safetensors";
constexpr std::string_view kIndex = ".safetensors.index.json";

std::string part_name(const std::string& stem, size_t i, size_t n) {
  char text[40];
  std::snprintf(text, sizeof text, "-%05zu-of-%05zu", i + 1, n);
  return str_cat(stem, text, kFile);
}

/// The file or index to read for a folder.
std::string pick(const std::string& folder) {
  std::vector<std::string> names = list_folder(folder);
  auto has = [&](const std::string& name) { return std::binary_search(names.begin(), names.end(), name); };
  for (std::string_view suffix : {kIndex, kFile})
    if (has(str_cat("model", suffix))) return str_cat(folder, "/model", suffix);
  for (std::string_view suffix : {kIndex, kFile}) {
    std::vector<std::string> found;
    for (const std::string& name : names)
      if (name.ends_with(suffix)) found.push_back(name);
    if (found.size() == 1) return folder + "/" + found[0];
    WEFT_CHECK(found.empty(), folder, ": holds ", found.size(), " files *", suffix, " and none named model", suffix,
               "; name one");
  }
  weft::internal::fail(Code::kNotFound, str_cat(folder, ": holds no .safetensors file"));
}

}  // namespace

void write_safetensors_folder(const std::string& folder, const std::string& stem, std::span<const NamedView> tensors,
                              const Metadata& metadata, int64_t max_file_bytes) {
  WEFT_CHECK(max_file_bytes > 0, "write_safetensors_folder: got max_file_bytes ", max_file_bytes, "; need more than 0");
  std::vector<std::span<const NamedView>> parts;
  int64_t total = 0, in_part = 0;
  size_t begin = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    int64_t bytes = tensors[i].view.numel() * itemsize(tensors[i].view.dtype);
    if (in_part > 0 && in_part + bytes > max_file_bytes) {
      parts.push_back(tensors.subspan(begin, i - begin));
      begin = i;
      in_part = 0;
    }
    in_part += bytes;
    total += bytes;
  }
  parts.push_back(tensors.subspan(begin));
  if (parts.size() == 1) return write_safetensors(str_cat(folder, "/", stem, kFile), tensors, metadata);

  Json map = Json::object();
  for (size_t p = 0; p < parts.size(); ++p) {
    std::string name = part_name(stem, p, parts.size());
    for (const NamedView& t : parts[p])
      WEFT_CHECK(map.emplace(t.name, name).second, "write_safetensors: two tensors are named '", t.name, "'");
    write_safetensors(folder + "/" + name, parts[p], metadata);
  }
  Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", std::move(map)}};
  write_file_atomic(str_cat(folder, "/", stem, kIndex), write_json(index, 2) + "\n");
}

SafetensorsModel::SafetensorsModel(const std::string& path) : path_(is_folder(path) ? pick(path) : path) {
  if (!path_.ends_with(".json")) {
    files_.emplace_back(path_);
    for (const TensorInfo& t : files_[0].tensors()) where_[t.name] = 0;
    return;
  }
  Json index = parse_json(read_file(path_, int64_t{100} << 20), path_);
  const Json& map = json_member(index, "weight_map", path_);
  WEFT_CHECK(map.is_object() && !map.empty(), path_, ": weight_map is not an object that names tensors");
  std::map<std::string, size_t> opened;
  for (const auto& [name, value] : map.items()) {
    WEFT_CHECK(value.is_string(), path_, ": weight_map of '", name, "' is not a file name");
    std::string file = value.get<std::string>();
    WEFT_CHECK(!file.empty() && file.find('/') == std::string::npos && file.find('\0') == std::string::npos &&
                   file != ".." && file != ".",
               path_, ": weight_map of '", name, "' names '", file, "'; need a file in the same folder");
    auto [it, fresh] = opened.emplace(file, files_.size());
    if (fresh) files_.emplace_back(folder_of(path_) + "/" + file);
    WEFT_CHECK(files_[it->second].find(name), path_, ": says that '", file, "' holds tensor '", name,
               "', but it does not");
    where_[name] = it->second;
  }
}

std::vector<std::string> SafetensorsModel::names() const {
  std::vector<std::string> out;
  for (const auto& [name, file] : where_) out.push_back(name);
  return out;
}

const SafetensorsFile& SafetensorsModel::file_of(std::string_view name) const {
  auto it = where_.find(name);
  WEFT_CHECK_AS(kNotFound, it != where_.end(), path_, ": no tensor '", name, "' among its ", where_.size());
  return files_[it->second];
}

}  // namespace weft::io
