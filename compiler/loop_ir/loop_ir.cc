#include "compiler/loop_ir/loop_ir.h"

#include <cstdio>

#include "framework/base/error.h"
#include "framework/base/str_cat.h"

namespace weft::loop_ir {
namespace {

constexpr const char* kTypes[] = {"f32", "f64", "i32", "i64", "pred"};
constexpr const char* kLevels[] = {"point", "lane", "step", "both"};
constexpr const char* kModes[] = {"rows", "across", "split"};
constexpr const char* kReductions[] = {"sum", "max", "min", "prod", "argmax", "argmin"};
constexpr const char* kStrides[] = {"0", "1", "any"};

std::string number(double x) {
  char text[40];
  std::snprintf(text, sizeof text, "%.9g", x);
  return text;
}

std::string line_of(const Kernel& k, int id, bool notes) {
  const Instr& i = k.instrs[id];
  auto v = [](int x) { return str_cat("%", x); };
  auto place = [&](int slot) { return str_cat(k.operands[slot].output ? "out" : "in", slot); };
  std::string s;
  switch (i.op) {
    case Op::kConst:
      s = number(i.value);
      break;
    case Op::kParam:
      s = str_cat("param", i.slot);
      break;
    case Op::kIndex:
      s = str_cat("index of axis ", i.slot);
      break;
    case Op::kLoad:
      s = str_cat("load ", place(i.slot));
      if (i.a >= 0) s += str_cat(" at ", v(i.a));
      break;
    case Op::kCheck:
      s = str_cat(v(i.a), " checked below ", v(i.b));
      break;
    case Op::kPw:
      s = kernels::pointwise_info(i.pw).name;
      for (int x : {i.a, i.b, i.c})
        if (x >= 0) s += str_cat(" ", v(x));
      break;
    case Op::kCast:
      s = str_cat("cast ", v(i.a), i.dtype == kUInt8 ? " (u8)" : "");
      break;
    case Op::kRound:
      s = str_cat("round ", v(i.a), " to ", to_string_view(i.dtype));
      break;
    case Op::kStore:
      s = str_cat("store ", place(i.slot), " = ", v(i.a));
      break;
    case Op::kReduce:
      s = str_cat(kReductions[static_cast<int>(i.rd)], " of ", v(i.a));
      if (k.mode == Mode::kSplit) s += str_cat(" by blocks to partial", i.slot);
      break;
    case Op::kKeep:
      s = str_cat("keep row", i.slot, " = ", v(i.a));
      break;
    case Op::kKept:
      s = str_cat("kept row", i.slot);
      break;
    case Op::kColumn:
      s = str_cat("column", i.slot, " = ", kReductions[static_cast<int>(i.rd)], " of it and ", v(i.a));
      break;
  }
  const bool names = i.op != Op::kStore && i.op != Op::kKeep && i.op != Op::kColumn;
  std::string line = names ? str_cat(v(id), ": ", kTypes[static_cast<int>(i.type)], " = ", s) : s;
  line += str_cat("  [", kLevels[static_cast<int>(i.level)], "]");
  if (notes && !i.note.empty()) line += str_cat("  // ", i.note);
  return line;
}

}  // namespace

bool Kernel::reduces() const {
  for (const Instr& i : instrs)
    if (i.op == Op::kReduce) return true;
  return false;
}

std::string Kernel::to_string(bool notes) const {
  std::string s = str_cat("kernel", notes && !name.empty() ? " " + name : "", " (", kModes[static_cast<int>(mode)],
                          ", ", axes, axes == 1 ? " axis" : " axes");
  for (const auto& [count, what] :
       {std::pair{params, "params"}, {kept, "kept rows"}, {columns, "columns"}, {partials, "partials"}})
    if (count) s += str_cat(", ", count, " ", what);
  s += ")\n";
  for (size_t p = 0; p < operands.size(); ++p) {
    s += str_cat("  ", operands[p].output ? "out" : "in", p, ": ", to_string_view(operands[p].dtype), " strides");
    if (operands[p].indexed) s += " indexed,";
    for (StrideKind kind : operands[p].strides) s += str_cat(" ", kStrides[static_cast<int>(kind)]);
    if (notes && !operands[p].name.empty()) s += str_cat("  // ", operands[p].name);
    s += "\n";
  }
  for (const KernelSegment& segment : segments) {
    s += segment.loop ? "  loop\n" : "  once\n";
    for (int i : segment.instrs) s += str_cat("    ", line_of(*this, i, notes), "\n");
  }
  return s;
}

void Kernel::verify() const {
  auto fail = [&](int id, auto... what) {
    WEFT_BUG_IF(true, "kernel: instruction ", id, " `", line_of(*this, id, true), "`: ", what..., "\n", to_string());
  };
  WEFT_BUG_IF(axes < (mode == Mode::kAcross ? 2 : 1), "kernel: ", axes, " axes");
  for (const Operand& p : operands)
    WEFT_BUG_IF(static_cast<int>(p.strides.size()) != axes, "kernel: operand ", p.name, " has ", p.strides.size(),
                " strides; need ", axes);
  // Where a value can be used: nowhere yet, in the rest of this segment, or in all later segments too.
  enum ValueScope : char { kNot, kHere, kOn };
  std::vector<char> known(instrs.size(), kNot);
  std::vector<char> kept_rows(kept, 0);
  auto in_loop = [](Level l) { return l == Level::kStep || l == Level::kBoth; };
  auto has_lanes = [](Level l) { return l == Level::kLane || l == Level::kBoth; };
  for (const KernelSegment& segment : segments) {
    std::vector<int> here, reductions;
    for (int id : segment.instrs) {
      WEFT_BUG_IF(id < 0 || id >= static_cast<int>(instrs.size()), "kernel: instruction ", id, " does not exist");
      const Instr& i = instrs[id];
      const auto [least, most] = [&]() -> std::pair<int, int> {
        switch (i.op) {
          case Op::kPw: {
            const int n = kernels::pointwise_info(i.pw).operands;
            return {n, n};
          }
          case Op::kConst:
          case Op::kParam:
          case Op::kIndex:
          case Op::kKept:
            return {0, 0};
          case Op::kLoad: {
            const bool indexed = i.slot >= 0 && i.slot < static_cast<int>(operands.size()) && operands[i.slot].indexed;
            return {indexed, indexed};
          }
          case Op::kCheck:
            return {2, 2};
          default:
            return {1, 1};
        }
      }();
      int given = 0;
      for (int x : {i.a, i.b, i.c}) {
        if (x < 0) continue;
        ++given;
        if (x >= static_cast<int>(instrs.size())) fail(id, "operand %", x, " does not exist");
        if (known[x] == kNot) fail(id, "operand %", x, " is not available here");
        const Level l = instrs[x].level;
        const bool reduces = i.op == Op::kReduce;
        if (has_lanes(l) && !has_lanes(i.level) && !(reduces && mode != Mode::kAcross))
          fail(id, "operand %", x, " has lanes and the result has none");
        if (in_loop(l) && !in_loop(i.level) && !reduces) fail(id, "operand %", x, " changes in the loop");
      }
      if (given < least || given > most) fail(id, "has ", given, " operands; need ", least);
      if (in_loop(i.level) && !segment.loop) fail(id, "is outside a loop");
      if (mode != Mode::kAcross && (i.level == Level::kLane || i.level == Level::kStep))
        fail(id, "only kAcross has this level");
      const int slots[] = {
          -1,   params, axes,   static_cast<int>(operands.size()), -1,
          -1,   -1,     -1,     static_cast<int>(operands.size()), mode == Mode::kSplit ? partials : -1,
          kept, kept,   columns};
      const int limit = slots[static_cast<int>(i.op)];
      if (limit >= 0 && (i.slot < 0 || i.slot >= limit)) fail(id, "slot ", i.slot, " of ", limit);
      const Type of = i.a >= 0 ? instrs[i.a].type : i.type;
      switch (i.op) {
        case Op::kIndex: {
          const Level need = i.slot == axes - 1 ? (mode == Mode::kAcross ? Level::kLane : Level::kBoth)
                             : mode == Mode::kAcross && i.slot == axes - 2 ? Level::kStep
                                                                           : Level::kPoint;
          const bool fits = (has_lanes(i.level) || !has_lanes(need)) && (in_loop(i.level) || !in_loop(need));
          if ((i.type != Type::i64 && i.type != Type::i32) || !fits)
            fail(id, "needs type i64 or i32 and level ", kLevels[static_cast<int>(need)]);
          break;
        }
        case Op::kLoad:
        case Op::kStore: {
          const Operand& p = operands[i.slot];
          if ((i.op == Op::kStore) != p.output)
            fail(id, "operand ", i.slot, p.output ? " is an output" : " is an input");
          if (p.dtype >= kFloat8E4M3) fail(id, "cannot load or store 8-bit floats");
          if (p.strides.back() != StrideKind::kZero && !has_lanes(i.level)) fail(id, "memory varies along the lanes");
          if (mode == Mode::kAcross && p.strides[axes - 2] != StrideKind::kZero && !in_loop(i.level))
            fail(id, "memory varies along the loop");
          break;
        }
        case Op::kPw: {
          const kernels::PwInfo& info = kernels::pointwise_info(i.pw);
          const int last = info.operands == 3 ? i.c : info.operands == 2 ? i.b : i.a;
          const Type t = instrs[last].type;
          const int first = info.operands == 3 ? 1 : 0;
          const int operand[] = {i.a, i.b, i.c};
          for (int x = first; x < info.operands; ++x)
            if (instrs[operand[x]].type != t) fail(id, "operands have different types");
          if (info.operands == 3 && of != Type::pred) fail(id, "the condition is not a predicate");
          if (i.type != (info.bool_result ? Type::pred : t)) fail(id, "has the wrong type");
          constexpr DType kDTypes[] = {kFloat32, kFloat64, kInt32, kInt64, kBool};
          if (!kernels::pointwise_takes(i.pw, kDTypes[static_cast<int>(t)])) fail(id, "does not accept this type");
          if (!is_floating(kDTypes[static_cast<int>(t)]) &&
              (i.pw == kernels::Pw::remainder || i.pw == kernels::Pw::floor_divide))
            fail(id, "divides integers");
          break;
        }
        case Op::kRound:
          if (i.type != Type::f32 || of != Type::f32 || (i.dtype != kBFloat16 && i.dtype != kFloat16))
            fail(id, "rounds f32 to bf16 or f16 only");
          break;
        case Op::kReduce:
        case Op::kColumn:
          if (i.type != of || i.type == Type::i32 || i.type == Type::pred) fail(id, "combines f32, f64 or i64 only");
          if (i.rd > kernels::Rd::prod) fail(id, "is not one of sum, max, min, prod");
          if (i.op == Op::kColumn && mode != Mode::kRows) fail(id, "only kRows has columns");
          if (i.op == Op::kReduce && !segment.loop) fail(id, "is outside a loop");
          if (i.op == Op::kReduce && in_loop(i.level)) fail(id, "is available only after its loop");
          break;
        case Op::kKeep:
        case Op::kKept:
          if (i.type != Type::f32 || of != Type::f32) fail(id, "keeps f32 only");
          if (i.level != Level::kBoth) fail(id, "keeps lanes of a loop only");
          if (i.op == Op::kKeep) kept_rows[i.slot] = 1;
          if (i.op == Op::kKept && !kept_rows[i.slot]) fail(id, "no earlier loop wrote this row");
          break;
        default:
          break;
      }
      if (i.op == Op::kReduce) {
        reductions.push_back(id);
      } else {
        known[id] = in_loop(i.level) ? kHere : kOn;
        if (in_loop(i.level)) here.push_back(id);
      }
    }
    for (int id : here) known[id] = kNot;
    for (int id : reductions) known[id] = kOn;
  }
}

}  // namespace weft::loop_ir
