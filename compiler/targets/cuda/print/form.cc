#include "compiler/targets/cuda/print/form.h"

#include <algorithm>
#include <bit>
#include <map>
#include <tuple>

namespace weft::cuda {

using loop_ir::Instr;
using loop_ir::Kernel;
using loop_ir::Op;

static bool has_value(Op op) { return op != Op::kStore && op != Op::kKeep && op != Op::kColumn; }

static std::vector<int> find_same(const Kernel& k) {
  std::vector<int> same(k.instrs.size());
  std::vector<int> kept(k.kept, -1);
  std::map<std::tuple<Op, loop_ir::Type, loop_ir::Level, int, int, int, int, uint64_t, kernels::Pw, kernels::Rd, DType>,
           int>
      first;
  for (int id = 0; id < static_cast<int>(k.instrs.size()); ++id) {
    const Instr& i = k.instrs[id];
    same[id] = id;
    auto operand = [&](int x) { return x < 0 ? -1 : same[x]; };
    if (i.op == Op::kKeep) kept[i.slot] = same[i.a];
    if (i.op == Op::kKept) same[id] = kept[i.slot];
    if (!has_value(i.op) || i.op == Op::kKept || i.op == Op::kReduce) continue;
    const auto key = std::tuple{i.op,         i.type,       i.level, operand(i.a),
                                operand(i.b), operand(i.c), i.slot,  std::bit_cast<uint64_t>(i.value),
                                i.pw,         i.rd,         i.dtype};
    same[id] = first.try_emplace(key, id).first->second;
  }
  return same;
}

bool Form::has_reduces() const {
  return std::any_of(loops.begin(), loops.end(), [](const Loop& l) { return !l.reduces.empty(); });
}

std::vector<int> Form::closure(int loop, const std::vector<bool>& have) const {
  std::vector<int> sinks = loops[loop].reduces;
  for (const std::vector<int>* more : {&loops[loop].columns, &loops[loop].stores})
    sinks.insert(sinks.end(), more->begin(), more->end());
  return closure_of(sinks, have);
}

std::vector<int> Form::closure_of(const std::vector<int>& sinks, const std::vector<bool>& have,
                                  const std::vector<int>& values) const {
  std::vector<bool> needed(kernel->instrs.size());
  auto want = [&](int id) {
    if (id >= 0 && in_loop(id)) needed[same[id]] = true;
  };
  for (int id : sinks) want(kernel->instrs[id].a);
  for (int id : values) want(id);
  std::vector<int> list;
  for (int id = static_cast<int>(needed.size()); id-- > 0;) {
    if (!needed[id]) continue;
    list.push_back(id);
    if (!have.empty() && have[id]) continue;
    for (int x : {kernel->instrs[id].a, kernel->instrs[id].b, kernel->instrs[id].c}) want(x);
  }
  std::reverse(list.begin(), list.end());
  return list;
}

Form form_of(const Kernel& k) {
  Form f;
  f.kernel = &k;
  f.same = find_same(k);
  f.stage.assign(k.instrs.size(), 0);
  Loop end;
  for (const loop_ir::KernelSegment& s : k.segments) {
    Loop loop;
    for (int id : s.instrs) {
      const Instr& i = k.instrs[id];
      const bool looped = Form::in_loop(i.level) || i.op == Op::kReduce;
      if (i.op == Op::kReduce) loop.reduces.push_back(id);
      if (i.op == Op::kColumn) end.columns.push_back(id);
      if (i.op == Op::kStore) (looped ? end.stores : f.last).push_back(id);
    }
    if (!loop.empty()) f.loops.push_back(std::move(loop));
  }
  if (!end.empty()) f.loops.push_back(std::move(end));
  // If the last loop needs no result of the loop before it, merge the two.
  for (size_t loop = 0; loop < f.loops.size(); ++loop)
    for (int r : f.loops[loop].reduces) f.stage[r] = static_cast<int>(loop) + 1;
  for (size_t id = 0; id < k.instrs.size(); ++id) {
    if (k.instrs[id].op == Op::kReduce) continue;
    const int now = f.same[id];
    if (now != static_cast<int>(id)) {
      f.stage[id] = f.stage[now];
      continue;
    }
    for (int x : {k.instrs[id].a, k.instrs[id].b, k.instrs[id].c})
      if (x >= 0) f.stage[id] = std::max(f.stage[id], f.stage[f.same[x]]);
  }
  if (f.loops.size() >= 2 && f.loops.back().reduces.empty() && k.columns == 0) {
    Loop& before = f.loops[f.loops.size() - 2];
    const int at = static_cast<int>(f.loops.size()) - 2;
    const Loop& back = f.loops.back();
    bool joins = true;
    for (const std::vector<int>* sinks : {&back.columns, &back.stores})
      for (int id : *sinks) joins &= f.stage[f.same[k.instrs[id].a]] <= at;
    if (joins) {
      before.columns = back.columns;
      before.stores = back.stores;
      f.loops.pop_back();
    }
  }
  // Find the values outside loops that loops and the end use.
  f.outside.assign(k.instrs.size(), false);
  auto want = [&](int id) {
    if (id >= 0 && !f.in_loop(id)) f.outside[f.same[id]] = true;
  };
  std::vector<bool> looped(k.instrs.size());
  for (size_t loop = 0; loop < f.loops.size(); ++loop) {
    for (int id : f.closure(static_cast<int>(loop), {})) looped[id] = true;
    for (const std::vector<int>* sinks : {&f.loops[loop].reduces, &f.loops[loop].columns, &f.loops[loop].stores})
      for (int id : *sinks) want(k.instrs[id].a);
  }
  for (int id : f.last) want(k.instrs[id].a);
  for (int id = static_cast<int>(k.instrs.size()); id-- > 0;) {
    if (!looped[id] && (!f.outside[id] || k.instrs[id].op == Op::kReduce)) continue;
    for (int x : {k.instrs[id].a, k.instrs[id].b, k.instrs[id].c}) want(x);
  }
  return f;
}

}  // namespace weft::cuda
