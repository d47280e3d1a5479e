#include "compiler/targets/cpu/print/choices.h"

#include <algorithm>
#include <vector>

namespace weft::codegen {
namespace {

using loop_ir::Instr;
using loop_ir::Kernel;
using loop_ir::KernelSegment;
using loop_ir::Level;
using loop_ir::Mode;
using loop_ir::Op;
using loop_ir::StrideKind;

// A core's instruction window does not span this many dependent operations, so it does not reach the next vector.
constexpr int kLongChain = 48;
// Operations between loads at which the hardware prefetcher does not keep up in an elementwise loop.
constexpr int kBusy = 16;
// Processing several vectors at once leaves registers for this many values.
constexpr int kFewValues = 3;

constexpr int kOperations[] = {
#define WEFT_UNARY(name, types, expr, vjp, lo, hi, flops, doc) flops,
#define WEFT_TEST(name, types, expr, doc) 1,
#define WEFT_BINARY(name, types, expr, vjp_a, vjp_b, lo, hi, flops, doc) flops,
#define WEFT_COMPARE(name, types, expr, doc) 1,
#define WEFT_TERNARY(name, types, expr, vjp_a, vjp_b, flops, doc) flops,
#include "ops/kernels/pointwise.inc"
};

bool in_loop(const Instr& i) { return i.level == Level::kBoth; }

bool only_elementwise(const Kernel& k) {
  if (k.mode != Mode::kRows) return false;
  return std::none_of(k.instrs.begin(), k.instrs.end(),
                      [](const Instr& i) { return i.op == Op::kReduce || i.op == Op::kColumn || i.op == Op::kKeep; });
}

// The most values of the loop that are live at once.
int most_alive(const Kernel& k) {
  std::vector<int> last(k.instrs.size(), -1);
  for (size_t i = 0; i < k.instrs.size(); ++i)
    for (int a : {k.instrs[i].a, k.instrs[i].b, k.instrs[i].c})
      if (a >= 0) last[a] = static_cast<int>(i);
  int most = 0, alive = 0;
  std::vector<int> ends(k.instrs.size(), 0);
  for (size_t i = 0; i < k.instrs.size(); ++i) {
    alive -= ends[i];
    if (in_loop(k.instrs[i]) && last[i] >= 0) ++alive, ++ends[last[i]];
    most = std::max(most, alive);
  }
  return most;
}

struct OperationChain {
  int longest = 0, all = 0;  // operations of the loop: on the longest dependent path, and in all
};
OperationChain chain_of(const Kernel& k) {
  std::vector<int> depth(k.instrs.size(), 0);
  OperationChain c;
  for (size_t i = 0; i < k.instrs.size(); ++i) {
    const Instr& now = k.instrs[i];
    if (!in_loop(now)) continue;
    for (int a : {now.a, now.b, now.c})
      if (a >= 0) depth[i] = std::max(depth[i], depth[a]);
    depth[i] += operations(now);
    c.all += operations(now);
    c.longest = std::max(c.longest, depth[i]);
  }
  return c;
}

bool is_loop(const Kernel& k, const KernelSegment& s) {
  return std::any_of(s.instrs.begin(), s.instrs.end(), [&](int id) { return in_loop(k.instrs[id]); });
}
// The loops over a row; empty if there is only one.
std::vector<const KernelSegment*> loops_of(const Kernel& k) {
  std::vector<const KernelSegment*> loops;
  if (k.mode == Mode::kRows && k.outer_axes() > 0)
    for (const KernelSegment& s : k.segments)
      if (is_loop(k, s)) loops.push_back(&s);
  if (loops.size() < 2) loops.clear();
  return loops;
}

}  // namespace

int operations(const Instr& i) { return i.op == Op::kPw ? kOperations[static_cast<int>(i.pw)] : 0; }

bool is_long_chain(const Kernel& k) {
  if (!only_elementwise(k) || goes_by_tiles(k)) return false;
  const OperationChain c = chain_of(k);
  return c.longest >= kLongChain && 2 * c.all <= 3 * c.longest && most_alive(k) <= kFewValues;
}

bool fetches_ahead(const Kernel& k) {
  if (!only_elementwise(k) || goes_by_tiles(k) || is_long_chain(k) || chain_of(k).longest < kBusy) return false;
  return std::any_of(k.instrs.begin(), k.instrs.end(), [&](const Instr& i) { return may_be_far(k, i); });
}

bool is_strided_along_lanes(const Kernel& k, size_t operand) {
  const auto& strides = k.operands[operand].strides;
  return k.axes >= 2 && strides[k.axes - 1] == StrideKind::kAny && strides[k.axes - 2] == StrideKind::kUnit;
}

bool goes_by_tiles(const Kernel& k) {
  if (k.mode != Mode::kRows || k.reduces() || k.outer_axes() == 0) return false;
  for (const Instr& i : k.instrs)
    if (i.op == Op::kStore && !in_loop(i)) return false;
  for (size_t p = 0; p < k.operands.size(); ++p)
    if (is_strided_along_lanes(k, p)) return true;
  return false;
}

bool is_transposed(const Kernel& k, size_t operand) {
  const loop_ir::Operand& o = k.operands[operand];
  return goes_by_tiles(k) && is_strided_along_lanes(k, operand) && !o.output && !o.indexed;
}

const KernelSegment* fetching_loop(const Kernel& k) {
  const KernelSegment* best = nullptr;
  int most = -1;
  for (const KernelSegment* s : loops_of(k)) {
    int all = 0;
    for (int id : s->instrs) all += operations(k.instrs[id]);
    if (all >= most) most = all, best = s;
  }
  return best;
}

const KernelSegment* loop_before(const Kernel& k, const Instr& store) {
  const KernelSegment* before = nullptr;
  for (const KernelSegment* s : loops_of(k)) {
    for (int id : s->instrs)
      if (&k.instrs[id] == &store) return before;
    before = s;
  }
  return nullptr;
}

bool may_be_far(const Kernel& k, const Instr& store) {
  if (k.mode != Mode::kRows || k.in_cache || k.columns > 0 || store.op != Op::kStore || !in_loop(store)) return false;
  const loop_ir::Operand& o = k.operands[store.slot];
  return o.dtype == kFloat32 && !o.indexed && o.strides[k.axes - 1] == StrideKind::kUnit;
}

}  // namespace weft::codegen
