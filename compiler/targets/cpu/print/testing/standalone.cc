#include "compiler/targets/cpu/print/testing/standalone.h"

#include <algorithm>
#include <cstdio>

#include "framework/base/error.h"
#include "framework/base/str_cat.h"

namespace weft::codegen {
namespace {

constexpr const char* kHead = R"(#include <cstdint>
#include <cstdio>
#include <cstring>
#include <cmath>
#include <random>
#include <vector>
#pragma GCC optimize("fp-contract=off", "no-math-errno", "no-trapping-math", "wrapv", "no-strict-aliasing")
)";

constexpr const char* kMain = R"(
// ---- both on the same memory ----------------------------------------------------------------------------------------

struct Memory {
  const char* name;
  int size;           // bytes of an element
  char kind;          // 'f' f32, 'd' f64, 'b' bf16, 'h' f16, 'i' integers, 't' bool
  long long elements;
};

static bool is_nan(char kind, const char* p) {
  float f;
  double d;
  uint16_t h;
  if (kind == 'f') return memcpy(&f, p, 4), f != f;
  if (kind == 'd') return memcpy(&d, p, 8), d != d;
  memcpy(&h, p, 2);
  return kind == 'b' ? (h & 0x7fff) > 0x7f80 : kind == 'h' && (h & 0x7fff) > 0x7c00;
}

static void fill(const Memory& m, std::vector<char>& bytes, std::mt19937& random) {
  std::normal_distribution<float> normal(0, 1);
  for (long long i = 0; i < m.elements; ++i) {
    char* p = bytes.data() + i * m.size;
    const float f = normal(random);
    const double d = f;
    const long long whole = random() % limit;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    const uint16_t bf16 = bits >> 16, f16 = (bits >> 16 & 0x8000) | 0x3000 | (bits >> 13 & 0xfff);
    const void* from = &whole;
    if (m.kind == 'f') from = &f;
    if (m.kind == 'd') from = &d;
    if (m.kind == 'b') from = &bf16;
    if (m.kind == 'h') from = &f16;
    const long long truth = whole & 1;
    memcpy(p, m.kind == 't' ? &truth : from, m.size);
  }
}

int main(int argc, char** argv) {
  const int total = sizeof all / sizeof all[0];
  std::vector<std::vector<char>> memory[2];
  std::mt19937 random(1);
  FILE* file = argc > 1 ? fopen(argv[1], "rb") : nullptr;
  for (int m = 0; m < total; ++m) {
    std::vector<char> bytes(all[m].elements * all[m].size);
    fill(all[m], bytes, random);
    if (file && m < operands && fread(bytes.data(), 1, bytes.size(), file) != bytes.size())
      return puts("short file"), 2;
    memory[0].push_back(bytes);
    memory[1].push_back(bytes);
  }
  for (int twin = 0; twin < 2; ++twin) {
    std::vector<void*> ptr;
    for (auto& bytes : memory[twin]) ptr.push_back(bytes.data());
    std::vector<float> scratch(kept);
    int bad = 0;
    const vector_text::Args args = {ptr.data(), strides, extents, params, scratch.data(), ptr.data() + operands,
                                    ptr.data() + operands + columns, index_strides, &bad};
    if (twin == 0) vector_text::kernel(&args, 0, points, 1, 0, lanes);
    if (twin == 1) scalar_text::reference((const scalar_text::Args*)&args, 0, points, 1, 0, lanes);
  }
  for (int m = 0; m < total; ++m)
    for (long long i = 0; i < all[m].elements; ++i) {
      const char *a = &memory[0][m][i * all[m].size], *b = &memory[1][m][i * all[m].size];
      if (!memcmp(a, b, all[m].size) || (is_nan(all[m].kind, a) && is_nan(all[m].kind, b))) continue;
      long long x = 0, y = 0;
      memcpy(&x, a, all[m].size), memcpy(&y, b, all[m].size);
      printf("%s differs at element %lld: bits %llx, the reference has %llx\n", all[m].name, i, x, y);
      return 1;
    }
  puts("equal");
}
)";

char kind_of(DType t) { return "fdbhiiiiit"[static_cast<int>(t)]; }

template <class T>
std::string list(const std::vector<T>& values) {
  std::string s;
  for (const T& v : values) {
    char text[40];
    std::snprintf(text, sizeof text, "%.17g", static_cast<double>(v));
    s += str_cat(s.empty() ? "" : ", ", text);
  }
  return s.empty() ? "0" : s;
}

}  // namespace

std::string print_standalone(const loop_ir::Kernel& k, const StandaloneLaunch& launch, bool notes) {
  WEFT_BUG_IF(static_cast<int>(launch.extents.size()) != k.axes || launch.strides.size() != k.operands.size(),
              "print_standalone: ", launch.extents.size(), " extents and ", launch.strides.size(),
              " operands' strides");
  int64_t points = 1;
  for (int a = 0; a < k.outer_axes(); ++a) points *= launch.extents[a];
  const int64_t lanes = launch.extents.back();
  std::vector<int64_t> strides, index_strides = launch.index_strides;
  index_strides.resize(k.operands.size());
  std::string memory;
  auto add = [&](const std::string& name, DType t, int64_t elements) {
    memory += str_cat("    {\"", name, "\", ", itemsize(t), ", '", std::string(1, kind_of(t)), "', ", elements, "},\n");
  };
  for (size_t p = 0; p < k.operands.size(); ++p) {
    int64_t last = 0;
    for (int a = 0; a < k.axes; ++a) last += launch.strides[p][a] * std::max<int64_t>(0, launch.extents[a] - 1);
    if (k.operands[p].indexed && p < launch.index_extents.size())
      last += index_strides[p] * std::max<int64_t>(0, launch.index_extents[p] - 1);
    strides.insert(strides.end(), launch.strides[p].begin(), launch.strides[p].end());
    add(str_cat(k.operands[p].output ? "y" : "x", p), k.operands[p].dtype, last + 1);
  }
  constexpr DType kDTypes[] = {kFloat32, kFloat64, kInt32, kInt64, kBool};
  auto slots = [&](loop_ir::Op op, int count, const char* name, int64_t size) {
    for (int s = 0; s < count; ++s)
      for (const loop_ir::Instr& i : k.instrs)
        if (i.op == op && i.slot == s) add(str_cat(name, s), kDTypes[static_cast<int>(i.type)], size);
  };
  slots(loop_ir::Op::kColumn, k.columns, "column", lanes);
  slots(loop_ir::Op::kReduce, k.partials, "partial", points * ((lanes + 1023) / 1024));
  const int64_t row = k.mode == loop_ir::Mode::kAcross ? launch.extents[k.axes - 2] * 16 : (lanes + 15) / 16 * 16;
  int64_t limit = 16;  // integer inputs are below it, because they may be positions
  for (size_t p = 0; p < launch.index_extents.size(); ++p)
    if (k.operands[p].indexed) limit = std::min(limit, std::max<int64_t>(1, launch.index_extents[p]));

  std::string s = kHead;
  s +=
      str_cat("namespace vector_text {\n", prelude(cpu()), "\n", print(k, cpu(), {.symbol = "kernel", .notes = notes}),
              "}  // namespace vector_text\n\n", undef_intrinsics(), "namespace scalar_text {\n", prelude(cpu_scalar()),
              "\n", print(k, cpu_scalar(), {.symbol = "reference", .notes = notes}), "}  // namespace scalar_text\n");
  s += str_cat("\nstatic const int64_t strides[] = {", list(strides), "}, extents[] = {", list(launch.extents),
               "}, index_strides[] = {", list(index_strides), "};\nstatic const double params[] = {",
               list(launch.params), "};\nstatic const long long points = ", points, ", lanes = ", lanes,
               ", kept = ", k.kept * row, ", limit = ", limit, ";\nstatic const int operands = ", k.operands.size(),
               ", columns = ", k.columns, ";\n");
  // Insert the table of memory after the type that it uses and before the code that reads it.
  std::string main = kMain;
  const std::string mark = "static bool is_nan";
  main.insert(main.find(mark), str_cat("static const Memory all[] = {\n", memory, "};\n\n"));
  return s + main;
}

}  // namespace weft::codegen
