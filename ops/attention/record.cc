#include "ops/attention/record.h"

#include <algorithm>

#include "framework/autodiff/grad.h"
#include "framework/dispatch/dispatch.h"
#include "ops/attention/cost.h"
#include "ops/attention/masks/call_mask.h"
#include "ops/attention/mods/map_mod.h"
#include "ops/attention/mods/score_reads.h"
#include "ops/attention/mods/score_tiles.h"
#include "ops/core/core.h"
#include "ops/core/record_parts.h"
#include "ops/kernels/attention/attention.h"
#include "ops/kernels/kernels.h"

namespace weft {

using namespace internal;

namespace {

// Limit on private sums of a mod's gradients: this many bytes, or twice the gradients' size if that is more. If tasks
// need more, some of them share one set of sums and run one after another.
constexpr int64_t kMaxGradientBytes = int64_t{256} << 20;

bool is_backward(const OpDef& op) { return &op == &attention_backward_op; }

// ---- types ----

Types infer(const InferCall& c) {
  const AttentionOperands at(c.attrs);
  const int extra = is_backward(c.op) ? 5 : 0;
  WEFT_CHECK(static_cast<int>(c.in.size()) == at.count + extra, c.op.name, ": ", c.in.size(), " operands; need ",
             at.count + extra);
  const TensorType &q = c.in[0], &k = c.in[1], &v = c.in[2];
  WEFT_CHECK(is_computed_float(q.dtype) && k.dtype == q.dtype && v.dtype == q.dtype, c.op.name, ": q, k and v are ",
             q.dtype, ", ", k.dtype, " and ", v.dtype, "; need one of f32, bf16, f16, f64");
  WEFT_CHECK(q.shape.size() == 4 && k.shape.size() == 4 && v.shape.size() == 4, c.op.name, ": q ", q.shape, ", k ",
             k.shape, ", v ", v.shape, "; need [B, H, S, D] each");
  const bool paged = at.pages >= 0;
  WEFT_CHECK((paged || k.shape[0] == q.shape[0] || k.shape[0] == 1) && v.shape[0] == k.shape[0] &&
                 v.shape[1] == k.shape[1] && v.shape[2] == k.shape[2] && k.shape[3] == q.shape[3] && k.shape[1] > 0 &&
                 q.shape[1] % k.shape[1] == 0,
             c.op.name, ": q ", q.shape, ", k ", k.shape, ", v ", v.shape,
             "; need [B, Hq, Sq, D], [B or 1, Hkv, Skv, D], [B or 1, Hkv, Skv, Dv], Hq a multiple of Hkv");
  if (const Graph* score = graph_of(c.attrs, "score"))
    WEFT_CHECK(static_cast<int>(score->inputs.size()) == 5 + at.score_tables, c.op.name, ": score takes ",
               score->inputs.size(), " inputs; need ", 5 + at.score_tables);
  if (const Graph* mask = graph_of(c.attrs, "mask"))
    WEFT_CHECK(static_cast<int>(mask->inputs.size()) == 4 + at.mask_tables, c.op.name, ": mask takes ",
               mask->inputs.size(), " inputs; need ", 4 + at.mask_tables);
  if (paged) {
    const TensorType& pages = c.in[static_cast<size_t>(at.pages)];
    WEFT_CHECK(!is_backward(c.op) && pages.dtype == kInt64 && pages.shape.size() == 2 && pages.shape[0] == q.shape[0] &&
                   k.shape[0] > 0,
               c.op.name, ": page table is ", pages, " for q ", q.shape, " and pages ", k.shape,
               "; need i64 [B, n], one page or more, and only forward");
  }
  if (at.places >= 0) {
    WEFT_CHECK(c.attrs.ints("dropout_extents").size() == 4, c.op.name, ": dropout_extents are ",
               c.attrs.ints("dropout_extents"), "; need [B, Hq, Sq, Skv]");
    const int64_t lengths[] = {q.shape[0], q.shape[1], q.shape[2], keys_of(at, c.in)};
    for (size_t i = 0; i < 4; ++i) {
      const TensorType& t = c.in[static_cast<size_t>(at.places) + i];
      WEFT_CHECK(t.dtype == kInt64 && t.shape == Shape{lengths[i]}, c.op.name, ": dropout positions are ", t,
                 "; need i64 [", lengths[i], "]");
    }
  }
  const bool wide = c.attrs.b("wide", false);
  const Shape rows{q.shape[0], q.shape[1], q.shape[2]};
  Shape out = q.shape;
  out[3] = v.shape[3];
  const TensorType row{wide_of(q.dtype), q.device, rows}, o{q.dtype, q.device, out};
  if (!is_backward(c.op)) return {wide ? TensorType{wide_of(q.dtype), q.device, out} : o, row, row};
  const size_t n = static_cast<size_t>(at.count);
  WEFT_CHECK(c.in[n] == o && c.in[n + 1] == row && c.in[n + 2] == row && c.in[n + 3] == o && c.in[n + 4] == row,
             c.op.name, ": out ", c.in[n], ", log_sum ", c.in[n + 1], ", max ", c.in[n + 2], ", gradients ",
             c.in[n + 3], ", ", c.in[n + 4], "; need ", o, " and ", row);
  Types types{q, k, v};
  for (int i = 0; i < at.score_tables; ++i)
    if (const TensorType& t = c.in[static_cast<size_t>(at.score_first + i)]; at.learned(i, t.dtype)) types.push_back(t);
  if (wide)
    for (TensorType& t : types) t.dtype = wide_of(t.dtype);
  return types;
}

DimMap dims(const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out) {
  const AttentionOperands at(attrs);
  // For pages, the entry of a key is known only at run time.
  const std::string batch = at.pages >= 0 ? "p?" : in[1].shape[0] == in[0].shape[0] ? "b" : "1";
  // The log-sum-exp does not have the values' dim: if that dim were split, each rank would return the whole
  // log-sum-exp.
  const std::string k = batch + " h t? d?", v = batch + " h t? e?", o = "b (h g) s e?", row = "b (h g) s";
  std::vector<std::string> from{"b (h g) s d?", k, v}, to;
  auto whole = [](const TensorType& t, int i) {
    std::vector<std::string> words;
    for (int d = 0; d < t.shape.size(); ++d) words.push_back(str_cat("x", i, "d", d, "?"));
    return join_words(words);
  };
  for (int i = 3; i < at.count; ++i) from.push_back(whole(in[static_cast<size_t>(i)], i));
  if (static_cast<int>(in.size()) == at.count) {
    to = {o, row, row};
  } else {
    for (const std::string& s : {o, row, row, o, row}) from.push_back(s);
    to = {from[0], k, v};
    for (int i = 0; i < at.score_tables; ++i)
      if (const auto k = static_cast<size_t>(at.score_first + i); at.learned(i, in[k].dtype)) to.push_back(from[k]);
  }
  auto joined = [](const std::vector<std::string>& words) {
    std::string s;
    for (const std::string& w : words) s += (s.empty() ? "" : ", ") + w;
    return s;
  };
  const std::pair<std::string, int64_t> sizes[] = {{"h", in[1].shape[1]}};
  return DimMap::parse(joined(from) + " -> " + joined(to), in, out, sizes);
}

// ---- kernels ----

/// One call of the kernels: views of the operands, the mods, and the parts of the workspace.
class AttentionRun {
 public:
  AttentionRun(const Attrs& attrs, std::span<const StridedView> in, bool run) : at_(attrs), in_(in) {
    a.q = in[0];
    a.k = in[1];
    a.v = in[2];
    a.scale = attrs.f("scale");
    const int64_t keys = keys_of(at_, in);
    if (at_.pages >= 0) {
      static constexpr int64_t kNoPages = 0;
      const StridedView& pages = in[static_cast<size_t>(at_.pages)];
      a.pages = run ? pages.as<int64_t>() : &kNoPages;
      a.page_count = pages.shape[1];
    }
    const bool masked = attrs.has("mask");
    if (masked && run) {
      mask_ = mask_of_call(attrs.get<Ref<Graph>>("mask"),
                           in.subspan(static_cast<size_t>(at_.mask_first), static_cast<size_t>(at_.mask_tables)),
                           {in[0].shape[0], in[0].shape[1], in[0].shape[2], keys}, at_.blocks < 0);
      if (at_.blocks < 0) a.blocks = &mask_->view;
    }
    // The size of the workspace does not depend on the mask.
    static constexpr kernels::MaskFill kNoFill{};
    if (masked) a.mask = run ? &mask_->fill : &kNoFill;
    if (at_.blocks >= 0) {
      blocks_ = block_mask_of(attrs, in[0].shape[2], keys, &in[static_cast<size_t>(at_.blocks)]);
      if (run) a.blocks = &blocks_;
    }
    scored_ = attrs.has("score");
    static constexpr kernels::ScoreHook kNoHook{};
    if (scored_ && run) {
      const Shape& q = in[0].shape;
      const bool backward = in.size() > static_cast<size_t>(at_.count);
      score_ = std::make_unique<ScoreTiles>(attrs.get<Ref<Graph>>("score"), score_tables(),
                                            std::max({q[0], q[1], q[2], keys}), backward ? &at_ : nullptr);
    }
    if (scored_) a.score = run ? &score_->hook() : &kNoHook;
    if (at_.dropout >= 0) {
      a.dropout.p = attrs.f("dropout");
      a.dropout.op_id = static_cast<uint32_t>(attrs.i("op_id"));
      if (run) {
        a.dropout.seed = static_cast<uint64_t>(*in[static_cast<size_t>(at_.dropout)].as<int64_t>());
        a.dropout.step = static_cast<uint64_t>(*in[static_cast<size_t>(at_.dropout) + 1].as<int64_t>());
        if (at_.places >= 0) {
          const int64_t** const to[] = {&a.dropout.b, &a.dropout.h, &a.dropout.q, &a.dropout.kv};
          for (size_t i = 0; i < 4; ++i) *to[i] = in[static_cast<size_t>(at_.places) + i].as<int64_t>();
          const Shape& whole = attrs.ints("dropout_extents");
          a.dropout.heads = whole[1], a.dropout.q_len = whole[2], a.dropout.kv_len = whole[3];
        }
      }
    }
  }

  std::span<const StridedView> score_tables() const {
    return in_.subspan(static_cast<size_t>(at_.score_first), static_cast<size_t>(at_.score_tables));
  }
  /// Bytes of workspace before the kernel's own, in backward: private sums of the tables' gradients.
  int64_t sums_bytes() const {
    if (!scored_) return 0;
    return (ScoreTiles::gradient_bytes(at_, score_tables(), groups()) + 63) / 64 * 64;
  }
  /// Number of sets of sums; the tasks of a set run one after another. Depends on the shapes only.
  int64_t groups() const {
    const int64_t one = std::max<int64_t>(1, ScoreTiles::gradient_bytes(at_, score_tables(), 1));
    const int64_t tasks = std::max<int64_t>(1, kernels::attention_tasks(a));
    return std::min(tasks, std::max<int64_t>(2, kMaxGradientBytes / one));
  }

  void backward(std::span<const StridedView> out, char* workspace) {
    const StridedView* g = &in_[static_cast<size_t>(at_.count)];
    const kernels::AttentionGrad grad{.out = g[0],
                                      .log_sum = g[1].as<float>(),
                                      .max = g[2].as<float>(),
                                      .dout = g[3],
                                      .dlse = g[4].as<float>(),
                                      .dq = out[0],
                                      .dk = out[1],
                                      .dv = out[2]};
    const int64_t sums = sums_bytes();
    if (score_) {
      a.score_groups = groups();
      score_->start_gradients(a.score_groups, reinterpret_cast<float*>(workspace));
    }
    kernels::attention_backward(a, grad, workspace + sums);
    size_t next = 3;
    const auto tables = score_tables();
    for (size_t i = 0; i < tables.size(); ++i)
      if (at_.learned(static_cast<int>(i), tables[i].dtype)) score_->finish_gradient(static_cast<int>(i), out[next++]);
  }

  kernels::Attention a;

 private:
  AttentionOperands at_;
  std::span<const StridedView> in_;
  std::shared_ptr<const CallMask> mask_;
  kernels::BlockMaskView blocks_;
  std::unique_ptr<ScoreTiles> score_;
  bool scored_ = false;
};

/// Operands whose memory the kernels read as arrays: the tables and all operands after q, k, v. Operands that are not
/// contiguous are copied to the workspace.
struct CopiedOperands {
  std::vector<StridedView> views;
  std::vector<int64_t> place;
  int64_t bytes = 0;
  CopiedOperands(std::span<const StridedView> in) : views(in.begin(), in.end()), place(in.size(), -1) {
    for (size_t i = 3; i < in.size(); ++i) {
      if (in[i].contiguous()) continue;
      place[i] = bytes;
      bytes += (in[i].nbytes() + 63) / 64 * 64;
    }
  }
  void fill(std::span<const StridedView> in, char* workspace) {
    for (size_t i = 0; i < in.size(); ++i) {
      if (place[i] < 0) continue;
      views[i].data = workspace + place[i];
      views[i].strides = contiguous_strides(in[i].shape);
      kernels::cast_copy(in[i], views[i]);
    }
  }
};

// f64 has no kernel: runs the primitives one by one.
void run_plain(const KernelCall& c) {
  NoGrad guard;
  std::vector<Tensor> in;
  for (const StridedView& v : c.in) {
    in.push_back(Tensor::empty({v.dtype, Device::cpu(), v.shape}));
    kernels::cast_copy(v, in.back().view_for_kernel());
  }
  const std::vector<Tensor> out = c.op.decompose(c.attrs, in);
  for (size_t i = 0; i < out.size(); ++i) kernels::cast_copy(out[i].view_for_kernel(), c.out[i]);
}

void run(const KernelCall& c) {
  if (c.in[0].dtype == kFloat64) return run_plain(c);
  CopiedOperands arrays(c.in);
  char* workspace = static_cast<char*>(c.workspace);
  arrays.fill(c.in, workspace);
  workspace += arrays.bytes;
  AttentionRun call(c.attrs, arrays.views, true);
  if (is_backward(c.op)) {
    call.backward(c.out, workspace);
  } else {
    kernels::attention(call.a, c.out[0], c.out[1].as<float>(), c.out[2].as<float>(), workspace);
    if (const Graph* score = graph_of(c.attrs, "score"))
      check_score_reads(*score, call.score_tables(), call.a, c.out[1].as<float>());
  }
}

int64_t workspace(const Attrs& attrs, std::span<const StridedView> in, std::span<const StridedView>) {
  if (in[0].dtype == kFloat64) return 0;
  const CopiedOperands arrays(in);
  AttentionRun call(attrs, in, false);
  const bool backward = static_cast<int>(in.size()) > AttentionOperands(attrs).count;
  auto bytes = [&] {
    return backward ? call.sums_bytes() + kernels::attention_backward_workspace(call.a)
                    : kernels::attention_workspace(call.a);
  };
  // The kind of a mask's list is known only when it is made.
  const int64_t unmasked = bytes();
  const bool blocks = attrs.i("block_q") > 0;
  const kernels::BlockMaskView by_head{.batch = in[0].shape[0],
                                       .heads = in[0].shape[1],
                                       .q_len = in[0].shape[2],
                                       .kv_len = keys_of(AttentionOperands(attrs), in),
                                       .block_q = blocks ? attrs.i("block_q") : 128,
                                       .block_kv = blocks ? attrs.i("block_kv") : 128};
  if (call.a.mask) call.a.blocks = &by_head;
  return arrays.bytes + std::max(unmasked, bytes());
}

// ---- derivatives ----

// The gradient of pages `like`, from the gradient of gathered_pages.
Tensor scattered_pages(const Tensor& pages, const Tensor& g, const Tensor& like) {
  const int64_t size = like.size(2);
  const Tensor rows = transpose(reshape(g, {g.size(0), g.size(1), pages.size(1), size, g.size(3)}), 1, 2);
  return index_add(zeros(like.shape(), {.dtype = like.dtype(), .device = like.device()}), 0,
                   minimum(maximum(reshape(pages, {-1}), 0), like.size(0) - 1),
                   reshape(rows, {pages.numel(), g.size(1), size, g.size(3)}));
}

Grads vjp(const VjpCall& c) {
  const AttentionOperands at(c.attrs);
  SmallVec<const Tensor*, 12> in;
  for (int i = 0; i < at.count; ++i)
    if (i != at.pages) in.push_back(&c.in[static_cast<size_t>(i)]);
  // Paged keys are gathered for the derivative, and their gradient is scattered.
  std::vector<Tensor> kv;
  Attrs attrs = at.pages >= 0 ? c.attrs.without("paged") : c.attrs;
  if (at.pages >= 0) {
    kv = gathered_pages(c.in[static_cast<size_t>(at.pages)], c.in[1], c.in[2]);
    in[1] = &kv[0], in[2] = &kv[1];
  }
  Tensor out = c.out[0], dout = c.grad[0].defined() ? c.grad[0] : full_of(c.out[0].type(), 0);
  if (attrs.b("wide", false)) {
    attrs = attrs.without("wide");
    out = cast(out, c.in[0].dtype()), dout = cast(dout, c.in[0].dtype());
  }
  const Tensor dlse = c.grad[1].defined() ? c.grad[1] : full_of(c.out[1].type(), 0);
  int64_t fixed = 0;
  for (int i = 0; i < at.score_tables; ++i)
    if (const int k = at.score_first + i; has_gradient(c.in[static_cast<size_t>(k)].dtype()) && !c.needs(k))
      fixed = with_table(fixed, i);
  if (fixed) attrs = attrs.with("fixed_tables", fixed);
  for (const Tensor* t : std::initializer_list<const Tensor*>{&out, &c.out[1], &c.out[2], &dout, &dlse})
    in.push_back(t);
  std::vector<Tensor> back = dispatch_multi(attention_backward_op, TensorPtrs(in), attrs);
  if (at.pages >= 0) {
    const Tensor& pages = c.in[static_cast<size_t>(at.pages)];
    for (size_t i = 1; i < 3; ++i) back[i] = scattered_pages(pages, back[i], c.in[i]);
  }
  Grads g(c.in.size());
  size_t next = 0;
  for (int i = 0; i < 3; ++i) g[static_cast<size_t>(i)] = back[next++];
  const AttentionOperands own(attrs);
  for (int i = 0; i < at.score_tables; ++i)
    if (const size_t k = static_cast<size_t>(at.score_first + i); own.learned(i, c.in[k].dtype())) g[k] = back[next++];
  return g;
}

// The second derivative uses the decomposition: the whole scores are then in memory.
Grads vjp_backward(const VjpCall& c) {
  EnableGrad record;
  std::vector<Tensor> in, wrt;
  std::vector<size_t> which;
  for (size_t i = 0; i < c.in.size(); ++i) {
    Tensor t = c.in[i];
    if (is_floating(t.dtype()) && c.needs(static_cast<int>(i))) {
      t = own_tape(t);
      wrt.push_back(t);
      which.push_back(i);
    }
    in.push_back(t);
  }
  const std::vector<Tensor> out = plain_attention_backward(c.attrs, in);
  Grads g(c.in.size());
  for (size_t o = 0; o < out.size(); ++o) {
    if (!c.grad[o].defined()) continue;
    const std::vector<Tensor> d = grad(out[o], wrt, {.create_graph = true, .grad_output = c.grad[o]});
    for (size_t i = 0; i < d.size(); ++i) {
      Tensor& sum = g[which[i]];
      sum = sum.defined() ? sum + d[i] : d[i];
    }
  }
  return g;
}

}  // namespace

AttentionOperands::AttentionOperands(const Attrs& attrs) {
  score_tables = static_cast<int>(attrs.i("score_tables"));
  mask_tables = static_cast<int>(attrs.i("mask_tables"));
  mask_first = score_first + score_tables;
  count = mask_first + mask_tables;
  if (attrs.i("block_q") > 0) {
    blocks = count;
    count += 3;
  }
  if (attrs.has("dropout")) {
    dropout = count;
    count += 2;
    if (attrs.has("dropout_extents")) {
      places = count;
      count += 4;
    }
  }
  if (attrs.b("paged", false)) pages = count++;
  fixed_tables = attrs.i("fixed_tables", 0);
}

bool AttentionOperands::learned(int i, DType t) const { return has_gradient(t) && !in_tables(fixed_tables, i); }

const OpDef attention_op = {
    .name = "attention",
    .doc = "softmax(score({scale} q k^T) where mask) v, the logarithm of its sum and its largest scores.",
    .traits = kContraction | kAttention | kMayThrow,
    .num_inputs = -1,
    .num_outputs = 3,
    .infer = infer,
    .vjp = vjp,
    .dims = dims,
    .cost = attention_cost,
    .kernel = run,
    .workspace = workspace,
    .decompose = plain_attention,
    .vjp_reads_out = 7,
    .done = attention_done,
};
const OpDef attention_backward_op = {
    .name = "attention_backward",
    .doc = "Gradients of attention's operands.",
    .traits = kContraction | kAttention | kMayThrow,
    .num_inputs = -1,
    .num_outputs = -1,
    .infer = infer,
    .vjp = vjp_backward,
    .dims = dims,
    .cost = attention_cost,
    .kernel = run,
    .workspace = workspace,
    .decompose = plain_attention_backward,
    .vjp_reads_out = 0,
    .done = attention_done,
};

std::span<const OpDef* const> attention_ops() {
  static const OpDef* const all[] = {&attention_op, &attention_backward_op};
  return all;
}

}  // namespace weft
