// The ops that the loop IR does not lower, as CUDA kernels: order, random words, indices, blocks, routing to experts,
// order-free sums, and what is left of the others (u8, empty results, reduced axes that do not lie together). Each
// gives the bits of its CPU kernel; sums run in the same order, without atomics.
#pragma once
#include <memory>
#include <string>

#include "compiler/targets/cuda/run/operation.h"

namespace weft::cuda {

/// The operation of a node with operands and results that lie so (addresses are not read; they will be multiples of
/// `alignment` bytes), or null where the op, or these types, are not here: those of the loop IR, products, attention,
/// collectives, and what why_not() names. Under Addresses::bad an integer division by zero counts as a bad index.
std::unique_ptr<Operation> make_op(const OpDef& op, const Attrs& attrs, std::span<const StridedView> in,
                                   std::span<const StridedView> out, const GpuProperties& gpu, int alignment = 16);

/// Why an op with a CPU kernel has no operation of its own on a GPU, in words; empty if it has one.
std::string why_not(const OpDef& op);

}  // namespace weft::cuda
