// Folders of safetensors files: resolving a path, and the index.
#include <algorithm>

#include "framework/base/error.h"
#include "framework/io/file.h"
#include "framework/io/json.h"
#include "framework/io/safetensors.h"
#include "framework/io/safetensors_format.h"

namespace weft::io {
namespace {

/// The file or index to read for a folder.
std::string pick(const std::string& folder) {
  std::vector<std::string> names = list_folder(folder);
  auto has = [&](const std::string& name) { return std::binary_search(names.begin(), names.end(), name); };
  const std::string suffixes[] = {str_cat(kFile, kIndexEnding), std::string(kFile)};
  for (const std::string& suffix : suffixes)
    if (has(str_cat("model", suffix))) return str_cat(folder, "/model", suffix);
  for (const std::string& suffix : suffixes) {
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
