// Compiled kernels on a GPU: loads a cubin, finds its functions and launches them. Each launch carries the op and line
// that it computes, for error messages.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "framework/cuda/stream.h"
#include "framework/ir/graph.h"

namespace weft::cuda {

/// One launch: blocks, threads per block, dynamic shared memory, and the bytes of the kernel's one by-value parameter.
struct KernelLaunch {
  uint32_t grid_x = 1, grid_y = 1, grid_z = 1;
  int threads = 256;
  int shared_bytes = 0;
  const void* parameters = nullptr;
  size_t parameter_bytes = 0;
  const char* op = "";  // the op it computes, for messages; must live until the launch is done
  SourceLine line;      // line of the user's program
};

/// Call this after work was queued other than by Function::launch, for example by cuBLASLt. Under WEFT_SYNC=1 it waits
/// for the work (unless the stream is capturing) and names work that failed, as "cuda: WHAT (op at file:line) failed on
/// cuda:0: ...".
void check_queued(Stream& stream, std::string_view what, std::string_view op, SourceLine line);

class CudaModule;

/// One kernel of a loaded module; keeps the module loaded.
class Function {
 public:
  const std::string& name() const { return name_; }
  CUfunction handle() const { return handle_; }
  Gpu& gpu() const;

  /// Queues a launch. Throws InvalidArgument if the device or the kernel does not support it. Under WEFT_SYNC=1, waits
  /// for it (unless the stream is capturing) and names a failed launch with its op and line.
  void launch(Stream& stream, const KernelLaunch& launch) const;

 private:
  friend class CudaModule;
  Function() = default;
  std::shared_ptr<const CudaModule> module_;
  std::string name_;
  CUfunction handle_ = nullptr;
  int max_threads_ = 0, static_shared_ = 0, max_dynamic_shared_ = 0;
  size_t parameter_bytes_ = 0;
};

/// A loaded cubin.
class CudaModule : public std::enable_shared_from_this<CudaModule> {
 public:
  /// Loads a cubin (or PTX ending in a zero byte). `what` names it in errors.
  static std::shared_ptr<CudaModule> load(Gpu& gpu, std::span<const char> image, std::string what);
  ~CudaModule();
  CudaModule(const CudaModule&) = delete;

  Gpu& gpu() const { return gpu_; }
  /// The kernel `symbol`, with `shared_bytes` of dynamic shared memory per block. Throws NotFound, or
  /// ResourceExhausted, with the sizes, if the device has less shared memory.
  Function function(const std::string& symbol, int shared_bytes = 0) const;

 private:
  CudaModule(Gpu& gpu, std::string what) : gpu_(gpu), what_(std::move(what)) {}
  Gpu& gpu_;
  std::string what_;
  std::vector<char> image_;  // the driver may read it later
  CUmodule handle_ = nullptr;
};

}  // namespace weft::cuda
