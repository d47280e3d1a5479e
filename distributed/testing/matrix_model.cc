#include "distributed/testing/matrix_model.h"

#include <algorithm>
#include <cmath>

#include "distributed/launch/processes.h"
#include "distributed/launch/world.h"
#include "framework/io/file.h"

namespace weft::testing {
namespace {

constexpr int64_t kDim = 32, kHeads = 4, kKvHeads = 2, kHidden = 64, kExperts = 8, kTime = 32, kBatch = 16,
                  kAccumulate = 2;
constexpr int kLayers = 3, kDense = 1;

struct Layer : nn::Module {
  nn::RMSNorm norm1, norm2;
  nn::Attention attn;
  std::optional<nn::SwiGlu> ffn;
  std::optional<nn::MoE> moe;
  nn::Dropout drop;

  Layer(bool dense, double capacity)
      : norm1(kDim),
        norm2(kDim),
        attn(kDim, kHeads, {.kv_heads = kKvHeads, .bias = true, .dropout = 0.1, .std = 0.1}),
        drop(0.1) {
    register_module("norm1", norm1);
    register_module("attn", attn);
    register_module("norm2", norm2);
    if (dense) {
      register_module("ffn", ffn.emplace(kDim, kHidden, nn::SwiGluOptions{.std = 0.1}));
    } else {
      register_module("moe", moe.emplace(kDim, nn::MoEOptions{.experts = kExperts,
                                                              .top_k = 2,
                                                              .hidden = kDim,
                                                              .shared_hidden = kDim,
                                                              .capacity_factor = capacity,
                                                              .z_loss = 1e-3,
                                                              .bias_rate = 1e-2,
                                                              .std = 0.1}));
    }
    register_module("drop", drop);
  }
};

struct Model : nn::Module {
  nn::Embedding tok;
  std::vector<Layer> layers;
  nn::RMSNorm norm;

  Model(int64_t vocab, double capacity) : tok(vocab, kDim, {.std = 0.1}), norm(kDim) {
    register_module("tok", tok);
    for (int i = 0; i < kLayers; ++i) layers.emplace_back(i < kDense, capacity);
    register_modules("layers", layers);
    register_module("norm", norm);
  }

  struct Out {
    Tensor loss;
    std::vector<Tensor> counts;
  };
  Out loss(const Tensor& tokens, const Tensor& targets, const Tensor& documents) const {
    const nn::AttentionContext context{.rope = nn::rotary_tables(arange(tokens.size(1)), kDim / kHeads),
                                       .mask_mod = [documents](Index b, Index h, Index q, Index kv) {
                                         return eq(Tensor(documents[b][q]), Tensor(documents[b][kv]));
                                       }};
    Tensor x = tok(tokens);
    Out out;
    Tensor aux = zeros({});
    for (size_t i = 0; i < layers.size(); ++i) {
      NameScope scope(str_cat("layers.", i).c_str());
      const Layer& l = layers[i];
      const Tensor h = x + l.attn(l.norm1(x), context, static_cast<int64_t>(i));
      Tensor y;
      if (l.ffn) {
        y = (*l.ffn)(l.norm2(h));
      } else {
        const nn::MoEOut m = (*l.moe)(l.norm2(h));
        aux = aux + m.aux;
        out.counts.push_back(m.counts);
        y = m.y;
      }
      x = h + l.drop(y);
    }
    const Tensor ce = cross_entropy(linear(norm(x), tok.weight), targets);
    out.loss = ce + aux.to(ce.dtype());
    return out;
  }
};

std::vector<double> values(const Tensor& t) { return t.to_vector<double>(); }

}  // namespace

std::string MatrixCase::name() const {
  std::string s = one_device() ? "one device" : mesh;
  if (plan.zero >= 0) s += str_cat(" zero", plan.zero);
  if (plan.wire != "f32") s += str_cat(" wire ", plan.wire);
  if (!plan.sequence) s += " whole-sequence";
  if (mesh.find("cp") != mesh.npos) s += str_cat(" cp:", plan.cp, "/", plan.cp_layout);
  s += capacity > 0 ? " capacity" : " dropless";
  return str_cat(s, " ", dtype, " ", steps, " steps", vocab == 264 ? "" : str_cat(" V", vocab));
}

MatrixRun run_case(const MatrixCase& c) {
  internal::KeepAttentionNodes keep;  // also for f64
  manual_seed(7);
  Model model(c.vocab, c.capacity);
  model.to(c.dtype);
  model.train();
  optim::AdamW opt(optim::decay_groups(model.parameters(), 0.1), {.lr = 3e-3});
  Buffer load(zeros({kLayers - kDense, kExperts}, {.dtype = kInt64}), "load");
  auto fn = [&](Tensor tokens, Tensor targets, Tensor documents) {
    internal::KeepAttentionNodes inner;
    auto [loss, counts, grads] =
        accumulate(kAccumulate, std::tuple{tokens, targets, documents}, [&](Tensor x, Tensor y, Tensor ids) {
          const Model::Out out = model.loss(x, y, ids);
          std::vector<Tensor> g = grad(out.loss, opt.parameters());
          return std::tuple{out.loss.detach(), stack(out.counts), std::move(g)};
        });
    NoGrad guard;
    for (Tensor& g : grads) g = g * (1.0 / kAccumulate);
    auto [clipped, norm] = optim::clip_grad_norm(grads, 1.0);
    commit_if(logical_and(isfinite(loss), isfinite(norm)));
    opt.step(clipped);
    load.set(load.value() + counts);
    for (int64_t l = 0; l < kLayers - kDense; ++l)
      model.layers[static_cast<size_t>(l + kDense)].moe->update_balance(select(counts, 0, l));
    return std::vector<Tensor>{loss * (1.0 / kAccumulate), norm};
  };
  MatrixRun r;
  manual_seed(11);
  auto go = [&](auto& step, auto&& last) {
    for (int i = 0; i < c.steps; ++i) {
      const Tensor tokens = randint(0, c.vocab, {kBatch, kTime}, {.dtype = kInt32});
      const Tensor targets = where(rand({kBatch, kTime}) < 0.1, full({kBatch, kTime}, int64_t{-100}, {.dtype = kInt32}),
                                   roll(tokens, -1, 1));
      const Tensor documents = cumsum((rand({kBatch, kTime}) < 0.1).to(kInt32), 1).to(kInt32);
      if (i + 1 == c.steps) last(true);
      const std::vector<Tensor> out = step(tokens, targets, documents);
      if (i + 1 == c.steps) last(false);
      r.losses.push_back(out[0].item<double>());
      r.norms.push_back(out[1].item<double>());
    }
    const CompileStats stats = step.stats();
    r.planned_peak = stats.planned_peak_bytes;
    r.measured_peak = stats.measured_peak_bytes;
  };
  if (c.one_device()) {
    auto step = weft::compile(fn);
    go(step, [](bool) {});
  } else {
    auto step = dist::compile(fn, {.mesh = dist::Mesh::parse(c.mesh), .plan = c.plan});
    go(step, [&](bool before) {
      if (before && c.steps > 1) step.world().clear_statistics();
      if (c.steps > 1) step.world().record(before);
      if (before || c.steps < 2) return;
      const int rank = step.world().local().back();
      for (const CollectiveRecord& k : step.world().rank(rank).records()) r.actual.push_back(k.to_string());
      const dist::PlanReport plan = step.plan();
      for (const dist::PlannedCollective& k : plan.collectives(rank))
        r.planned.push_back(CollectiveRecord{k.kind, k.axes, k.dtype, k.bytes, 0}.to_string());
    });
  }
  if (!c.folder.empty()) {
    const std::string path = c.folder + "/state.safetensors";
    const auto add = [&](const auto& saved, std::vector<std::string>& files) {
      save(saved, path);
      files.push_back(io::read_file(path));
      if (dist::Processes* const job = dist::Processes::current()) job->barrier();  // the next save replaces the file
    };
    Allocator& memory = Allocator::of(Device::cpu());
    memory.reset_peak();
    const int64_t before = memory.stats().live;
    add(model, r.saved), add(opt, r.saved);
    r.save_bytes = memory.stats().peak - before;
    add(model.state_dict(), r.whole), add(opt.state_dict(), r.whole);
  }
  for (auto& [name, p] : model.named_cells()) r.cells.emplace_back(name, values(p.value()));
  for (auto& [name, cell] : opt.named_cells()) r.cells.emplace_back(name, values(cell.value()));
  r.cells.emplace_back("load", values(load.value()));
  r.cells.emplace_back("rng.step", values(default_generator().step.value()));
  return r;
}

std::string difference(const MatrixRun& got, const MatrixRun& want, double tol, double loss_tol) {
  std::string out;
  auto far = [](double a, double b, double t) { return !(std::abs(a - b) <= t * std::abs(b)); };
  for (size_t i = 0; i < want.losses.size(); ++i) {
    if (far(got.losses[i], want.losses[i], loss_tol))
      out += str_cat("loss of step ", i, ": ", got.losses[i], ", one device ", want.losses[i], "\n");
    if (far(got.norms[i], want.norms[i], tol))
      out += str_cat("gradient norm of step ", i, ": ", got.norms[i], ", one device ", want.norms[i], "\n");
  }
  double all = 0;
  for (const auto& [name, v] : want.cells)
    if (name.find('.') != name.npos && name != "rng.step" && name.substr(0, 4) != "opt.")
      for (double x : v) all = std::max(all, std::abs(x));
  if (got.cells.size() != want.cells.size()) return out + "another number of cells";
  for (size_t c = 0; c < want.cells.size(); ++c) {
    const auto& [name, w] = want.cells[c];
    const auto& g = got.cells[c].second;
    if (g.size() != w.size()) return out + name + " has another size";
    double scale = 1e-3 * all, worst = 0;
    for (double x : w) scale = std::max(scale, std::abs(x));
    for (size_t i = 0; i < w.size(); ++i) worst = std::max(worst, std::isnan(g[i]) ? INFINITY : std::abs(g[i] - w[i]));
    const bool whole = name == "load" || name == "rng.step" || name == "opt.steps";
    if (whole ? worst != 0 : !(worst <= tol * scale)) out += str_cat(name, " differs by ", worst, " of ", scale, "\n");
  }
  return out;
}

}  // namespace weft::testing
