#include "framework/cuda/libraries/dynamic_library.h"

#include <dlfcn.h>
#include <link.h>

#include "framework/base/str_cat.h"

namespace weft::cuda {

// True if dlerror reports that the file does not exist, rather than that it cannot be used.
static bool says_absent(const std::string& error, const std::string& name) {
  return error.rfind(name + ": cannot open shared object file: No such file", 0) == 0;
}

DynamicLibrary::DynamicLibrary(std::span<const std::string> names) {
  std::string broken, listed;
  for (const std::string& name : names) {
    handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_) {
      name_ = name;
      return;
    }
    const char* error = dlerror();
    std::string text = error ? error : "dlopen failed";
    if (broken.empty() && !says_absent(text, name)) broken = str_cat(name, " cannot be opened (", text, ")");
    listed += str_cat(listed.empty() ? "" : ", ", name);
  }
  if (!broken.empty()) {
    why_not_ = broken;
  } else if (names.size() > 1) {
    why_not_ = str_cat("none of ", listed, " was found");
  } else {
    why_not_ = str_cat(listed.empty() ? "no library" : listed, " was not found");
  }
}

std::string DynamicLibrary::path() const {
  link_map* map = nullptr;
  if (!handle_ || dlinfo(handle_, RTLD_DI_LINKMAP, &map) != 0 || !map->l_name || !*map->l_name) return name_;
  return map->l_name;
}

void* DynamicLibrary::find(const char* symbol) const { return handle_ ? dlsym(handle_, symbol) : nullptr; }

std::string DynamicLibrary::fill(std::span<const WantedSymbol> table) const {
  std::string first;
  int missing = 0;
  for (const WantedSymbol& s : table) {
    *s.target = find(s.name);
    if (!*s.target && missing++ == 0) first = s.name;
  }
  if (!handle_) return why_not_;
  if (missing == 0) return {};
  return str_cat(name_, " lacks ", first, missing > 1 ? str_cat(" and ", missing - 1, " more") : "");
}

}  // namespace weft::cuda
