// CPU features of this machine, read from cpuid and xgetbv (never from the processor's name), and the instruction set
// of the prebuilt kernels.
#pragma once
#include <string>
#include <string_view>

namespace weft {

/// Instruction sets that the prebuilt kernels are compiled for. Each one includes the sets before it.
enum class Isa : int {
  baseline,  // x86-64-v2
  avx2,      // x86-64-v3: AVX2, FMA, F16C, BMI
  avx512,    // F, CD, BW, DQ, VL
};
inline constexpr int kNumIsas = 3;
std::string_view to_string_view(Isa isa);

/// Features the processor has and the operating system has enabled.
struct CpuFeatures {
  std::string brand;
  bool x86_64_v2 = false;
  bool avx2 = false;    // also FMA, F16C, BMI1, BMI2, LZCNT, MOVBE
  bool avx512 = false;  // F, CD, BW, DQ, VL
  bool avx512_bf16 = false, avx512_fp16 = false, avx512_vnni = false, avx_vnni = false;
  bool amx_tile = false, amx_bf16 = false, amx_int8 = false;  // the kernel granted the tile state to this process
  /// "x86-64-v2 avx2 avx512 amx_bf16".
  std::string to_string() const;
};
/// Detects the features once. Asks Linux for permission to use AMX tiles if the processor has them.
const CpuFeatures& cpu_features();

/// The best instruction set that this machine supports.
Isa best_isa();
/// The instruction set named by switch WEFT_ISA (auto: best_isa()), read at first use. Throws if the name is unknown or
/// the machine does not support the set.
Isa selected_isa();

namespace internal {
/// The rule of selected_isa() for a given value of WEFT_ISA and a given best set.
Isa parse_isa(std::string_view value, Isa best);
}  // namespace internal

}  // namespace weft
