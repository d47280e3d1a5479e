#include "framework/cuda/module.h"

#include "framework/base/error.h"
#include "framework/cuda/gpu.h"
#include "framework/cuda/graph_replay.h"
#include "framework/cuda/libraries/driver_error.h"

namespace weft::cuda {

// "kernel add_7 (add at model.cc:12)".
static std::string named(std::string_view what, std::string_view op, SourceLine at) {
  std::string line = at.to_string();
  std::string of = str_cat(op, !op.empty() && !line.empty() ? " at " : "", line);
  return str_cat(what, of.empty() ? "" : str_cat(" (", of, ")"));
}
static std::string named(const std::string& kernel, const KernelLaunch& l) {
  return named(str_cat("kernel ", kernel), l.op, l.line);
}

void check_queued(Stream& stream, std::string_view what, std::string_view op, SourceLine line) {
  if (!stream.gpu().synchronous() || stream.capturing()) return;
  CUresult r = driver().cuStreamSynchronize(stream.handle());
  WEFT_CHECK_AS(kAborted, r == CUDA_SUCCESS, "cuda: ", named(what, op, line), " failed on ", stream.gpu().device(),
                ": ", describe(r));
}

std::shared_ptr<CudaModule> CudaModule::load(Gpu& gpu, std::span<const char> image, std::string what) {
  std::shared_ptr<CudaModule> m(new CudaModule(gpu, std::move(what)));
  WEFT_CHECK(!image.empty(), "cuda: loading ", m->what_, ": the image is empty");
  m->image_.assign(image.begin(), image.end());
  gpu.make_current();
  CUresult r = driver().cuModuleLoadData(&m->handle_, m->image_.data());
  if (r != CUDA_SUCCESS) m->handle_ = nullptr;
  const GpuProperties& p = gpu.properties();
  const bool unfit = r == CUDA_ERROR_NO_BINARY_FOR_GPU || r == CUDA_ERROR_INVALID_IMAGE ||
                     r == CUDA_ERROR_INVALID_PTX || r == CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  WEFT_CHECK_AS(kUnavailable, !unfit, "cuda: loading ", m->what_, ": ", describe(r),
                "; this GPU has compute capability ", p.sm / 10, ".", p.sm % 10, " and its driver is for CUDA ",
                version_text(availability().version), ": need kernels compiled for both");
  check(r, "loading ", m->what_, " on ", gpu.device(), " (", p.name, ")");
  return m;
}

CudaModule::~CudaModule() {
  if (!handle_) return;
  gpu_.make_current_if_possible();
  ignore(driver().cuModuleUnload(handle_));
}

Function CudaModule::function(const std::string& symbol, int shared_bytes) const {
  const DriverApi& api = driver();
  gpu_.make_current();
  Function f;
  f.module_ = shared_from_this();
  f.name_ = symbol;
  CUresult r = api.cuModuleGetFunction(&f.handle_, handle_, symbol.c_str());
  WEFT_CHECK_AS(kNotFound, r != CUDA_ERROR_NOT_FOUND, "cuda: ", what_, " has no kernel ", symbol);
  check(r, "finding kernel ", symbol, " in ", what_);
  auto get = [&](CUfunction_attribute a, int* value) {
    check(api.cuFuncGetAttribute(value, a, f.handle_), "reading an attribute of kernel ", symbol);
  };
  get(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &f.max_threads_);
  get(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, &f.static_shared_);
  size_t offset = 0;
  if (api.cuFuncGetParamInfo(f.handle_, 0, &offset, &f.parameter_bytes_) != CUDA_SUCCESS) f.parameter_bytes_ = 0;

  const GpuProperties& p = gpu_.properties();
  WEFT_CHECK_AS(kResourceExhausted, shared_bytes + f.static_shared_ <= p.shared_per_block_optin, "cuda: kernel ",
                symbol, " needs ", shared_bytes + f.static_shared_, " bytes of shared memory in a block; ", p.name,
                " has ", p.shared_per_block_optin);
  f.max_dynamic_shared_ = p.shared_per_block - f.static_shared_;
  if (shared_bytes > f.max_dynamic_shared_) {
    check(api.cuFuncSetAttribute(f.handle_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes),
          "giving kernel ", symbol, " ", shared_bytes, " bytes of shared memory");
    f.max_dynamic_shared_ = shared_bytes;
  }
  return f;
}

Gpu& Function::gpu() const { return module_->gpu(); }

void Function::launch(Stream& stream, const KernelLaunch& l) const {
  const GpuProperties& p = gpu().properties();
  WEFT_CHECK(l.grid_x >= 1 && l.grid_y >= 1 && l.grid_z >= 1 && l.grid_x <= p.grid_x && l.grid_y <= p.grid_y &&
                 l.grid_z <= p.grid_z,
             "cuda: ", named(name_, l), ": grid [", l.grid_x, ", ", l.grid_y, ", ", l.grid_z, "]; need 1 to [",
             p.grid_x, ", ", p.grid_y, ", ", p.grid_z, "] blocks");
  WEFT_CHECK(l.threads >= 1 && l.threads <= max_threads_, "cuda: ", named(name_, l), ": ", l.threads,
             " threads in a block; need 1 to ", max_threads_);
  WEFT_CHECK(l.shared_bytes <= max_dynamic_shared_, "cuda: ", named(name_, l), ": ", l.shared_bytes,
             " bytes of shared memory; the function was made for ", max_dynamic_shared_);
  WEFT_BUG_IF(l.parameter_bytes != parameter_bytes_, named(name_, l), ": ", l.parameter_bytes,
              " bytes of parameters, compiled with ", parameter_bytes_);
  if (GraphReplay::take_renamed(*this, l)) return;
  gpu().make_current();
  void* parameters[] = {const_cast<void*>(l.parameters)};
  CUresult r = driver().cuLaunchKernel(handle_, l.grid_x, l.grid_y, l.grid_z, l.threads, 1, 1, l.shared_bytes,
                                       stream.handle(), parameters, nullptr);
  check(r, "launching ", named(name_, l));
  GraphReplay::note(*this, l, stream);
  if (gpu().synchronous()) check_queued(stream, str_cat("kernel ", name_), l.op, l.line);
}

}  // namespace weft::cuda
