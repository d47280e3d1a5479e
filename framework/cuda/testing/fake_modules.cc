// Modules, functions, launches and executable graphs of the fake driver.
#include <algorithm>
#include <cstring>
#include <utility>

#include "framework/cuda/testing/fake_state.h"

namespace weft::cuda::testing {
namespace {

CUresult module_load(CUmodule* out, const void* image) {
  WEFT_FAKE_CONTEXT_CALL(cuModuleLoadData);
  if (CUresult r = s.refuse_unsafe("cuModuleLoadData"); r != CUDA_SUCCESS) return r;
  if (!image) return s.complain(CUDA_ERROR_INVALID_VALUE, "cuModuleLoadData: no image");
  if (s.load_failure != CUDA_SUCCESS) return std::exchange(s.load_failure, CUDA_SUCCESS);
  auto* module = new FakeModule;
  module->device = device;
  module->image = image;
  s.modules.insert(module);
  *out = reinterpret_cast<CUmodule>(module);
  return CUDA_SUCCESS;
}
CUresult module_unload(CUmodule handle) {
  WEFT_FAKE_RELEASE_CALL(cuModuleUnload);
  if (CUresult r = s.refuse_unsafe("cuModuleUnload"); r != CUDA_SUCCESS) return r;
  auto* module = reinterpret_cast<FakeModule*>(handle);
  if (!s.modules.count(module)) return s.complain(CUDA_ERROR_INVALID_HANDLE, "cuModuleUnload: no such module");
  auto forget = [&](FakeWork& w) {
    for (auto& f : module->functions) {
      if (w.function != f.get()) continue;
      w.function = nullptr;
      w.launch = nullptr;
      w.unloaded = true;
      return true;
    }
    return false;
  };
  for (FakeStream* stream : s.streams)
    for (FakeWork& w : stream->queue)
      if (forget(w)) s.complain(CUDA_SUCCESS, "cuModuleUnload: ", w.what, " is pending");
  for (FakeGraph* graph : s.graphs)
    for (auto& node : graph->nodes) forget(*node);
  for (FakeExec* exec : s.execs)
    for (FakeWork& node : exec->nodes) forget(node);
  s.modules.erase(module);
  delete module;
  return CUDA_SUCCESS;
}
CUresult module_function(CUfunction* out, CUmodule handle, const char* name) {
  WEFT_FAKE_CONTEXT_CALL(cuModuleGetFunction);
  auto* module = reinterpret_cast<FakeModule*>(handle);
  if (!s.modules.count(module)) return s.complain(CUDA_ERROR_INVALID_HANDLE, "cuModuleGetFunction: no such module");
  std::optional<FakeKernel> kernel;
  if (auto it = s.kernels.find(name); it != s.kernels.end()) {
    kernel = it->second;
  } else if (s.resolver) {
    kernel = s.resolver(module->image, name);
  }
  if (!kernel) return CUDA_ERROR_NOT_FOUND;
  module->functions.push_back(std::make_unique<FakeFunction>(FakeFunction{name, std::move(*kernel)}));
  *out = reinterpret_cast<CUfunction>(module->functions.back().get());
  return CUDA_SUCCESS;
}

CUresult check_function(FakeState& s, CUfunction handle, FakeFunction** out, const char* what) {
  for (FakeModule* module : s.modules)
    for (auto& f : module->functions)
      if (reinterpret_cast<CUfunction>(f.get()) == handle) {
        if (module->device != s.current())
          return s.complain(CUDA_ERROR_INVALID_CONTEXT, what, ": ", f->symbol, " was loaded on another device");
        *out = f.get();
        return CUDA_SUCCESS;
      }
  return s.complain(CUDA_ERROR_INVALID_HANDLE, what, ": no such function");
}

CUresult get_attribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
  WEFT_FAKE_CONTEXT_CALL(cuFuncGetAttribute);
  FakeFunction* f = nullptr;
  if (CUresult r = check_function(s, handle, &f, "cuFuncGetAttribute"); r != CUDA_SUCCESS) return r;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = f->kernel.max_threads;
      break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *value = f->kernel.static_shared_bytes;
      break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = f->max_dynamic_shared;
      break;
    default:
      return s.complain(CUDA_ERROR_INVALID_VALUE, "cuFuncGetAttribute: attribute ", static_cast<int>(attribute));
  }
  return CUDA_SUCCESS;
}
CUresult set_attribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  WEFT_FAKE_CONTEXT_CALL(cuFuncSetAttribute);
  FakeFunction* f = nullptr;
  if (CUresult r = check_function(s, handle, &f, "cuFuncSetAttribute"); r != CUDA_SUCCESS) return r;
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
    return s.complain(CUDA_ERROR_INVALID_VALUE, "cuFuncSetAttribute: attribute ", static_cast<int>(attribute));
  if (value < 0 || value + f->kernel.static_shared_bytes > s.gpu.shared_per_block_optin)
    return CUDA_ERROR_INVALID_VALUE;
  f->max_dynamic_shared = value;
  return CUDA_SUCCESS;
}
CUresult parameter_info(CUfunction handle, size_t index, size_t* offset, size_t* size) {
  WEFT_FAKE_CONTEXT_CALL(cuFuncGetParamInfo);
  FakeFunction* f = nullptr;
  if (CUresult r = check_function(s, handle, &f, "cuFuncGetParamInfo"); r != CUDA_SUCCESS) return r;
  if (index > 0) return CUDA_ERROR_INVALID_VALUE;  // this is how callers find the number of parameters
  *offset = 0;
  *size = f->kernel.parameter_bytes;
  return CUDA_SUCCESS;
}

// "" or the reason why the device would reject the launch.
std::string wrong_launch(const FakeState& s, const FakeFunction& f, const FakeLaunch& l) {
  const unsigned most[] = {0x7fffffffu, 65535u, 65535u};
  for (int i = 0; i < 3; ++i)
    if (l.grid[i] < 1 || l.grid[i] > most[i])
      return str_cat("grid [", l.grid[0], ", ", l.grid[1], ", ", l.grid[2], "]");
  const uint64_t threads = uint64_t{l.block[0]} * l.block[1] * l.block[2];
  const int limit = std::min(f.kernel.max_threads, s.gpu.threads_per_block);
  if (threads < 1 || threads > static_cast<uint64_t>(limit))
    return str_cat(threads, " threads in a block, at most ", limit);
  // Registers are allocated for whole warps, eight per thread at a time.
  const uint64_t registers = (threads + 31) / 32 * 32 * ((f.kernel.registers + 7) / 8 * 8);
  if (registers > static_cast<uint64_t>(s.gpu.registers))
    return str_cat("too many registers for ", threads, " threads");
  if (static_cast<int>(l.shared_bytes) > f.max_dynamic_shared)
    return str_cat(l.shared_bytes, " bytes of shared memory where ", f.max_dynamic_shared, " were requested");
  return {};
}

// Checks a launch and copies its parameters.
CUresult prepare_launch(CUfunction function, CUstream handle, void** parameters, void** extra, FakeLaunch* l,
                        std::function<std::optional<FakeRange>(CUdeviceptr)>* holding) {
  WEFT_FAKE_CONTEXT_CALL(cuLaunchKernel);
  FakeFunction* f = nullptr;
  FakeStream* stream = nullptr;
  if (CUresult r = check_function(s, function, &f, "cuLaunchKernel"); r != CUDA_SUCCESS) return r;
  if (CUresult r = s.check_stream(handle, &stream, "cuLaunchKernel"); r != CUDA_SUCCESS) return r;
  l->symbol = f->symbol;
  if (std::string wrong = wrong_launch(s, *f, *l); !wrong.empty())
    return s.complain(CUDA_ERROR_INVALID_VALUE, "cuLaunchKernel of ", f->symbol, ": ", wrong);
  if (extra || (f->kernel.parameter_bytes > 0 && (!parameters || !parameters[0])))
    return s.complain(CUDA_ERROR_INVALID_VALUE, "cuLaunchKernel of ", f->symbol, ": no parameters");
  auto* bytes = f->kernel.parameter_bytes ? static_cast<const std::byte*>(parameters[0]) : nullptr;
  l->parameters.assign(bytes, bytes + f->kernel.parameter_bytes);
  *holding = s.holding;
  return CUDA_SUCCESS;
}

CUresult launch(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                unsigned shared, CUstream handle, void** parameters, void** extra) {
  FakeLaunch l{.grid = {gx, gy, gz}, .block = {bx, by, bz}, .shared_bytes = shared};
  std::function<std::optional<FakeRange>(CUdeviceptr)> holding;
  if (CUresult r = prepare_launch(function, handle, parameters, extra, &l, &holding); r != CUDA_SUCCESS) return r;
  // Called without the fake's lock: the allocator calls the driver while it holds its own lock.
  for (size_t at = 0; holding && at + sizeof(CUdeviceptr) <= l.parameters.size(); at += sizeof(CUdeviceptr)) {
    CUdeviceptr word = 0;
    std::memcpy(&word, l.parameters.data() + at, sizeof word);
    if (std::optional<FakeRange> block = holding(word)) l.pointed.push_back(*block);
  }
  FakeState& s = *FakeCalls::state;
  std::lock_guard<std::recursive_mutex> lock(s.mutex);
  FakeFunction* f = reinterpret_cast<FakeFunction*>(function);
  FakeWork w;
  w.what = str_cat("kernel ", f->symbol);
  w.function = f;
  if (f->kernel.touches) w.touches = f->kernel.touches(l);
  for (const FakeRange& t : w.touches)
    if (std::string wrong = s.wrong(t, true); !wrong.empty())
      s.complain(CUDA_SUCCESS, "cuLaunchKernel of ", f->symbol, ": touches ", wrong);
  w.launch = std::make_shared<FakeLaunch>(std::move(l));
  return s.enqueue(reinterpret_cast<FakeStream*>(handle), std::move(w));
}

FakeGraph* graph_of(FakeState& s, CUgraph handle) {
  auto* g = reinterpret_cast<FakeGraph*>(handle);
  return s.graphs.count(g) ? g : nullptr;
}
FakeExec* exec_of(FakeState& s, CUgraphExec handle) {
  auto* e = reinterpret_cast<FakeExec*>(handle);
  return s.execs.count(e) ? e : nullptr;
}

// A copy with its own launch.
FakeWork copied(const FakeWork& from) {
  FakeWork w = from;
  if (w.launch) w.launch = std::make_shared<FakeLaunch>(*w.launch);
  return w;
}

CUresult graph_instantiate(CUgraphExec* out, CUgraph handle, unsigned long long flags) {
  WEFT_FAKE_CONTEXT_CALL(cuGraphInstantiateWithFlags);
  FakeGraph* graph = graph_of(s, handle);
  if (!graph || flags)
    return s.complain(CUDA_ERROR_INVALID_VALUE, "cuGraphInstantiateWithFlags: no such graph, or flags");
  auto* exec = new FakeExec;
  for (auto& node : graph->nodes) {
    exec->nodes.push_back(copied(*node));
    exec->made_of.push_back(node.get());
  }
  s.execs.insert(exec);
  *out = reinterpret_cast<CUgraphExec>(exec);
  return CUDA_SUCCESS;
}
CUresult graph_launch(CUgraphExec handle, CUstream stream_handle) {
  WEFT_FAKE_CONTEXT_CALL(cuGraphLaunch);
  FakeExec* exec = exec_of(s, handle);
  FakeStream* stream = nullptr;
  if (!exec) return s.complain(CUDA_ERROR_INVALID_VALUE, "cuGraphLaunch: no such executable graph");
  if (CUresult r = s.check_stream(stream_handle, &stream, "cuGraphLaunch"); r != CUDA_SUCCESS) return r;
  for (const FakeWork& node : exec->nodes) {
    if (node.unloaded)
      return s.complain(CUDA_ERROR_INVALID_VALUE, "cuGraphLaunch: the module of ", node.what, " was unloaded");
    for (const FakeRange& t : node.touches) {
      std::string as_device = s.wrong(t, true), as_host = s.wrong(t, false);
      if (!as_device.empty() && !as_host.empty())
        s.complain(CUDA_SUCCESS, "cuGraphLaunch: ", node.what, " touches ", as_device);
    }
    s.enqueue(stream, copied(node));
  }
  return CUDA_SUCCESS;
}
CUresult graph_nodes(CUgraph handle, CUgraphNode* nodes, size_t* count) {
  WEFT_FAKE_CONTEXT_CALL(cuGraphGetNodes);
  FakeGraph* graph = graph_of(s, handle);
  if (!graph) return s.complain(CUDA_ERROR_INVALID_VALUE, "cuGraphGetNodes: no such graph");
  const size_t n = graph->nodes.size();
  if (nodes)  // the real order is unspecified, so this one differs from the order of capture
    for (size_t i = 0; i < n && i < *count; ++i)
      nodes[i] = reinterpret_cast<CUgraphNode>(graph->nodes[n - 1 - i].get());
  *count = n;
  return CUDA_SUCCESS;
}
CUresult set_node_parameters(CUgraphExec exec_handle, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* p) {
  WEFT_FAKE_CONTEXT_CALL(cuGraphExecKernelNodeSetParams_v2);
  FakeExec* exec = exec_of(s, exec_handle);
  if (!exec) return s.complain(CUDA_ERROR_INVALID_VALUE, "cuGraphExecKernelNodeSetParams_v2: no such executable graph");
  auto it = std::find(exec->made_of.begin(), exec->made_of.end(), reinterpret_cast<const FakeWork*>(node));
  if (it == exec->made_of.end())
    return s.complain(CUDA_ERROR_INVALID_VALUE, "cuGraphExecKernelNodeSetParams_v2: no such node");
  FakeWork& w = exec->nodes[it - exec->made_of.begin()];
  FakeFunction* f = nullptr;
  if (CUresult r = check_function(s, p->func, &f, "cuGraphExecKernelNodeSetParams_v2"); r != CUDA_SUCCESS) return r;
  FakeLaunch l{.symbol = f->symbol,
               .grid = {p->gridDimX, p->gridDimY, p->gridDimZ},
               .block = {p->blockDimX, p->blockDimY, p->blockDimZ},
               .shared_bytes = p->sharedMemBytes};
  if (std::string wrong = w.launch ? wrong_launch(s, *f, l) : "the node is not a kernel"; !wrong.empty() || p->extra)
    return s.complain(CUDA_ERROR_INVALID_VALUE, "cuGraphExecKernelNodeSetParams_v2 of ", f->symbol, ": ", wrong);
  auto* bytes = f->kernel.parameter_bytes ? static_cast<const std::byte*>(p->kernelParams[0]) : nullptr;
  l.parameters.assign(bytes, bytes + f->kernel.parameter_bytes);
  w.function = f;
  if (f->kernel.touches) w.touches = f->kernel.touches(l);
  w.launch = std::make_shared<FakeLaunch>(std::move(l));
  return CUDA_SUCCESS;
}
CUresult graph_update(CUgraphExec exec_handle, CUgraph graph_handle, CUgraphExecUpdateResultInfo* result) {
  WEFT_FAKE_CONTEXT_CALL(cuGraphExecUpdate_v2);
  FakeExec* exec = exec_of(s, exec_handle);
  FakeGraph* graph = graph_of(s, graph_handle);
  if (!exec || !graph) return s.complain(CUDA_ERROR_INVALID_VALUE, "cuGraphExecUpdate_v2: no such graph");
  *result = {CU_GRAPH_EXEC_UPDATE_ERROR, nullptr, nullptr};
  if (exec->nodes.size() != graph->nodes.size()) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  for (size_t i = 0; i < exec->nodes.size(); ++i)
    if (!exec->nodes[i].launch != !graph->nodes[i]->launch) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  for (size_t i = 0; i < exec->nodes.size(); ++i) exec->nodes[i] = copied(*graph->nodes[i]);
  result->result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
  return CUDA_SUCCESS;
}
CUresult exec_destroy(CUgraphExec handle) {
  WEFT_FAKE_CALL(cuGraphExecDestroy);
  FakeExec* exec = exec_of(s, handle);
  if (!exec) return s.complain(CUDA_ERROR_INVALID_VALUE, "cuGraphExecDestroy: no such executable graph");
  s.execs.erase(exec);
  delete exec;
  return CUDA_SUCCESS;
}
CUresult graph_destroy(CUgraph handle) {
  WEFT_FAKE_CALL(cuGraphDestroy);
  FakeGraph* graph = graph_of(s, handle);
  if (!graph) return s.complain(CUDA_ERROR_INVALID_VALUE, "cuGraphDestroy: no such graph");
  s.graphs.erase(graph);
  delete graph;
  return CUDA_SUCCESS;
}

}  // namespace

void FakeCalls::add_modules(DriverApi& t) {
  t.cuModuleLoadData = module_load;
  t.cuModuleUnload = module_unload;
  t.cuModuleGetFunction = module_function;
  t.cuFuncGetAttribute = get_attribute;
  t.cuFuncSetAttribute = set_attribute;
  t.cuFuncGetParamInfo = parameter_info;
  t.cuLaunchKernel = launch;
}

void FakeCalls::add_graphs(DriverApi& t) {
  t.cuGraphInstantiateWithFlags = graph_instantiate;
  t.cuGraphLaunch = graph_launch;
  t.cuGraphGetNodes = graph_nodes;
  t.cuGraphExecKernelNodeSetParams_v2 = set_node_parameters;
  t.cuGraphExecUpdate_v2 = graph_update;
  t.cuGraphExecDestroy = exec_destroy;
  t.cuGraphDestroy = graph_destroy;
}

}  // namespace weft::cuda::testing
