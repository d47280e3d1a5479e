// The one eager choice of arithmetic: f32 matrix products of a GPU on tensor cores. Compiled steps have their own
// choice, CompileOptions::tf32.
#pragma once

namespace weft {

/// Sets, for the whole process, whether eager f32 products and attention on a GPU may round their operands to 11 bits
/// (TF32; sums stay f32). Off by default. No effect on other types and on the CPU.
void set_tf32(bool on);
bool tf32();

}  // namespace weft
