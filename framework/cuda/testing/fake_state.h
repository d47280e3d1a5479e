// The fake driver's internals: memory, streams and graphs as plain data. FakeState::mutex guards everything.
#pragma once
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "framework/base/str_cat.h"
#include "framework/cuda/testing/fake_driver.h"
#include "framework/cuda/testing/fake_order.h"

namespace weft::cuda::testing {

struct FakeEvent;
struct FakeStream;

/// Memory of a device or pinned memory of the host.
struct FakeMemory {
  size_t bytes = 0;
  size_t mapped = 0;  // whole pages
  int device = -1;    // -1: pinned
};

/// One operation of a stream or node of a graph.
struct FakeWork {
  std::string what;                // "copy of 64 bytes from host to device"
  std::vector<FakeRange> touches;  // memory that must live until the work has run
  int written = -1;                // index in `touches` of the range that is written; -1: any may be
  int source = -1;                 // index in `touches` of host memory that must not change until the work has run
  uint64_t source_sum = 0;         // checksum of the source when the work was queued
  FakePosition place;
  std::function<void()> run;           // copies and fills
  std::shared_ptr<FakeLaunch> launch;  // launch of a kernel
  struct FakeFunction* function = nullptr;
  FakeEvent* event = nullptr;  // recorded, or waited for
  bool waits = false;
  bool unloaded = false;  // its kernel's module is gone
  uint64_t ordinal = 0;   // number of the record that is made or waited for
};

struct FakeFunction {
  std::string symbol;
  FakeKernel kernel;
  int max_dynamic_shared = 48 << 10;
};
struct FakeModule {
  int device = 0;
  const void* image = nullptr;
  std::vector<std::unique_ptr<FakeFunction>> functions;
};

struct FakeGraph {
  std::vector<std::unique_ptr<FakeWork>> nodes;  // in a topological order; a CUgraphNode points at one
};
struct FakeExec {
  std::vector<FakeWork> nodes;
  std::vector<const FakeWork*> made_of;  // the nodes of the graph it was instantiated from
};

struct FakeCapture {
  FakeGraph* graph = nullptr;
  FakeStream* origin = nullptr;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id thread;
  bool broken = false;
};

struct FakeStream {
  int device = 0;
  uint64_t number = 0, count = 0;  // from 1; operations queued so far
  FakeClock clock;                 // clock of the last operation
  std::deque<FakeWork> queue;
  std::shared_ptr<FakeCapture> capture;
  CUgraphNode last = nullptr;    // last node of the capture
  CUgraphNode joined = nullptr;  // the last of its nodes that another stream waited for
};
struct FakeEvent {
  int device = 0;
  bool timing = true;
  FakeStream* stream = nullptr;  // stream of the last record
  uint64_t recorded = 0, done = 0;
  double time_ms = 0;
  FakeClock clock;                        // the work before the last record
  std::shared_ptr<FakeCapture> captured;  // the last record was made during this capture,
  CUgraphNode after = nullptr;            // after this node
};

struct FakeContext {
  int device = 0;
  int retained = 0;
};

struct FakeState {
  FakeGpu gpu;
  int count = 1, version = 13000;
  CUresult init_result = CUDA_SUCCESS;
  mutable std::recursive_mutex mutex;
  std::vector<std::string> complaints;
  std::map<std::string, int> calls;
  std::vector<FakeContext> contexts;
  std::vector<CUresult> sticky;           // device -> the error of a failed launch
  std::map<uint64_t, FakeMemory> memory;  // key: first address
  std::map<uint64_t, FakeMemory> freed;   // kept unreadable so that later use is detected
  std::vector<size_t> used;               // index: device
  std::set<FakeStream*> streams;
  std::set<FakeEvent*> events;
  std::set<FakeModule*> modules;
  std::set<FakeGraph*> graphs;
  std::set<FakeExec*> execs;
  std::map<std::string, FakeKernel> kernels;
  FakeResolver resolver;
  std::function<std::optional<FakeRange>(CUdeviceptr)> holding;
  std::vector<std::string> run;
  uint64_t records = 0, steps = 0, streams_made = 0;
  uint64_t random = 1;  // state of the random order in which streams proceed
  FakeClock host;       // the work that the host has waited for
  FakeAccesses accesses;
  int open = 0;  // nesting of with_memory_open
  int allocations_to_failure = -1, launches_to_failure = -1;
  CUresult launch_failure = CUDA_SUCCESS, load_failure = CUDA_SUCCESS;

  /// Records a misuse and returns the code for the call.
  template <class... A>
  CUresult complain(CUresult code, const A&... what) {
    complaints.push_back(str_cat(what...));
    return code;
  }
  /// The device of this thread's context, or -1.
  int current() const;

  // memory (fake_memory.cc)
  CUresult allocate(int device, size_t bytes, void** out);  // device -1: pinned
  CUresult release(int device, uint64_t address);
  void forget_freed(size_t keep);  // unmaps until at most this many bytes are kept
  void open_memory();
  void close_memory();
  /// "" or the fault of these bytes: not allocated, freed, out of bounds, or of the other kind (device or pinned).
  std::string wrong(const FakeRange& range, bool device) const;

  // streams (fake_stream.cc)
  CUresult enqueue(FakeStream* stream, FakeWork work);
  CUresult check_stream(CUstream handle, FakeStream** out, const char* what);
  void run_until(FakeStream* stream, size_t left);  // runs from the front until `left` operations are left
  void run_event(FakeEvent* event);
  void run_all(int device);
  void execute(FakeStream* stream, FakeWork& work);
  void check_order(const FakeWork& work);
  /// The error of a call that a capture of this thread forbids; such a call breaks the capture. Success if there is
  /// none.
  CUresult refuse_unsafe(const char* what);
};

/// The functions of the table by part; each fills its rows.
struct FakeCalls {
  static FakeState* state;
  static void add_devices(DriverApi& t);
  static void add_memory(DriverApi& t);
  static void add_streams(DriverApi& t);
  static void add_modules(DriverApi& t);
  static void add_graphs(DriverApi& t);
  static void add_tensor_maps(DriverApi& t);
};

/// Locks the current fake and counts the call.
#define WEFT_FAKE_CALL(name)                           \
  FakeState& s = *FakeCalls::state;                    \
  std::lock_guard<std::recursive_mutex> lock(s.mutex); \
  ++s.calls[#name]
/// Same as WEFT_FAKE_CALL, for calls that release objects of a context: they need a context, and succeed after a failed
/// launch.
#define WEFT_FAKE_RELEASE_CALL(name) \
  WEFT_FAKE_CALL(name);              \
  if (s.current() < 0) return s.complain(CUDA_ERROR_INVALID_CONTEXT, #name ": no context is current in this thread")
/// Same as WEFT_FAKE_CALL, for calls that need a context; returns the context's sticky error if it has one.
#define WEFT_FAKE_CONTEXT_CALL(name)                                                                             \
  WEFT_FAKE_CALL(name);                                                                                          \
  const int device = s.current();                                                                                \
  if (device < 0) return s.complain(CUDA_ERROR_INVALID_CONTEXT, #name ": no context is current in this thread"); \
  if (s.sticky[device] != CUDA_SUCCESS) return s.sticky[device]

}  // namespace weft::cuda::testing
