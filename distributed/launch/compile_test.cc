#include "distributed/launch/compile.h"

#include <gtest/gtest.h>

#include "distributed/launch/testing/gpt_training.h"
#include "models/moe/model.h"

namespace weft::dist {
namespace {

// Losses of some steps and all cells after them.
struct Trained {
  std::vector<double> losses, norms;
  std::vector<std::pair<std::string, std::vector<double>>> cells;
};

void expect_close(const Trained& got, const Trained& want, double tol, const std::string& what) {
  ASSERT_EQ(got.losses.size(), want.losses.size());
  for (size_t i = 0; i < want.losses.size(); ++i) {
    EXPECT_NEAR(got.losses[i], want.losses[i], tol * std::abs(want.losses[i])) << what << ": loss of step " << i;
    EXPECT_NEAR(got.norms[i], want.norms[i], tol * std::abs(want.norms[i])) << what << ": norm of step " << i;
  }
  double scale_all = 0;
  for (const auto& [name, v] : want.cells)
    for (double x : v) scale_all = std::max(scale_all, std::abs(x));
  for (size_t c = 0; c < want.cells.size(); ++c) {
    double scale = 1e-3 * scale_all, worst = 0;
    for (double x : want.cells[c].second) scale = std::max(scale, std::abs(x));
    for (size_t i = 0; i < want.cells[c].second.size(); ++i)
      worst = std::max(worst, std::abs(got.cells[c].second[i] - want.cells[c].second[i]));
    EXPECT_LE(worst, tol * scale) << what << ": " << want.cells[c].first;
  }
}

gpt::Config small_gpt(bool tied, double dropout) {
  gpt::Config c = testing::small_gpt();
  c.tied = tied;
  c.dropout = dropout;
  return c;
}

Trained train_gpt(const gpt::Config& config, const std::string& mesh, const Plan& plan, int steps = 3,
                  std::string* report = nullptr, DType dtype = kFloat64) {
  manual_seed(7);
  testing::GptTraining t(config, dtype);
  auto fn = [&](Tensor tokens, Tensor targets) { return t(tokens, targets); };
  Trained r;
  auto go = [&](auto& step) {
    manual_seed(11);
    for (int i = 0; i < steps; ++i) {
      Tensor tokens = randint(0, config.vocab, {4, 16}, {.dtype = kInt32}),
             targets = randint(0, config.vocab, {4, 16}, {.dtype = kInt32});
      auto out = step(tokens, targets);
      r.losses.push_back(out[0].template item<double>());
      r.norms.push_back(out[1].template item<double>());
    }
    if (report) *report = step.report();
    for (auto& [name, cell] : t.named_cells()) r.cells.emplace_back(name, cell.value().template to_vector<double>());
  };
  if (mesh.empty()) {
    auto step = weft::compile(fn);
    go(step);
  } else {
    auto step = compile(fn, {.mesh = Mesh::parse(mesh), .plan = plan});
    go(step);
  }
  return r;
}

TEST(MeshCompile, GptTrainsAsOnOneDevice) {
  for (bool tied : {false, true}) {
    const gpt::Config config = small_gpt(tied, 0.1);
    const Trained want = train_gpt(config, "", {});
    for (const char* mesh :
         {"dp2", "fsdp2", "tp2", "dp2,tp2", "fsdp2,tp2", "cp2", "tp4", "dp2,fsdp2,tp2", "fsdp2,cp2,tp2"}) {
      std::string report;
      try {
        const Trained got = train_gpt(config, mesh, {}, 3, &report);
        expect_close(got, want, 1e-9, str_cat(mesh, tied ? " tied" : ""));
      } catch (const Error& e) {
        ADD_FAILURE() << mesh << ": " << e.what();
      }
      if (::testing::Test::HasFailure()) {
        printf("%s\n", report.c_str());
        return;
      }
    }
  }
}

// Tests the attention node and linear + cross-entropy, which do not support f64.
TEST(MeshCompile, GptInF32) {
  const gpt::Config config = small_gpt(false, 0.1);
  const Trained want = train_gpt(config, "", {}, 3, nullptr, kFloat32);
  auto with = [](const char* cp, const char* layout) {
    Plan p;
    p.cp = cp;
    p.cp_layout = layout;
    return p;
  };
  const std::pair<const char*, Plan> cases[] = {{"dp2", {}},
                                                {"tp2", {}},
                                                {"fsdp2,tp2", {}},
                                                {"cp2", with("allgather", "contiguous")},
                                                {"cp2", with("allgather", "headtail")},
                                                {"cp2", with("ring", "contiguous")},
                                                {"cp2", with("ring", "headtail")},
                                                {"cp2", with("ulysses", "contiguous")},
                                                {"cp2", with("ulysses", "headtail")},
                                                {"cp4", with("ring", "headtail")},
                                                {"dp2,cp2,tp2", with("ring", "contiguous")},
                                                {"cp2,tp2", with("ulysses", "auto")}};
  for (const auto& [mesh, plan] : cases) {
    SCOPED_TRACE(str_cat(mesh, " ", plan.cp, " ", plan.cp_layout));
    std::string report;
    const Trained got = train_gpt(config, mesh, plan, 3, &report, kFloat32);
    for (size_t i = 0; i < want.losses.size(); ++i) EXPECT_NEAR(got.losses[i], want.losses[i], 1e-5 * want.losses[i]);
    for (size_t i = 0; i < want.norms.size(); ++i) EXPECT_NEAR(got.norms[i], want.norms[i], 1e-4 * want.norms[i]);
    if (HasFailure()) {
      printf("%s\n", report.c_str());
      return;
    }
  }
}

moe::Config small_moe(double capacity) {
  moe::Config c;
  c.vocab = 48;
  c.context = 16;
  c.layers = 2;
  c.heads = c.kv_heads = 4;
  c.dim = 32;
  c.experts = 4;
  c.top_k = 2;
  c.ffn = 32;
  c.shared_ffn = 32;
  c.dense_layers = 1;
  c.dense_ffn = 48;
  c.capacity_factor = capacity;
  c.bias_rate = 1e-3;
  return c;
}

Trained train_moe(const moe::Config& config, const std::string& mesh, const Plan& plan, std::string* report = nullptr,
                  int steps = 3) {
  manual_seed(7);
  moe::Model model(config);
  model.to(kFloat64);
  model.train();
  optim::AdamW opt(optim::decay_groups(model.parameters(), 0.1), {.lr = 1e-3});
  auto fn = [&](Tensor tokens, Tensor targets) {
    nn::LossOut l = model.loss(tokens, targets);
    auto [g, norm] = optim::clip_grad_norm(grad(l.loss, opt.parameters()), 1.0);
    opt.step(g);
    model.update_balance(l.expert_counts);
    return std::vector<Tensor>{l.loss, norm, l.expert_load, l.dropped};
  };
  Trained r;
  manual_seed(11);
  CompileOptions options{.mesh = Mesh::parse(mesh), .plan = plan};
  auto step = dist::compile(fn, options);
  for (int i = 0; i < steps; ++i) {
    Tensor tokens = randint(0, config.vocab, {4, 16}, {.dtype = kInt32}),
           targets = randint(0, config.vocab, {4, 16}, {.dtype = kInt32});
    std::vector<Tensor> out = step(tokens, targets);
    if (report) *report = step.report();
    r.losses.push_back(out[0].item<double>());
    r.norms.push_back(out[1].item<double>());
    r.cells.emplace_back(str_cat("load ", i), out[2].to_vector<double>());
  }
  // Parameters, and the biases that balance the experts.
  for (auto& [name, cell] : model.named_cells()) r.cells.emplace_back(name, cell.value().to_vector<double>());
  for (auto& [name, cell] : opt.named_cells()) r.cells.emplace_back(name, cell.value().to_vector<double>());
  return r;
}

// Without sequence parallelism, tp splits experts along their hidden dim.
TEST(MeshCompile, SlicedExpertsTrainAsOnOneDevice) {
  Plan plan;
  plan.sequence = false;
  for (double capacity : {0.0, 1.25}) {
    const Trained want = train_moe(small_moe(capacity), "", {});
    for (const char* mesh : {"tp2", "tp4", "dp2,tp2", "tp2,ep2"}) {
      SCOPED_TRACE(str_cat(mesh, " capacity ", capacity));
      std::string report;
      expect_close(train_moe(small_moe(capacity), mesh, plan, &report), want, 1e-9, mesh);
      if (HasFailure()) {
        printf("%s\n", report.c_str());
        return;
      }
    }
  }
}

TEST(MeshCompile, ExpertsTrainAsOnOneDevice) {
  for (double capacity : {0.0, 1.25}) {
    const moe::Config config = small_moe(capacity);
    const Trained want = train_moe(config, "", {});
    for (const char* mesh : {"dp2", "ep2", "dp2,ep2", "ep4", "fsdp2,tp2", "dp2,tp2,ep2", "dp2,tp2,ep4(dp,tp)",
                             "cp2,ep2", "fsdp2,tp2,ep2"}) {
      SCOPED_TRACE(str_cat(mesh, " capacity ", capacity));
      std::string report;
      try {
        expect_close(train_moe(config, mesh, {}, &report), want, 1e-9, mesh);
      } catch (const Error& e) {
        ADD_FAILURE() << e.what();
      }
      if (HasFailure()) {
        printf("%s\n", report.c_str());
        return;
      }
    }
  }
}

}  // namespace
}  // namespace weft::dist
