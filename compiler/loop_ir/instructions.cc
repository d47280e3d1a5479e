#include "compiler/loop_ir/instructions.h"

#include <algorithm>
#include <cmath>

#include "ops/core/record_parts.h"

namespace weft::loop_ir {

Type type_of(DType t) {
  switch (t) {
    case kFloat64:
      return Type::f64;
    case kInt64:
      return Type::i64;
    case kInt32:
    case kInt16:
    case kInt8:
    case kUInt8:
      return Type::i32;
    case kBool:
      return Type::pred;
    default:
      return Type::f32;
  }
}

/// Converts as the kernel of constant does.
static double rounded_to(double value, DType t) {
  switch (t) {
    case kFloat32:
      return static_cast<float>(value);
    case kBFloat16:
      return static_cast<float>(bfloat16(static_cast<float>(value)));
    case kFloat16:
      return static_cast<float>(float16(static_cast<float>(value)));
    case kInt64:
      return std::trunc(value);
    case kInt32:
      return static_cast<double>(static_cast<int32_t>(static_cast<int64_t>(value)));
    case kBool:
      return value != 0;
    default:
      return value;
  }
}

Level Instructions::join(Level a, Level b) {
  if (a == b || b == Level::kPoint) return a;
  return a == Level::kPoint ? b : Level::kBoth;
}

std::string Instructions::note_of(int32_t node) const {
  const Node& n = g_.node(node);
  return n.line.line ? str_cat(n.op->name, "  ", n.line.to_string()) : std::string(n.op->name);
}

int Instructions::add(Instr instr, std::vector<int>& segment) {
  low_.kernel.instrs.push_back(std::move(instr));
  segment.push_back(static_cast<int>(low_.kernel.instrs.size()) - 1);
  return segment.back();
}

int Instructions::scalar(double value, Type type, const std::string& note, std::vector<int>& segment) {
  Instr c{.op = Op::kConst, .type = type, .value = value, .note = note};
  const bool plain = value == 0 || value == 1 || value == -1 || value == 2 || value == 0.5 || std::isinf(value);
  if (!plain || (value == 0 && std::signbit(value)) || std::isnan(value)) {
    c.op = Op::kParam;
    c.value = 0;
    c.slot = static_cast<int>(low_.params.size());
    for (size_t i = 0; i < low_.params.size(); ++i)
      if (low_.params[i] == value && param_type_[i] == type) c.slot = static_cast<int>(i);
    if (c.slot == static_cast<int>(low_.params.size())) {
      low_.params.push_back(value);
      param_type_.push_back(type);
    }
  }
  return add(c, segment);
}

int Instructions::constant(int32_t node, std::vector<int>& segment) {
  const Node& n = g_.node(node);
  const DType t = n.outputs[0].dtype;
  return scalar(rounded_to(internal::number(n.attrs, "value"), t), type_of(t), note_of(node), segment);
}

int Instructions::converted(int value, Type to, std::vector<int>& segment) {
  const Instr& v = low_.kernel.instrs[value];
  if (v.type == to) return value;
  if (v.op == Op::kIndex && to == Type::i32) {
    Instr narrow = v;
    narrow.type = to;
    return add(std::move(narrow), segment);
  }
  Instr c{.op = Op::kCast, .type = to, .level = v.level, .a = value};
  return add(c, segment);
}

int Instructions::rounded(int value, int32_t node, std::vector<int>& segment) {
  const Node& n = g_.node(node);
  const DType dtype = n.outputs[0].dtype;
  if (!is_16bit(dtype)) return value;
  if (!options_.round_like_eager) {
    unrounded_.push_back(node);
    return value;
  }
  Instr r{.op = Op::kRound, .type = Type::f32, .level = low_.kernel.instrs[value].level, .a = value, .dtype = dtype};
  return add(r, segment);
}

int Instructions::position(double first, const std::vector<double>& strides, const std::string& note,
                           std::vector<int>& segment) {
  int sum = -1;
  auto combine = [&](kernels::Pw pw, int x, int y) {
    return add({.op = Op::kPw,
                .type = Type::i64,
                .level = join(low_.kernel.instrs[x].level, low_.kernel.instrs[y].level),
                .a = x,
                .b = y,
                .pw = pw},
               segment);
  };
  const bool across = low_.kernel.mode == Mode::kAcross;
  for (size_t axis = 0; axis < strides.size(); ++axis) {
    if (strides[axis] == 0) continue;
    Level level = Level::kPoint;
    if (axis + 1 == strides.size()) level = across ? Level::kLane : Level::kBoth;
    if (across && axis + 2 == strides.size()) level = Level::kStep;
    int x = add({.op = Op::kIndex, .type = Type::i64, .level = level, .slot = static_cast<int>(axis), .note = note},
                segment);
    if (strides[axis] != 1) x = combine(kernels::Pw::mul, x, scalar(strides[axis], Type::i64, "", segment));
    sum = sum < 0 ? x : combine(kernels::Pw::add, sum, x);
  }
  if (sum < 0) return scalar(first, Type::i64, note, segment);
  return first != 0 ? combine(kernels::Pw::add, sum, scalar(first, Type::i64, "", segment)) : sum;
}

void Instructions::list_rounds() {
  std::sort(unrounded_.begin(), unrounded_.end());
  unrounded_.erase(std::unique(unrounded_.begin(), unrounded_.end()), unrounded_.end());
  for (int32_t node : unrounded_) {
    bool inside = false;  // an instruction of the kernel reads a value that eager mode would have rounded
    for (int32_t u = 0; u < g_.size(); ++u)
      for (Value v : g_.node(u).inputs) inside |= v.node == node;
    const Node& n = g_.node(node);
    if (inside)
      low_.rounds_less.push_back(n.line.line ? str_cat(n.op->name, " at ", n.line.to_string())
                                             : std::string(n.op->name));
  }
}

}  // namespace weft::loop_ir
