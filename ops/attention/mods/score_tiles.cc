#include "ops/attention/mods/score_tiles.h"

#include <algorithm>
#include <cstring>

#include "framework/autodiff/grad.h"
#include "framework/base/thread_pool.h"
#include "framework/dispatch/state/state.h"
#include "ops/attention/mods/map_mod.h"
#include "ops/core/core.h"
#include "ops/kernels/kernels.h"

namespace weft::internal {

MakeTileMod make_tile_mod = nullptr;
DescribeTileMod describe_tile_mod = nullptr;

namespace {

class Interpreted final : public TileMod {
 public:
  Interpreted(const Ref<Graph>& mod, std::span<const StridedView> tables) : mod_(mod) {
    for (const StridedView& t : tables) tables_.push_back(Tensor::from_blob(t.data, t.shape, t.dtype));
  }

  void forward(const kernels::ScoreTile& t, float* scores) const override {
    NoGrad guard;
    Tensor raw = Tensor::empty({kFloat32, Device::cpu(), {t.rows, t.cols}});
    copy(scores, t.ld, data(raw), t.cols, t);
    copy(broadcast_to(map_mod(*mod_, 5, operands(t, mul(raw, static_cast<double>(t.scale)))), raw.shape())
             .contiguous()
             .data<float>(),
         t.cols, scores, t.ld, t);
  }

  void backward(const kernels::ScoreTile& t, const float* raw, float* grad, float* const* table_grad) const override {
    EnableGrad record;
    Tensor score = Tensor::empty({kFloat32, Device::cpu(), {t.rows, t.cols}}), g = Tensor::empty(score.type());
    copy(raw, t.ld, data(score), t.cols, t);
    copy(grad, t.ld, data(g), t.cols, t);
    score = mul(score, static_cast<double>(t.scale)).requires_grad();
    TableReads reads;
    for (size_t i = 0; i < tables_.size(); ++i)
      if (!table_grad[i]) reads.fixed = with_table(reads.fixed, static_cast<int>(i));
    const Tensor out = broadcast_to(map_mod(*mod_, 5, operands(t, score), &reads), score.shape());
    if (!out.requires_grad_enabled()) {
      for (int64_t i = 0; i < t.rows; ++i) std::memset(grad + i * t.ld, 0, sizeof(float) * static_cast<size_t>(t.cols));
      return;
    }
    std::vector<Tensor> wrt{score};
    for (const TableRead& r : reads.all) wrt.push_back(r.value);
    const std::vector<Tensor> d = weft::grad(out, wrt, {.grad_output = g});
    copy(d[0].contiguous().data<float>(), t.cols, grad, t.ld, t);
    for (size_t i = 0; i < reads.all.size(); ++i) {
      float* sums = table_grad[reads.all[i].input - 5];
      if (!sums) continue;
      const Tensor at = reads.all[i].at.contiguous(), value = cast(d[i + 1], kFloat32).contiguous();
      const int64_t* where = at.data<int64_t>();
      const float* v = value.data<float>();
      for (int64_t k = 0; k < at.numel(); ++k) sums[where[k]] += v[k];
    }
  }

 private:
  static float* data(const Tensor& t) { return static_cast<float*>(t.view_for_kernel().data); }

  static void copy(const float* from, int64_t from_ld, float* to, int64_t to_ld, const kernels::ScoreTile& t) {
    for (int64_t i = 0; i < t.rows; ++i)
      std::memcpy(to + i * to_ld, from + i * from_ld, sizeof(float) * static_cast<size_t>(t.cols));
  }

  std::vector<Tensor> operands(const kernels::ScoreTile& t, const Tensor& score) const {
    const TensorOptions i64{.dtype = kInt64};
    std::vector<Tensor> in{score, full({1, 1}, t.batch, i64), full({1, 1}, t.head, i64),
                           reshape(arange(t.q0, t.q0 + t.rows, 1, i64), {-1, 1}),
                           reshape(arange(t.kv0, t.kv0 + t.cols, 1, i64), {1, -1})};
    in.insert(in.end(), tables_.begin(), tables_.end());
    return in;
  }

  Ref<Graph> mod_;
  std::vector<Tensor> tables_;
};

// The sums of one chunk.
constexpr int64_t kChunk = 4096;

}  // namespace

std::unique_ptr<TileMod> interpreted_tile_mod(const Ref<Graph>& mod, std::span<const StridedView> tables) {
  return std::make_unique<Interpreted>(mod, tables);
}

ScoreTiles::ScoreTiles(const Ref<Graph>& mod, std::span<const StridedView> tables, int64_t positions,
                       const AttentionOperands* backward) {
  if (make_tile_mod && positions <= kGeneratedPositions)
    mod_ = make_tile_mod(mod, tables, backward ? std::optional(backward->fixed_tables) : std::nullopt);
  if (!mod_) mod_ = interpreted_tile_mod(mod, tables);
  for (size_t i = 0; i < tables.size(); ++i) {
    const bool learned = backward && backward->learned(static_cast<int>(i), tables[i].dtype);
    offsets_.push_back(learned ? per_group_ : -1);
    if (learned) per_group_ += tables[i].numel();
  }
  hook_.context = this;
  hook_.forward = [](const void* self, const kernels::ScoreTile& t, float* scores) {
    static_cast<const ScoreTiles*>(self)->mod_->forward(t, scores);
  };
  hook_.backward = [](const void* self, const kernels::ScoreTile& t, const float* raw, float* grad) {
    const ScoreTiles& s = *static_cast<const ScoreTiles*>(self);
    SmallVec<float*, 4> sums;
    for (int64_t offset : s.offsets_)
      sums.push_back(offset < 0 || !s.sums_ ? nullptr : s.sums_ + t.task % s.groups_ * s.per_group_ + offset);
    s.mod_->backward(t, raw, grad, sums.data());
  };
}

ScoreTiles::~ScoreTiles() = default;

int64_t ScoreTiles::gradient_bytes(const AttentionOperands& at, std::span<const StridedView> tables, int64_t groups) {
  int64_t n = 0;
  for (size_t i = 0; i < tables.size(); ++i)
    if (at.learned(static_cast<int>(i), tables[i].dtype)) n += tables[i].numel();
  return n * groups * static_cast<int64_t>(sizeof(float));
}

void ScoreTiles::start_gradients(int64_t groups, float* sums) {
  sums_ = sums;
  groups_ = groups;
  parallel_chunks(per_group_ * groups, kChunk, [&](int64_t begin, int64_t end) {
    std::memset(sums + begin, 0, sizeof(float) * static_cast<size_t>(end - begin));
  });
}

void ScoreTiles::finish_gradient(int table, const StridedView& out) const {
  float* first = sums_ + offsets_[static_cast<size_t>(table)];
  parallel_chunks(out.numel(), kChunk, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t t = 1; t < groups_; ++t) first[i] += first[t * per_group_ + i];
    }
  });
  kernels::cast_copy({first, kFloat32, out.shape, contiguous_strides(out.shape)}, out);
}

}  // namespace weft::internal
