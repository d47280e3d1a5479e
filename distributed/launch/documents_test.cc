// Rows of packed documents, split over cp per document, give the results of one device: with ids computed in the step,
// parameters read by position, and split results. Other tests cover rows that cannot be split this way.
#include <gtest/gtest.h>

#include <cmath>

#include "distributed/launch/compile.h"
#include "framework/testing/compare.h"
#include "weft.h"

namespace weft::dist {
namespace {

constexpr int64_t kVocab = 24, kDim = 16, kTime = 24, kBatch = 4;

struct Packed : nn::Module {
  nn::Embedding tok, pos;
  nn::Attention attn;
  nn::Dropout drop;
  Packed()
      : tok(kVocab, kDim, {.std = 0.2}),
        pos(kTime, kDim, {.std = 0.2}),
        attn(kDim, 4, {.kv_heads = 2, .dropout = 0.2, .std = 0.2}),
        drop(0.2) {
    register_module("tok", tok);
    register_module("pos", pos);
    register_module("attn", attn);
    register_module("drop", drop);
  }
  // Token 0 starts a document.
  Tensor logits(const Tensor& tokens) const {
    const Tensor ids = cumsum(eq(tokens, int64_t{0}).to(kInt64), 1);
    const nn::AttentionContext context{.mask_mod = attention::causal() & attention::document(ids)};
    const Tensor x = drop(tok(tokens) + pos(arange(kTime)));
    return linear(x + attn(x, context, 0), tok.weight);
  }
};

Plan documents(const char* cp) {
  Plan p;
  p.cp = cp;
  p.cp_layout = "documents";
  return p;
}

struct Trained {
  std::vector<double> losses, logits, weights;
};

Trained train(const std::string& mesh, const Plan& plan, bool exact = false) {
  internal::KeepAttentionNodes keep;
  manual_seed(3);
  Packed model;
  model.to(kFloat64);
  model.train();
  optim::AdamW opt(optim::decay_groups(model.parameters(), 0.1), {.lr = 1e-2});
  auto fn = [&](Tensor tokens, Tensor targets) {
    internal::KeepAttentionNodes inner;
    const Tensor y = model.logits(tokens);
    const Tensor loss = cross_entropy(y, targets);
    opt.step(grad(loss, opt.parameters()));
    return std::vector<Tensor>{loss, y};
  };
  CompileOptions options{.mesh = Mesh::parse(mesh), .plan = plan};
  options.verify_numerics = exact;
  auto step = dist::compile(fn, options);
  Trained r;
  manual_seed(5);
  for (int i = 0; i < 3; ++i) {
    const Tensor tokens = where(rand({kBatch, kTime}) < 0.2, zeros({kBatch, kTime}, {.dtype = kInt32}),
                                randint(1, kVocab, {kBatch, kTime}, {.dtype = kInt32}));
    const std::vector<Tensor> out = step(tokens, roll(tokens, -1, 1));
    r.losses.push_back(out[0].item<double>());
    r.logits = out[1].to_vector<double>();
  }
  for (auto& [name, p] : model.named_parameters())
    for (double x : p.value().to_vector<double>()) r.weights.push_back(x);
  return r;
}

void expect_close(const std::vector<double>& got, const std::vector<double>& want, const char* what) {
  ASSERT_EQ(got.size(), want.size());
  double scale = 0, worst = 0;
  for (double x : want) scale = std::max(scale, std::abs(x));
  for (size_t i = 0; i < want.size(); ++i) worst = std::max(worst, std::abs(got[i] - want[i]));
  EXPECT_LE(worst, 1e-9 * scale) << what;
}

TEST(Documents, TrainAsOnOneDevice) {
  const Trained want = train("", {});
  for (const char* mesh : {"cp2", "cp4", "dp2,cp2", "fsdp2,cp2"}) {
    for (const char* cp : {"allgather", "ring", "ulysses"}) {
      if (std::string(cp) == "ulysses" && std::string(mesh) == "cp4") continue;  // two key heads
      SCOPED_TRACE(str_cat(mesh, " ", cp));
      const Trained got = train(mesh, documents(cp));
      expect_close(got.losses, want.losses, "losses");
      expect_close(got.logits, want.logits, "logits");
      expect_close(got.weights, want.weights, "weights");
    }
  }
}

TEST(Documents, HaveTheBitsOfOneDeviceIfAsked) {
  const Trained want = train("", {}, true);
  for (const char* mesh : {"cp2", "fsdp2,cp2"}) {
    const Trained got = train(mesh, documents("allgather"), true);
    EXPECT_EQ(got.losses, want.losses) << mesh;
    EXPECT_EQ(got.logits, want.logits) << mesh;
    EXPECT_EQ(got.weights, want.weights) << mesh;
  }
}

std::string refused(const std::string& mesh, const MaskMod& mask) {
  return testing::error_of([&] {
    Parameter w(ones({kDim, kDim}), "w");
    auto fn = [&](Tensor x) {
      const Tensor h = reshape(matmul(x, w.value()), {kBatch, 1, kTime, kDim});
      const Tensor loss = sum(flex_attention(h, h, h, {.mask_mod = mask}));
      return std::vector<Tensor>{loss, grad(loss, std::vector<Parameter>{w})[0]};
    };
    dist::plan(fn, {.mesh = Mesh::parse(mesh), .plan = documents("ring")}, ones({kBatch, kTime, kDim}));
  });
}

TEST(Documents, WhatCannotBeSharedOut) {
  EXPECT_EQ(
      refused("cp2", attention::causal()),
      "plan: cp_layout documents: no attention asks whether a query and a key have equal ids; need a mask such as "
      "attention::document(ids), or use headtail");
  Buffer ids(zeros({kTime}, {.dtype = kInt64}), "ids");
  const std::string text = refused("cp2", [&](Index, Index, Index q, Index kv) {
    const Tensor now = ids.value();
    return eq(Tensor(now[q]), Tensor(now[kv]));
  });
  EXPECT_NE(text.find("come from cell"), std::string::npos) << text;
  EXPECT_NE(text.find("need ids made of the arguments alone"), std::string::npos) << text;
  EXPECT_EQ(refused("tp2,cp2", attention::document(zeros({kTime}, {.dtype = kInt64}))),
            "plan: cp_layout documents with tp needs sequence off; use contiguous");
}

}  // namespace
}  // namespace weft::dist
