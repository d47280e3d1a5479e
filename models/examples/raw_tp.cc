// Tensor parallelism by hand (Shoeybi et al. 2019, Korthikanti et al. 2022): a layer's weights are split over the ranks
// of the mesh, and the program calls the collectives itself. Values and gradients equal the results of one device. The
// collectives equal the collectives of dist::compile for a plan with only the placement of the tensors.
//   ./bazelw run //models/examples:raw_tp -- --ranks 4
#include <algorithm>
#include <cstdio>
#include <functional>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "distributed/distributed.h"
#include "weft.h"

ABSL_FLAG(int, ranks, 2, "ranks, each with its part of the weights; need a divisor of 256");

using namespace weft;

namespace {

constexpr int64_t kTokens = 256, kDim = 256, kHidden = 1024;

/// This rank's shard of x along dim.
Tensor mine(const Tensor& x, int64_t dim) {
  const int64_t n = x.size(dim) / dist::group_size("tp"), r = dist::coordinate("tp");
  return x.slice(dim, r * n, (r + 1) * n).contiguous();
}

/// Largest difference, relative to the largest value.
double difference(const Tensor& got, const Tensor& want) {
  return ((got - want).abs().amax() / want.abs().amax()).item<float>();
}

constexpr const char* kNames[] = {"y", "dx", "dA", "dB"};

struct ShardedLayer {
  const char* title;
  // Computes this rank's shard of y from its shards of x and of two weights.
  std::function<Tensor(const Tensor&x, const Tensor&a, const Tensor&b)> local, whole;
  int64_t x_dim, a_dim, b_dim, y_dim;  // the dim that is split; -1: replicated
  bool compiled = true;                // the compiler inserts the same collectives
};

const ShardedLayer kLayers[] = {
    // Each rank computes some columns of y. All ranks use x, so its gradient is the sum of theirs.
    {"column: y = x A, columns of A and y split",
     [](auto& x, auto& a, auto&) { return matmul(dist::copy_to(x, "tp"), a); },
     [](auto& x, auto& a, auto&) { return matmul(x, a); }, -1, 1, -1, 1},
    // Each rank has some columns of x and rows of A; y is the sum of the products of all ranks.
    {"row: y = x A, columns of x and rows of A split",
     [](auto& x, auto& a, auto&) { return dist::reduce_from(matmul(x, a), "tp"); },
     [](auto& x, auto& a, auto&) { return matmul(x, a); }, 1, 0, -1, -1},
    // Both in sequence, with no collective in between, because gelu works on single elements.
    {"sandwich: y = gelu(x A) B, column then row",
     [](auto& x, auto& a, auto& b) {
       return dist::reduce_from(matmul(gelu(matmul(dist::copy_to(x, "tp"), a)), b), "tp");
     },
     [](auto& x, auto& a, auto& b) { return matmul(gelu(matmul(x, a)), b); }, -1, 1, 0, -1},
    // Sequence parallel: outside the layer, each rank has some of the tokens. The collectives move the same number of
    // bytes, but no activation is stored twice.
    {"sandwich between parts of the sequence",
     [](auto& x, auto& a, auto& b) {
       return dist::reduce_scatter(matmul(gelu(matmul(dist::all_gather(x, "tp", 0), a)), b), "tp", 0);
     },
     [](auto& x, auto& a, auto& b) { return matmul(gelu(matmul(x, a)), b); }, 0, 1, 0, 0, false},
    // The pair without the sandwich: each rank has all hidden values in between, for two collectives more.
    {"pair: y = gelu(x A) B, column, gather, gelu, cut, row",
     [](auto& x, auto& a, auto& b) {
       const Tensor whole = dist::all_gather(matmul(dist::copy_to(x, "tp"), a), "tp", 1);
       return dist::reduce_from(matmul(mine(gelu(whole), 1), b), "tp");
     },
     [](auto& x, auto& a, auto& b) { return matmul(gelu(matmul(x, a)), b); }, -1, 1, 0, -1, false},
};

/// y, dx, dA and, for a layer of two weights, dB. The loss is sum(y w).
template <class Fn>
std::vector<Tensor> gradients(const Fn& fn, bool pair, Tensor x, Tensor a, Tensor b, const Tensor& w) {
  x = x.requires_grad(), a = a.requires_grad(), b = b.requires_grad();
  const Tensor y = fn(x, a, b);
  std::vector<Tensor> leaves{x, a}, all{y};
  if (pair) leaves.push_back(b);
  for (const Tensor& g : grad(sum(y * w), leaves)) all.push_back(g);
  return all;
}

/// The compiled version: the layer of one device and the placement of its tensors; the compiler inserts collectives.
std::string compiled(const ShardedLayer& layer, int ranks, const Tensor& x, const Tensor& a, const Tensor& b,
                     const Tensor& w, const std::vector<Tensor>& want) {
  const bool pair = layer.b_dim >= 0;
  const Parameter px(x, "x"), pa(a, "a"), pb(b, "b"), pw(w, "w");
  pw.requires_grad(false);
  auto placement = [](int64_t dim) { return dim < 0 ? dist::Replicate() : dist::Shard(static_cast<int>(dim)); };
  dist::Plan plan = {{"x", {{"tp", placement(layer.x_dim)}}},
                     {"a", {{"tp", placement(layer.a_dim)}}},
                     {"w", {{"tp", placement(layer.y_dim)}}}};
  if (pair) plan.rules.push_back({"b", {{"tp", placement(layer.b_dim)}}});
  auto step =
      dist::compile([&] { return gradients(layer.whole, pair, px.value(), pa.value(), pb.value(), pw.value()); },
                    {.mesh = dist::Mesh{{"tp", ranks}}, .plan = plan});
  const std::vector<Tensor> got = step();
  std::string text = "  compiled, against one device:";
  char line[100];
  for (size_t i = 0; i < got.size(); ++i) {
    std::snprintf(line, sizeof line, " %s %.1e ", kNames[i], difference(got[i], want[i]));
    text += line;
  }
  text += "\n";
  for (const dist::CollectiveSum& c : step.plan().totals()) {
    std::snprintf(line, sizeof line, "%-14s  %-8s %8ld %12ld   planned\n", str_cat(c.kind).c_str(), c.axes.c_str(),
                  c.count, c.bytes);
    text += line;
  }
  return text + "\n";
}

}  // namespace

int main(int argc, char** argv) try {
  absl::ParseCommandLine(argc, argv);
  const int ranks = absl::GetFlag(FLAGS_ranks);
  WEFT_CHECK(ranks >= 1 && kDim % ranks == 0, "raw_tp: --ranks is ", ranks, "; need a divisor of ", kDim);
  dist::World world(dist::Mesh{{"tp", ranks}});
  manual_seed(0);
  const auto count = [&] {
    int64_t n = 0;
    for (const auto& [key, total] : world.rank(0).totals()) n += total.count;
    return n;
  };
  std::string counts = "collectives                                               forward   in all\n";
  for (const ShardedLayer& layer : kLayers) {
    const bool pair = layer.b_dim >= 0;
    const Tensor x = randn({kTokens, kDim}), a = randn({kDim, kHidden}) * 0.06, b = randn({kHidden, kDim}) * 0.03;
    const Tensor w = randn({kTokens, pair ? kDim : kHidden});  // the loss is sum(y w)
    const std::vector<Tensor> want = gradients(layer.whole, pair, x, a, b, w);

    std::vector<double> worst(4);
    world.clear_statistics();
    const int64_t dims[] = {layer.y_dim, layer.x_dim, layer.a_dim, layer.b_dim};
    auto part = [&](const Tensor& t, int64_t dim) { return dim < 0 ? t : mine(t, dim); };
    world.run([&](int) { layer.local(part(x, dims[1]), part(a, dims[2]), part(b, dims[3])); });
    const int64_t forward = count();
    world.clear_statistics();
    std::vector<std::vector<double>> off(ranks);
    world.run([&](int rank) {
      const auto got =
          gradients(layer.local, pair, part(x, dims[1]), part(a, dims[2]), part(b, dims[3]), part(w, dims[0]));
      for (size_t i = 0; i < got.size(); ++i) off[rank].push_back(difference(got[i], part(want[i], dims[i])));
    });
    for (const auto& rank : off)
      for (size_t i = 0; i < rank.size(); ++i) worst[i] = std::max(worst[i], rank[i]);
    std::printf("%s\n  against one device: y %.1e  dx %.1e  dA %.1e", layer.title, worst[0], worst[1], worst[2]);
    if (pair) std::printf("  dB %.1e", worst[3]);
    std::printf("\n%s", world.statistics().c_str());

    char line[100];
    std::snprintf(line, sizeof line, "%-56s %8ld %8ld\n", layer.title, forward, count());
    counts += line;
    std::printf("%s", layer.compiled ? compiled(layer, ranks, x, a, b, w, want).c_str() : "\n");
  }
  std::printf("%s", counts.c_str());
} catch (const Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
