#include "compiler/targets/cpu/print/print.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <initializer_list>
#include <utility>
#include <vector>

#include "compiler/targets/cpu/print/choices.h"
#include "compiler/targets/cpu/print/scalar_text.h"
#include "framework/base/error.h"
#include "framework/base/str_cat.h"

namespace weft::codegen {
namespace {

using kernels::Pw;
using loop_ir::Instr;
using loop_ir::Kernel;
using loop_ir::KernelSegment;
using loop_ir::Level;
using loop_ir::Mode;
using loop_ir::Op;
using loop_ir::StrideKind;
using loop_ir::Type;

using Holes = std::initializer_list<std::pair<const char*, std::string>>;

// The pattern with its {holes} filled.
std::string fill(const char* pattern, Holes holes) {
  std::string out;
  for (const char* p = pattern; *p; ++p) {
    bool filled = false;
    if (*p == '{')
      for (const auto& [name, text] : holes) {
        const size_t n = std::char_traits<char>::length(name);
        if (std::char_traits<char>::compare(p + 1, name, n) == 0 && p[n + 1] == '}') {
          out += text;
          p += n + 1;
          filled = true;
          break;
        }
      }
    if (!filled) out += *p;
  }
  return out;
}

constexpr const char* kElements[] = {"f32", "f64", "i32", "i64", "pred"};

bool is_long(Type t) { return t == Type::f64 || t == Type::i64; }

class KernelPrinter : TextLines {
 public:
  KernelPrinter(const Kernel& k, const PrintTarget& t, const PrintOptions& options)
      : TextLines(options.notes), k_(k), t_(t), options_(options) {
    across_ = k.mode == Mode::kAcross;
    tiled_ = *t.tiles && goes_by_tiles(k);
    wide_ = is_long_chain(k);
    vectors_ = k.kept == 0 ? t.vectors_a_step : 1;
    lane_axis_ = k.axes - 1;
    loop_axis_ = across_ ? k.axes - 2 : -1;
  }

  std::string run() {
    if (options_.notes) comment();
    open(fill(t_.head, {{"f", options_.symbol}}));
    declare_arguments();
    const bool far = declare_far();
    declare_fixed();
    if (tiled_) open(t_.tiles);
    for (size_t p = 0; tiled_ && p < k_.operands.size(); ++p)
      if (transposed(p)) line(fill(t_.transposed, {{"m", memory(p)}, {"p", str_cat(p)}}));
    open("for (i64 o = o0; o < o1; o += step) {");
    declare_point();
    for (size_t p = 0; tiled_ && p < k_.operands.size(); ++p)
      if (transposed(p))
        line(
            fill(t_.line,
                 {{"m", memory(p)}, {"p", str_cat(p)}, {"s", str_cat("s", p, "_", lane_axis_)}, {"n", points_left()}}));
    if (across_) open(fill(t_.instances, {{"n", str_cat(vectors_ * t_.lanes)}}));
    for (const KernelSegment& s : k_.segments) segment(s);
    if (across_) close(t_.instances_end);
    close("}");
    if (tiled_) close(t_.tiles_end);
    if (far) line(far_end_);
    close("}");
    return body();
  }

 private:
  void comment() {
    line(str_cat("// ", k_.name.empty() ? "kernel" : k_.name));
    for (size_t p = 0; p < k_.operands.size(); ++p)
      line(str_cat("//   ", k_.operands[p].output ? "y" : "x", p, ": ", to_string_view(k_.operands[p].dtype), " ",
                   k_.operands[p].name));
  }

  // ---- arguments and addresses ----

  std::string memory(size_t p) const { return t_.memory[static_cast<int>(k_.operands[p].dtype)]; }
  std::string here(size_t p) const { return str_cat(before_points_ ? "p" : k_.operands[p].output ? "y" : "x", p); }

  void declare_arguments() {
    const int outer = k_.outer_axes();
    for (int a = 0; a < k_.axes; ++a) {
      const bool divides = a > 0 && a < outer, loops = a == loop_axis_;
      const bool lanes = a == lane_axis_ && (k_.mode == Mode::kSplit || (k_.kept && !across_));
      if (divides || loops || lanes) line(str_cat("const i64 n", a, " = args->extent[", a, "];"));
    }
    for (size_t p = 0; p < k_.operands.size(); ++p) {
      std::string strides;
      for (int a = 0; a < k_.axes; ++a)
        if (k_.operands[p].strides[a] == StrideKind::kAny)
          strides +=
              str_cat(strides.empty() ? "const i64 s" : ", s", p, "_", a, " = args->stride[", p * k_.axes + a, "]");
      if (k_.operands[p].indexed)
        strides += str_cat(strides.empty() ? "const i64 d" : ", d", p, " = args->index_stride[", p, "]");
      line(str_cat(memory(p), "* const p", p, " = (", memory(p), "*)args->ptr[", p, "];",
                   strides.empty() ? "" : str_cat(" ", strides, ";")));
    }
    for (int c = 0; c < k_.columns; ++c) {
      const std::string e = kElements[static_cast<int>(column_type(c))];
      line(str_cat(e, "* const col", c, " = (", e, "*)args->column[", c, "];"));
    }
    for (int r = 0; r < k_.kept; ++r) {
      const std::string row =
          across_ ? str_cat("n", loop_axis_, " * 16") : str_cat("((n", lane_axis_, " + 15) / 16 * 16)");
      line(str_cat("f32* const k", r, " = args->scratch", r ? str_cat(" + ", r, " * ", row) : "", ";"));
    }
  }
  Type column_type(int c) const {
    for (const Instr& i : k_.instrs)
      if (i.op == Op::kColumn && i.slot == c) return i.type;
    return Type::f32;
  }

  // Declares which results are written past the caches.
  bool declare_far() {
    std::vector<bool> seen(k_.operands.size());
    std::string all;
    for (const Instr& i : k_.instrs) {
      if (!*t_.far || !may_be_far(k_, i) || seen[i.slot]) continue;
      seen[i.slot] = true;
      line(fill(t_.far,
                {{"f", far(i)}, {"n", str_cat(k_.axes)}, {"w", str_cat(k_.operands.size())}, {"p", str_cat(i.slot)}}));
      all += str_cat(all.empty() ? "" : " || ", far(i));
    }
    far_end_ = fill(t_.far_end, {{"f", all}});
    return !all.empty();
  }

  // Declares numbers in memory that are the same for all outer points, and values that depend on them only. Inside the
  // loop over points the host compiler would load them again, because a store of a point might change them.
  void declare_fixed() {
    std::vector<char> same(k_.instrs.size(), 0);  // 1: a constant, 2: from memory
    auto each = [&](auto f) {
      for (const KernelSegment& s : k_.segments)
        for (int id : s.instrs)
          if (k_.instrs[id].level == Level::kPoint) f(id, k_.instrs[id]);
    };
    each([&](int id, const Instr& i) {
      char all = 1;
      for (int x : {i.a, i.b, i.c})
        if (x >= 0) all = all == 0 || same[x] == 0 ? 0 : std::max(all, same[x]);
      if (i.op == Op::kConst || i.op == Op::kParam) same[id] = 1;
      if (i.op == Op::kCheck || i.op == Op::kPw || i.op == Op::kCast || i.op == Op::kRound) same[id] = all;
      const auto zero = [](StrideKind s) { return s == StrideKind::kZero; };
      if (i.op == Op::kLoad && all &&
          std::all_of(k_.operands[i.slot].strides.begin(), k_.operands[i.slot].strides.end(), zero))
        same[id] = 2;
    });
    fixed_.assign(k_.instrs.size(), 0);
    for (int id = static_cast<int>(k_.instrs.size()); id-- > 0;) {
      if (same[id] == 2) fixed_[id] = 1;
      if (!fixed_[id]) continue;
      for (int x : {k_.instrs[id].a, k_.instrs[id].b, k_.instrs[id].c})
        if (x >= 0) fixed_[x] = 1;
    }
    before_points_ = true;
    each([&](int id, const Instr&) {
      if (fixed_[id]) statement(id);
    });
    before_points_ = false;
  }

  void declare_point() {
    const int outer = k_.outer_axes();
    if (outer == 1) {
      line("const i64 i0 = o;");
    } else if (outer > 1) {
      std::string s = "const i64 ", rest = "o";
      for (int a = outer - 1; a > 0; --a) {
        s += str_cat("i", a, " = ", rest, " % n", a, ", ");
        rest = str_cat(rest, " / n", a);
      }
      line(str_cat(s, "i0 = ", rest, ";"));
    }
    for (size_t p = 0; p < k_.operands.size(); ++p) {
      std::string at = str_cat("p", p);
      for (int a = 0; a < outer; ++a) at += term(p, a, str_cat("i", a));
      line(str_cat(k_.operands[p].output ? "" : "const ", memory(p), "* const ", here(p), " = ", at, ";"));
    }
  }
  // " + position * stride".
  std::string term(size_t p, int axis, const std::string& position) const {
    switch (k_.operands[p].strides[axis]) {
      case StrideKind::kZero:
        return "";
      case StrideKind::kUnit:
        return str_cat(" + ", position);
      case StrideKind::kAny:
        break;
    }
    return str_cat(" + ", position, " * s", p, "_", axis);
  }

  // Whether operand p is copied in transposed tiles before it is read.
  bool transposed(size_t p) const { return tiled_ && is_transposed(k_, p); }
  // The number of consecutive points from this one along the last outer axis.
  std::string points_left() const {
    const int last = k_.outer_axes() - 1;
    return last == 0 ? "o1 - o" : str_cat("less(n", last, " - i", last, ", o1 - o)");
  }

  static bool has_lanes(Level l) { return l == Level::kLane || l == Level::kBoth; }
  static bool in_loop(Level l) { return l == Level::kStep || l == Level::kBoth; }

  std::string address(const Instr& i, const char* step = "k") const {
    if (i.op == Op::kLoad && transposed(i.slot) && has_lanes(i.level)) return str_cat("line", i.slot, " + l");
    std::string at = here(i.slot);
    if (across_ && in_loop(i.level)) at += term(i.slot, loop_axis_, step);
    if (has_lanes(i.level)) at += term(i.slot, lane_axis_, "l");
    return at;
  }
  StrideKind lane_stride(const Instr& i) const {
    if (i.op == Op::kLoad && transposed(i.slot) && has_lanes(i.level)) return StrideKind::kUnit;
    return has_lanes(i.level) ? k_.operands[i.slot].strides[lane_axis_] : StrideKind::kZero;
  }
  std::string stride_text(const Instr& i) const { return str_cat("s", i.slot, "_", lane_axis_); }

  // ---- values ----

  std::string type(Type t) const { return (wide_ ? t_.wide : t_.type)[static_cast<int>(t)]; }

  std::string name(int id) const { return value_name(k_, id); }
  std::string use(int id) const {
    const Instr& i = k_.instrs[id];
    if (across_ && i.level == Level::kLane) return fill(t_.this_vector, {{"x", name(id)}});
    if (across_ && i.op == Op::kReduce) return fill(t_.only_vector, {{"x", name(id)}});
    return name(id);
  }

  static std::string constant(Type t, double x) {
    if (t == Type::pred) return x != 0 ? "-1" : "0";
    char text[40];
    if (!is_float(t)) {
      std::snprintf(text, sizeof text, t == Type::i64 ? "%lldll" : "%lld", static_cast<long long>(x));
      return text;
    }
    if (std::isnan(x)) return t == Type::f32 ? "__builtin_nanf(\"\")" : "__builtin_nan(\"\")";
    return float_text(t, x);
  }

  std::string all(Type t, const std::string& x) const { return fill(t_.all, {{"t", type(t)}, {"x", x}}); }

  // `x` of type `from` converted to type `to`; through u8 if `wraps`.
  std::string converted(std::string x, Type from, Type to, bool wraps) const {
    if (to == Type::pred && from != Type::pred) {
      x = str_cat("w_truth(", x, ")");
      return is_long(from) ? fill(t_.long_pred, {{"x", x}}) : x;
    }
    if (from == Type::pred && to != Type::pred) {
      x = fill(t_.from_pred, {{"x", x}});
      from = Type::i32;
    }
    if (wraps && is_float(from)) {
      x = str_cat("to_i64(", x, ")");
      from = Type::i64;
    }
    if (from != to) x = str_cat("to_", kElements[static_cast<int>(to)], "(", x, ")");
    return wraps ? str_cat("wrap_u8(", x, ")") : x;
  }

  std::string pointwise(const Instr& i) const {
    const int operands = kernels::pointwise_info(i.pw).operands;
    if (operands == 3) return fill(t_.select, {{"c", use(i.a)}, {"a", use(i.b)}, {"b", use(i.c)}});
    const Type of = k_.instrs[i.a].type;
    const bool ordered = of == Type::pred && (i.pw == Pw::lt || i.pw == Pw::le || i.pw == Pw::gt || i.pw == Pw::ge);
    const std::string s = pointwise_text(i.pw, [&](int which) {
      const std::string x = use(which == 0 ? i.a : i.b);
      return ordered ? fill(t_.order_pred, {{"x", x}}) : x;
    });
    return i.type == Type::pred && is_long(of) ? fill(t_.long_pred, {{"x", s}}) : s;
  }

  std::string load(const Instr& i) const {
    const Type as = read_type(k_.operands[i.slot].dtype);
    const StrideKind lanes = lane_stride(i);
    const std::string s = lanes == StrideKind::kAny    ? str_cat("s", i.slot, "_", lane_axis_)
                          : lanes == StrideKind::kUnit ? "1"
                                                       : "0";
    std::string p = address(i);
    const char* const by_stride[] = {t_.get_one, t_.get, t_.get_strided};
    const char* how = by_stride[static_cast<int>(lanes)];
    std::string index;
    if (i.a >= 0) {
      index = use(i.a);
      if (has_lanes(k_.instrs[i.a].level)) {
        how = t_.get_indexed;
      } else {
        p += str_cat(" + ", fill(t_.number, {{"x", use(i.a)}}), " * d", i.slot);
      }
    }
    const std::string x = fill(how, {{"t", type(as)}, {"p", p}, {"s", s}, {"x", index}, {"d", str_cat("d", i.slot)}});
    return converted(x, as, i.type, false);
  }

  std::string value(const Instr& i) const {
    switch (i.op) {
      case Op::kConst:
        return all(i.type, constant(i.type, i.value));
      case Op::kParam: {
        const std::string p = str_cat("args->param[", i.slot, "]");
        if (i.type == Type::pred) return all(i.type, str_cat("-(", p, " != 0)"));
        return all(i.type, str_cat("(", kElements[static_cast<int>(i.type)], ")", p));
      }
      case Op::kIndex:
        if (i.slot == lane_axis_) return fill(t_.iota, {{"t", type(i.type)}, {"l", "l"}});
        return all(i.type,
                   str_cat(i.type == Type::i32 ? "(i32)" : "", i.slot == loop_axis_ ? "k" : str_cat("i", i.slot)));
      case Op::kLoad:
        return load(i);
      case Op::kCheck:
        return fill(has_lanes(i.level) ? t_.check : t_.check_one, {{"x", use(i.a)}, {"v", use(i.b)}});
      case Op::kPw:
        return pointwise(i);
      case Op::kCast:
        return converted(use(i.a), k_.instrs[i.a].type, i.type, i.type == Type::i32 && i.dtype == kUInt8);
      case Op::kRound:
        return str_cat("round_", to_string_view(i.dtype), "(", use(i.a), ")");
      case Op::kKept:
        return fill(t_.get, {{"t", type(i.type)}, {"p", scratch(i)}});
      default:
        WEFT_BUG_IF(true, "print: not a value");
    }
  }
  std::string scratch(const Instr& i) const { return str_cat("k", i.slot, " + ", across_ ? "k * 16" : "l"); }

  // ---- statements ----

  void statement(int id) {
    const Instr& i = k_.instrs[id];
    switch (i.op) {
      case Op::kStore: {
        const DType to = k_.operands[i.slot].dtype;
        const std::string v =
            converted(use(i.a), k_.instrs[i.a].type, read_type(to), to == kUInt8 && is_float(k_.instrs[i.a].type));
        const char* const how[] = {t_.put_one, *t_.far && may_be_far(k_, i) ? t_.put_far : t_.put, t_.put_strided};
        return line(fill(how[static_cast<int>(lane_stride(i))],
                         {{"p", address(i)}, {"s", stride_text(i)}, {"v", v}, {"f", far(i)}}),
                    i.note);
      }
      case Op::kKeep:
        return line(fill(t_.put, {{"p", scratch(i)}, {"v", use(i.a)}}), i.note);
      case Op::kColumn:
        return line(fill(t_.column, {{"p", str_cat("col", i.slot, " + l")},
                                     {"t", type(i.type)},
                                     {"rd", reduction_type(i.rd)},
                                     {"v", use(i.a)}}),
                    i.note);
      case Op::kReduce:
        return line(fill(across_ ? t_.take_across : t_.take,
                         {{"i", str_cat(id)}, {"v", use(i.a)}, {"n", has_lanes(i.level) ? "v" : "0"}}),
                    i.note);
      default:
        if (across_ && i.level == Level::kLane && *t_.per_vector)
          return line(str_cat(use(id), " = ", value(i), ";"), i.note);
        std::string v = value(i);
        if (wide_ && i.op == Op::kPw && in_loop(i.level)) v = fill(t_.now, {{"x", v}});
        return line(str_cat("const ", type(i.type), " ", name(id), " = ", v, ";"), i.note);
    }
  }

  bool has_value(const Instr& i) const {
    return i.op != Op::kStore && i.op != Op::kKeep && i.op != Op::kColumn && i.op != Op::kReduce;
  }
  // First the instructions that are the same in all lanes, then the others, for each vector of a kAcross instance.
  void statements(const std::vector<int>& ids) {
    std::vector<int> lanes;
    for (int id : ids) {
      if (fixed_[id]) continue;
      if (across_ && has_lanes(k_.instrs[id].level)) {
        lanes.push_back(id);
      } else {
        statement(id);
      }
    }
    if (lanes.empty()) return;
    if (*t_.vectors) {
      for (int id : lanes)
        if (k_.instrs[id].level == Level::kLane && has_value(k_.instrs[id]))
          line(fill(t_.per_vector, {{"t", type(k_.instrs[id].type)}, {"x", name(id)}, {"n", str_cat(vectors_)}}));
      open(t_.vectors);
    }
    for (int id : lanes) {
      statement(id);
      // Steps are far apart in memory, so the hardware prefetcher does not follow them.
      const Instr& i = k_.instrs[id];
      if (*t_.fetch && i.op == Op::kLoad && i.level == Level::kBoth && i.a < 0 && lane_stride(i) == StrideKind::kUnit)
        line(fill(t_.fetch, {{"p", address(i, "(k + 16)")}}));
    }
    if (*t_.vectors) close(t_.vectors_end);
  }

  std::string reduction(int id, const char* pattern) const {
    const Instr& i = k_.instrs[id];
    const std::string e = kElements[static_cast<int>(i.type)];
    return fill(pattern, {{"i", str_cat(id)},
                          {"x", name(id)},
                          {"rd", reduction_type(i.rd)},
                          {"t", type(i.type)},
                          {"n", str_cat(has_lanes(i.level) ? vectors_ : 1)},
                          {"e", e},
                          {"p", str_cat("(", e, "*)args->partial[", i.slot, "] + o * ((n", lane_axis_,
                                        " + 1023) / 1024) + l0 / 1024")}});
  }

  // Prefetches memory that is used soon: of the next row, of the row that a later loop writes, of the next tile.
  void fetches(const KernelSegment& s) {
    if (!*t_.fetch || across_) return;
    const bool next_row = &s == fetching_loop(k_);
    std::vector<bool> seen(k_.operands.size());
    for (const Instr& i : k_.instrs) {
      if (i.op != Op::kLoad && i.op != Op::kStore) continue;
      if (!has_lanes(i.level) || (i.op == Op::kLoad && i.a >= 0) || seen[i.slot]) continue;
      const auto& strides = k_.operands[i.slot].strides;
      if (strides[lane_axis_] != StrideKind::kUnit) continue;
      std::string ahead;
      const int axis = k_.outer_axes() - 1;
      if (tiled_ && *t_.tiles) {
        ahead = " + kTurned";
      } else if (i.op == Op::kLoad && fetches_ahead(k_)) {
        ahead = " + kAhead";
      } else if (i.op == Op::kStore ? loop_before(k_, i) != &s : !next_row || strides[axis] == StrideKind::kZero) {
        continue;
      } else if (i.op == Op::kLoad) {
        ahead = term(i.slot, axis, "step");
      }
      seen[i.slot] = true;
      line(fill(i.op == Op::kLoad ? t_.fetch : t_.fetch_to, {{"p", str_cat(address(i), ahead)}, {"f", far(i)}}));
    }
  }
  // Text that says whether a store goes past the caches.
  std::string far(const Instr& store) const { return may_be_far(k_, store) ? str_cat("far", store.slot) : "false"; }

  void segment(const KernelSegment& s) {
    std::vector<int> reductions, before, inside;
    int flops = 0;
    for (int id : s.instrs) {
      const Instr& i = k_.instrs[id];
      if (i.op == Op::kReduce) reductions.push_back(id);
      (i.op == Op::kReduce || in_loop(i.level) ? inside : before).push_back(id);
      flops += operations(i);
    }
    statements(before);
    if (inside.empty()) return;
    std::string list;
    for (int id : reductions) {
      line(reduction(id, k_.mode == Mode::kSplit ? t_.split : across_ ? t_.reduce_across : t_.reduce));
      list += str_cat(list.empty() ? "" : ", ", "r", id);
    }
    const char* last;
    if (across_) {
      const std::string extent = str_cat("n", loop_axis_);
      open(reductions.empty() ? str_cat("for (i64 k = 0; k < ", extent, "; ++k) {") : fill(t_.across, {{"k", extent}}));
      last = reductions.empty() ? "}" : t_.across_end;
    } else if (reductions.empty()) {
      open(wide_ ? t_.along_wide : t_.along);
      last = t_.along_end;
    } else {
      // Enough other work hides the latency of a chain of additions.
      open(fill(t_.blocks, {{"w", flops < kHides ? "4" : "1"}}));
      last = t_.blocks_end;
    }
    statements(inside);
    fetches(s);
    close(fill(last, {{"r", list}}));
    if (k_.mode == Mode::kSplit) return;
    for (int id : reductions) line(reduction(id, across_ ? t_.result_across : t_.result));
  }

  static constexpr int kHides = 10;  // flops in the loop body

  const Kernel& k_;
  const PrintTarget& t_;
  const PrintOptions& options_;
  bool across_, tiled_, wide_;
  std::string far_end_;
  int vectors_, lane_axis_, loop_axis_;
  std::vector<char> fixed_;  // instruction -> emitted before the loop over outer points
  bool before_points_ = false;
};

}  // namespace

std::string print(const Kernel& kernel, const PrintTarget& target, const PrintOptions& options) {
  return KernelPrinter(kernel, target, options).run();
}

}  // namespace weft::codegen
