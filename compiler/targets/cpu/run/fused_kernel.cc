#include "compiler/targets/cpu/run/fused_kernel.h"

#include <algorithm>
#include <cstring>

#include "compiler/loop_ir/interpret.h"
#include "framework/base/thread_pool.h"
#include "framework/dispatch/dispatch.h"
#include "framework/dispatch/state/state.h"
#include "framework/ir/op_def.h"
#include "ops/core/creation.h"
#include "ops/numerics/reduce_order.h"

namespace weft::internal {
namespace {

constexpr double kTaskBytes = 16 * 1024;      // work worth a task of its own
constexpr int64_t kColumnBytes = 32 * 1024;   // lane rows of one task: they stay in the first two caches
constexpr int64_t kInlineBytes = 256 * 1024;  // sums of lane rows and blocks below this are not shared out

constexpr int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
constexpr int64_t cut(int64_t n, int64_t i, int64_t parts) { return n / parts * i + n % parts * i / parts; }

DType dtype_of(loop_ir::Type t) {
  return t == loop_ir::Type::f64 ? kFloat64 : t == loop_ir::Type::i64 ? kInt64 : kFloat32;
}
int64_t size_of(loop_ir::Type t) { return t == loop_ir::Type::f32 ? 4 : 8; }

// The address `elements` before p: kernels index columns and tiles by absolute position.
void* before(void* p, int64_t bytes) {
  return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(p) - static_cast<uintptr_t>(bytes));
}

// The tree over blocks: rows of n accumulators, row_bytes apart; the result is in the first.
void combine_blocks(kernels::Rd rd, DType type, char* rows, int64_t row_bytes, int64_t blocks, int64_t n) {
  for (int64_t s = 1; s < blocks; s *= 2)
    for (int64_t b = 0; b + s < blocks; b += 2 * s)
      kernels::combine(rd, type, rows + b * row_bytes, rows + (b + s) * row_bytes, n);
}

// The sum or product of no terms.
void fill_nothing(kernels::Rd rd, const StridedView& out) { kernels::fill(out, rd == kernels::Rd::prod ? 1 : 0); }

void write_result(const void* from, loop_ir::Type type, int64_t first, int64_t n, const StridedView& out) {
  kernels::cast_copy({const_cast<void*>(from), dtype_of(type), {n}, {1}},
                     {out.as<char>() + first * itemsize(out.dtype), out.dtype, {n}, {1}});
}

}  // namespace

FusedKernel::FusedKernel(Ref<Graph> body, loop_ir::Lowered lowered, std::span<const StridedView> in, FusedDot dot)
    : body_(std::move(body)), lowered_(std::move(lowered)), in_(in.begin(), in.end()), parts_(std::move(dot)) {
  if (!parts_.main) parts_.main = body_;
  bind_operands();
  const loop_ir::Kernel& k = lowered_.kernel;
  points_ = lowered_.outer_points();
  lanes_ = lowered_.lanes();
  const bool empty = points_ == 0 || lanes_ == 0;
  const bool reduces = std::any_of(k.instrs.begin(), k.instrs.end(),
                                   [](const loop_ir::Instr& i) { return i.op == loop_ir::Op::kReduce; });
  any_part_of_lanes_ = k.mode == loop_ir::Mode::kAcross || (k.mode == loop_ir::Mode::kRows && !reduces);
  cost_ = lowered_.bytes + lowered_.flops / 4;
  strides_.assign(k.operands.size() * k.axes, 0);
  for (size_t i = 0; i < k.operands.size(); ++i)
    if (static_cast<int32_t>(i) != lowered_.tile)
      std::copy(lowered_.bound[i].strides.begin(), lowered_.bound[i].strides.end(), strides_.begin() + i * k.axes);
  for (const loop_ir::BoundOperand& b : lowered_.bound) index_strides_.push_back(b.index_stride);
  auto accumulators = [](const std::vector<loop_ir::Finish>& finishes, int slots) {
    std::vector<Accumulator> all(slots);
    for (const loop_ir::Finish& f : finishes) all[f.slot] = {f.type, f.rd, f.output, size_of(f.type), 0, 0};
    return all;
  };
  columns_ = accumulators(lowered_.columns, k.columns);
  partials_ = accumulators(lowered_.partials, k.partials);
  blocks_ = empty ? 0 : ((k.mode == loop_ir::Mode::kSplit ? lanes_ : points_) + kReduceBlock - 1) / kReduceBlock;
  plan_workspace(in);
}

void FusedKernel::bind_operands() {
  for (size_t i = 0; i < lowered_.bound.size(); ++i) {
    const loop_ir::BoundOperand& b = lowered_.bound[i];
    bindings_.push_back({b.output, static_cast<int32_t>(i) == lowered_.tile ? -1 : b.index, b.offset});
  }
  std::string name;
  for (int k = 0; k < 2; ++k) {
    if (!parts_.kernel[k]) continue;
    for (const loop_ir::BoundOperand& b : parts_.kernel[k]->lowered().bound)
      bindings_.push_back({false, b.output ? -1 : parts_.prologue[k].inputs[b.index], b.offset});
    name += str_cat(parts_.kernel[k]->name(), "_");
  }
  name_ = intern(name + lowered_.kernel.name);
}

void FusedKernel::plan_workspace(std::span<const StridedView> in) {
  const int64_t slots = max_threads();
  slot_bytes_ = round_up(lowered_.scratch_floats() * 4, 64);
  int64_t at = slots * slot_bytes_;
  if (!columns_.empty() && any_part_of_lanes_) {
    // Tasks of about equal size, each with all 16 lane rows of its part.
    const int64_t parts = std::max<int64_t>(1, (slots + blocks_ - 1) / std::max<int64_t>(1, blocks_));
    const int64_t most = kColumnBytes / (kReduceLanes * 8 * static_cast<int64_t>(columns_.size()));
    chunk_ = std::clamp<int64_t>(round_up((lanes_ + parts - 1) / parts, 64), 64, std::max<int64_t>(64, most / 64 * 64));
  } else if (!columns_.empty()) {
    wave_ = std::min(blocks_, 2 * slots);
  }
  for (Accumulator& a : columns_) {
    a.blocks = at;
    if (blocks_ > 1) at += round_up(blocks_ * lanes_ * a.size, 64);
    a.lanes = at;
    at += kReduceLanes * a.size * (chunk_ ? chunk_ * slots : wave_ * lanes_);
    at = round_up(at, 64);
  }
  for (Accumulator& a : partials_) {
    a.blocks = at;
    at += round_up(points_ * blocks_ * a.size, 64);
  }
  dot_at_ = at;
  if (lowered_.dot >= 0) at += plan_dot(in);
  workspace_ = at;
}

void FusedKernel::call(const loop_ir::Args& a, int64_t o0, int64_t o1, int64_t step, int64_t l0, int64_t l1) const {
  if (const loop_ir::KernelFunction fn = this->fn()) {
    fn(&a, o0, o1, step, l0, l1);
  } else {
    loop_ir::interpret(lowered_.kernel, a, o0, o1, step, l0, l1);
  }
}

loop_ir::Args FusedKernel::args(const FusedOperands& x, int64_t slot) const {
  return {x.ptr,
          strides_.data(),
          lowered_.extents.data(),
          lowered_.params.data(),
          reinterpret_cast<float*>(static_cast<char*>(x.workspace) + slot * slot_bytes_),
          nullptr,
          nullptr,
          index_strides_.data(),
          x.bad};
}

int FusedKernel::tasks_wanted(int64_t units) const {
  const int64_t worth = static_cast<int64_t>(std::min(cost_ / kTaskBytes, 1e6));
  if (worth <= 1) return 1;
  return static_cast<int>(
      std::clamp<int64_t>(std::min<int64_t>({worth, units, num_threads(), max_threads()}), 1, 4096));
}

void FusedKernel::run(std::span<const StridedView> in, std::span<const StridedView> out, void* workspace) const {
  SmallVec<void*, 64> operands;
  for (const Binding& b : bindings_) {
    if (b.index < 0) {
      operands.push_back(nullptr);
      continue;
    }
    const StridedView& v = b.output ? out[b.index] : in[b.index];
    operands.push_back(static_cast<char*>(v.data) + b.offset * itemsize(v.dtype));
  }
  run({operands.data(), in, out, workspace});
}

std::string FusedKernel::remark() const {
  bool interpreted = !fn();
  for (const auto& part : parts_.kernel) interpreted |= part && !part->fn();
  return interpreted ? "interpreted" : "";
}

std::string FusedKernel::text() const {
  std::string all;
  for (const auto& part : parts_.kernel)
    if (part) all += part->text();
  return all + lowered_.kernel.to_string();
}

void FusedKernel::run(FusedOperands x) const {
  int32_t bad = 0;
  x.bad = &bad;
  run_all(x);
  if (bad) [[unlikely]]
    fail_index(x);
}

// Computes the indices again, op by op, until one of them throws its error. Their operands have not been overwritten;
// elements to choose from do not matter.
void FusedKernel::fail_index(const FusedOperands& x) const {
  NoGrad guard;
  const Graph& g = *body_;
  auto chooses = [](const Node& n) { return n.op->is(kPicks); };
  std::vector<bool> needed(g.size());
  for (int32_t id = g.size() - 1; id >= 0; --id) {
    if (chooses(g.node(id))) needed[g.node(id).inputs[1].node] = true;
    if (needed[id])
      for (Value v : g.node(id).inputs) needed[v.node] = true;
  }
  std::vector<Tensor> values(g.size());
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    if (is_argument(n)) {
      values[id] = Tensor::empty(n.outputs[0]);
      if (needed[id]) kernels::cast_copy(x.in[n.attrs.i("index")], values[id].view_for_kernel());
    }
    if (is_argument(n) || (!needed[id] && !chooses(n))) continue;
    SmallVec<const Tensor*, 4> in;
    for (Value v : n.inputs) {
      if (!values[v.node].defined()) values[v.node] = Tensor::empty(g.type(v));
      in.push_back(&values[v.node]);
    }
    try {
      values[id] = dispatch_multi(*n.op, in, n.attrs)[0];
    } catch (const Error& e) {
      throw FailedNode(e, n);
    }
  }
  WEFT_BUG_IF(true, "fused: ", name_, " met an index out of range that its ops do not");
}

void FusedKernel::run_all(const FusedOperands& x) const {
  if (lowered_.dot >= 0) return run_dot(x);
  if (!partials_.empty()) return run_split(x);
  if (!columns_.empty()) {
    if (chunk_) {
      run_columns_by_chunks(x);
    } else {
      run_columns_by_rows(x);
    }
    return finish_columns(x);
  }
  if (points_ && lanes_) run_points(x);
}

void FusedKernel::run_points(const FusedOperands& x) const {
  const int threads = tasks_wanted(INT64_MAX);
  if (threads == 1) return call(args(x, 0), 0, points_, 1, 0, lanes_);
  if (any_part_of_lanes_ && points_ < 4 * threads) {
    // Whole pages where there are enough of them, whole cache lines else.
    const int64_t grain = lanes_ >= threads * 8 * 1024 ? 1024 : lanes_ >= threads * 64 ? 64 : kReduceLanes;
    const int64_t units = (lanes_ + grain - 1) / grain, tasks = std::min<int64_t>(threads, units);
    return parallel_for(tasks, [&](int64_t i) {
      call(args(x, i), 0, points_, 1, cut(units, i, tasks) * grain, std::min(cut(units, i + 1, tasks) * grain, lanes_));
    });
  }
  const int64_t tasks = std::min<int64_t>(threads, points_);
  parallel_for(tasks,
               [&](int64_t i) { call(args(x, i), cut(points_, i, tasks), cut(points_, i + 1, tasks), 1, 0, lanes_); });
}

// ---- sums over outer points ----

// The tree over the lanes that have points, n accumulators each; the result is in the first row.
void FusedKernel::combine_lanes(const Accumulator& a, char* lanes, int64_t row_bytes, int64_t present,
                                int64_t n) const {
  for (int s = kReduceLanes / 2; s > 0; s /= 2)
    for (int64_t l = 0; l < s && l + s < present; ++l)
      kernels::combine(a.rd, dtype_of(a.type), lanes + l * row_bytes, lanes + (l + s) * row_bytes, n);
}

// Calls f(args, column, task, unit) for each unit, in tasks; args.column is `column`.
template <class F>
void FusedKernel::for_units(const FusedOperands& x, int64_t units, const F& f) const {
  const int64_t tasks = tasks_wanted(units);
  parallel_for(tasks, [&](int64_t i) {
    loop_ir::Args a = args(x, i);
    SmallVec<void*, 8> column;
    column.resize(static_cast<int>(columns_.size()));
    a.column = column.data();
    for (int64_t u = cut(units, i, tasks); u < cut(units, i + 1, tasks); ++u) f(a, column.data(), i, u);
  });
}

// A task has all 16 lane rows of its part of L, for one block after another.
void FusedKernel::run_columns_by_chunks(const FusedOperands& x) const {
  const int64_t chunks = (lanes_ + chunk_ - 1) / chunk_, units = blocks_ * chunks;
  char* const memory = static_cast<char*>(x.workspace);
  if (units == 0) return;
  for_units(x, units, [&](const loop_ir::Args& a, void** column, int64_t i, int64_t u) {
    const int64_t b = u / chunks, l0 = u % chunks * chunk_, l1 = std::min(l0 + chunk_, lanes_), n = l1 - l0;
    const int64_t o0 = b * kReduceBlock, o1 = std::min<int64_t>(o0 + kReduceBlock, points_);
    const int64_t present = std::min<int64_t>(o1 - o0, kReduceLanes);
    for (int64_t l = 0; l < present; ++l) {
      for (size_t s = 0; s < columns_.size(); ++s) {
        const Accumulator& c = columns_[s];
        char* row = memory + c.lanes + (i * kReduceLanes + l) * chunk_ * c.size;
        kernels::fill_identity(c.rd, dtype_of(c.type), row, n);
        column[s] = before(row, l0 * c.size);
      }
      call(a, o0 + l, o1, kReduceLanes, l0, l1);
    }
    for (const Accumulator& c : columns_) {
      char* rows = memory + c.lanes + i * kReduceLanes * chunk_ * c.size;
      combine_lanes(c, rows, chunk_ * c.size, present, n);
      if (blocks_ > 1) {
        std::memcpy(memory + c.blocks + (b * lanes_ + l0) * c.size, rows, n * c.size);
      } else {
        write_result(rows, c.type, l0, n, x.out[c.output]);
      }
    }
  });
}

// Rows are walked whole, so a task has some lanes of some blocks; a wave of blocks has its lane rows at once.
void FusedKernel::run_columns_by_rows(const FusedOperands& x) const {
  char* const memory = static_cast<char*>(x.workspace);
  for (int64_t first = 0; first < blocks_; first += wave_) {
    const int64_t units = std::min(wave_, blocks_ - first) * kReduceLanes;
    for_units(x, units, [&](const loop_ir::Args& a, void** column, int64_t, int64_t u) {
      const int64_t block = (first + u / kReduceLanes) * kReduceBlock, o0 = block + u % kReduceLanes;
      if (o0 >= points_) return;
      for (size_t s = 0; s < columns_.size(); ++s) {
        const Accumulator& c = columns_[s];
        char* row = memory + c.lanes + u * lanes_ * c.size;
        kernels::fill_identity(c.rd, dtype_of(c.type), row, lanes_);
        column[s] = row;
      }
      call(a, o0, std::min<int64_t>(block + kReduceBlock, points_), kReduceLanes, 0, lanes_);
    });
    const int64_t blocks = units / kReduceLanes;
    for (const Accumulator& c : columns_) {
      auto part = [&](int64_t l0, int64_t l1) {
        for (int64_t b = 0; b < blocks; ++b) {
          char* rows = memory + c.lanes + (b * kReduceLanes * lanes_ + l0) * c.size;
          const int64_t present = std::min<int64_t>(points_ - (first + b) * kReduceBlock, kReduceLanes);
          combine_lanes(c, rows, lanes_ * c.size, present, l1 - l0);
          if (blocks_ > 1) {
            std::memcpy(memory + c.blocks + ((first + b) * lanes_ + l0) * c.size, rows, (l1 - l0) * c.size);
          } else {
            write_result(rows, c.type, l0, l1 - l0, x.out[c.output]);
          }
        }
      };
      if (units * lanes_ * c.size <= kInlineBytes) {
        part(0, lanes_);
      } else {
        const int64_t parts = std::min<int64_t>(tasks_wanted(units), (lanes_ + 63) / 64);
        parallel_for(parts, [&](int64_t i) { part(cut(lanes_, i, parts), cut(lanes_, i + 1, parts)); });
      }
    }
  }
}

void FusedKernel::finish_columns(const FusedOperands& x) const {
  if (blocks_ == 1) return;
  char* const memory = static_cast<char*>(x.workspace);
  for (const Accumulator& c : columns_) {
    const StridedView& out = x.out[c.output];
    if (blocks_ == 0) {
      fill_nothing(c.rd, out);
      continue;
    }
    auto part = [&](int64_t l0, int64_t l1) {
      char* rows = memory + c.blocks + l0 * c.size;
      combine_blocks(c.rd, dtype_of(c.type), rows, lanes_ * c.size, blocks_, l1 - l0);
      write_result(rows, c.type, l0, l1 - l0, out);
    };
    if (blocks_ * lanes_ * c.size <= kInlineBytes) {
      part(0, lanes_);
    } else {
      const int64_t parts = std::min<int64_t>(std::min(num_threads(), max_threads()), (lanes_ + 63) / 64);
      parallel_for(parts, [&](int64_t i) { part(cut(lanes_, i, parts), cut(lanes_, i + 1, parts)); });
    }
  }
}

// ---- few long rows ----

void FusedKernel::run_split(const FusedOperands& x) const {
  char* const memory = static_cast<char*>(x.workspace);
  SmallVec<void*, 8> partial;
  for (const Accumulator& p : partials_) partial.push_back(memory + p.blocks);
  const int64_t units = points_ * blocks_, tasks = tasks_wanted(units);
  if (units)
    parallel_for(tasks, [&](int64_t i) {
      loop_ir::Args a = args(x, i);
      a.partial = partial.data();
      for (int64_t u = cut(units, i, tasks), end = cut(units, i + 1, tasks); u < end;) {
        const int64_t o = u / blocks_, b0 = u % blocks_, b1 = std::min(blocks_, b0 + end - u);
        call(a, o, o + 1, 1, b0 * kReduceBlock, std::min(b1 * kReduceBlock, lanes_));
        u += b1 - b0;
      }
    });
  for (const Accumulator& p : partials_) {
    char* all = memory + p.blocks;
    if (blocks_ == 0) {
      fill_nothing(p.rd, x.out[p.output]);
      continue;
    }
    const int64_t rows = points_ / lowered_.joined, blocks = lowered_.joined * blocks_;  // blocks of each row
    for (int64_t o = 0; o < rows; ++o) {
      char* row = all + o * blocks * p.size;
      combine_blocks(p.rd, dtype_of(p.type), row, p.size, blocks, 1);
      std::memmove(all + o * p.size, row, p.size);
    }
    write_result(all, p.type, 0, rows, x.out[p.output]);
  }
}

const FusedKernel* printable_kernel(const Operation* o) {
  const FusedKernel* k = fused_kernel(o);
  return k && !k->lowered().kernel.segments.empty() ? k : nullptr;
}

std::vector<const FusedKernel*> fused_kernels(std::span<const std::shared_ptr<Operation>> operations) {
  std::vector<const FusedKernel*> all;
  for (const auto& o : operations) {
    const FusedKernel* k = fused_kernel(o.get());
    if (!k) continue;
    for (const auto& part : k->parts().kernel)
      if (part) all.push_back(part.get());
    all.push_back(k);
  }
  return all;
}

}  // namespace weft::internal
