#include "compiler/targets/cuda/run/batch_operation.h"

#include <algorithm>
#include <cstring>

#include "framework/base/error.h"
#include "framework/base/str_cat.h"

namespace weft::cuda {
namespace {

constexpr size_t kParameterBytes = 4096, kMost = 64;

void replace_all(std::string& text, size_t from, const std::string& what, const std::string& by) {
  for (size_t at = text.find(what, from); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
}

size_t most_of(size_t bytes) { return std::min(kMost, (kParameterBytes - 8) / (bytes + 4)); }

Kernel batch_of(const Kernel& one, size_t parameter_bytes) {
  Kernel k = one;
  k.symbol = one.symbol + "_batch";
  const size_t most = most_of(parameter_bytes);
  const size_t start = k.text.rfind("extern \"C\" __global__");
  const std::string head = str_cat(one.symbol, "(const __grid_constant__ ", one.symbol, "_args p) {\n");
  const size_t at = start == std::string::npos ? start : k.text.find(head, start);
  WEFT_BUG_IF(at == std::string::npos, "cuda: ", one.symbol, " does not begin as generated kernels do");
  replace_all(k.text, at, "blockIdx.x", "batch_block");
  replace_all(k.text, at, "gridDim.x", "batch_blocks");
  k.text.replace(
      at, head.size(),
      str_cat(k.symbol, "(const __grid_constant__ ", k.symbol,
              "_args batch) {\n  int of = 0;\n  for (int s = ", kMost / 2, "; s > 0; s /= 2)\n    if (of + s < ", most,
              " && blockIdx.x >= batch.first[of + s]) of += s;\n  const ", one.symbol,
              "_args& p = batch.each[of];\n  const uint32_t batch_block = blockIdx.x - batch.first[of], ",
              "batch_blocks = batch.first[of + 1] - batch.first[of];\n"));
  k.text.insert(start, str_cat("struct ", k.symbol, "_args {\n  ", one.symbol, "_args each[", most,
                               "];\n  uint32_t first[", most + 1, "];\n};\n"));
  return k;
}

}  // namespace

std::string batch_key(const DeviceOperation& operation) {
  const std::vector<LaunchSize> sizes = operation.launch_sizes();
  if (sizes.empty() || operation.checks_indices()) return "";
  std::string key;
  for (const LaunchSize& l : sizes) {
    const Kernel& k = operation.kernels()[l.kernel];
    if (l.grid.y != 1 || l.grid.z != 1 || most_of(l.parameter_bytes) < 2) return "";
    key += str_cat(k.threads, ' ', k.shared_bytes, '\n', k.text);
  }
  return key;
}

BatchOperation::BatchOperation(const DeviceOperation& first) {
  for (const LaunchSize& l : first.launch_sizes()) {
    kernels_.push_back(batch_of(first.kernels()[l.kernel], l.parameter_bytes));
    most_.push_back(most_of(l.parameter_bytes));
  }
}

void BatchOperation::enqueue(std::span<const BatchMember> members, Stream& stream) const {
  std::vector<std::vector<LaunchSize>> sizes;
  for (const BatchMember& m : members) sizes.push_back(m.operation->launch_sizes());
  alignas(16) char parameters[kParameterBytes];
  for (size_t l = 0; l < kernels_.size(); ++l) {
    const size_t bytes = sizes[0][l].parameter_bytes, most = most_[l];
    for (size_t from = 0, n = 0; from < members.size(); from += n) {
      uint64_t blocks = 0;  // blocks of one launch: at most 2^31 - 1
      for (n = 0; n < std::min(most, members.size() - from); ++n)
        if (blocks += sizes[from + n][l].grid.x; n > 0 && blocks > INT32_MAX) break;
      std::memset(parameters, 0, sizeof parameters);
      uint32_t first[kMost + 1] = {};
      for (size_t i = 0; i < most; ++i) {
        first[i + 1] = first[i];
        if (i >= n) continue;
        const BatchMember& m = members[from + i];
        m.operation->write_parameters(l, m.at, parameters + i * bytes);
        first[i + 1] += sizes[from + i][l].grid.x;
      }
      std::memcpy(parameters + most * bytes, first, (most + 1) * sizeof(uint32_t));
      KernelLaunch launch;
      launch.grid_x = first[most];
      launch.threads = kernels_[l].threads;
      launch.shared_bytes = kernels_[l].shared_bytes;
      launch.parameters = parameters;
      launch.parameter_bytes = (most * bytes + (most + 1) * sizeof(uint32_t) + 7) / 8 * 8;
      launch.op = "a batch";
      launch.line = members[from].line;
      functions_.at(l).launch(stream, launch);
    }
  }
}

void BatchOperation::enqueue(const Addresses&, Stream&, SourceLine) const {
  WEFT_BUG_IF(true, "cuda: a batch needs its members");
}

}  // namespace weft::cuda
