#include "framework/cuda/testing/fake_driver.h"

#include <cstring>
#include <utility>

#include "framework/base/error.h"
#include "framework/cuda/testing/fake_state.h"

namespace weft::cuda::testing {

FakeState* FakeCalls::state = nullptr;

namespace {

// The current context of this thread: the device's ordinal plus one, of the fake with this number.
thread_local CUcontext current_context = nullptr;

CUcontext handle(FakeContext& c) { return reinterpret_cast<CUcontext>(&c); }

struct ErrorText {
  CUresult code;
  const char *name, *text;
};
constexpr ErrorText kErrors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {CUDA_ERROR_MISALIGNED_ADDRESS, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
     "system has unsupported display driver / cuda driver combination"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
};

CUresult init(unsigned flags) {
  WEFT_FAKE_CALL(cuInit);
  if (flags) return s.complain(CUDA_ERROR_INVALID_VALUE, "cuInit: flags must be 0");
  return s.init_result;
}
CUresult driver_version(int* version) {
  WEFT_FAKE_CALL(cuDriverGetVersion);
  *version = s.version;
  return CUDA_SUCCESS;
}
CUresult error_name(CUresult error, const char** name) {
  for (const ErrorText& e : kErrors)
    if (e.code == error) return *name = e.name, CUDA_SUCCESS;
  return *name = nullptr, CUDA_ERROR_INVALID_VALUE;
}
CUresult error_string(CUresult error, const char** text) {
  for (const ErrorText& e : kErrors)
    if (e.code == error) return *text = e.text, CUDA_SUCCESS;
  return *text = nullptr, CUDA_ERROR_INVALID_VALUE;
}
CUresult device_count(int* count) {
  WEFT_FAKE_CALL(cuDeviceGetCount);
  *count = s.count;
  return CUDA_SUCCESS;
}
CUresult check_device(FakeState& s, CUdevice device, const char* what) {
  if (device >= 0 && device < s.count) return CUDA_SUCCESS;
  return s.complain(CUDA_ERROR_INVALID_DEVICE, what, ": device ", device, " of ", s.count);
}
CUresult device_get(CUdevice* device, int ordinal) {
  WEFT_FAKE_CALL(cuDeviceGet);
  if (CUresult r = check_device(s, ordinal, "cuDeviceGet"); r != CUDA_SUCCESS) return r;
  *device = ordinal;
  return CUDA_SUCCESS;
}
CUresult device_name(char* name, int size, CUdevice device) {
  WEFT_FAKE_CALL(cuDeviceGetName);
  if (CUresult r = check_device(s, device, "cuDeviceGetName"); r != CUDA_SUCCESS) return r;
  std::strncpy(name, s.gpu.name.c_str(), size);
  name[size - 1] = 0;
  return CUDA_SUCCESS;
}
CUresult pci_bus_id(char* id, int size, CUdevice device) {
  WEFT_FAKE_CALL(cuDeviceGetPCIBusId);
  std::strncpy(id, str_cat("0000:0", device, ":00.0").c_str(), size);
  id[size - 1] = 0;
  return CUDA_SUCCESS;
}
CUresult device_memory(size_t* bytes, CUdevice device) {
  WEFT_FAKE_CALL(cuDeviceTotalMem_v2);
  *bytes = s.gpu.memory;
  return check_device(s, device, "cuDeviceTotalMem_v2");
}
CUresult device_attribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  WEFT_FAKE_CALL(cuDeviceGetAttribute);
  if (CUresult r = check_device(s, device, "cuDeviceGetAttribute"); r != CUDA_SUCCESS) return r;
  const FakeGpu& g = s.gpu;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
      *value = 0x7fffffff;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
      *value = 65535;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      *value = g.shared_per_block;
      break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      *value = 32;
      break;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
      *value = 1980000;
      break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = g.multiprocessors;
      break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
      *value = 2619000;
      break;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
      *value = 5120;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = g.sm / 10;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = g.sm % 10;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      *value = g.shared_per_block_optin;
      break;
    default:
      return s.complain(CUDA_ERROR_INVALID_VALUE, "cuDeviceGetAttribute: unknown attribute ",
                        static_cast<int>(attribute));
  }
  return CUDA_SUCCESS;
}

CUresult context_retain(CUcontext* context, CUdevice device) {
  WEFT_FAKE_CALL(cuDevicePrimaryCtxRetain);
  if (CUresult r = check_device(s, device, "cuDevicePrimaryCtxRetain"); r != CUDA_SUCCESS) return r;
  ++s.contexts[device].retained;
  *context = handle(s.contexts[device]);
  return CUDA_SUCCESS;
}
CUresult context_release(CUdevice device) {
  WEFT_FAKE_CALL(cuDevicePrimaryCtxRelease_v2);
  if (CUresult r = check_device(s, device, "cuDevicePrimaryCtxRelease_v2"); r != CUDA_SUCCESS) return r;
  if (s.contexts[device].retained == 0)
    return s.complain(CUDA_ERROR_INVALID_CONTEXT, "cuDevicePrimaryCtxRelease_v2: context ", device, " is not held");
  if (--s.contexts[device].retained == 0) s.sticky[device] = CUDA_SUCCESS;
  return CUDA_SUCCESS;
}
CUresult context_set(CUcontext context) {
  WEFT_FAKE_CALL(cuCtxSetCurrent);
  bool known = context == nullptr;
  for (FakeContext& c : s.contexts) known |= context == handle(c) && c.retained > 0;
  if (!known) return s.complain(CUDA_ERROR_INVALID_CONTEXT, "cuCtxSetCurrent: no such context");
  current_context = context;
  return CUDA_SUCCESS;
}
CUresult context_synchronize() {
  WEFT_FAKE_CONTEXT_CALL(cuCtxSynchronize);
  if (CUresult r = s.refuse_unsafe("cuCtxSynchronize"); r != CUDA_SUCCESS) return r;
  // Waiting for a context waits for all capturing streams and breaks the captures of all threads.
  for (const FakeStream* stream : s.streams) {
    if (!stream->capture || stream->device != device) continue;
    stream->capture->broken = true;
    return s.complain(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "cuCtxSynchronize: a stream of the context is capturing");
  }
  s.run_all(device);
  return s.sticky[device];
}

}  // namespace

int FakeState::current() const {
  for (const FakeContext& c : contexts)
    if (reinterpret_cast<const void*>(current_context) == &c && c.retained > 0) return c.device;
  return -1;
}

void FakeCalls::add_devices(DriverApi& t) {
  t.cuInit = init;
  t.cuDriverGetVersion = driver_version;
  t.cuGetErrorName = error_name;
  t.cuGetErrorString = error_string;
  t.cuDeviceGetCount = device_count;
  t.cuDeviceGet = device_get;
  t.cuDeviceGetName = device_name;
  t.cuDeviceGetAttribute = device_attribute;
  t.cuDeviceTotalMem_v2 = device_memory;
  t.cuDeviceGetPCIBusId = pci_bus_id;
  t.cuDevicePrimaryCtxRetain = context_retain;
  t.cuDevicePrimaryCtxRelease_v2 = context_release;
  t.cuCtxSetCurrent = context_set;
  t.cuCtxSynchronize = context_synchronize;
}

FakeDriver::FakeDriver(FakeGpu gpu, int count) : state_(new FakeState) {
  WEFT_BUG_IF(FakeCalls::state, "two fake drivers at a time");
  state_->gpu = std::move(gpu);
  state_->count = count;
  state_->sticky.assign(count, CUDA_SUCCESS);
  state_->used.assign(count, 0);
  state_->contexts.resize(count);
  for (int i = 0; i < count; ++i) state_->contexts[i].device = i;
  FakeCalls::state = state_.get();
}

FakeDriver::~FakeDriver() {
  FakeState& s = *state_;
  while (!s.memory.empty()) s.release(s.memory.begin()->second.device, s.memory.begin()->first);
  s.forget_freed(0);
  for (auto* x : s.streams) delete x;
  for (auto* x : s.events) delete x;
  for (auto* x : s.modules) delete x;
  for (auto* x : s.graphs) delete x;
  for (auto* x : s.execs) delete x;
  FakeCalls::state = nullptr;
}

DriverApi FakeDriver::table() const {
  DriverApi t;
  FakeCalls::add_devices(t);
  FakeCalls::add_memory(t);
  FakeCalls::add_streams(t);
  FakeCalls::add_modules(t);
  FakeCalls::add_graphs(t);
  FakeCalls::add_tensor_maps(t);
  return t;
}

#define WEFT_LOCK_STATE std::lock_guard<std::recursive_mutex> lock(state_->mutex)

void FakeDriver::add_kernel(const std::string& symbol, FakeKernel kernel) {
  WEFT_LOCK_STATE;
  state_->kernels[symbol] = std::move(kernel);
}
void FakeDriver::set_resolver(FakeResolver resolver) {
  WEFT_LOCK_STATE;
  state_->resolver = std::move(resolver);
}
void FakeDriver::set_live_memory(std::function<std::optional<FakeRange>(CUdeviceptr)> holding) {
  WEFT_LOCK_STATE;
  state_->holding = std::move(holding);
}
std::vector<std::string> FakeDriver::take_complaints() {
  WEFT_LOCK_STATE;
  return std::exchange(state_->complaints, {});
}
std::string FakeDriver::leaks() const {
  WEFT_LOCK_STATE;
  const FakeState& s = *state_;
  std::string out;
  auto say = [&](size_t n, const char* what) {
    if (n) out += str_cat(out.empty() ? "" : ", ", n, " ", what, n == 1 ? "" : "s");
  };
  say(s.memory.size(), "allocation");
  say(s.streams.size(), "stream");
  say(s.events.size(), "event");
  say(s.modules.size(), "module");
  say(s.graphs.size(), "graph");
  say(s.execs.size(), "executable graph");
  size_t held = 0;
  for (const FakeContext& c : s.contexts) held += c.retained;
  say(held, "context");
  return out;
}
void FakeDriver::set_seed(uint64_t seed) {
  WEFT_LOCK_STATE;
  state_->random = seed * 0x9E3779B97F4A7C15ull | 1;
}
void FakeDriver::set_version(int version) { state_->version = version; }
void FakeDriver::set_init_result(CUresult result) { state_->init_result = result; }
void FakeDriver::fail_allocation_after(int successes) {
  WEFT_LOCK_STATE;
  state_->allocations_to_failure = successes;
}
void FakeDriver::fail_load(CUresult error) {
  WEFT_LOCK_STATE;
  state_->load_failure = error;
}
void FakeDriver::fail_launch_after(int launches, CUresult error) {
  WEFT_LOCK_STATE;
  state_->launches_to_failure = launches;
  state_->launch_failure = error;
}
std::vector<std::string> FakeDriver::kernels_run() const {
  WEFT_LOCK_STATE;
  return state_->run;
}
int FakeDriver::calls(const std::string& function) const {
  WEFT_LOCK_STATE;
  auto it = state_->calls.find(function);
  return it == state_->calls.end() ? 0 : it->second;
}
int FakeDriver::pending() const {
  WEFT_LOCK_STATE;
  int n = 0;
  for (const FakeStream* stream : state_->streams) n += static_cast<int>(stream->queue.size());
  return n;
}
size_t FakeDriver::allocated_bytes() const {
  WEFT_LOCK_STATE;
  size_t n = 0;
  for (size_t used : state_->used) n += used;
  return n;
}
void FakeDriver::with_memory_open(const std::function<void()>& read) {
  WEFT_LOCK_STATE;
  state_->open_memory();
  read();
  state_->close_memory();
}

}  // namespace weft::cuda::testing
