// A fake CUDA driver: the whole table of driver_api.h on host memory, for tests on machines without a GPU. Work is kept
// in stream order and runs as late as the rules allow, so that a missing synchronisation shows as poison (0xFF bytes,
// NaN in every float format). The host cannot read device memory. The fake reports every misuse. This includes work of
// several streams on the same memory without an event or a host wait between them, and sources of copies that the host
// changes before they ran.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/cuda/libraries/driver_api.h"

namespace weft::cuda::testing {

/// Properties that the fake GPU reports: the properties of an H100, except for its memory.
struct FakeGpu {
  std::string name = "Fake GPU";
  int sm = 90;  // compute capability times 10
  size_t memory = size_t{256} << 20;
  int multiprocessors = 132;
  int shared_per_block = 48 << 10;
  int shared_per_block_optin = 227 << 10;
  int threads_per_block = 1024;
  int registers = 65536;  // per block
  bool pages = true;      // false: device memory has addresses only, for idle_table()
};

/// Bytes that a kernel reads or writes.
struct FakeRange {
  CUdeviceptr address = 0;
  size_t bytes = 0;
};

/// One launch as its kernel sees it.
struct FakeLaunch {
  std::string symbol;
  unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
  unsigned shared_bytes = 0;
  std::vector<std::byte> parameters;
  /// The memory blocks that words of the parameters point into, as given by set_live_memory at the launch.
  std::vector<FakeRange> pointed;
  template <class P>
  const P& as() const {
    return *reinterpret_cast<const P*>(parameters.data());
  }
};

/// A kernel: the attributes in its cubin, and its function. `run` may throw weft::Error: an illegal address.
struct FakeKernel {
  size_t parameter_bytes = 0;
  int max_threads = 1024;  // __launch_bounds__
  int static_shared_bytes = 0;
  int registers = 32;
  std::function<void(const FakeLaunch&)> run;
  /// If given, the memory that each launch uses. The fake checks that it is alive then, and not freed while work is
  /// pending.
  std::function<std::vector<FakeRange>(const FakeLaunch&)> touches;
};

/// The data that the fake's cuTensorMapEncodeTiled writes into a descriptor, innermost dim first.
struct FakeTensorMap {
  uint64_t address = 0;
  uint64_t strides[4] = {};  // bytes, of dims 1 to 4
  uint32_t dims[5] = {};     // minus one
  uint16_t box[5] = {};
  uint8_t rank = 0, element_bytes = 0, swizzle = 0;  // swizzle as CUtensorMapSwizzle
};
FakeTensorMap decode(const CUtensorMap& map);

/// Finds the kernel `symbol` of a loaded module; `image` is the argument of cuModuleLoadData.
using FakeResolver = std::function<std::optional<FakeKernel>(const void* image, const std::string& symbol)>;

/// The fake driver; one at a time. Install it with ScopedDriver(fake.table()), which must be destroyed first.
class FakeDriver {
 public:
  explicit FakeDriver(FakeGpu gpu = {}, int count = 1);
  ~FakeDriver();
  FakeDriver(const FakeDriver&) = delete;

  DriverApi table() const;
  /// The same, but kernels, copies and fills do nothing, nothing waits, and the host reads zeros. Captures still
  /// record.
  DriverApi idle_table() const;

  /// Adds a kernel to every module.
  void add_kernel(const std::string& symbol, FakeKernel kernel);
  /// Sets the resolver of symbols that add_kernel does not know.
  void set_resolver(FakeResolver resolver);

  /// Sets the function that finds the memory block of an address, if blocks are finer than the driver's: the allocator.
  /// May be null; called at each launch.
  void set_live_memory(std::function<std::optional<FakeRange>(CUdeviceptr)> holding);

  /// The misuses since the last call, one sentence each; empty in a correct program.
  std::vector<std::string> take_complaints();
  /// The resources still held: "2 allocations of 1024 bytes", "1 stream"; empty if everything was released.
  std::string leaks() const;

  /// Seed of the order in which streams proceed if any of them may.
  void set_seed(uint64_t seed);
  /// The version that cuDriverGetVersion reports from now on.
  void set_version(int version);
  /// Makes cuInit fail from now on.
  void set_init_result(CUresult result);
  /// Makes the allocation after `successes` more fail with out of memory, once.
  void fail_allocation_after(int successes);
  /// Makes the next load of a module fail with this error.
  void fail_load(CUresult error);
  /// Makes the launch after `launches` more fail with this error, which then stays on the device as a real one does.
  void fail_launch_after(int launches, CUresult error);

  /// Symbols of the kernels run so far, in order, including replays of graphs.
  std::vector<std::string> kernels_run() const;
  /// Number of calls of one function of the table: calls("cuMemAlloc_v2").
  int calls(const std::string& function) const;
  /// Number of operations queued on streams and not yet run.
  int pending() const;
  size_t allocated_bytes() const;
  /// Runs `read` while the host can read device memory: for tests that check a kernel's results.
  void with_memory_open(const std::function<void()>& read);

 private:
  std::unique_ptr<struct FakeState> state_;
};

}  // namespace weft::cuda::testing
