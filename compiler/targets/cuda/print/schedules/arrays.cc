// Chooses which values of a loop stay in registers for later loops.
#include <algorithm>

#include "compiler/targets/cpu/print/choices.h"
#include "compiler/targets/cuda/print/writer.h"

namespace weft::cuda {

using loop_ir::Instr;
using loop_ir::Op;
using loop_ir::Type;

namespace {

int registers(Type t) { return t == Type::f64 || t == Type::i64 ? 2 : 1; }

// Positions, and values that cost at most one operation from them, are recomputed.
std::vector<bool> trivial(const Form& f) {
  std::vector<bool> is(f.kernel->instrs.size());
  for (size_t id = 0; id < is.size(); ++id) {
    const Instr& i = f.kernel->instrs[id];
    if (i.op == Op::kLoad || i.op == Op::kReduce || i.op == Op::kKept) continue;
    if (!f.in_loop(static_cast<int>(id))) continue;
    is[id] = i.op == Op::kIndex || codegen::operations(i) <= 1;
    for (int x : {i.a, i.b, i.c})
      if (x >= 0 && f.in_loop(x)) is[id] = is[id] && is[f.same[x]];
  }
  return is;
}

Arrays with(const Form& f, bool loads) {
  const int n = static_cast<int>(f.kernel->instrs.size());
  Arrays a;
  a.kept.assign(n, false);
  std::vector<bool> have(n), never = trivial(f);
  for (int id = 0; id < n; ++id)
    if (!loads && f.kernel->instrs[id].op == Op::kLoad) never[id] = true;
  for (size_t loop = 0; loop < f.loops.size(); ++loop) {
    std::vector<int> mine;
    for (int id : f.closure(static_cast<int>(loop), have)) {
      if (have[id]) {
        a.kept[id] = true;
      } else {
        mine.push_back(id);
      }
    }
    for (int id : mine)
      if (!never[id]) have[id] = true;
    a.compute.push_back(std::move(mine));
  }
  return a;
}

// The most registers of arrays that are live between two loops.
int most_alive(const Form& f, const Arrays& a, int steps) {
  std::vector<int> first(a.kept.size(), -1), last(a.kept.size(), -1);
  for (size_t loop = 0; loop < f.loops.size(); ++loop) {
    for (int id : f.closure(static_cast<int>(loop), a.kept))
      if (a.kept[id]) last[id] = static_cast<int>(loop);
    for (int id : a.compute[loop])
      if (a.kept[id]) first[id] = static_cast<int>(loop);
  }
  int most = 0;
  for (size_t between = 0; between + 1 < f.loops.size(); ++between) {
    int alive = 0;
    for (size_t id = 0; id < first.size(); ++id)
      if (first[id] >= 0 && first[id] <= static_cast<int>(between) && last[id] > static_cast<int>(between))
        alive += registers(f.kernel->instrs[id].type);
    most = std::max(most, alive);
  }
  return most * steps;
}

}  // namespace

int steps_at_once(const Form& form, const Arrays& arrays, int loop, int steps) {
  constexpr int kRegisters = 40;  // for loads, besides the arrays
  int loads = 0, before = 0;
  for (int id : arrays.compute[loop]) loads += form.kernel->instrs[id].op == Op::kLoad;
  for (int id : form.closure(loop, arrays.kept)) before += arrays.kept[id];
  for (int id : arrays.compute[loop]) before -= arrays.kept[id];
  if (loads == 0 || (loads == 1 && before == 0)) return 0;
  int most = 32;
  while (most > 4 && most * loads > kRegisters) most /= 2;
  return most < steps ? most : 0;
}

int operations(const Form& form) {
  int all = 0;
  for (size_t loop = 0; loop < form.loops.size(); ++loop)
    for (int id : form.closure(static_cast<int>(loop), {})) all += 1 + codegen::operations(form.kernel->instrs[id]);
  return all;
}

Arrays choose_arrays(const Form& form, int steps, int budget) {
  for (const bool loads : {true, false}) {
    Arrays a = with(form, loads);
    if (most_alive(form, a, steps) <= budget) return a;
  }
  Arrays none;
  none.kept.assign(form.kernel->instrs.size(), false);
  for (size_t loop = 0; loop < form.loops.size(); ++loop)
    none.compute.push_back(form.closure(static_cast<int>(loop), {}));
  return none;
}

}  // namespace weft::cuda
