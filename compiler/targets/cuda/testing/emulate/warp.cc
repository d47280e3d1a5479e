// Intrinsics of a warp: shuffles, votes, ldmatrix and mma. Products of mma are exact; the sum over k is computed in
// double, with k ascending and the accumulator last, and is rounded to f32 once. Hardware adds in its own order,
// aligned to the largest term and truncated, so it may differ by a few ulp of the largest partial sum.
#include <algorithm>
#include <cstring>

#include "compiler/targets/cuda/testing/emulate/block.h"
#include "compiler/targets/cuda/testing/emulate/half.h"

namespace weft::cuda {

void Block::perform(Group& g, int group) {
  switch (g.lanes[0]->kind) {
    case abi::kShuffle:
      return shuffle(g);
    case abi::kBallot: {
      unsigned mask = 0;
      for (int l = 0; l < 32; ++l) mask |= (g.lanes[l]->value != 0 ? 1u : 0u) << l;
      for (abi::Lane* lane : g.lanes) lane->value = mask;
      return;
    }
    case abi::kSyncWarp:
      return shadow_.clocks().sync_warp(group);
    case abi::kLdmatrix:
      return ldmatrix(g, group);
    case abi::kMma:
      return mma(g);
    case abi::kWgmma:
      return wgmma(g, group);
    case abi::kWgmmaFence:
      tensor_cores_[group].fenced = true;
      return;
    case abi::kWgmmaCommit:
      ++tensor_cores_[group].group;
      return;
    case abi::kWgmmaWait:
      return wgmma_wait(g, group);
    case abi::kRegisters:
      return set_registers(g, group);
  }
}

void Block::shuffle(Group& g) {
  unsigned long long values[32];
  for (int l = 0; l < 32; ++l) values[l] = g.lanes[l]->value;
  for (int l = 0; l < 32; ++l) {
    const int n = g.lanes[l]->offset;
    int from = l;
    switch (g.lanes[l]->detail) {
      case abi::kXor:
        from = l ^ (n & 31);
        break;
      case abi::kDown:
        from = l + (n & 31) < 32 ? l + (n & 31) : l;
        break;
      case abi::kUp:
        from = l - (n & 31) >= 0 ? l - (n & 31) : l;
        break;
      case abi::kFrom:
        from = n & 31;
        break;
    }
    g.lanes[l]->value = values[from];
  }
}

void Block::ldmatrix(Group& g, int warp) {
  const int tiles = g.lanes[0]->detail / 2;
  const bool trans = g.lanes[0]->detail % 2;
  uint16_t rows[32][8];
  for (int l = 0; l < 8 * tiles; ++l) {
    const abi::Lane& lane = *g.lanes[l];
    must(shadow_.read(warp * 32 + l, lane.offset, 16, lane.line), lane.line);
    std::memcpy(rows[l], shadow_.at(lane.offset), 16);
  }
  // The 8 rows of a tile take one cycle if they are in different banks: 16 bytes in each of 8 groups of 4 banks.
  for (int m = 0; m < tiles; ++m) {
    int most = 1, in_group[8] = {};
    for (int i = 0; i < 8; ++i) {
      const int row = g.lanes[8 * m + i]->offset / 16;
      bool again = false;
      for (int j = 0; j < i; ++j) again |= g.lanes[8 * m + j]->offset / 16 == row;
      if (!again) most = std::max(most, ++in_group[row % 8]);
    }
    counts.bank_conflicts += most - 1;
  }
  for (int l = 0; l < 32; ++l) {
    uint32_t* r = static_cast<uint32_t*>(g.lanes[l]->d);
    for (int m = 0; m < tiles; ++m) {
      const int i = l / 4, j = l % 4 * 2;
      const uint32_t lo = trans ? rows[8 * m + j][i] : rows[8 * m + i][j];
      const uint32_t hi = trans ? rows[8 * m + j + 1][i] : rows[8 * m + i][j + 1];
      r[m] = lo | hi << 16;
    }
  }
}

void Block::mma(Group& g) {
  const int type = g.lanes[0]->detail, depth = type == 2 ? 8 : 16;
  alignas(64) double a[16][16], b[16][8], d[16][8];
  for (int l = 0; l < 32; ++l) {
    const uint32_t *ra = static_cast<const uint32_t*>(g.lanes[l]->a), *rb = static_cast<const uint32_t*>(g.lanes[l]->b);
    const int row = l / 4, col = l % 4;
    if (type == 2) {
      for (int i = 0; i < 4; ++i) a[row + i % 2 * 8][col + i / 2 * 4] = from_tf32(ra[i]);
      for (int i = 0; i < 2; ++i) b[col + 4 * i][row] = from_tf32(rb[i]);
      continue;
    }
    for (int i = 0; i < 4; ++i)
      for (int h = 0; h < 2; ++h)
        a[row + i % 2 * 8][2 * col + h + i / 2 * 8] = from_half(static_cast<uint16_t>(ra[i] >> 16 * h), type == 0);
    for (int i = 0; i < 2; ++i)
      for (int h = 0; h < 2; ++h)
        b[2 * col + h + 8 * i][row] = from_half(static_cast<uint16_t>(rb[i] >> 16 * h), type == 0);
  }
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 8; ++j) d[i][j] = 0;
    for (int k = 0; k < depth; ++k)
      for (int j = 0; j < 8; ++j) d[i][j] += a[i][k] * b[k][j];
  }
  for (int l = 0; l < 32; ++l) {
    float* r = static_cast<float*>(g.lanes[l]->d);
    for (int i = 0; i < 4; ++i) r[i] = static_cast<float>(d[l / 4 + i / 2 * 8][l % 4 * 2 + i % 2] + r[i]);
  }
}

}  // namespace weft::cuda
