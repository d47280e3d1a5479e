// The ops that the loop IR does not lower, as CUDA kernels: sorting, random bits, indices, blocks, routing to experts,
// order-independent sums, and special cases of other ops (small integers, empty results, reduced axes that are not
// adjacent). Each has the bits of its CPU kernel: sums run in the same order, without atomics.
#pragma once
#include <memory>

#include "compiler/targets/cuda/run/operation.h"

namespace weft::cuda {

/// The operation of a node with operands and results of these layouts. Addresses are not read; they will be multiples
/// of `alignment` bytes. Null if the op or its types are handled elsewhere: by the loop IR, products, attention,
/// collectives, by decompose, or on the host. An integer division by zero counts as a bad index (Addresses::bad).
std::unique_ptr<DeviceOperation> make_op(const OpDef& op, const Attrs& attrs, std::span<const StridedView> in,
                                         std::span<const StridedView> out, const GpuProperties& gpu,
                                         int alignment = 16);

}  // namespace weft::cuda
