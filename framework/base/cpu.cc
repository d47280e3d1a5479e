#include "framework/base/cpu.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

#include "framework/base/error.h"
#include "framework/base/switches.h"

namespace weft {
namespace {

struct Regs {
  uint32_t a = 0, b = 0, c = 0, d = 0;
};
Regs cpuid(uint32_t leaf, uint32_t sub = 0) {
  Regs r;
  if (__get_cpuid_max(leaf & 0x80000000u, nullptr) >= leaf) __cpuid_count(leaf, sub, r.a, r.b, r.c, r.d);
  return r;
}
bool bit(uint32_t word, int i) { return word >> i & 1; }

uint64_t xgetbv0() {
  uint32_t lo, hi;
  asm volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
  return (static_cast<uint64_t>(hi) << 32) | lo;
}

bool amx_permitted() {
  constexpr int kArchReqXcompPerm = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kTileData) == 0;
}

CpuFeatures detect() {
  CpuFeatures f;
  char brand[49] = {};
  for (uint32_t i = 0; i < 3; ++i) {
    Regs r = cpuid(0x80000002u + i);
    std::memcpy(brand + 16 * i, &r, 16);
  }
  f.brand = brand;
  while (!f.brand.empty() && f.brand.back() == ' ') f.brand.pop_back();

  const Regs l1 = cpuid(1), l7 = cpuid(7), l71 = cpuid(7, 1), ext = cpuid(0x80000001u);
  const uint64_t state = bit(l1.c, 27) ? xgetbv0() : 0;
  const bool ymm = (state & 0x6) == 0x6, zmm = ymm && (state & 0xe0) == 0xe0, tile = (state >> 17 & 3) == 3;
  // SSE3, SSSE3, CMPXCHG16B, SSE4.1, SSE4.2, POPCNT
  f.x86_64_v2 = bit(l1.c, 0) && bit(l1.c, 9) && bit(l1.c, 13) && bit(l1.c, 19) && bit(l1.c, 20) && bit(l1.c, 23);
  f.avx2 = f.x86_64_v2 && ymm && bit(l1.c, 28) && bit(l1.c, 12) && bit(l1.c, 29) && bit(l1.c, 22) && bit(l7.b, 5) &&
           bit(l7.b, 3) && bit(l7.b, 8) && bit(ext.c, 5);
  f.avx512 = f.avx2 && zmm && bit(l7.b, 16) && bit(l7.b, 17) && bit(l7.b, 28) && bit(l7.b, 30) && bit(l7.b, 31);
  f.avx512_vnni = f.avx512 && bit(l7.c, 11);
  f.avx512_bf16 = f.avx512 && bit(l71.a, 5);
  f.avx512_fp16 = f.avx512 && bit(l7.d, 23);
  f.avx_vnni = f.avx2 && bit(l71.a, 4);
  if (f.avx512 && tile && bit(l7.d, 24) && amx_permitted()) {
    f.amx_tile = true;
    f.amx_bf16 = bit(l7.d, 22);
    f.amx_int8 = bit(l7.d, 25);
  }
  return f;
}

constexpr std::string_view kIsaNames[kNumIsas] = {"baseline", "avx2", "avx512"};

}  // namespace

std::string_view to_string_view(Isa isa) { return kIsaNames[static_cast<int>(isa)]; }

std::string CpuFeatures::to_string() const {
  std::string s;
  auto add = [&](bool has, const char* name) {
    if (has) s.append(s.empty() ? "" : " ").append(name);
  };
  add(x86_64_v2, "x86-64-v2");
  add(avx2, "avx2");
  add(avx_vnni, "avx_vnni");
  add(avx512, "avx512");
  add(avx512_vnni, "avx512_vnni");
  add(avx512_bf16, "avx512_bf16");
  add(avx512_fp16, "avx512_fp16");
  add(amx_tile, "amx_tile");
  add(amx_bf16, "amx_bf16");
  add(amx_int8, "amx_int8");
  return s;
}

const CpuFeatures& cpu_features() {
  static const CpuFeatures* f = new CpuFeatures(detect());
  return *f;
}

Isa best_isa() {
  const CpuFeatures& f = cpu_features();
  return f.avx512 ? Isa::avx512 : f.avx2 ? Isa::avx2 : Isa::baseline;
}

namespace internal {
Isa parse_isa(std::string_view value, Isa best) {
  if (value == "auto") return best;
  for (int i = 0; i < kNumIsas; ++i) {
    if (value != kIsaNames[i]) continue;
    WEFT_CHECK_AS(kFailedPrecondition, i <= static_cast<int>(best), "WEFT_ISA: this processor does not support ", value,
                  "; its best is ", best);
    return static_cast<Isa>(i);
  }
  fail(Code::kInvalidArgument, str_cat("WEFT_ISA: got '", value, "'; need auto, baseline, avx2 or avx512"));
}
}  // namespace internal

Isa selected_isa() {
  static const Isa isa = internal::parse_isa(switch_value("WEFT_ISA"), best_isa());
  return isa;
}

}  // namespace weft
