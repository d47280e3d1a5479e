#include "framework/cuda/graph_replay.h"

#include <tuple>
#include <utility>

#include "framework/base/error.h"
#include "framework/cuda/gpu.h"
#include "framework/cuda/libraries/driver_error.h"

namespace weft::cuda {
namespace {

// The capture in progress on this thread.
thread_local GraphReplay* recording = nullptr;

// The kernels that get new parameters on this thread.
struct Renaming {
  GraphReplay* graph;
  int next, end;
  bool fits;
};
thread_local Renaming* renaming = nullptr;

}  // namespace

bool thread_is_capturing() { return recording != nullptr; }

GraphReplay::GraphReplay(GraphReplay&& other) noexcept { *this = std::move(other); }
GraphReplay& GraphReplay::operator=(GraphReplay&& other) noexcept {
  std::swap(gpu_, other.gpu_);
  std::swap(graph_, other.graph_);
  std::swap(exec_, other.exec_);
  std::swap(kernels_, other.kernels_);
  return *this;
}
GraphReplay::~GraphReplay() { release(); }

void GraphReplay::release() {
  if (exec_) ignore(driver().cuGraphExecDestroy(exec_));
  if (graph_) ignore(driver().cuGraphDestroy(graph_));
  exec_ = nullptr;
  graph_ = nullptr;
}

GraphReplay GraphReplay::capture(Stream& stream, const std::function<void()>& work) {
  GraphReplay g(stream.gpu());
  g.record(stream, work);
  g.instantiate();
  return g;
}

void GraphReplay::record(Stream& stream, const std::function<void()>& work) {
  WEFT_CHECK_AS(kFailedPrecondition, !recording, "cuda: a capture within a capture; need to end the first one");
  const DriverApi& api = driver();
  MutexLock lock(gpu_->captures());
  gpu_->make_current();
  check(api.cuStreamBeginCapture_v2(stream.handle(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "beginning a capture on ",
        gpu_->device());
  recording = this;
  try {
    work();
  } catch (...) {
    recording = nullptr;
    CUgraph broken = nullptr;
    ignore(api.cuStreamEndCapture(stream.handle(), &broken));
    if (broken) ignore(api.cuGraphDestroy(broken));
    throw;
  }
  recording = nullptr;
  check(api.cuStreamEndCapture(stream.handle(), &graph_), "ending a capture on ", gpu_->device());
}

void GraphReplay::instantiate() {
  check(driver().cuGraphInstantiateWithFlags(&exec_, graph_, 0), "making a captured graph of ", size(),
        " operations ready on ", gpu_->device());
}

// Function::launch calls this after each launch. If the launch was captured, the stream's next work depends on its
// node.
void GraphReplay::note(const Function& function, const KernelLaunch& launch, Stream& stream) {
  if (!recording) return;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUgraphNode* last = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  size_t count = 0;
  check(driver().cuStreamGetCaptureInfo_v3(stream.handle(), &status, nullptr, nullptr, &last, &edges, &count),
        "reading a capture");
  if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return;
  WEFT_BUG_IF(count != 1, "after a captured launch of ", function.name(), " the stream follows ", count, " nodes");
  KernelLaunch l = launch;
  l.parameters = nullptr;
  recording->kernels_.push_back({function, l, last[0]});
}

GraphReplay::Position GraphReplay::position(Stream& stream) {
  WEFT_BUG_IF(!recording, "cuda: asked how far a capture is, without one");
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUgraph graph = nullptr;
  const CUgraphNode* last = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  size_t following = 0, count = 0;
  check(driver().cuStreamGetCaptureInfo_v3(stream.handle(), &status, nullptr, &graph, &last, &edges, &following),
        "reading a capture");
  check(driver().cuGraphGetNodes(graph, nullptr, &count), "counting the operations of a capture");
  return {static_cast<int>(recording->kernels_.size()), count};
}

bool GraphReplay::take_renamed(const Function& function, const KernelLaunch& launch) {
  if (!renaming) return false;
  Renaming& r = *renaming;
  if (!r.fits || r.next == r.end) {
    r.fits = false;
    return true;
  }
  const ReplayKernel& k = r.graph->kernels_[r.next];
  const auto shape = [](const KernelLaunch& l) {
    return std::tuple(l.grid_x, l.grid_y, l.grid_z, l.threads, l.shared_bytes, l.parameter_bytes);
  };
  r.fits = k.function.handle() == function.handle() && shape(k.launch) == shape(launch);
  if (r.fits)
    r.graph->set_parameters(r.next++, {static_cast<const std::byte*>(launch.parameters), launch.parameter_bytes});
  return true;
}

bool GraphReplay::rename(int kernel, int count, const std::function<void()>& work) {
  Renaming now{this, kernel, kernel + count, true};
  renaming = &now;
  try {
    work();
  } catch (...) {
    renaming = nullptr;
    throw;
  }
  renaming = nullptr;
  return now.fits && now.next == now.end;
}

size_t GraphReplay::size() const {
  size_t count = 0;
  check(driver().cuGraphGetNodes(graph_, nullptr, &count), "counting the operations of a captured graph");
  return count;
}

void GraphReplay::launch(Stream& stream) {
  gpu_->make_current();
  check(driver().cuGraphLaunch(exec_, stream.handle()), "replaying a captured graph on ", gpu_->device());
}

void GraphReplay::set_parameters(int kernel, std::span<const std::byte> parameters) {
  const ReplayKernel& k = kernels_[kernel];
  WEFT_BUG_IF(parameters.size() != k.launch.parameter_bytes, k.function.name(), ": ", parameters.size(),
              " bytes of parameters, captured with ", k.launch.parameter_bytes);
  gpu_->make_current();
  void* pointers[] = {const_cast<std::byte*>(parameters.data())};
  CUDA_KERNEL_NODE_PARAMS p = {};
  p.func = k.function.handle();
  p.gridDimX = k.launch.grid_x;
  p.gridDimY = k.launch.grid_y;
  p.gridDimZ = k.launch.grid_z;
  p.blockDimX = k.launch.threads;
  p.blockDimY = p.blockDimZ = 1;
  p.sharedMemBytes = k.launch.shared_bytes;
  p.kernelParams = pointers;
  check(driver().cuGraphExecKernelNodeSetParams_v2(exec_, k.node, &p), "changing the parameters of kernel ",
        k.function.name(), " in a captured graph");
}

bool GraphReplay::recapture(Stream& stream, const std::function<void()>& work) {
  GraphReplay fresh(*gpu_);
  fresh.record(stream, work);
  CUgraphExecUpdateResultInfo info = {};
  CUresult r = driver().cuGraphExecUpdate_v2(exec_, fresh.graph_, &info);
  if (r != CUDA_SUCCESS && r != CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE)
    check(r, "updating a captured graph of ", gpu_->device());
  if (r == CUDA_SUCCESS) {
    // Parameters are set through the nodes of the graph from which the executable graph was made, so these nodes stay.
    WEFT_BUG_IF(kernels_.size() != fresh.kernels_.size(), "an updated graph with another number of kernels");
    for (size_t i = 0; i < kernels_.size(); ++i) {
      kernels_[i].function = fresh.kernels_[i].function;
      kernels_[i].launch = fresh.kernels_[i].launch;
    }
    return true;
  }
  fresh.instantiate();
  *this = std::move(fresh);
  return false;
}

}  // namespace weft::cuda
