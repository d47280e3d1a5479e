// The one choice of eager arithmetic: f32 products of a GPU at the rate of tensor cores. Compiled steps have their own,
// CompileOptions::tf32.
#pragma once

namespace weft {

/// Whether eager f32 products and attention on a GPU may round their operands to 11 bits (TF32; sums stay f32), from
/// now on and for the whole process. Off unless asked for: the CPU multiplies exactly.
/// No effect on other types and devices.
void set_tf32(bool on);
bool tf32();

}  // namespace weft
