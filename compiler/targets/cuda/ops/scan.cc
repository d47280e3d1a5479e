// Running sums in the order of ops/numerics/scan_order.h: first the blocks of a line are summed in parallel, then their
// sums in sequence, then the results are written. Only one addition per block is sequential: 1/kScanBlock of the line.
#include "compiler/targets/cuda/ops/families.h"
#include "compiler/targets/cuda/ops/layout.h"
#include "ops/core/reductions/reduce.h"
#include "ops/numerics/scan_order.h"

namespace weft::cuda {
namespace {

// Adjacent lines: one thread per block of each line. kTotals: sums the block; otherwise writes, starting from `bases`.
constexpr std::string_view kAcross = R"(
W_KERNEL {
  W_EACH(int64, task, p.n * p.blocks);
  const I line = (I)(task % p.n), first = (I)(task / p.n) * kBlock, left = p.length - first;
  const int count = left < kBlock ? (int)left : kBlock;
  const I start = kReverse ? p.length - 1 - first : first;
  const X* x = p.x + offset_of<kRank>(line, p.shape, p.from) + start * p.x_step;
  Y* y = p.y + offset_of<kRank>(line, p.shape, p.to) + start * p.y_step;
  const E base = kAlone || kTotals ? (E)0 : p.bases[task];
  E sum = (E)0;
  for (int i = 0; i < count; i += 8) {
    E v[8];
#pragma unroll
    for (int k = 0; k < 8; ++k)
      v[k] = i + k < count ? (E)get(x[(kReverse ? -(i + k) : i + k) * p.x_step]) : (E)0;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      sum = sum + v[k];
      if (!kTotals && i + k < count) write(y[(kReverse ? -(i + k) : i + k) * p.y_step], base + sum);
    }
  }
  if (kTotals) p.bases[task] = sum;
}
)";

// Separate lines: a tile of 32 blocks goes through shared memory; each lane of the first warp takes one block.
constexpr std::string_view kAlong = R"(
constexpr int kTile = 32 * kBlock;
W_KERNEL {
  const Shared<E> tile = shared_at<E>(0), bases = shared_at<E>(32 * (kBlock + 1) * (int)sizeof(E));
  const I line = (I)(blockIdx.x / p.tiles), first = (I)(blockIdx.x % p.tiles) * kTile, left = p.length - first;
  const int count = left < kTile ? (int)left : kTile;
  const I start = kReverse ? p.length - 1 - first : first;
  const X* x = p.x + offset_of<kRank>(line, p.shape, p.from) + start * p.x_step;
#pragma unroll 8
  for (int i = threadIdx.x; i < count; i += kThreads)
    tile[i / kBlock * (kBlock + 1) + i % kBlock] = (E)get(x[(kReverse ? -i : i) * p.x_step]);
  __syncthreads();
  if (threadIdx.x < 32) {
    const int lane = threadIdx.x, begin = lane * (kBlock + 1), rest = count - lane * kBlock;
    const int mine = rest < kBlock ? rest : kBlock;
    E sum = (E)0;
#pragma unroll 8
    for (int i = 0; i < mine; ++i) {
      sum = sum + (E)tile[begin + i];
      if (!kTotals) tile[begin + i] = sum;
    }
    const int64 at = (int64)line * p.blocks + first / kBlock + lane;
    if (kTotals) {
      if (mine > 0) p.bases[at] = sum;
    } else if (kAlone) {
      Carry base = (Carry)0;
      for (int k = 0; k < 32; ++k) {
        const E other = shfl(sum, k);
        if (k < lane) base = base + (Carry)other;
      }
      bases[lane] = (E)base;
    } else if (mine > 0) {
      bases[lane] = p.bases[at];
    }
  }
  if (kTotals) return;
  __syncthreads();
  Y* y = p.y + offset_of<kRank>(line, p.shape, p.to) + start * p.y_step;
  for (int i = threadIdx.x; i < count; i += kThreads) {
    const E base = bases[i / kBlock], sum = tile[i / kBlock * (kBlock + 1) + i % kBlock];
    write(y[(kReverse ? -i : i) * p.y_step], base + sum);
  }
}
)";

// One warp per line: replaces the sums of blocks by the sums of all earlier blocks.
constexpr std::string_view kChain = R"(
W_KERNEL {
  const int64 line = (int64)blockIdx.x * (kThreads / 32) + threadIdx.x / 32;
  if (line >= p.lines) return;
  const int lane = threadIdx.x % 32;
  E* bases = p.bases + line * p.line_step;
  Carry base = (Carry)0;
  for (int64 first = 0; first < p.blocks; first += 256) {
    E v[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int64 at = first + 32 * j + lane;
      v[j] = at < p.blocks ? bases[at * p.block_step] : (E)0;
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int64 at = first + 32 * j + lane;
      E mine = (E)0;
#pragma unroll 8
      for (int k = 0; k < 32; ++k) {
        const E other = shfl(v[j], k);
        if (lane == k) mine = (E)base;
        base = base + (Carry)other;
      }
      if (at < p.blocks) bases[at * p.block_step] = mine;
    }
  }
}
)";

bool make_cumsum(const OperationRequest& r, Launches& to) {
  const StridedView &x = r.in[0], &y = r.out[0];
  if (y.numel() == 0) return true;
  const int dim = static_cast<int>(r.attrs.i("dim"));
  const Walk lines(without(x.shape, dim), {without(x.strides, dim), without(y.strides, dim)});
  const DType e = sums_of(x.dtype), carry = e == kFloat32 ? kFloat64 : e;
  const int64_t length = x.shape[dim], blocks = blocks_for(length, kScanBlock);
  const bool side_by_side = (lines.n >= 32 && lines.strides[0].back() == 1) || length <= 32;
  constexpr int kThreads = 128;
  const int64_t tiles = blocks_for(blocks, 32);
  const bool alone = side_by_side ? blocks == 1 : tiles == 1;
  const MemoryAddress bases = scratch_address(alone ? 0 : to.scratch(lines.n * blocks * itemsize(e)));
  auto pass = [&](bool totals) {
    Text t(side_by_side ? "scan_across" : "scan_along", is_wide(x) || is_wide(y));
    t.type("E", e)
        .type("Carry", carry)
        .type("X", x.dtype)
        .type("Y", y.dtype)
        .constant("kReverse", r.attrs.b("reverse"));
    t.constant("kBlock", kScanBlock).constant("kTotals", totals).constant("kAlone", alone);
    t.functions(kOffsetFunctions)
        .functions(kWriteFunctions)
        .address("const X* x", operand_address(0))
        .address("Y* y", result_address(0));
    t.address("E* bases", bases).whole("blocks", blocks).whole("tiles", tiles).index("length", length);
    t.index("x_step", x.strides[dim]).index("y_step", y.strides[dim]);
    lines.declare(t, {"from", "to"});
    if (side_by_side) {
      to.add(t.step(kAcross, blocks_for(lines.n * blocks, kThreads), kThreads));
    } else {
      to.add(t.step(kAlong, lines.n * tiles, kThreads, static_cast<int>((32 * (kScanBlock + 1) + 32) * itemsize(e))));
    }
  };
  if (!alone) {
    pass(true);
    Text t("scan_chain", true);
    t.type("E", e).type("Carry", carry).address("E* bases", bases).whole("lines", lines.n).whole("blocks", blocks);
    t.whole("line_step", side_by_side ? 1 : blocks).whole("block_step", side_by_side ? lines.n : 1);
    to.add(t.step(kChain, blocks_for(lines.n, kThreads / 32), kThreads));
  }
  pass(false);
  return true;
}

}  // namespace

std::span<const MakerRow> scan_makers() {
  static const MakerRow rows[] = {{&cumsum_op, make_cumsum}};
  return rows;
}

}  // namespace weft::cuda
