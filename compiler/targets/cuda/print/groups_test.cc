// Groups of real ops, lowered and run as CUDA text by the emulation, give the same bits as the interpreter: every
// schedule, odd extents, layouts and types, misaligned addresses, and random graphs.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "compiler/loop_ir/fused.h"
#include "compiler/passes/fusion/fuse.h"
#include "compiler/passes/lower.h"
#include "compiler/passes/testing/random_ops_graph.h"
#include "compiler/targets/cuda/nvrtc/testing/compile_check.h"
#include "compiler/targets/cuda/print/testing/cuda_case.h"
#include "framework/base/error.h"
#include "framework/base/str_cat.h"
#include "framework/dispatch/capture.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"

namespace weft::cuda {
namespace {

using Args = std::span<const Tensor>;

struct In {
  Shape shape;
  DType dtype = kFloat32;
  int64_t below = 0;   // CudaCase::in_below
  Shape strides = {};  // empty: dense
};

class Cases {
 public:
  CudaCase& add(const std::string& name, const TensorFn& fn, const std::vector<In>& in, bool round_like_eager = true) {
    std::vector<TensorType> types;
    for (const In& i : in) types.push_back({i.dtype, Device::cpu(), i.shape});
    add(name, weft::internal::lower(*capture_graph(fn, types)), round_like_eager);
    CudaCase& c = cases.back();
    for (size_t i = 0; i < in.size(); ++i) c.in_below.push_back(in[i].below);
    bool strided = false;
    for (const In& i : in) strided |= !i.strides.empty();
    if (!strided) return c;
    for (size_t i = 0; i < in.size(); ++i)
      if (!in[i].strides.empty()) c.in[i].strides = in[i].strides;
    c.low = loop_ir::lower_group(*bodies.back(), c.in, c.out, {.round_like_eager = round_like_eager});
    return c;
  }
  void add(const std::string& name, Ref<Graph> graph, bool round_like_eager = true) {
    const Graph& body = *graph;
    EXPECT_EQ(loop_ir::cannot_lower(body), "") << name;
    CudaCase c;
    c.name = name;
    for (int32_t id = 0; id < body.size(); ++id) {
      const Node& n = body.node(id);
      if (n.op != &input_op) continue;
      const auto at = static_cast<size_t>(n.attrs.i("index"));
      if (c.in.size() <= at) c.in.resize(at + 1);
      c.in[at] = {n.outputs[0], contiguous_strides(n.outputs[0].shape)};
    }
    for (Value v : body.outputs) c.out.push_back({body.type(v), contiguous_strides(body.type(v).shape)});
    c.low = loop_ir::lower_group(body, c.in, c.out, {.round_like_eager = round_like_eager});
    bodies.push_back(std::move(graph));
    cases.push_back(std::move(c));
  }
  /// Unchanged, and with results that overwrite inputs if that is allowed.
  void check() {
    const size_t n = cases.size();
    for (size_t i = 0; i < n; ++i) {
      if (cases[i].low.overwrites.empty()) continue;
      CudaCase c = cases[i];
      c.name += ", in place";
      c.in_place = true;
      cases.push_back(std::move(c));
    }
    compile_some();
    for (const std::string& s : differences(cases)) ADD_FAILURE() << s;
  }
  /// Compiles six of them for a GPU (WEFT_SHOW=80: all for sm_80, with their usage).
  void compile_some() {
    if (!nvrtc().unavailable.empty()) return;
    const char* show = std::getenv("WEFT_SHOW");
    const int sm = show ? std::atoi(show) : 90;
    std::vector<Kernel> kernels;
    for (size_t i = 0; i < cases.size(); i += show ? 1 : std::max<size_t>(1, cases.size() / 6))
      for (const CudaLaunch& l : plan_of(cases[i], str_cat("k", i)).launches) kernels.push_back(l.kernel);
    std::string table;
    EXPECT_EQ(compile_faults(kernels, {}, {{sm, sm == 90}}, &table), "");
    if (show) printf("%s", table.c_str());
  }
  /// The same again with 64-bit positions and with misaligned addresses.
  void check_variants() {
    const size_t n = cases.size();
    for (size_t i = 0; i < n; ++i) {
      CudaCase wide = cases[i];
      wide.name += ", wide";
      wide.wide = true;
      cases.push_back(wide);
      for (int bytes : {4, 2}) {
        CudaCase c = cases[i];
        c.name += str_cat(", ", bytes, " bytes off");
        c.misaligned = bytes;
        cases.push_back(std::move(c));
      }
    }
    check();
  }

  std::vector<CudaCase> cases;
  std::vector<Ref<Graph>> bodies;
};

TEST(Groups, Elementwise) {
  Cases t;
  for (DType d : {kFloat32, kBFloat16, kFloat16, kFloat64})
    for (int64_t n : {1, 7, 64, 1001})
      t.add(str_cat("gelu of ", to_string_view(d), n), [](Args x) { return std::vector{gelu(x[0], "tanh") * x[1]}; },
            {{{n}, d}, {{n}, d}});
  t.add("broadcasts", [](Args x) { return std::vector{x[0] * x[1] + x[2]}; }, {{{6, 5, 16}}, {{16}}, {{5, 1}}});
  t.add("broadcasts, odd", [](Args x) { return std::vector{x[0] * x[1] + x[2]}; }, {{{6, 5, 17}}, {{17}}, {{5, 1}}});
  t.add("mixed",
        [](Args x) {
          return std::vector{(x[0] + x[1].to(kFloat32)).to(kBFloat16), x[0] * 2.0};
        },
        {{{9, 40}}, {{9, 40}, kBFloat16}});
  t.add("masks",
        [](Args x) {
          Tensor q = arange(9).reshape({9, 1}), k = arange(40);
          return std::vector{where(q >= k, x[0] * 0.125, -1.0)};
        },
        {{{3, 9, 40}}});
  t.add("integers", [](Args x) { return std::vector{x[0] + x[1] * 3, x[0] > x[1]}; }, {{{77}, kInt64}, {{77}, kInt64}});
  t.add("bytes", [](Args x) { return std::vector{logical_and(x[0], x[1])}; }, {{{77}, kBool}, {{77}, kBool}});
  t.add("one", [](Args x) { return std::vector{sqrt(x[0] * x[0] + 1.0)}; }, {{{}}});
  t.add("strided", [](Args x) { return std::vector{x[0] + x[1]}; },
        {{{12, 32}, kFloat32, 0, {64, 2}}, {{12, 32}, kFloat32, 0, {33, 1}}});
  t.add("padded rows", [](Args x) { return std::vector{x[0] + x[1]}; },
        {{{12, 32}, kBFloat16, 0, {40, 1}}, {{12, 32}, kBFloat16, 0, {48, 1}}});
  t.check_variants();
}

TEST(Groups, LargeElementwise) {
  Cases t;
  for (DType d : {kFloat32, kBFloat16, kFloat64})
    for (int64_t n : {40000, 40960, 70001}) {
      t.add(str_cat("relu of ", to_string_view(d), n), [](Args x) { return std::vector{relu(x[0]) * 2.0}; }, {{{n}, d}})
          .multiprocessors = 1;
      t.add(str_cat("sum of ", to_string_view(d), n),
            [](Args x) {
              return std::vector{x[0] + x[1], x[0]};
            },
            {{{n}, d}, {{n}, d}})
          .multiprocessors = 1;
    }
  for (const CudaCase& c : t.cases)
    EXPECT_NE(plan_of(c, "k").launches[0].kernel.text.find("v0[u]"), std::string::npos) << c.name;
  t.check_variants();
}

TEST(Groups, Transposes) {
  Cases t;
  for (DType d : {kFloat32, kBFloat16, kFloat64, kInt64}) {
    t.add(str_cat("a.T + b ", to_string_view(d)), [](Args x) { return std::vector{x[0].transpose(0, 1) + x[1]}; },
          {{{70, 33}, d}, {{33, 70}, d}});
    t.add(str_cat("permuted ", to_string_view(d)),
          [](Args x) {
            return std::vector{x[0].permute({2, 1, 0}) + x[1]};
          },
          {{{40, 3, 70}, d}, {{70, 3, 40}, d}});
  }
  t.add("heads",
        [](Args x) {
          return std::vector{(x[0] * 2.0).reshape({2, 5, 3, 16}).permute({0, 2, 1, 3})};
        },
        {{{2, 5, 48}}});
  t.add("copy", [](Args x) { return std::vector{x[0].transpose(0, 1).contiguous() * 1.0}; }, {{{1, 33}}});
  // Squares of 4 x 4 elements, in vectors along both axes, one of them, or none.
  for (DType d : {kFloat32, kBFloat16})
    for (const auto& [rows, columns] : {std::pair{136, 72}, {134, 72}, {136, 71}, {131, 67}}) {
      t.add(str_cat("large a.T + b + c ", to_string_view(d), rows, " x ", columns),
            [](Args x) { return std::vector{x[0].transpose(0, 1) + x[1] + x[2]}; },
            {{{rows, columns}, d}, {{columns, rows}, d}, {{rows}, d}})
          .multiprocessors = 1;
      EXPECT_NE(plan_of(t.cases.back(), "k").launches[0].kernel.text.find("by tiles of 64"), std::string::npos);
    }
  t.check_variants();
}

TEST(Groups, Gathers) {
  Cases t;
  for (int64_t d : {5, 64, 96}) {
    t.add(str_cat("embedding ", d), [](Args x) { return std::vector{index_select(x[0], 0, x[1]) * 2.0}; },
          {{{11, d}}, {{7}, kInt64, 11}});
    t.add(str_cat("embedding bf16 ", d), [](Args x) { return std::vector{index_select(x[0], 0, x[1]) + x[2]}; },
          {{{11, d}, kBFloat16}, {{7}, kInt64, 11}, {{7, d}, kBFloat16}});
  }
  t.add("out of range", [](Args x) { return std::vector{index_select(x[0], 0, x[1]) * 2.0}; },
        {{{4, 8}}, {{7}, kInt64}});
  t.add("gather", [](Args x) { return std::vector{gather(x[0], 1, x[1]) + 1.0}; }, {{{6, 30}}, {{6, 13}, kInt64, 30}});
  t.add("cross entropy",
        [](Args x) { return std::vector{logsumexp(x[0], -1) - gather(x[0], 1, x[1].unsqueeze(-1)).squeeze(-1)}; },
        {{{6, 130}}, {{6}, kInt64, 130}});
  t.check_variants();
}

TEST(Groups, Rows) {
  Cases t;
  for (int64_t n : {1, 2, 5, 16, 17, 64, 100, 128, 768, 1000, 1023, 1024, 1025, 2048, 3000, 4096})
    for (int64_t rows : {9, 16}) {
      if (n == 1) continue;
      t.add(str_cat("softmax of ", rows, " x ", n), [](Args x) { return std::vector{softmax(x[0], -1)}; },
            {{{rows, n}}})
          .extremes = n % 2;
      t.add(
          str_cat("rms norm of ", rows, " x ", n),
          [=](Args x) {
            return std::vector{rms_norm(x[0] + x[1], {n}, x[2]), x[0] + x[1]};
          },
          {{{rows, n}, kBFloat16}, {{rows, n}, kBFloat16}, {{n}, kBFloat16}}, n % 3);
    }
  t.add("layer norm", [](Args x) { return std::vector{layer_norm(x[0], {77}, x[1], x[2])}; },
        {{{12, 77}}, {{77}}, {{77}}});
  t.add("max, min, prod",
        [](Args x) {
          return std::vector{amax(x[0], {-1}) + amin(x[0], {-1}), prod(x[0], {-1})};
        },
        {{{12, 70}}});
  t.add("of integers", [](Args x) { return std::vector{sum(x[0], {-1}), amax(x[0], {-1})}; }, {{{12, 70}, kInt64}});
  t.add("of doubles", [](Args x) { return std::vector{softmax(x[0], -1)}; }, {{{5, 70}, kFloat64}});
  t.add("of long doubles", [](Args x) { return std::vector{softmax(x[0], -1)}; }, {{{2, 3000}, kFloat64}});
  t.add("long", [](Args x) { return std::vector{softmax(x[0], -1)}; }, {{{4, 40000}}});
  t.add("layer norm of long rows", [](Args x) { return std::vector{layer_norm(x[0], {20000}, x[1], x[2])}; },
        {{{5, 20000}, kBFloat16}, {{20000}, kBFloat16}, {{20000}, kBFloat16}});
  t.add("softmax of 32768", [](Args x) { return std::vector{softmax(x[0], -1)}; }, {{{5, 32768}}});
  t.add("longer", [](Args x) { return std::vector{logsumexp(x[0], -1)}; }, {{{4, 1100000}, kBFloat16}});
  t.add("outer axes", [](Args x) { return std::vector{sum(x[0] * x[1], {-1})}; }, {{{3, 4, 50}}, {{4, 50}}});
  t.add("strided", [](Args x) { return std::vector{softmax(x[0], -1)}; }, {{{5, 70}, kFloat32, 0, {200, 2}}});
  t.check();
}

TEST(Groups, RowsWherever) {
  Cases t;
  for (DType d : {kFloat32, kBFloat16})
    for (int64_t n : {65, 768, 1100}) {
      t.add(str_cat("softmax of ", to_string_view(d), n), [](Args x) { return std::vector{softmax(x[0], -1)}; },
            {{{5, n}, d}});
      t.add(str_cat("layer norm of ", to_string_view(d), n),
            [=](Args x) {
              const Tensor y = where(x[3], x[0], 0.0) + x[4].to(kFloat32);
              return std::vector{layer_norm(y, {n}, x[1], x[2]), y.to(kBFloat16)};
            },
            {{{6, n}}, {{n}}, {{n}}, {{6, n}, kBool}, {{6, n}, d}});
      t.add(str_cat("norm of a sum of ", to_string_view(d), n), [](Args x) { return std::vector{sum(x[0] * x[1])}; },
            {{{9, n}, d}, {{9, n}, d}});
    }
  t.add("norm of chosen rows",
        [](Args x) { return std::vector{layer_norm(index_select(x[0], 0, x[1]) + x[2], {96}, x[3], x[3])}; },
        {{{11, 96}}, {{7}, kInt64, 11}, {{7, 96}}, {{96}}});
  for (int64_t n : {96, 100, 1088})
    t.add(str_cat("norm after dropout of ", n),
          [=](Args x) {
            const Tensor keep = x[1].to(kFloat32) * 0.125 >= 0.1;
            const Tensor y = x[0] + where(keep, (x[2].to(kFloat32) + x[3]) * 1.25, 0.0) * sigmoid(x[0]);
            return std::vector{keep, y, layer_norm(y, {n}, x[3], x[3]), y.to(kBFloat16)};
          },
          {{{6, n}}, {{6, n}, kInt32, 9}, {{6, n}, kBFloat16}, {{n}}});
  t.add("padded rows", [](Args x) { return std::vector{softmax(x[0], -1)}; }, {{{5, 100}, kFloat32, 0, {110, 1}}});
  t.check_variants();
}

TEST(Groups, Columns) {
  Cases t;
  for (int64_t rows : {16, 17, 1025, 2300})
    for (int64_t n : {1, 3, 48, 777}) {
      if (rows * n > 900000) continue;
      if (n >= 16 && rows >= 64) {
        t.add(str_cat("bias ", rows, " x ", n), [](Args x) { return std::vector{sum(x[0].to(kFloat32), {0})}; },
              {{{rows, n}, kBFloat16}});
        t.add(str_cat("beside elementwise ", rows, " x ", n),
              [](Args x) {
                Tensor y = x[0] * x[1];
                return std::vector{y, sum(y, {0})};
              },
              {{{rows, n}}, {{rows, n}}});
      }
      if (n > 1)
        t.add(str_cat("norm backward ", rows, " x ", n),
              [](Args x) {
                const Tensor &a = x[0], &w = x[1];
                Tensor r = rsqrt(mean(a * a, {-1}, true) + 1e-5);
                Tensor g = x[2] * w, h = a * r;
                return std::vector{(g - h * mean(g * h, {-1}, true)) * r, sum(x[2] * h, {0}), sum(x[2], {0})};
              },
              {{{rows, n}}, {{n}}, {{rows, n}}});
    }
  for (DType d : {kFloat32, kBFloat16})
    for (int64_t n : {768, 1536}) {
      t.add(str_cat("norm backward in batches of ", to_string_view(d), n),
            [](Args x) {
              const Tensor a = x[0].to(kFloat32), g = x[2].to(kFloat32) * x[1];
              Tensor r = rsqrt(mean(a * a, {-1}, true) + 1e-5);
              Tensor h = a * r;
              return std::vector{((g - h * mean(g * h, {-1}, true)) * r).to(x[0].dtype()),
                                 sum(x[2].to(kFloat32) * h, {0}), sum(where(x[3], x[2].to(kFloat32), 0.0), {0})};
            },
            {{{290, n}, d}, {{n}}, {{290, n}, d}, {{290, n}, kBool}});
      t.add(str_cat("bias, many columns of ", to_string_view(d), n),
            [](Args x) { return std::vector{sum(x[0] + x[1], {0})}; }, {{{40, n}, d}, {{n}, d}})
          .multiprocessors = 1;
    }
  t.add("norm backward of long rows",
        [](Args x) {
          Tensor r = rsqrt(mean(x[0] * x[0], {-1}, true) + 1e-5);
          return std::vector{x[0] * r, sum(x[0] * r, {0})};
        },
        {{{40, 5000}}});
  t.add("of doubles", [](Args x) { return std::vector{sum(x[0], {0}), amax(x[0], {0})}; }, {{{100, 40}, kFloat64}});
  t.add("of integers", [](Args x) { return std::vector{sum(x[0], {0})}; }, {{{100, 40}, kInt64}});
  t.add("bf16 results", [](Args x) { return std::vector{sum(x[0], {0})}; }, {{{100, 40}, kBFloat16}});
  t.check();
}

TEST(Groups, AcrossLanes) {
  Cases t;
  for (int64_t k : {2, 3, 15, 16, 37, 300, 1025}) {
    t.add(str_cat("softmax over ", k), [](Args x) { return std::vector{softmax(x[0], 1)}; }, {{{3, k, 50}}});
    t.add(str_cat("sum over ", k), [](Args x) { return std::vector{sum(x[0] * 2.0, {1})}; }, {{{2, k, 33}, kBFloat16}});
  }
  t.add("log space", [](Args x) { return std::vector{logsumexp(x[0].unsqueeze(-1) + x[1].unsqueeze(0), 1)}; },
        {{{20, 33}}, {{33, 41}}});
  t.add("distances", [](Args x) { return std::vector{sum(abs(x[0].unsqueeze(-1) - x[1].unsqueeze(0)), {1})}; },
        {{{20, 33}}, {{33, 41}}});
  t.add("of doubles", [](Args x) { return std::vector{softmax(x[0], 0)}; }, {{{37, 50}, kFloat64}});
  t.check();
}

TEST(Groups, FewLongRows) {
  Cases t;
  t.add("norm", [](Args x) { return std::vector{sum(x[0] * x[0])}; }, {{{70, 1000}}});
  t.add("max", [](Args x) { return std::vector{amax(abs(x[0]), {0, 1})}; }, {{{70, 1001}, kBFloat16}});
  t.add("three", [](Args x) { return std::vector{sum(x[0] * x[1], {1})}; }, {{{3, 70000}}, {{3, 70000}}});
  t.add("of integers", [](Args x) { return std::vector{sum(x[0])}; }, {{{70000}, kInt64}});
  t.add("joined rows", [](Args x) { return std::vector{sum(x[0] * x[1])}; }, {{{20, 1}}, {{1, 2048}}});
  t.add("joined rows of three blocks of two", [](Args x) { return std::vector{sum(x[0] * x[1], {1, 2})}; },
        {{{2, 7, 1}}, {{1, 1, 6144}}});
  t.check();
}

TEST(Groups, RandomGraphs) {
  std::mt19937 random(7);
  Cases t;
  std::set<std::string> seen;
  for (int i = 0; i < 60; ++i) {
    Ref<Graph> f = fuse(*testing::random_ops_graph(random, 20 + i % 60), {});
    if (!f) continue;
    for (int32_t id = 0; id < f->size(); ++id) {
      if (f->node(id).op != &loop_ir::fused_op) continue;
      Ref<Graph> body = f->node(id).attrs.get<Ref<Graph>>("body");
      if (!loop_ir::cannot_lower(*body).empty() || !seen.insert(body->to_string()).second) continue;
      t.add(str_cat("graph ", i, " node ", id), body);
    }
  }
  EXPECT_GT(t.cases.size(), 40u);
  t.check();
}

}  // namespace
}  // namespace weft::cuda
