// Expert parallelism by hand (Lepikhin et al. 2020): every rank has its own tokens and some of the experts. Two
// all-to-alls, whose sizes depend on the data, send tokens to their experts and back. No token is dropped, and an
// expert without tokens needs no special case. Values and gradients equal the results of one device with all tokens and
// experts. The collectives equal the collectives of dist::compile for a plan that only splits the experts.
//   ./bazelw run //models/examples:raw_ep -- --ranks 4
#include <algorithm>
#include <cstdio>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "distributed/distributed.h"
#include "weft.h"

ABSL_FLAG(int, ranks, 2, "ranks, each with 128 tokens and its share of 8 experts; need a divisor of 8");
ABSL_FLAG(double, skew, 0, "expected share of the choices that go to expert 0; 0: the router chooses");

using namespace weft;

namespace {

constexpr int64_t kTokens = 128, kDim = 64, kHidden = 128, kExperts = 8, kTopK = 2;

struct Weights {
  Tensor router;    // [dim, experts]
  Tensor up, down;  // [experts, dim, hidden], [experts, hidden, dim]
};

/// Rows of expert e are offsets[e] to offsets[e + 1].
Tensor experts(const Tensor& rows, const Weights& w, const Tensor& offsets) {
  return grouped_matmul(silu(grouped_matmul(rows, w.up, offsets)), w.down, offsets);
}

/// chosen: the experts of each token; not defined: the router chooses.
Tensor one_device(const Tensor& x, const Weights& w, const Tensor& chosen) {
  const Routing route = route_top_k(matmul(x, w.router), {.top_k = kTopK, .experts = chosen});
  const ExpertOrder order = sort_by_expert(route.experts, kExperts);
  return combine_tokens(experts(dispatch_tokens(x, order), w, order.offsets), order, route.weights);
}

/// x: this rank's tokens. w: this rank's experts.
Tensor by_hand(const Tensor& x, const Weights& w, const Tensor& chosen) {
  const int64_t ranks = dist::group_size("ep"), local = kExperts / ranks;

  // Route: choose the experts of each token. Sorted by expert, the rows for one rank are contiguous.
  const Routing route = route_top_k(matmul(x, w.router), {.top_k = kTopK, .experts = chosen});
  const ExpertOrder order = sort_by_expert(route.experts, kExperts);

  // Dispatch: exchange the number of rows for each expert, then the rows.
  const Tensor counts = dist::all_to_all_single(order.counts, "ep").reshape({ranks, local});
  const Tensor send = order.counts.reshape({ranks, local}).sum({1}), recv = counts.sum({1});
  const int64_t bound = ranks * kTokens * kTopK;  // all rows of all ranks: the worst case
  const Tensor received = dist::all_to_all_rows(dispatch_tokens(x, order), send, recv, "ep", bound);

  // The received rows are ordered by rank, then by expert: find the expert of each row, and sort. Unused rows count as
  // one more expert.
  const Tensor ends = cumsum(counts.reshape({-1}), 0);
  const Tensor segment = (arange(bound).reshape({-1, 1}) >= ends).to(kInt64).sum({1});
  const Tensor expert = where(segment < ranks * local, remainder(segment, local), local);
  const ExpertOrder mine = sort_by_expert(expert.reshape({-1, 1}), local + 1);
  const Tensor y = experts(dispatch_tokens(received, mine), w, mine.offsets.slice(0, 0, local + 1));

  // Combine: restore the order of arrival, send the rows back, and sum them by weight.
  const Tensor back = dist::all_to_all_rows(index_select(y, 0, mine.rows), recv, send, "ep", kTokens * kTopK);
  return combine_tokens(back, order, route.weights);
}

double difference(const Tensor& got, const Tensor& want) {
  return ((got - want).abs().amax() / want.abs().amax()).item<float>();
}

}  // namespace

int main(int argc, char** argv) try {
  absl::ParseCommandLine(argc, argv);
  const int ranks = absl::GetFlag(FLAGS_ranks);
  WEFT_CHECK(ranks >= 1 && kExperts % ranks == 0, "raw_ep: --ranks is ", ranks, "; need a divisor of ", kExperts);
  const double skew = absl::GetFlag(FLAGS_skew);
  WEFT_CHECK(skew >= 0 && skew <= 1, "raw_ep: --skew is ", skew, "; need 0 to 1");
  manual_seed(0);
  const Tensor x = randn({ranks * kTokens, kDim}), dy = randn({ranks * kTokens, kDim});
  const Weights all{randn({kDim, kExperts}), randn({kExperts, kDim, kHidden}) * 0.1,
                    randn({kExperts, kHidden, kDim}) * 0.1};
  const Tensor chosen =
      skew > 0 ? nn::ExpertChoice{nn::ExpertChoice::Law::kSkew, skew}.choose(zeros({ranks * kTokens, kExperts}), kTopK)
               : Tensor();
  auto gradients = [](auto fn, Tensor xs, Weights w, const Tensor& dys, const Tensor& experts) {
    xs = xs.requires_grad(), w.router = w.router.requires_grad(), w.up = w.up.requires_grad(),
    w.down = w.down.requires_grad();
    const Tensor y = fn(xs, w, experts);
    std::vector<Tensor> result{y};
    for (const Tensor& g : grad(sum(y * dys), {xs, w.router, w.up, w.down})) result.push_back(g);
    return result;
  };
  const std::vector<Tensor> want = gradients(one_device, x, all, dy, chosen);

  dist::World world(dist::Mesh{{"ep", ranks}});
  std::vector<std::vector<double>> off(ranks);
  world.run([&](int rank) {
    auto part = [&](const Tensor& t) {
      const int64_t n = t.size(0) / ranks;
      return t.slice(0, rank * n, (rank + 1) * n).contiguous();
    };
    std::vector<Tensor> got = gradients(by_hand, part(x), {all.router, part(all.up), part(all.down)}, part(dy),
                                        skew > 0 ? part(chosen) : Tensor());
    got[2] = dist::all_reduce(got[2], "ep");  // the router is replicated: sum the gradients of all ranks
    for (size_t i = 0; i < got.size(); ++i) off[rank].push_back(difference(got[i], i == 2 ? want[i] : part(want[i])));
  });
  const char* names[] = {"y", "dx", "d router", "d up", "d down"};
  std::printf("%d ranks, %d tokens and %d experts each, against one device:\n ", ranks, static_cast<int>(kTokens),
              static_cast<int>(kExperts / ranks));
  for (size_t i = 0; i < 5; ++i) {
    double worst = 0;
    for (const auto& rank : off) worst = std::max(worst, rank[i]);
    std::printf(" %s %.1e", names[i], worst);
  }
  std::printf("\n%s", world.statistics().c_str());

  // The rows that each rank's experts compute, forward; the rank with most makes the others wait.
  const Tensor counts =
      sort_by_expert(skew > 0 ? chosen : route_top_k(matmul(x, all.router), {.top_k = kTopK}).experts, kExperts).counts;
  const std::vector<int64_t> rows = counts.reshape({ranks, kExperts / ranks}).sum({1}).to_vector<int64_t>();
  const double mean = static_cast<double>(kTokens * kTopK);
  std::printf("\nrank      rows   of mean    waiting\n");
  for (int r = 0; r < ranks; ++r) {
    double wait = 0;
    for (const auto& [key, total] : world.rank(r).totals()) wait += total.wait_seconds;
    std::printf("%4d  %8ld  %8.2f  %6.2f ms\n", r, rows[r], static_cast<double>(rows[r]) / mean, wait * 1e3);
  }

  // The compiled version: one_device(), unchanged, and the placement of the experts; the compiler inserts collectives.
  const Parameter router(all.router, "router"), up(all.up, "up"), down(all.down, "down");
  auto step = dist::compile(
      [&](Tensor xs, Tensor dys) {
        return gradients(one_device, xs, {router.value(), up.value(), down.value()}, dys, chosen);
      },
      {.mesh = world.mesh(), .plan = {{"up", {{"ep", dist::Shard(0)}}}, {"down", {{"ep", dist::Shard(0)}}}}});
  const std::vector<Tensor> got = step(x, dy);
  std::printf("\ncompiled, against one device:\n ");
  for (size_t i = 0; i < 5; ++i) std::printf(" %s %.1e", names[i], difference(got[i], want[i]));
  std::printf("\n");
  for (const dist::CollectiveSum& c : step.plan().totals())
    std::printf("%-14s  %-8s %8ld %12ld   planned\n", str_cat(c.kind).c_str(), c.axes.c_str(), c.count, c.bytes);
} catch (const Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
