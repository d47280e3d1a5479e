#include "framework/cuda/transfer/copy.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "framework/base/error.h"
#include "framework/cuda/device_allocator.h"
#include "framework/cuda/gpu.h"
#include "framework/cuda/libraries/driver_error.h"
#include "framework/cuda/transfer/copy_plan.h"
#include "framework/cuda/transfer/pinned_pool.h"

namespace weft::cuda {
namespace {

CUdeviceptr device_pointer(const void* p) { return reinterpret_cast<CUdeviceptr>(p); }

// A pinned block for the duration of a scope. No work may use it at the end of the scope.
class Pinned {
 public:
  Pinned(PinnedPool& pool, int64_t bytes) : pool_(pool), data_(static_cast<char*>(pool.take(bytes))) {}
  ~Pinned() {
    if (data_) pool_.give_back(data_);
  }
  char* data() const { return data_; }
  /// Returns the block to the pool once the work queued on the stream is done.
  void after(Stream& stream) { pool_.give_back(std::exchange(data_, nullptr), stream); }

 private:
  PinnedPool& pool_;
  char* data_;
};

// Copies contiguous host bytes to contiguous device bytes.
void send(const char* from, char* to, int64_t bytes, Stream& stream) {
  for (int64_t at = 0; at < bytes; at += kCopyPiece) {
    const int64_t n = std::min(kCopyPiece, bytes - at);
    Pinned block(stream.gpu().pinned(), n);
    std::memcpy(block.data(), from + at, n);
    check(driver().cuMemcpyHtoDAsync_v2(device_pointer(to + at), block.data(), n, stream.handle()), "copying ", n,
          " bytes to ", stream.gpu().device());
    block.after(stream);
  }
}

// Copies contiguous device bytes to contiguous host bytes: the next piece is in transfer while the host reads a piece
// from its block.
void receive(const char* from, char* to, int64_t bytes, Stream& stream) {
  Gpu& gpu = stream.gpu();
  struct TransferPiece {
    Pinned block;
    Event event;
    int64_t at, n;
  };
  std::unique_ptr<TransferPiece> travelling;
  auto land = [&](std::unique_ptr<TransferPiece> p) {
    p->event.synchronize();
    std::memcpy(to + p->at, p->block.data(), p->n);
  };
  for (int64_t at = 0; at < bytes; at += kCopyPiece) {
    const int64_t n = std::min(kCopyPiece, bytes - at);
    std::unique_ptr<TransferPiece> next(new TransferPiece{Pinned(gpu.pinned(), n), Event(gpu), at, n});
    check(driver().cuMemcpyDtoHAsync_v2(next->block.data(), device_pointer(from + at), n, stream.handle()), "copying ",
          n, " bytes from ", gpu.device());
    next->event.record(stream);
    if (travelling) land(std::move(travelling));
    travelling = std::move(next);
  }
  if (travelling) land(std::move(travelling));
}

// Runs a plan as copies of rows. Each side is device memory or pinned memory.
struct CopySide {
  char* data;
  bool on_device;
};
void copy_rows(const NestedCopy& plan, CopySide from, CopySide to, Stream& stream) {
  if (plan.run == 0) return;
  constexpr int64_t kMaxPitch = 0x7fffffff;
  const CopyLoop inner = plan.loops.empty() ? CopyLoop{} : plan.loops[plan.loops.size() - 1];
  // A two-dimensional copy needs rows that go forward and do not overlap.
  const bool rows = !plan.loops.empty() && inner.from >= plan.run && inner.to >= plan.run && inner.from <= kMaxPitch &&
                    inner.to <= kMaxPitch;
  for_each_run(plan, rows ? 1 : 0, [&](int64_t a, int64_t b) {
    CUDA_MEMCPY2D c = {};
    c.WidthInBytes = plan.run;
    c.Height = rows ? inner.extent : 1;
    c.srcPitch = rows ? inner.from : plan.run;
    c.dstPitch = rows ? inner.to : plan.run;
    c.srcMemoryType = from.on_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    c.dstMemoryType = to.on_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    if (from.on_device) {
      c.srcDevice = device_pointer(from.data + a);
    } else {
      c.srcHost = from.data + a;
    }
    if (to.on_device) {
      c.dstDevice = device_pointer(to.data + b);
    } else {
      c.dstHost = to.data + b;
    }
    check(driver().cuMemcpy2DAsync_v2(&c, stream.handle()), "copying rows of ", plan.run, " bytes on ",
          stream.gpu().device());
  });
}

NestedCopy plan_of(const StridedView& from, const StridedView& to) {
  WEFT_BUG_IF(from.dtype != to.dtype || from.shape != to.shape, "a copy of ", from.dtype, from.shape, " to ", to.dtype,
              to.shape);
  return plan_copy(from.shape, from.strides, to.strides, itemsize(from.dtype));
}

// The plan and addresses of a copy between host and device. If `plan.run` is 0, there is nothing to copy.
struct HostCopy {
  NestedCopy plan;
  int64_t bytes;
  const char* source;
  char* target;
  HostCopy(const StridedView& from, const StridedView& to, Stream& stream)
      : plan(plan_of(from, to)),
        bytes(from.nbytes()),
        source(static_cast<const char*>(from.data)),
        target(static_cast<char*>(to.data)) {
    if (plan.run != 0) stream.gpu().make_current();
  }
};

StridedView contiguous_at(void* data, const StridedView& like) {
  return {data, like.dtype, like.shape, contiguous_strides(like.shape)};
}

}  // namespace

void copy_to_device(const StridedView& from, const StridedView& to, Stream& stream) {
  const auto [plan, bytes, source, target] = HostCopy(from, to, stream);
  if (plan.run == 0) return;
  if (plan.loops.empty()) return send(source, target, bytes, stream);
  if (to.contiguous() && bytes > kCopyPiece) {  // gathered in pageable memory, then copied in pieces
    std::vector<char> gathered(bytes);
    copy_on_host(plan, source, gathered.data());
    return send(gathered.data(), target, bytes, stream);
  }
  Pinned block(stream.gpu().pinned(), bytes);
  StridedView staged = contiguous_at(block.data(), from);
  copy_on_host(plan_of(from, staged), source, block.data());
  copy_rows(plan_of(staged, to), {block.data(), false}, {target, true}, stream);
  block.after(stream);
}

void copy_to_host(const StridedView& from, const StridedView& to, Stream& stream) {
  const auto [plan, bytes, source, target] = HostCopy(from, to, stream);
  if (plan.run == 0) return;
  if (plan.loops.empty()) return receive(source, target, bytes, stream);
  const ByteSpan span = span_of(from);
  if (span.end - span.begin <= std::max<int64_t>(4 * bytes, 4096)) {  // copy the whole span and reorder it here
    std::vector<char> all(span.end - span.begin);
    receive(source + span.begin, all.data(), span.end - span.begin, stream);
    return copy_on_host(plan, all.data() - span.begin, target);
  }
  Pinned block(stream.gpu().pinned(), bytes);
  StridedView staged = contiguous_at(block.data(), from);
  copy_rows(plan_of(from, staged), {const_cast<char*>(source), true}, {block.data(), false}, stream);
  stream.synchronize();
  copy_on_host(plan_of(staged, to), block.data(), target);
}

void copy_on_device(const StridedView& from, const StridedView& to, Stream& stream) {
  NestedCopy plan = plan_of(from, to);
  if (plan.run == 0) return;
  stream.gpu().make_current();
  if (!plan.loops.empty()) {
    copy_rows(plan, {static_cast<char*>(from.data), true}, {static_cast<char*>(to.data), true}, stream);
    return;
  }
  copy_on_device(to.data, from.data, plan.run, stream);
}

void copy_on_device(void* to, const void* from, int64_t bytes, Stream& stream) {
  if (bytes == 0) return;
  stream.gpu().make_current();
  check(driver().cuMemcpyDtoDAsync_v2(device_pointer(to), device_pointer(from), bytes, stream.handle()), "copying ",
        bytes, " bytes on ", stream.gpu().device());
}

void copy_between_devices(const StridedView& from, Gpu& from_gpu, const StridedView& to, Gpu& to_gpu) {
  NestedCopy plan = plan_of(from, to);
  if (plan.run == 0) return;
  const int64_t bytes = from.nbytes();
  // Both sides of the copy must be contiguous; a strided side goes through memory of its own device.
  StridedView packed = from, landed = to;
  if (!from.contiguous()) {
    packed = contiguous_at(from_gpu.allocator().allocate(bytes), from);
    copy_on_device(from, packed, from_gpu.stream());
  }
  if (!to.contiguous()) landed = contiguous_at(to_gpu.allocator().allocate(bytes), to);
  // The source's stream copies once the target's memory is free for it; then the target's stream waits for the copy.
  Event ready(to_gpu), sent(from_gpu);
  ready.record(to_gpu.stream());
  from_gpu.stream().wait(ready);
  from_gpu.make_current();
  check(driver().cuMemcpyPeerAsync(device_pointer(landed.data), to_gpu.context(), device_pointer(packed.data),
                                   from_gpu.context(), bytes, from_gpu.stream().handle()),
        "copying ", bytes, " bytes from ", from_gpu.device(), " to ", to_gpu.device());
  sent.record(from_gpu.stream());
  to_gpu.stream().wait(sent);
  if (!from.contiguous()) from_gpu.allocator().deallocate(packed.data, bytes);
  if (!to.contiguous()) {
    copy_on_device(landed, to, to_gpu.stream());
    to_gpu.allocator().deallocate(landed.data, bytes);
  }
}

}  // namespace weft::cuda
