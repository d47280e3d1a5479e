// A program that shows a kernel's wrong result on its own: its text, its operands and the right results.
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "compiler/targets/cpu/print/print.h"
#include "compiler/targets/cpu/target.h"
#include "framework/base/cpu.h"
#include "framework/base/switches.h"
#include "framework/dispatch/interpreter.h"
#include "ops/kernels/kernels.h"

namespace weft::internal {
namespace {

constexpr int64_t kMaxBytes = 4 << 20;  // limit of data in the file

std::string list(const auto& values) {
  std::string s;
  for (auto v : values) s += str_cat(s.empty() ? "" : ", ", v);
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

// The operand in the layout for which the kernel was lowered. Elements in its gaps stay zero.
void write_operand(std::ostream& f, const std::string& name, const Tensor& value, StridedView layout) {
  int64_t elements = value.numel() ? 1 : 0;
  for (int d = 0; d < layout.shape.size() && elements; ++d) elements += (layout.shape[d] - 1) * layout.strides[d];
  std::vector<char> memory(elements * itemsize(layout.dtype) + 64);
  layout.data = memory.data();
  if (elements) kernels::cast_copy(value.view_for_kernel(), layout);
  write_bytes(f, name, memory.data(), elements * itemsize(layout.dtype));
}

// Element types as the text of kernels names them; null: none that a driver here adds up.
const char* type_name(loop_ir::Type t) {
  return t == loop_ir::Type::f32 ? "f32" : t == loop_ir::Type::f64 ? "f64" : t == loop_ir::Type::i64 ? "i64" : nullptr;
}

bool sums_as_stored(const std::vector<loop_ir::Finish>& all, std::span<const Tensor> want) {
  for (const loop_ir::Finish& x : all) {
    const DType stored = want[x.output].dtype();
    const bool same = x.type == loop_ir::Type::f32   ? stored == kFloat32
                      : x.type == loop_ir::Type::f64 ? stored == kFloat64
                                                     : x.type == loop_ir::Type::i64 && stored == kInt64;
    if (!same || x.rd > kernels::Rd::prod) return false;
  }
  return true;
}

// The orders of ops/numerics/reduce_order.h, for one thread.
constexpr const char* kDriver = R"(
template <class T>
static T taken(int rd, T a, T b) {  // sum, max, min, prod; NaN wins
  return rd == 0 ? a + b : rd == 3 ? a * b : a != a ? a : b != b ? b : (rd == 1 ? a > b : a < b) ? a : b;
}
template <class T>
static T nothing(int rd) {
  if (rd == 0 || rd == 3) return rd == 0 ? 0 : 1;
  const T big = T(-1) / 2 != 0 ? T(__builtin_inf()) : T(0x7fffffffffffffff);
  return rd == 1 ? (T(-1) / 2 != 0 ? -big : -big - 1) : big;
}
static const long kLanes = 16, kBlock = 1024;
// rows[0] = the tree over rows of n elements: lanes (first half with second) or blocks (neighbours first).
template <class T>
static void over_lanes(int rd, T* rows, long n, long present) {
  for (long s = kLanes / 2; s > 0; s /= 2)
    for (long l = 0; l < s && l + s < present; ++l)
      for (long i = 0; i < n; ++i) rows[l * n + i] = taken(rd, rows[l * n + i], rows[(l + s) * n + i]);
}
template <class T>
static void over_blocks(int rd, T* rows, long n, long blocks) {
  for (long s = 1; s < blocks; s *= 2)
    for (long b = 0; b + s < blocks; b += 2 * s)
      for (long i = 0; i < n; ++i) rows[b * n + i] = taken(rd, rows[b * n + i], rows[(b + s) * n + i]);
}
)";

// Columns: a row of accumulators for each lane of a block of outer points; splits: one for each block of a row.
void write_sums(std::ostream& f, const loop_ir::Lowered& low) {
  const bool split = !low.partials.empty();
  const int64_t points = low.outer_points(), lanes = low.lanes();
  const int64_t blocks = ((split ? lanes : points) + 1023) / 1024;
  const auto& all = split ? low.partials : low.columns;
  for (const loop_ir::Finish& x : all)
    f << "  static " << type_name(x.type) << " sum" << x.slot << "[" << (split ? points * blocks : 16 * lanes) + 64
      << "], done" << x.slot << "[" << (split ? 1 : blocks * lanes) + 64 << "];\n";
  f << "  void* sums[] = {";
  for (size_t s = 0; s < all.size(); ++s) f << "sum" << s << ", ";
  f << "nullptr};\n  args." << (split ? "partial" : "column") << " = sums;\n";
  if (split) {
    f << "  kernel(&args, 0, " << points << ", 1, 0, " << lanes << ");\n";
    const int64_t rows = points / low.joined, each = low.joined * blocks;
    for (const loop_ir::Finish& x : all)
      f << "  for (long o = 0; o < " << rows << "; ++o) {\n    over_blocks(" << static_cast<int>(x.rd) << ", sum"
        << x.slot << " + o * " << each << ", 1, " << each << ");\n    reinterpret_cast<" << type_name(x.type)
        << "*>(out" << x.output << ")[o] = sum" << x.slot << "[o * " << each << "];\n  }\n";
    return;
  }
  f << "  for (long b = 0; b < " << blocks << "; ++b) {\n    const long end = b * kBlock + kBlock < " << points
    << " ? b * kBlock + kBlock : " << points << ", present = end - b * kBlock < kLanes ? end - b * kBlock : kLanes;\n"
    << "    for (long l = 0; l < present; ++l) {\n";
  for (const loop_ir::Finish& x : all)
    f << "      for (long i = 0; i < " << lanes << "; ++i) sum" << x.slot << "[l * " << lanes << " + i] = nothing<"
      << type_name(x.type) << ">(" << static_cast<int>(x.rd) << ");\n      sums[" << x.slot << "] = sum" << x.slot
      << " + l * " << lanes << ";\n";
  f << "      kernel(&args, b * kBlock + l, end, kLanes, 0, " << lanes << ");\n    }\n";
  for (const loop_ir::Finish& x : all)
    f << "    over_lanes(" << static_cast<int>(x.rd) << ", sum" << x.slot << ", " << lanes
      << ", present);\n    __builtin_memcpy(done" << x.slot << " + b * " << lanes << ", sum" << x.slot << ", " << lanes
      << " * sizeof *sum" << x.slot << ");\n";
  f << "  }\n";
  for (const loop_ir::Finish& x : all)
    f << "  over_blocks(" << static_cast<int>(x.rd) << ", done" << x.slot << ", " << lanes << ", " << blocks
      << ");\n  __builtin_memcpy(out" << x.output << ", done" << x.slot << ", " << lanes << " * sizeof *done" << x.slot
      << ");\n";
}

// The finished product that an epilogue reads. The eager kernel computes it with the same bits.
Tensor product_of(const FusedKernel& k, const Graph& body, std::span<const Tensor> in) {
  Graph g(body);
  g.outputs = {Value{k.lowered().dot, 0}};
  return interpret(g, in)[0].contiguous();
}

void write_main(std::ostream& f, const FusedKernel& k, const Graph& body, std::span<const Tensor> in,
                std::span<const Tensor> want) {
  const loop_ir::Lowered& low = k.lowered();
  for (size_t i = 0; i < in.size(); ++i) write_operand(f, str_cat("in", i), in[i], k.in()[i]);
  for (size_t i = 0; i < want.size(); ++i) {
    const Tensor& w = want[i];
    Tensor own = Tensor::empty(w.type());
    if (w.numel()) kernels::cast_copy(w.view_for_kernel(), own.view_for_kernel());
    write_bytes(f, str_cat("want", i), own.view_for_kernel().data, own.type().nbytes());
    f << "alignas(64) static unsigned long out" << i << "[" << own.type().nbytes() / 8 + 8 << "];\n";
  }
  std::vector<int64_t> strides, index_strides;
  for (const loop_ir::BoundOperand& b : low.bound) index_strides.push_back(b.index_stride);
  if (low.dot >= 0) {
    const Tensor tile = product_of(k, body, in);
    write_bytes(f, "tile", tile.view_for_kernel().data, tile.type().nbytes());
  }
  const bool sums = !low.columns.empty() || !low.partials.empty();
  if (sums) f << kDriver;
  f << "int main() {\n  void* ptr[] = {";
  for (size_t i = 0; i < low.bound.size(); ++i) {
    const loop_ir::BoundOperand& b = low.bound[i];
    if (static_cast<int32_t>(i) == low.tile) {
      // Outer points are its rows.
      std::vector<int64_t> own(low.extents.size(), 1);
      for (size_t a = low.extents.size() - 1; a > 0; --a) own[a - 1] = own[a] * low.extents[a];
      strides.insert(strides.end(), own.begin(), own.end());
      f << "tile, ";
      continue;
    }
    const DType t = b.output ? want[b.index].dtype() : in[b.index].dtype();
    f << "reinterpret_cast<char*>(" << (b.output ? "out" : "in") << b.index << ") + " << b.offset * itemsize(t) << ", ";
    strides.insert(strides.end(), b.strides.begin(), b.strides.end());
  }
  f << "nullptr};\n  long stride[] = {" << list(strides) << "}, extent[] = {" << list(low.extents)
    << "}, index_stride[] = {" << list(index_strides) << "};\n  int bad = 0;\n  double param[] = {";
  char number[40];
  for (double p : low.params) std::snprintf(number, sizeof number, "%a, ", p), f << number;
  f << "0};\n  alignas(64) static float scratch[" << low.scratch_floats() + 64 << "];\n"
    << "  Args args = {ptr, reinterpret_cast<const i64*>(stride), reinterpret_cast<const i64*>(extent), param, "
       "scratch, "
       "nullptr, nullptr, reinterpret_cast<const i64*>(index_stride), &bad};\n";
  if (sums) {
    write_sums(f, low);
  } else {
    f << "  kernel(&args, 0, " << low.outer_points() << ", 1, 0, " << low.lanes() << ");\n";
  }
  for (size_t i = 0; i < want.size(); ++i) {
    const int64_t n = want[i].numel(), size = itemsize(want[i].dtype());
    f << "  for (long i = 0; i < " << n << "; ++i)\n    if (__builtin_memcmp(reinterpret_cast<char*>(out" << i
      << ") + i * " << size << ", reinterpret_cast<char*>(want" << i << ") + i * " << size << ", " << size
      << ")) {\n      std::printf(\"result " << i
      << " differs at flat position %ld\\n\", i);\n      return 1;\n    }\n";
  }
  f << "  std::puts(\"equal\");\n}\n";
}

}  // namespace

std::string CpuTarget::write_reproduction(const Operation& operation, const Graph& body, std::span<const Tensor> in,
                                          std::span<const Tensor> want) const {
  const FusedKernel* printable = printable_kernel(&operation);
  if (!printable) return {};
  const FusedKernel& k = *printable;
  namespace fs = std::filesystem;
  const char* temporary = std::getenv("TEST_TMPDIR");
  const fs::path folder = !switch_value("WEFT_DUMP").empty() ? fs::path(switch_value("WEFT_DUMP"))
                          : temporary                        ? fs::path(temporary)
                                                             : fs::path("/tmp");
  static std::atomic<int> count{0};
  std::error_code failed;
  fs::create_directories(folder, failed);
  fs::path path;
  int made;
  do {  // a new file: others can write to the folder
    path = folder / str_cat("weft_", k.name(), "_", ::getpid(), "_", ++count, ".cc");
    made = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (made < 0 && errno == EEXIST);
  if (made >= 0) ::close(made);
  std::ofstream f(made >= 0 ? path.c_str() : "");
  const loop_ir::Kernel& kernel = k.lowered().kernel;
  int64_t bytes = 0;
  for (const Tensor& t : in) bytes += t.type().nbytes();
  for (const Tensor& t : want) bytes += t.type().nbytes();
  // A product of 16-bit numbers leaves its tile unrounded; no eager op does that. An operand that is computed while it
  // is packed has a separate kernel.
  const bool product = k.lowered().dot >= 0;
  const bool whole = !k.parts().kernel[0] && !k.parts().kernel[1];
  const bool runs = bytes <= kMaxBytes && whole && sums_as_stored(k.lowered().columns, want) &&
                    sums_as_stored(k.lowered().partials, want) &&
                    (!product || body.type(Value{k.lowered().dot, 0}).dtype == kFloat32);
  constexpr const char* kMarch[] = {"x86-64-v2", "x86-64-v3", "x86-64-v4"};
  f << "// " << k.name() << ": built by\n//   g++ -std=c++20 -O2 -ffp-contract=off -fwrapv -march="
    << kMarch[static_cast<int>(selected_isa())] << " -mprefer-vector-width=512 -Wno-psabi " << path.filename().string()
    << "\n// it " << (runs ? "compares the kernel with its ops run one by one" : "compiles; a driver has to run it")
    << ".\n/*\n"
    << body.to_string() << "\n"
    << kernel.to_string() << "*/\n#include <cstdio>\n\n"
    << codegen::prelude(codegen::cpu()) << "\n"
    << codegen::print(kernel, codegen::cpu(), {.symbol = "kernel", .notes = true}) << "\n";
  if (runs) {
    write_main(f, k, body, in, want);
  } else {
    f << "int main() {}\n";
  }
  f.close();
  return f ? str_cat("reproduction: ", path.string()) : str_cat("no reproduction: cannot write ", path.string());
}

}  // namespace weft::internal
