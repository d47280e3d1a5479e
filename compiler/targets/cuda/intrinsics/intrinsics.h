// The intrinsics of generated CUDA kernels, as text that precedes a kernel. Besides them a kernel uses only plain CUDA
// C++ (threadIdx, blockIdx, blockDim, gridDim, __syncthreads, __syncwarp, float4, ...): no inline assembly, no static
// shared memory. compiler/targets/cuda/testing/emulate implements the same intrinsics on the CPU.
//
// All levels:
//   f32 f64 i8 i16 i32 i64 u8 u16 bf16 f16 bool8, int8_t ... uint64_t, int64     types
//   w_exp(x), w_tanh(x), ... Sum::f(a, b), get(x), put(p, v)    compiler/targets/cpu/print/scalar_intrinsics.inc:
//                                        the maths of the CPU (f32: the same bits), casts, rounding, reductions;
//                                        w_philox (ops/numerics)
//   from_bf16(u16) to_bf16(f32) from_f16 to_f16    conversions, round to nearest even
//   pack_bf16(lo, hi) pack_f16(lo, hi)   two f32 rounded into a uint32_t, lo in the low half; NaN becomes 0x7fff
//   bf16_lo(v) bf16_hi(v) f16_lo f16_hi  the two halves of such a uint32_t
//   to_tf32(x)                           bits for mma_tf32, rounded to nearest, ties away
//   exp2_fast log2_fast rcp_fast tanh_approx    one instruction: 2 ulp, 2^-22 absolute near 1, 1 ulp, 2^-11 relative;
//                                        the first three treat denormal operands and results as 0
//   Shared<T> t = shared_at<T>(byte)     T elements of the dynamic shared memory; t[i] reads and writes (write
//                                        `const T x = t[i]`, not auto: the emulation returns a proxy)
//   load_shared16(t, i) store_shared16(t, i, uint4)    16 aligned bytes, starting at element i
//   load_global<V>(p) store_global(p, v)     one access of 4, 8 or 16 bytes, aligned; also plain pointer access
//   tell_bad_index(bad, value, position, limit, detail)    reports an index that is not in [0, limit) in the
//                                        BadIndex `bad` (kernel.h); the report with the lowest position stays
//   check_at(x, limit, place, bad)       x if it is in [0, limit); otherwise 0 and a report
//   raise_flag(int* flag)                writes 1; several threads may do it; read after the launch, no other access
//                                        may race
//   shfl_xor(v, mask) shfl_down(v, n) shfl_up(v, n) shfl(v, lane) ballot(p) any(p) all(p)     all 32 lanes take part
//   warp_sum(v) warp_max(v) warp_min(v)  butterflies: every lane gets the same bits
//   barrier_sync(id, threads) barrier_arrive(id, threads)     named barriers, id 1 to 15, threads a multiple of 32
// sm_80:
//   ldmatrix_x4(r, t, element) ldmatrix_x4_trans, ldmatrix_x2(r, t, element) ldmatrix_x2_trans    8x8 tiles of 16 bits:
//                                        `element` of lane l is the first element of row l % 8 of tile l / 8 (16 bytes)
//   mma_bf16(d, a, b) mma_f16            d[4] += a[4] b[2], m16n8k16; mma_tf32: m16n8k8. Layouts as in the PTX ISA
//   cp_async16(t, element, src, valid)   16 bytes from global memory; zeros if not valid (src is not read)
//   cp_async_commit() cp_async_wait<N>() until at most N of this thread's groups are in flight
// sm_90:
//   mbarrier_init(b, i, count)           element i of a Shared<uint64_t> expects that many arrivals in each phase
//   mbarrier_arrive(b, i)                one arrival; releases this thread's earlier accesses
//   mbarrier_expect(b, i, bytes)         one arrival too; the phase also waits until TMA has delivered that many bytes
//   mbarrier_wait(b, i, parity)          until the phase of that parity has ended: 0 for the first, 1 for the second,
//                                        ... (1 on a new mbarrier returns at once); acquires
//   fence_mbarrier_init()                after mbarrier_init, before other threads or TMA use it
//   fence_async_shared()                 after writing shared memory that TMA or WGMMA will read, before the barrier
//   TensorMap (alignas 64, 128 bytes, in the parameter struct), tma_prefetch(m)
//   tma_load_2d(t, element, m, b, i, c0, c1) ... tma_load_5d    the map's box at those coordinates (c0 is the innermost
//                                        dim) to element of t, zeros out of bounds; its bytes count at mbarrier b[i]
//   tma_store_2d(m, t, element, c0, c1) ... tma_store_5d, tma_store_commit(), tma_store_wait<N>()    the reverse;
//                                        the wait: until at most N groups still read shared memory
//   swizzle128(byte) swizzle64 swizzle32 the place of a tile's byte under a swizzling TMA (the tile starts at 0 modulo
//                                        1024)
// sm_90a: 128 threads (a warpgroup) execute each one together
//   wgmma_fence() wgmma_commit() wgmma_wait<N>()    before the first wgmma and after accesses to its registers; ends a
//                                        group; until at most N groups are in flight. wgmma_fence(d), wgmma_wait<N>(d):
//                                        also keep accesses to the accumulators d on their side
//   wgmma_keep(a)                        the same for operands uint32_t a[..][4] in registers, before the fence
//   wgmma_desc(t, element, leading_bytes, stride_bytes, swizzle_bytes)    an operand in shared memory. K
//                                        contiguous (K-major), swizzled: rows of swizzle_bytes, 8 rows are an atom,
//                                        stride_bytes is the distance of atoms along M or N, leading_bytes is unused;
//                                        the next 16 of K are 32 bytes further. M or N contiguous (transposed),
//                                        swizzled: rows of K of swizzle_bytes, stride_bytes from 8 rows of K to the
//                                        next, leading_bytes between atoms along M or N. swizzle_bytes 0: atoms of 8 x
//                                        16 bytes, leading_bytes apart along K and stride_bytes along M or N
//   wgmma_bf16<n, trans_a, trans_b>(d, desc_a, desc_b, accumulate) wgmma_f16    float d[n / 2], m64 n k16: d = a b, or
//                                        d += a b if accumulate; n of 8 16 32 48 64 80 96 112 128 160 192 224 256
//   wgmma_bf16<n, trans_b>(d, a, desc_b, accumulate) wgmma_f16    uint32_t a[4]: A in registers, in mma's layout
//   set_max_registers_up<n>() set_max_registers_down<n>()    in a kernel with __launch_bounds__(threads, 1), else
//                                        ignored
#pragma once
#include <string>
#include <vector>

#include "compiler/targets/cuda/intrinsics/kernel.h"

namespace weft::cuda {

/// The intrinsics of a text; each level includes the levels before it.
enum class IntrinsicsLevel { kBase, kSm80, kSm90, kSm90a };

/// The intrinsics of a level as CUDA C++ for NVRTC, without headers and include paths. The lines of the kernel that
/// follows are numbered from 1.
const std::string& intrinsics(IntrinsicsLevel level);

/// The lowest level that supports a kernel, from Kernel::least_sm and only_sm90a.
IntrinsicsLevel level_of(const Kernel& kernel);

/// The parts that CUDA and the emulation share: scalar maths, types, TensorMap; and the intrinsics made of others.
const std::string& scalar_intrinsics();
const std::string& shared_intrinsics();
/// n of wgmma_bf16<n, ...>.
const std::vector<int>& wgmma_widths();

/// Options of NVRTC on which the meaning of the intrinsics depends: C++20, --fmad=false, every function a device
/// function.
const std::vector<std::string>& nvrtc_options();

}  // namespace weft::cuda
