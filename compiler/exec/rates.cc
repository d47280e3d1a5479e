#include "compiler/exec/rates.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "compiler/exec/trace.h"
#include "framework/base/thread_pool.h"
#include "framework/tensor/tensor.h"
#include "ops/kernels/gemm.h"

namespace weft::internal {
namespace {

constexpr int kRepetitions = 3;

// Work per microsecond of the best of a few runs: others disturb, nobody helps.
double best_rate(double work, auto&& run) {
  double best = 1e30;
  for (int i = 0; i <= kRepetitions; ++i) {
    const double start = now_us();
    run();
    if (i > 0) best = std::min(best, now_us() - start);  // the first run touches the memory
  }
  return work / std::max(best, 1e-3);
}

double copy_rate() {
  constexpr int64_t kPiece = 1 << 20, kPieces = 24;  // beyond the caches that tasks share
  std::vector<char> from(kPieces * kPiece, 1), to(kPieces * kPiece);
  return best_rate(2.0 * kPieces * kPiece, [&] {
    parallel_for(kPieces, [&](int64_t i) { std::memcpy(to.data() + i * kPiece, from.data() + i * kPiece, kPiece); });
  });
}

double gemm_rate(DType t) {
  constexpr int64_t n = 512;
  const TensorType type{t, {}, {n, n}};
  Tensor a = Tensor::empty(type), b = Tensor::empty(type), c = Tensor::empty(type);
  for (const Tensor* x : {&a, &b}) std::memset(x->view_for_kernel().data, 0, type.nbytes());
  auto batched = [&](const Tensor& x) {
    return StridedView{x.view_for_kernel().data, t, {1, n, n}, contiguous_strides({1, n, n})};
  };
  std::vector<char> workspace(kernels::gemm_workspace(t, t, 1, n, n, n) + 64);
  void* aligned = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(workspace.data()) + 63) & ~uintptr_t{63});
  return best_rate(2.0 * n * n * n, [&] { kernels::gemm(batched(a), batched(b), batched(c), aligned); });
}

}  // namespace

const MachineRates& machine_rates() {
  static const MachineRates rates{copy_rate(), gemm_rate(kFloat32), gemm_rate(kBFloat16)};
  return rates;
}

}  // namespace weft::internal
