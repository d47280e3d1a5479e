#include "framework/cuda/libraries/library_places.h"

#include <glob.h>

#include <algorithm>
#include <cstdlib>

#include "framework/base/str_cat.h"

namespace weft::cuda {

// The matching paths in descending order, so that the newest of several versions comes first.
static void append_matches(const std::string& pattern, std::vector<std::string>& out) {
  glob_t found{};
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0)
    for (size_t i = found.gl_pathc; i-- > 0;) out.push_back(found.gl_pathv[i]);
  ::globfree(&found);
}

// The major version: 13 for ".../libnvrtc.so.13", 0 if the name has none.
static int major_of(const std::string& path) {
  const size_t at = path.rfind(".so.");
  return at == std::string::npos ? 0 : std::atoi(path.c_str() + at + 4);
}

std::vector<std::string> library_places(std::string_view stem, const std::string& asked, int driver_major) {
  if (!asked.empty()) return {asked};
  const std::string file = str_cat("lib", stem, ".so");
  std::vector<std::string> out{file + ".13", file + ".12", file};
  const std::string any = file + ".1[23]";
  append_matches("/usr/local/cuda/lib64/" + any, out);
  append_matches("/usr/local/cuda-1[23]*/lib64/" + any, out);
  std::vector<std::string> packages{"/usr/lib/python3/dist-packages", "/usr/local/lib/python3*/dist-packages",
                                    "/usr/local/lib/python3*/site-packages"};
  for (const char* root : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const char* folder = std::getenv(root); folder && *folder == '/') {
      packages.push_back(str_cat(folder, "/lib/python3*/site-packages"));
      append_matches(str_cat(folder, "/lib/", any), out);
    }
  if (const char* home = std::getenv("HOME"); home && *home == '/')
    packages.push_back(str_cat(home, "/.local/lib/python3*/site-packages"));
  // Wheels of CUDA 13 have one folder; wheels of CUDA 12 have one per library.
  const std::string_view own = stem.substr(0, 6) == "cublas" ? "cublas" : stem;
  for (const std::string& folder : packages) {
    append_matches(str_cat(folder, "/nvidia/cu13/lib/", any), out);
    append_matches(str_cat(folder, "/nvidia/", own == "nvrtc" ? "cuda_nvrtc" : own, "/lib/", any), out);
  }
  if (driver_major > 0)
    std::stable_partition(out.begin(), out.end(), [&](const std::string& p) { return major_of(p) <= driver_major; });
  return out;
}

}  // namespace weft::cuda
