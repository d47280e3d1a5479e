// Rotary position embedding (Su et al. 2021, arXiv:2104.09864): rotates pairs of features by position times frequency.
#pragma once
#include "framework/dispatch/arg.h"

namespace weft {

struct RopeOptions {
  double theta = 10000;  // pair i of D/2 is rotated by theta^(-2i/D) per position
  // Pairs are neighbours (2i, 2i+1) as in GPT-J; otherwise halves (i, i + D/2) as in NeoX and Llama.
  bool interleaved = false;
  Tensor offset = {};      // 0-d integer: the position of the first row (decoding); undefined: 0
  int64_t rotary_dim = 0;  // rotate only this many first features; 0: all
};

/// Cosines and sines of all angles, f32 [..., D/2] for integer positions [...].
struct RopeTables {
  Tensor cos, sin;
};
RopeTables rope_tables(const Arg& positions, int64_t dim, double theta = 10000);
/// x [..., S, D] rotated by tables that broadcast to [..., S, D/2], for example of positions [S], or [B, 1, S] for
/// packed rows. Computed in f32 for 16-bit floats.
Tensor apply_rope(const Arg& x, const RopeTables& tables, bool interleaved = false);
/// x [..., S, D] rotated by positions offset, offset + 1, ...
Tensor rope(const Arg& x, const RopeOptions& options = {});

}  // namespace weft
