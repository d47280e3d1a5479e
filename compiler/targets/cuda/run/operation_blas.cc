#include "compiler/targets/cuda/run/operation_blas.h"

#include <map>

#include "framework/base/mutex.h"

namespace weft::cuda {
namespace {

struct BlasHandles {
  Mutex mutex;
  std::map<int, std::unique_ptr<CublasLt>> of_gpu WEFT_GUARDED_BY(mutex);
  const lt::CublasLtTable* table WEFT_GUARDED_BY(mutex) = nullptr;
};
BlasHandles& all() {
  static auto* a = new BlasHandles;
  return *a;
}

void forget() {
  MutexLock lock(all().mutex);
  all().of_gpu.clear();
}

}  // namespace

CublasLt& blas_of(Gpu& gpu) {
  [[maybe_unused]] static const bool registered = (internal::at_driver_change(forget), true);
  MutexLock lock(all().mutex);
  auto& blas = all().of_gpu[gpu.index()];
  if (!blas) {
    gpu.make_current();
    blas = all().table ? std::make_unique<CublasLt>(*all().table) : std::make_unique<CublasLt>();
  }
  return *blas;
}

namespace internal {
void set_cublaslt(const lt::CublasLtTable* table) {
  forget();
  MutexLock lock(all().mutex);
  all().table = table;
}
}  // namespace internal

}  // namespace weft::cuda
