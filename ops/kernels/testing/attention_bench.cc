// Times attention's kernels, one case per line of standard input, so that a script can alternate them with others:
//   NAME DTYPE B HQ HKV SQ SKV D MASK WHAT REPS
// MASK: none, causal or window=N. WHAT: forward, backward, both, or plain (only the products of both, with whole score
// matrices in memory, and two passes over them). Layout: [B, S, H, D]. Prints NAME, the least and the median
// milliseconds of REPS runs, and the least processor time (of all threads), which a busy machine disturbs less.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <iostream>
#include <limits>
#include <sstream>

#include "framework/base/error.h"
#include "framework/base/thread_pool.h"
#include "ops/kernels/attention/attention.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/products/gemm.h"
#include "ops/kernels/testing/test_arrays.h"

namespace weft::kernels {
namespace {

struct Memory {
  std::unique_ptr<char[]> bytes;
  explicit Memory(int64_t n) : bytes(new char[n + 64]) {}
  void* get() const { return bytes.get() + (64 - reinterpret_cast<uintptr_t>(bytes.get()) % 64) % 64; }
};

struct Mask {
  std::vector<int64_t> offsets{0};
  std::vector<BlockRange> ranges;
  std::vector<uint8_t> tiles;
  BlockMaskView view;

  // Visible keys: q - window <= kv <= q.
  Mask(int64_t sq, int64_t skv, int64_t window) {
    auto sees = [&](int64_t i, int64_t j) { return j <= i && j >= i - window; };
    const int64_t n = 128, nq = (sq + n - 1) / n, nk = (skv + n - 1) / n;
    for (int64_t q = 0; q < nq; ++q) {
      for (int64_t k = 0; k <= std::min(q, nk - 1); ++k) {
        if ((k + 1) * n <= q * n - window) continue;
        std::vector<uint8_t> tile(n * n / 8);
        int64_t seen = 0;
        if (k < q && k * n >= (q + 1) * n - 1 - window)
          seen = n * n;
        else
          for (int64_t i = 0; i < n; ++i)
            for (int64_t j = 0; j < n; ++j)
              if (sees(q * n + i, k * n + j)) ++seen, tile[(i * n + j) / 8] |= 1 << j % 8;
        if (seen == 0) continue;
        const int32_t first = static_cast<int32_t>(k);
        if (seen == n * n) {
          if (static_cast<int64_t>(ranges.size()) > offsets.back() && ranges.back().tile < 0 &&
              ranges.back().last == first)
            ranges.back().last++;
          else
            ranges.push_back({first, first + 1, BlockRange::kFull});
        } else {
          ranges.push_back({first, first + 1, static_cast<int32_t>(tiles.size() / (n * n / 8))});
          tiles.insert(tiles.end(), tile.begin(), tile.end());
        }
      }
      offsets.push_back(static_cast<int64_t>(ranges.size()));
    }
    view.q_len = sq, view.kv_len = skv;
    view.offsets = offsets.data(), view.ranges = ranges.data(), view.tiles = tiles.data();
  }
};

double milliseconds(const std::function<void()>& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

void run(const std::string& line) {
  std::istringstream in(line);
  std::string name, dtype, mask_name, what;
  int64_t b, hq, hkv, sq, skv, d, reps;
  in >> name >> dtype >> b >> hq >> hkv >> sq >> skv >> d >> mask_name >> what >> reps;
  WEFT_CHECK(in, "attention_bench: bad line '", line, "'; need NAME DTYPE B HQ HKV SQ SKV D MASK WHAT REPS");
  const DType t = parse_dtype(dtype);
  auto tensor = [&](int64_t h, int64_t s, uint64_t seed) {
    Array a(t, {b, h, s, d}, {s * h * d, d, h * d, 1});
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < b * h * s * d; ++i)
      set_element(static_cast<char*>(a.view().data) + i * itemsize(t), t, normal(random));
    return a;
  };
  const Array q = tensor(hq, sq, 1), k = tensor(hkv, skv, 2), v = tensor(hkv, skv, 3), dout = tensor(hq, sq, 4);
  const Array out = tensor(hq, sq, 5), dq = tensor(hq, sq, 6), dk = tensor(hkv, skv, 7), dv = tensor(hkv, skv, 8);
  Attention a;
  a.q = q, a.k = k, a.v = v, a.scale = 1 / std::sqrt(static_cast<double>(d));
  const Mask mask(sq, skv, mask_name.rfind("window=", 0) == 0 ? std::stoll(mask_name.substr(7)) : sq);
  if (mask_name != "none") a.blocks = &mask.view;
  std::vector<float> log_sum(b * hq * sq), max(b * hq * sq);
  const Memory ws(std::max(attention_workspace(a), attention_backward_workspace(a)));
  auto forward = [&] { attention(a, out, log_sum.data(), max.data(), ws.get()); };
  auto backward = [&] {
    attention_backward(a, {out, log_sum.data(), max.data(), dout, nullptr, dq, dk, dv}, ws.get());
  };
  std::function<void()> f = forward;
  std::unique_ptr<Memory> scores, p, products;
  if (what == "backward") forward(), f = backward;
  if (what == "both") f = [&] { forward(), backward(); };
  if (what == "plain") {
    WEFT_CHECK(hq == hkv, "attention_bench: plain has ", hq, " and ", hkv, " heads; need equal numbers");
    scores = std::make_unique<Memory>(b * hq * sq * skv * 4),
    p = std::make_unique<Memory>(b * hq * sq * skv * itemsize(t));
    const Shape shape{b, hq, sq, skv}, strides = contiguous_strides(shape);
    auto transposed = [](StridedView x) {
      std::swap(x.shape[2], x.shape[3]), std::swap(x.strides[2], x.strides[3]);
      return x;
    };
    const StridedView s{scores->get(), kFloat32, shape, strides}, pv{p->get(), t, shape, strides};
    int64_t most = 0;
    for (DType o : {t, kFloat32})
      most = std::max({most, gemm_workspace(t, o, b * hq, sq, skv, d), gemm_workspace(t, o, b * hq, sq, d, skv),
                       gemm_workspace(t, o, b * hq, skv, d, sq)});
    products = std::make_unique<Memory>(most);
    f = [=, &q, &k, &v, &out, &dout, &dq, &dk, &dv, w = products->get()] {
      gemm(q, transposed(k), s, w);
      pointwise(Pw::exp, {&s, 1}, s);
      cast_copy(s, pv);
      gemm(pv, v, out, w);
      gemm(transposed(pv), dout, dv, w);
      gemm(dout, transposed(v), s, w);
      const StridedView both[2] = {s, s};
      pointwise(Pw::mul, both, s);
      cast_copy(s, pv);
      gemm(transposed(pv), q, dk, w);
      gemm(pv, k, dq, w);
    };
  }
  f();
  std::vector<double> times;
  double processor = std::numeric_limits<double>::infinity();
  for (int64_t i = 0; i < reps; ++i) {
    const std::clock_t start = std::clock();
    times.push_back(milliseconds(f));
    processor = std::min(processor, 1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  std::sort(times.begin(), times.end());
  std::cout << name << " " << times[0] << " " << times[times.size() / 2] << " " << processor << std::endl;
}

}  // namespace
}  // namespace weft::kernels

int main() {
  try {
    for (std::string line; std::getline(std::cin, line);)
      if (!line.empty() && line[0] != '#') weft::kernels::run(line);
  } catch (const weft::Error& e) {
    std::cerr << e.what() << "\n";
    return 1;
  }
}
