#include "compiler/exec/reproduction.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "compiler/codegen/print.h"
#include "framework/base/cpu.h"
#include "framework/base/switches.h"
#include "ops/kernels/kernels.h"

namespace weft::internal {
namespace {

constexpr int64_t kMaxBytes = 4 << 20;  // of data in the file

std::string list(const auto& values) {
  std::string s;
  for (auto v : values) s += cat(s.empty() ? "" : ", ", v);
  return s.empty() ? "0" : s;
}

// Bytes as an aligned array of 64-bit words.
void write_bytes(std::ostream& f, const std::string& name, const void* data, int64_t bytes) {
  std::vector<uint64_t> words((bytes + 7) / 8 + 1, 0);
  if (bytes) __builtin_memcpy(words.data(), data, bytes);
  f << "alignas(64) static unsigned long " << name << "[] = {";
  for (size_t i = 0; i < words.size(); ++i) f << (i ? "," : "") << (i % 8 ? "" : "\n") << words[i] << "u";
  f << "};\n";
}

// The operand as it lay when the kernel was lowered: elements between stay zero.
void write_operand(std::ostream& f, const std::string& name, const Tensor& value, StridedView layout) {
  int64_t elements = value.numel() ? 1 : 0;
  for (int d = 0; d < layout.shape.size() && elements; ++d) elements += (layout.shape[d] - 1) * layout.strides[d];
  std::vector<char> memory(elements * itemsize(layout.dtype) + 64);
  layout.data = memory.data();
  if (elements) kernels::cast_copy(value.view_for_kernel(), layout);
  write_bytes(f, name, memory.data(), elements * itemsize(layout.dtype));
}

void write_main(std::ostream& f, const FusedKernel& k, std::span<const Tensor> in,
                std::span<const BoundedValue> want) {
  const kir::Lowered& low = k.lowered();
  for (size_t i = 0; i < in.size(); ++i) write_operand(f, cat("in", i), in[i], k.in()[i]);
  for (size_t i = 0; i < want.size(); ++i) {
    const Tensor& w = want[i].eager;
    Tensor own = Tensor::empty(w.type());
    if (w.numel()) kernels::cast_copy(w.view_for_kernel(), own.view_for_kernel());
    write_bytes(f, cat("want", i), own.view_for_kernel().data, own.type().nbytes());
    f << "alignas(64) static unsigned long out" << i << "[" << own.type().nbytes() / 8 + 8 << "];\n";
  }
  std::vector<int64_t> strides;
  f << "int main() {\n  void* ptr[] = {";
  for (const kir::Bound& b : low.bound) {
    const DType t = b.output ? want[b.index].eager.dtype() : in[b.index].dtype();
    f << "reinterpret_cast<char*>(" << (b.output ? "out" : "in") << b.index << ") + " << b.offset * itemsize(t) << ", ";
    strides.insert(strides.end(), b.strides.begin(), b.strides.end());
  }
  f << "nullptr};\n  long stride[] = {" << list(strides) << "}, extent[] = {" << list(low.extents)
    << "};\n  double param[] = {";
  char number[40];
  for (double p : low.params) std::snprintf(number, sizeof number, "%a, ", p), f << number;
  f << "0};\n  alignas(64) static float scratch[" << low.scratch_floats() + 64 << "];\n"
    << "  Args args = {ptr, reinterpret_cast<const i64*>(stride), reinterpret_cast<const i64*>(extent), param, scratch, "
       "nullptr, nullptr};\n"
    << "  kernel(&args, 0, " << low.outer_points() << ", 1, 0, " << low.lanes() << ");\n";
  for (size_t i = 0; i < want.size(); ++i) {
    const int64_t n = want[i].eager.numel(), size = itemsize(want[i].eager.dtype());
    f << "  for (long i = 0; i < " << n << "; ++i)\n    if (__builtin_memcmp(reinterpret_cast<char*>(out" << i
      << ") + i * " << size << ", reinterpret_cast<char*>(want" << i << ") + i * " << size << ", " << size
      << ")) {\n      std::printf(\"result " << i << " differs at flat position %ld\\n\", i);\n      return 1;\n    }\n";
  }
  f << "  std::puts(\"equal\");\n}\n";
}

}  // namespace

std::string write_reproduction(const FusedKernel& k, const Graph& body, std::span<const Tensor> in,
                               std::span<const BoundedValue> want) {
  namespace fs = std::filesystem;
  const char* temporary = std::getenv("TEST_TMPDIR");
  const fs::path folder = !switch_value("WEFT_DUMP").empty() ? fs::path(switch_value("WEFT_DUMP"))
                          : temporary                        ? fs::path(temporary)
                                                             : fs::path("/tmp");
  static std::atomic<int> count{0};
  const fs::path path = folder / cat("weft_", k.name(), "_", ::getpid(), "_", ++count, ".cc");
  std::error_code failed;
  fs::create_directories(folder, failed);
  std::ofstream f(path);
  const kir::Kernel& kernel = k.lowered().kernel;
  int64_t bytes = 0;
  for (const Tensor& t : in) bytes += t.type().nbytes();
  for (const BoundedValue& w : want) bytes += w.eager.type().nbytes();
  const bool runs = k.lowered().dot < 0 && kernel.columns == 0 && kernel.partials == 0 && bytes <= kMaxBytes;
  constexpr const char* kMarch[] = {"x86-64-v2", "x86-64-v3", "x86-64-v4"};
  f << "// " << k.name() << ": built by\n//   g++ -std=c++20 -O2 -ffp-contract=off -fwrapv -march="
    << kMarch[static_cast<int>(selected_isa())] << " -mprefer-vector-width=512 -Wno-psabi " << path.filename().string()
    << "\n// it " << (runs ? "compares the kernel with its ops run one by one" : "compiles; a driver has to run it")
    << ".\n/*\n" << body.to_string() << "\n" << kernel.to_string() << "*/\n#include <cstdio>\n\n"
    << codegen::prelude(codegen::cpu()) << "\n"
    << codegen::print(kernel, codegen::cpu(), {.symbol = "kernel", .notes = true}) << "\n";
  if (runs) {
    write_main(f, k, in, want);
  } else {
    f << "int main() {}\n";
  }
  f.close();
  return f ? cat("reproduction: ", path.string()) : cat("no reproduction: cannot write ", path.string());
}

}  // namespace weft::internal
