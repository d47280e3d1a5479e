// WEFT_DUMP of the CPU's kernels.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "compiler/targets/cpu/print/print.h"
#include "compiler/targets/cpu/target.h"
#include "framework/base/hash.h"

namespace weft::internal {

static std::string numbers(const auto& values) {
  std::string s;
  for (auto v : values) s += str_cat(s.empty() ? "" : ", ", v);
  return s;
}

static void write(const std::string& path, const std::string& text) {
  std::ofstream f(path);
  f << text;
  f.close();
  WEFT_CHECK_AS(kUnavailable, f, "WEFT_DUMP: cannot write '", path, "'");
}

std::string dump_name(const FusedKernel& k) {
  char hash[24];
  std::snprintf(hash, sizeof hash, "%08llx",
                static_cast<unsigned long long>(hash_text(kernel_key(k.lowered().kernel), 0) & 0xffffffff));
  return str_cat(k.name(), "_", std::string_view(hash));
}

void dump_kernel(const FusedKernel& k, const std::string& folder) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  const std::string name = dump_name(k), path = str_cat(folder, "/", name);
  const loop_ir::Lowered& low = k.lowered();
  write(path + ".loop_ir", str_cat(k.body().to_string(), "\n", low.kernel.to_string(), "\nextents ",
                                   numbers(low.extents), "\nparams ", numbers(low.params), "\n"));
  write(path + ".cc", str_cat("// g++ -std=c++20 -O2 -ffp-contract=off -fwrapv -march=x86-64-v4 -w -c ", name, ".cc\n",
                              codegen::prelude(codegen::cpu()), "\n",
                              codegen::print(low.kernel, codegen::cpu(), {.symbol = "kernel", .notes = true})));
}

std::string CpuTarget::dump(const Operation& operation, const std::string& folder) const {
  const FusedKernel* k = printable_kernel(&operation);
  if (!k) return {};
  for (const auto& part : k->parts().kernel)
    if (part) dump_kernel(*part, folder);
  dump_kernel(*k, folder);
  return dump_name(*k) + ".cc";
}

}  // namespace weft::internal
