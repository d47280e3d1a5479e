#include "distributed/diloco/outer.h"

#include "framework/base/error.h"

namespace weft::dist {

constexpr int64_t kMostBlock = 65536;  // values

void OuterOptions::check() const {
  WEFT_CHECK(every > 0, "diloco: got ", every, " steps between exchanges; need 1 or more");
  WEFT_CHECK(fragments > 0 && every % fragments == 0, "outer_fragments: got ", fragments, "; need a divisor of ", every,
             ", the steps from one exchange of a parameter to the next");
  WEFT_CHECK(delay >= 0 && delay < every, "outer_delay: got ", delay, "; need 0 or more, below ", every,
             ", the steps from one exchange of a parameter to the next");
  WEFT_CHECK(steps > 0 && steps % every == 0, "steps: got ", steps, "; need a multiple of ", every,
             ", the steps between exchanges");
  WEFT_CHECK(lr > 0 && lr <= 1e3, "outer_lr: got ", lr, "; need more than 0, at most 1000");
  WEFT_CHECK(momentum >= 0 && momentum < 1, "outer_momentum: got ", momentum, "; need 0 or more, below 1");
  WEFT_CHECK(alpha >= 0 && alpha < 1, "outer_alpha: got ", alpha, "; need 0 or more, below 1");
}

std::string OuterOptions::text() const {
  return str_cat("every ", every, ", fragments ", fragments, ", delay ", delay, ", lr ", lr, ", momentum ", momentum,
                 ", alpha ", alpha, ", wire ", kOuterWires[static_cast<size_t>(wire)]);
}

double OuterOptions::bytes_per_step(int64_t values, int64_t replicas) const {
  const auto r = static_cast<double>(replicas);
  return 2 * (r - 1) / r * static_cast<double>(wire_bytes(wire, values)) / static_cast<double>(every);
}

std::vector<std::vector<FragmentPiece>> fragments_of(std::span<const int64_t> sizes, int64_t fragments) {
  int64_t all = 0;
  for (const int64_t n : sizes) all += n;
  const auto up = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const int64_t rounds = std::max<int64_t>(1, up(all, fragments * kMostBlock));
  const int64_t block = std::max(kWireBlock, up(up(all, fragments * rounds), kWireBlock) * kWireBlock);
  std::vector<std::vector<FragmentPiece>> of(static_cast<size_t>(fragments));
  int64_t before = 0;
  for (size_t i = 0; i < sizes.size(); before += sizes[i++])
    for (int64_t at = 0; at < sizes[i];) {
      const int64_t position = before + at;
      const int64_t count = std::min(sizes[i] - at, block - position % block);
      of[static_cast<size_t>(position / block % fragments)].push_back({i, at, count});
      at += count;
    }
  return of;
}

}  // namespace weft::dist
