// Copies between host and device memory, strided on either side, in the order of the GPU's stream. Pageable memory goes
// through pinned blocks: the host never waits for a copy to the device, and the caller may free its side at once.
#pragma once
#include "framework/cuda/stream.h"
#include "framework/tensor/view.h"

namespace weft::cuda {

/// Queues a copy; `from` has been read completely when this returns.
void copy_to_device(const StridedView& from, const StridedView& to, Stream& stream);
/// Copies after everything queued on the stream, and waits: `to` has the values when this returns.
void copy_to_host(const StridedView& from, const StridedView& to, Stream& stream);
/// Queues a copy on one device. The two sides must not overlap.
void copy_on_device(const StridedView& from, const StridedView& to, Stream& stream);
/// Queues a copy of contiguous bytes on one device. The two sides must not overlap.
void copy_on_device(void* to, const void* from, int64_t bytes, Stream& stream);
/// Queues a copy from one GPU to another, in the order of both GPUs' own streams.
void copy_between_devices(const StridedView& from, Gpu& from_gpu, const StridedView& to, Gpu& to_gpu);

/// The largest pinned block for one piece of a copy; two pieces are in flight.
inline constexpr int64_t kCopyPiece = int64_t{4} << 20;

}  // namespace weft::cuda
