// Memory of the fake driver. Each allocation is a separate run of pages, poisoned, and not readable by the host if on a
// device. An inaccessible page follows it.
#include <sys/mman.h>

#include <cstring>
#include <tuple>

#include "framework/cuda/testing/fake_state.h"

namespace weft::cuda::testing {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kKeptFreed = size_t{64} << 20;  // address space kept so that a use after free is detected

uint64_t as_integer(const void* p) { return reinterpret_cast<uint64_t>(p); }

// The allocation that contains an address.
std::map<uint64_t, FakeMemory>::const_iterator holder(const std::map<uint64_t, FakeMemory>& all, uint64_t address) {
  auto it = all.upper_bound(address);
  if (it == all.begin()) return all.end();
  --it;
  return address < it->first + it->second.bytes ? it : all.end();
}

CUresult memory_info(size_t* free, size_t* total) {
  WEFT_FAKE_CONTEXT_CALL(cuMemGetInfo_v2);
  *total = s.gpu.memory;
  *free = s.gpu.memory - s.used[device];
  return CUDA_SUCCESS;
}

CUresult memory_alloc(CUdeviceptr* pointer, size_t bytes) {
  WEFT_FAKE_CONTEXT_CALL(cuMemAlloc_v2);
  if (CUresult r = s.refuse_unsafe("cuMemAlloc_v2"); r != CUDA_SUCCESS) return r;
  if (bytes == 0) return s.complain(CUDA_ERROR_INVALID_VALUE, "cuMemAlloc_v2: of 0 bytes");
  if (s.allocations_to_failure >= 0 && s.allocations_to_failure-- == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  void* p = nullptr;
  CUresult r = s.allocate(device, bytes, &p);
  *pointer = as_integer(p);
  return r;
}

// Describes pending work that uses these bytes, or a kernel that may; empty if there is none.
std::string pending_on(FakeState& s, int device, uint64_t address, size_t bytes) {
  for (const FakeStream* stream : s.streams) {
    for (const FakeWork& w : stream->queue) {
      for (const FakeRange& t : w.touches)
        if (t.address < address + bytes && address < t.address + t.bytes) return w.what;
      if (w.function && !w.function->kernel.touches && device >= 0 && stream->device == device) return w.what;
    }
  }
  return {};
}

CUresult memory_free(CUdeviceptr pointer) {
  WEFT_FAKE_RELEASE_CALL(cuMemFree_v2);  // like the real one, it works after any failed launch
  if (CUresult r = s.refuse_unsafe("cuMemFree_v2"); r != CUDA_SUCCESS) return r;
  return s.release(0, pointer);
}

CUresult host_alloc(void** pointer, size_t bytes, unsigned flags) {
  WEFT_FAKE_CONTEXT_CALL(cuMemHostAlloc);
  if (CUresult r = s.refuse_unsafe("cuMemHostAlloc"); r != CUDA_SUCCESS) return r;
  if (bytes == 0 || flags > 7)
    return s.complain(CUDA_ERROR_INVALID_VALUE, "cuMemHostAlloc: ", bytes, " bytes, flags ", flags);
  return s.allocate(-1, bytes, pointer);
}
CUresult host_free(void* pointer) {
  WEFT_FAKE_RELEASE_CALL(cuMemFreeHost);
  if (CUresult r = s.refuse_unsafe("cuMemFreeHost"); r != CUDA_SUCCESS) return r;
  return s.release(-1, as_integer(pointer));
}

// Queues a copy after checking both ends. Host memory that is written is poisoned until the copy has run.
CUresult copy(FakeState& s, CUstream handle, const char* name, FakeRange to, bool to_device, FakeRange from,
              bool from_device, std::function<void()> run) {
  FakeStream* stream = nullptr;
  if (CUresult r = s.check_stream(handle, &stream, name); r != CUDA_SUCCESS) return r;
  for (auto [range, device, side] : {std::tuple{to, to_device, "to"}, {from, from_device, "from"}})
    if (std::string wrong = s.wrong(range, device); !wrong.empty())
      return s.complain(CUDA_ERROR_INVALID_VALUE, name, ": ", side, " ", wrong);
  const bool whole = to.bytes == from.bytes;  // rows with gaps between them are not poisoned
  if (!to_device && whole && !stream->capture) std::memset(reinterpret_cast<void*>(to.address), 0xff, to.bytes);
  FakeWork w;
  w.what = str_cat(name, " of ", from.bytes, " bytes");
  w.touches = {to, from};
  w.written = 0;
  if (!from_device && whole) w.source = 1;
  w.run = std::move(run);
  return s.enqueue(stream, std::move(w));
}
std::function<void()> mover(uint64_t to, uint64_t from, size_t bytes) {
  return [=] { std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes); };
}

CUresult copy_to_device(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  WEFT_FAKE_CONTEXT_CALL(cuMemcpyHtoDAsync_v2);
  return copy(s, stream, "cuMemcpyHtoDAsync_v2", {to, bytes}, true, {as_integer(from), bytes}, false,
              mover(to, as_integer(from), bytes));
}
CUresult copy_to_host(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  WEFT_FAKE_CONTEXT_CALL(cuMemcpyDtoHAsync_v2);
  return copy(s, stream, "cuMemcpyDtoHAsync_v2", {as_integer(to), bytes}, false, {from, bytes}, true,
              mover(as_integer(to), from, bytes));
}
CUresult copy_on_device(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  WEFT_FAKE_CONTEXT_CALL(cuMemcpyDtoDAsync_v2);
  if (to < from + bytes && from < to + bytes)
    return s.complain(CUDA_ERROR_INVALID_VALUE, "cuMemcpyDtoDAsync_v2: the two overlap");
  return copy(s, stream, "cuMemcpyDtoDAsync_v2", {to, bytes}, true, {from, bytes}, true, mover(to, from, bytes));
}
CUresult copy_between(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
                      CUstream stream) {
  WEFT_FAKE_CONTEXT_CALL(cuMemcpyPeerAsync);
  for (auto [address, context] : {std::pair{to, to_context}, {from, from_context}}) {
    auto it = holder(s.memory, address);
    if (it != s.memory.end() && it->second.device != reinterpret_cast<FakeContext*>(context)->device)
      return s.complain(CUDA_ERROR_INVALID_VALUE, "cuMemcpyPeerAsync: memory of another device than its context's");
  }
  return copy(s, stream, "cuMemcpyPeerAsync", {to, bytes}, true, {from, bytes}, true, mover(to, from, bytes));
}

CUresult copy_rows(const CUDA_MEMCPY2D* c, CUstream stream) {
  WEFT_FAKE_CONTEXT_CALL(cuMemcpy2DAsync_v2);
  auto side = [&](CUmemorytype type, const void* host, CUdeviceptr at, size_t x, size_t y, size_t pitch) {
    return (type == CU_MEMORYTYPE_DEVICE ? at : as_integer(host)) + y * pitch + x;
  };
  if (c->WidthInBytes == 0 || c->Height == 0) return CUDA_SUCCESS;
  for (size_t pitch : {c->srcPitch, c->dstPitch})
    if (pitch > 0x7fffffff || (c->Height > 1 && pitch < c->WidthInBytes))
      return s.complain(CUDA_ERROR_INVALID_VALUE, "cuMemcpy2DAsync_v2: pitch ", pitch, ", width ", c->WidthInBytes);
  uint64_t from = side(c->srcMemoryType, c->srcHost, c->srcDevice, c->srcXInBytes, c->srcY, c->srcPitch);
  uint64_t to = side(c->dstMemoryType, c->dstHost, c->dstDevice, c->dstXInBytes, c->dstY, c->dstPitch);
  size_t width = c->WidthInBytes, rows = c->Height, from_pitch = c->srcPitch, to_pitch = c->dstPitch;
  return copy(s, stream, "cuMemcpy2DAsync_v2", {to, (rows - 1) * to_pitch + width},
              c->dstMemoryType == CU_MEMORYTYPE_DEVICE, {from, (rows - 1) * from_pitch + width},
              c->srcMemoryType == CU_MEMORYTYPE_DEVICE, [=] {
                for (size_t i = 0; i < rows; ++i) mover(to + i * to_pitch, from + i * from_pitch, width)();
              });
}

template <class T>
CUresult fill(FakeState& s, const char* name, CUdeviceptr to, T value, size_t count, CUstream handle) {
  FakeStream* stream = nullptr;
  if (CUresult r = s.check_stream(handle, &stream, name); r != CUDA_SUCCESS) return r;
  FakeRange range{to, count * sizeof(T)};
  if (to % sizeof(T)) return s.complain(CUDA_ERROR_INVALID_VALUE, name, ": address is not a multiple of ", sizeof(T));
  if (std::string wrong = s.wrong(range, true); !wrong.empty())
    return s.complain(CUDA_ERROR_INVALID_VALUE, name, ": to ", wrong);
  FakeWork w;
  w.what = str_cat(name, " of ", range.bytes, " bytes");
  w.touches = {range};
  w.written = 0;
  w.run = [=] {
    for (size_t i = 0; i < count; ++i) reinterpret_cast<T*>(to)[i] = value;
  };
  return s.enqueue(stream, std::move(w));
}
CUresult fill_bytes(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  WEFT_FAKE_CONTEXT_CALL(cuMemsetD8Async);
  return fill(s, "cuMemsetD8Async", to, value, count, stream);
}
CUresult fill_words(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
  WEFT_FAKE_CONTEXT_CALL(cuMemsetD32Async);
  return fill(s, "cuMemsetD32Async", to, value, count, stream);
}

}  // namespace

CUresult FakeState::allocate(int device, size_t bytes, void** out) {
  if (device >= 0 && (bytes > gpu.memory || used[device] + bytes > gpu.memory)) return CUDA_ERROR_OUT_OF_MEMORY;
  FakeMemory m{bytes, (bytes + kPage - 1) / kPage * kPage, device};
  void* p = mmap(nullptr, m.mapped + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  if (gpu.pages || device < 0) std::memset(p, 0xff, m.mapped);
  mprotect(static_cast<char*>(p) + m.mapped, kPage, PROT_NONE);
  if (device >= 0) {
    used[device] += bytes;
    if (!open) mprotect(p, m.mapped, PROT_NONE);
  }
  memory[as_integer(p)] = m;
  *out = p;
  return CUDA_SUCCESS;
}

CUresult FakeState::release(int device, uint64_t address) {
  const char* name = device < 0 ? "cuMemFreeHost" : "cuMemFree_v2";
  if (freed.count(address)) return complain(CUDA_ERROR_INVALID_VALUE, name, ": freed twice");
  auto it = memory.find(address);
  if (it == memory.end() || (it->second.device < 0) != (device < 0))
    return complain(CUDA_ERROR_INVALID_VALUE, name, ": no such allocation");
  const FakeMemory m = it->second;
  if (std::string pending = pending_on(*this, m.device, address, m.bytes); !pending.empty())
    complain(CUDA_SUCCESS, name, ": freed while ", pending, " is pending");
  if (m.device >= 0) used[m.device] -= m.bytes;
  mprotect(reinterpret_cast<void*>(address), m.mapped, PROT_NONE);
  madvise(reinterpret_cast<void*>(address), m.mapped, MADV_DONTNEED);
  memory.erase(it);
  accesses.forget(address, m.mapped);
  freed[address] = m;
  forget_freed(kKeptFreed);
  return CUDA_SUCCESS;
}

void FakeState::forget_freed(size_t keep) {
  size_t held = 0;
  for (auto& [address, m] : freed) held += m.mapped;
  while (!freed.empty() && held > keep) {
    auto it = freed.begin();
    held -= it->second.mapped;
    munmap(reinterpret_cast<void*>(it->first), it->second.mapped + kPage);
    freed.erase(it);
  }
}

void FakeState::open_memory() {
  if (open++ > 0) return;
  for (auto& [address, m] : memory)
    if (m.device >= 0) mprotect(reinterpret_cast<void*>(address), m.mapped, PROT_READ | PROT_WRITE);
}
void FakeState::close_memory() {
  if (--open > 0) return;
  for (auto& [address, m] : memory)
    if (m.device >= 0) mprotect(reinterpret_cast<void*>(address), m.mapped, PROT_NONE);
}

std::string FakeState::wrong(const FakeRange& range, bool device) const {
  if (range.bytes == 0) return {};
  auto it = holder(memory, range.address);
  if (it == memory.end()) {
    if (holder(freed, range.address) != freed.end()) return "memory that was freed";
    return device ? "an address that is not device memory" : "host memory that is not pinned";
  }
  if (device != (it->second.device >= 0))
    return device ? "host memory, given as device memory" : "device memory, given as host memory";
  uint64_t end = it->first + it->second.bytes;
  if (range.address + range.bytes > end)
    return str_cat("memory beyond its end: ", range.bytes, " bytes where ", end - range.address, " are left");
  return {};
}

void FakeCalls::add_memory(DriverApi& t) {
  t.cuMemGetInfo_v2 = memory_info;
  t.cuMemAlloc_v2 = memory_alloc;
  t.cuMemFree_v2 = memory_free;
  t.cuMemHostAlloc = host_alloc;
  t.cuMemFreeHost = host_free;
  t.cuMemcpyHtoDAsync_v2 = copy_to_device;
  t.cuMemcpyDtoHAsync_v2 = copy_to_host;
  t.cuMemcpyDtoDAsync_v2 = copy_on_device;
  t.cuMemcpyPeerAsync = copy_between;
  t.cuMemcpy2DAsync_v2 = copy_rows;
  t.cuMemsetD8Async = fill_bytes;
  t.cuMemsetD32Async = fill_words;
}

}  // namespace weft::cuda::testing
