#include "compiler/targets/cuda/nvrtc/testing/compile_check.h"

#include <algorithm>

#include "framework/base/error.h"

namespace weft::cuda {

std::string spills(const Kernel& k, const Usage& u) {
  if (u.spill_load_bytes + u.spill_store_bytes <= k.max_spill_bytes) return "";
  return str_cat("spills ", u.spill_store_bytes, " bytes and loads ", u.spill_load_bytes, " back; its limit is ",
                 k.max_spill_bytes);
}

std::string compile_faults(std::span<const Kernel> kernels, const NvrtcOptions& options, const std::vector<Arch>& archs,
                           std::string* table) {
  for (const Kernel& k : kernels)
    if (std::none_of(archs.begin(), archs.end(), [&](Arch a) { return runs_on(k, a); }))
      return str_cat("kernel ", k.symbol, " runs on none of the architectures asked for");
  for (const Arch& arch : archs) {
    // An older NVRTC does not know the newest architectures.
    const std::vector<int>& known = nvrtc().archs;
    if (!known.empty() && std::find(known.begin(), known.end(), arch.sm) == known.end()) continue;
    std::vector<Kernel> selected;
    for (const Kernel& k : kernels)
      if (runs_on(k, arch)) selected.push_back(k);
    try {
      const CompiledKernels c = compile(selected, arch, options);
      for (size_t i = 0; i < selected.size(); ++i)
        if (const std::string why = spills(selected[i], c.cubins[i]->usage); !why.empty())
          return str_cat("kernel ", selected[i].symbol, " on ", arch.name(), " ", why);
      // The assembler's warning about tensor-core instructions that it serialised.
      for (size_t i = 0; i < selected.size(); ++i)
        if (c.cubins[i]->log.find("Potential Performance Loss") != std::string::npos)
          return str_cat("kernel ", selected[i].symbol, " on ", arch.name(), ": ", c.cubins[i]->log);
      for (size_t i = 0; table && i < selected.size(); ++i) {
        const Usage& u = c.cubins[i]->usage;
        *table +=
            str_cat(selected[i].symbol, " ", arch.name(), ": ", u.registers, " registers, ", u.spill_store_bytes, " + ",
                    u.spill_load_bytes, " bytes spilled, ", u.stack_bytes, " of stack, ",
                    selected[i].shared_bytes + u.shared_bytes, " shared, ", c.cubins[i]->bytes.size(), " of code\n");
      }
    } catch (const Error& error) {
      return error.what();
    }
  }
  return "";
}

}  // namespace weft::cuda
