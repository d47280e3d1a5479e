#include "compiler/targets/cuda/print/writer.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "compiler/targets/cpu/print/choices.h"
#include "framework/base/error.h"
#include "framework/base/str_cat.h"

namespace weft::cuda {

using kernels::Pw;
using kernels::Rd;
using loop_ir::Instr;
using loop_ir::Level;
using loop_ir::Op;
using loop_ir::StrideKind;
using loop_ir::Type;

namespace {

std::string constant(Type t, double x) {
  char text[40];
  if (t == Type::pred) return x != 0 ? "true" : "false";
  if (!codegen::is_float(t)) {
    std::snprintf(text, sizeof text, t == Type::i64 ? "i64(%lld)" : "%lld", static_cast<long long>(x));
    return text;
  }
  if (std::isnan(x)) return "__builtin_nanf(\"\")";
  return codegen::float_text(t, x);
}

constexpr Approximation kApproximations[] = {
    {Pw::exp, "near_exp(x)", 2, false},
    {Pw::log, "near_log(x)", 5, false},
    {Pw::tanh, "near_tanh(x)", 14, false},
    {Pw::sigmoid, "near_sigmoid(x)", 4, false},
    {Pw::rsqrt, "near_rsqrt(x)", 4, true},
    {Pw::sqrt, "near_sqrt(x)", 4, true},
    {Pw::reciprocal, "near_reciprocal(x)", 4, true},
    {Pw::div, "a * near_reciprocal(b)", 5, true},
};

}  // namespace

const char* memory_type(DType t) {
  constexpr const char* k[] = {"f32", "f64", "bf16", "f16", "i64", "i32", "i16", "i8", "u8", "bool8"};
  return k[static_cast<int>(t)];
}
const char* type_name(Type t) {
  constexpr const char* k[] = {"f32", "f64", "i32", "i64", "bool"};
  return k[static_cast<int>(t)];
}
bool is_narrow(const PrintJob& job, int64_t n) { return !job.options.wide && n < int64_t{1} << 30; }
bool is_narrow(const PrintJob& job, int first, int last) {
  int64_t points = 1;
  for (int a = first; a < last; ++a) points *= std::max<int64_t>(1, job.low.extents[a]);
  bool narrow = is_narrow(job, points);
  for (const loop_ir::BoundOperand& b : job.low.bound) {
    int64_t span = 0;
    for (int a = first; a < last; ++a) span += std::abs(b.strides[a]) * std::max<int64_t>(1, job.low.extents[a]);
    narrow = narrow && is_narrow(job, span);
  }
  return narrow;
}

KernelWriter::KernelWriter(const PrintJob& job)
    : TextLines(job.options.notes, 1),
      job_(job),
      low_(job.low),
      k_(job.low.kernel),
      form_(job.form),
      lanes_(low_.lanes()),
      points_(low_.outer_points()),
      narrow_(is_narrow(job, k_.axes - 1, k_.axes)) {
  position = [this](int axis) { return axis == k_.axes - 1 ? std::string("l") : str_cat("i", axis); };
  for (const Instr& i : k_.instrs) {
    const bool rounds = i.op == Op::kPw && (i.pw == Pw::floor || i.pw == Pw::ceil || i.pw == Pw::round ||
                                            i.pw == Pw::floor_divide || i.pw == Pw::remainder);
    const bool truncates = i.op == Op::kCast && !codegen::is_float(i.type) && codegen::is_float(k_.instrs[i.a].type);
    finds_whole_numbers_ |= rounds || truncates;
  }
}

// ---- values ----

std::string KernelWriter::name(int id) const { return codegen::value_name(k_, form_.same[id]); }

std::string KernelWriter::use(int id) const {
  const int at = form_.same[id];
  const Instr& i = k_.instrs[at];
  if (i.op == Op::kConst) return constant(i.type, i.value);
  if (i.op == Op::kParam) return fields_->number(i.type, str_cat("param", i.slot), low_.params[i.slot]);
  if (looping && !in_array.empty() && in_array[at]) return str_cat(name(at), "[", array_index, "]");
  return name(at);
}

std::string KernelWriter::converted(std::string x, Type from, Type to, bool wraps) const {
  if (to == Type::pred && from != Type::pred) return str_cat("w_truth(", x, ")");
  if (from == Type::pred && to != Type::pred) {
    x = str_cat("i32(", x, ")");
    from = Type::i32;
  }
  if (wraps && codegen::is_float(from)) {
    x = str_cat("to_i64(", x, ")");
    from = Type::i64;
  }
  if (from != to) x = str_cat("to_", type_name(to), "(", x, ")");
  return wraps ? str_cat("wrap_u8(", x, ")") : x;
}

std::string KernelWriter::pointwise(const Instr& i) const {
  if (kernels::pointwise_info(i.pw).operands == 3) return str_cat(use(i.a), " ? ", use(i.b), " : ", use(i.c));
  const Approximation* near = approximation(i);
  return codegen::pointwise_text(
      i.pw, [&](int which) { return use(which == 0 ? i.a : i.b); }, near ? near->expression : nullptr);
}

const Approximation* KernelWriter::approximation(const Instr& i) const {
  if (!job_.options.approximate || i.op != Op::kPw || i.type != Type::f32) return nullptr;
  for (const Approximation& a : kApproximations)
    if (a.op == i.pw) return a.whole && finds_whole_numbers_ ? nullptr : &a;
  return nullptr;
}
std::string KernelWriter::op(int reduction) const {
  const Instr& i = k_.instrs[reduction];
  const bool near = job_.options.approximate && i.type == Type::f32 && (i.rd == Rd::max || i.rd == Rd::min);
  return str_cat(near ? "Near" : "", reduction_type(i.rd));
}
int KernelWriter::cost_of(const Instr& i) const {
  const Approximation* a = approximation(i);
  return a ? a->operations : codegen::operations(i);
}

std::string KernelWriter::lane_index(const Instr& i) {
  const StrideKind kind = Form::in_loop(i.level) ? k_.operands[i.slot].strides.back() : StrideKind::kZero;
  if (kind == StrideKind::kZero) return "0";
  return kind == StrideKind::kUnit ? "l" : str_cat("l * ", stride(i.slot, k_.axes - 1, narrow_));
}

std::string KernelWriter::index_term(const Instr& i) const {
  if (i.op != Op::kLoad || i.a < 0) return "";
  return str_cat(" + ", use(i.a), " * ", fields_->i64(str_cat("d", i.slot), low_.bound[i.slot].index_stride));
}

bool KernelWriter::is_unwritten(int slot) const {
  const loop_ir::BoundOperand& b = low_.bound[slot];
  return !b.output && slot != low_.tile &&
         std::none_of(low_.overwrites.begin(), low_.overwrites.end(),
                      [&](const auto& pair) { return pair.first == b.index; });
}
bool KernelWriter::overwrites_points() const {
  return std::any_of(k_.instrs.begin(), k_.instrs.end(), [&](const Instr& i) {
    return i.op == Op::kLoad && !Form::in_loop(i.level) && !is_unwritten(i.slot);
  });
}
std::string KernelWriter::guarded(const Instr& i, const std::string& x) const {
  return looping && !guard.empty() && Form::in_loop(i.level) ? str_cat(guard, " ? ", x, " : ", type_name(i.type), "(0)")
                                                             : x;
}

// The row-major position of the index that `check` reads, or -1 if it is unknown. It is known if the index is computed
// elementwise from an operand that is dense in the order of the axes: the address of that operand's element gives it.
std::string KernelWriter::place_of_index(const Instr& check) const {
  int best = -1;
  int64_t most = 0;
  std::vector<int> from{check.a};
  while (!from.empty()) {
    const int id = from.back();
    const Instr& i = k_.instrs[id];
    from.pop_back();
    if (i.op == Op::kPw || i.op == Op::kCast || i.op == Op::kRound)
      for (int operand : {i.a, i.b, i.c})
        if (operand >= 0) from.push_back(operand);
    if (i.op != Op::kLoad || i.a >= 0) continue;
    const loop_ir::BoundOperand& b = low_.bound[i.slot];
    int64_t next = 1;
    for (size_t a = b.strides.size(); a-- > 0 && next > 0;)
      if (b.strides[a] != 0 && low_.extents[a] > 1) next = b.strides[a] == next ? next * low_.extents[a] : 0;
    if (next > most) best = id;
    most = std::max(most, next);
  }
  if (best < 0) return "-1";
  const Instr& load = k_.instrs[best];
  const std::string start = fields_->pointer(str_cat("const ", memory_type(k_.operands[load.slot].dtype)),
                                             str_cat("x", load.slot), {Pointer::kOperand, load.slot});
  const int64_t offset = low_.bound[load.slot].offset;
  std::string at = element(load);
  if (at.starts_with("v"))
    at = str_cat(moves(load.slot) ? str_cat("x", load.slot) : start, "[l + j]");  // it is in registers
  if (at.find('(') < at.find('[')) return "-1";
  return str_cat("&", at, " - ", start,
                 offset ? str_cat(" + ", fields_->i64(str_cat("first", load.slot), offset)) : "");
}

std::string KernelWriter::expression(const Instr& i) const {
  switch (i.op) {
    case Op::kIndex:
      return str_cat(i.type == Type::i32 ? "(i32)" : "(i64)", position(i.slot));
    case Op::kLoad:
      return guarded(i, converted(str_cat(marks_unwritten && is_unwritten(i.slot) ? "get(unwritten(" : "get(",
                                          element(i), marks_unwritten && is_unwritten(i.slot) ? "))" : ")"),
                                  read_type(k_.operands[i.slot].dtype), i.type, false));
    case Op::kCheck:
      return guarded(i, str_cat("check_at(", use(i.a), ", ", use(i.b), ", ", place_of_index(i), ", ",
                                fields_->pointer("i32", "bad", {Pointer::kBad}), ")"));
    case Op::kPw:
      return pointwise(i);
    case Op::kCast:
      return converted(use(i.a), k_.instrs[form_.same[i.a]].type, i.type, i.type == Type::i32 && i.dtype == kUInt8);
    case Op::kRound:
      return str_cat("rounded_", to_string_view(i.dtype), "(", use(i.a), ")");
    default:
      WEFT_BUG_IF(true, "cuda: not a value");
  }
}

void KernelWriter::value(int id) {
  const Instr& i = k_.instrs[id];
  if (i.op == Op::kConst || i.op == Op::kParam || form_.same[id] != id) return;
  const bool array = looping && !in_array.empty() && in_array[id];
  line(str_cat(array ? "" : str_cat("const ", type_name(i.type), " "), use(id), " = ", expression(i), ";"), i.note);
}

void KernelWriter::values_before(int stage, const std::function<bool(int)>& skip) {
  for (int id = 0; id < static_cast<int>(k_.instrs.size()); ++id) {
    const Instr& i = k_.instrs[id];
    if (form_.same[id] != id || !form_.outside[id] || i.op == Op::kReduce || form_.stage[id] != stage) continue;
    if (form_.in_loop(id) || (skip && skip(id))) continue;
    value(id);
  }
}

void KernelWriter::values_of(const std::vector<int>& ids) {
  for (int id : ids)
    if (k_.instrs[id].op == Op::kLoad && k_.instrs[id].a < 0) value(id);
  for (int id : ids)
    if (k_.instrs[id].op != Op::kLoad || k_.instrs[id].a >= 0) value(id);
}

std::string KernelWriter::stored(int id) const {
  const Instr& i = k_.instrs[id];
  const Type from = k_.instrs[form_.same[i.a]].type;
  if (i.op != Op::kStore) return use(i.a);
  const DType to = k_.operands[i.slot].dtype;
  return converted(use(i.a), from, read_type(to), to == kUInt8 && codegen::is_float(from));
}
void KernelWriter::take(int r, const char* at) {
  const Instr& i = k_.instrs[r];
  line(str_cat(guard.empty() ? "" : str_cat("if (", guard, ") "), "acc", r, at, " = ", op(r), "::f(acc", r, at, ", ",
               use(i.a), ");"),
       i.note);
}
void KernelWriter::take_column(int c) {
  const Instr& i = k_.instrs[c];
  line(str_cat("sum", i.slot, "[j] = ", op(c), "::f(sum", i.slot, "[j], ", use(i.a), ");"), i.note);
}
void KernelWriter::store(int id) {
  line(str_cat(looping && !guard.empty() ? str_cat("if (", guard, ") ") : "", "set(", element(k_.instrs[id]), ", ",
               stored(id), ");"),
       k_.instrs[id].note);
}

bool KernelWriter::reads_first(int id) const {
  const Instr& i = k_.instrs[id];
  return i.op == Op::kLoad && i.a < 0 && Form::in_loop(i.level) && !(marks_unwritten && is_unwritten(i.slot));
}
int KernelWriter::together_of(int loop, const std::vector<int>& values) const {
  if (form_.loops[loop].stores.empty()) return 0;
  const auto reads = std::count_if(values.begin(), values.end(), [&](int id) { return reads_first(id); });
  return reads == 0 ? 0 : reads <= 2 ? 4 : 2;
}
void KernelWriter::loop_step(int loop, const std::vector<int>& values, const char* at) {
  looping = true;
  values_of(values);
  for (int r : form_.loops[loop].reduces) take(r, at);
  for (int id : form_.loops[loop].stores) store(id);
  looping = false;
  guard.clear();
}

void KernelWriter::read_together(int loop, const std::vector<int>& values, int together,
                                 const std::function<void()>& declare) {
  std::vector<int> reads, rest;
  in_array.assign(k_.instrs.size(), false);
  for (int id : values) {
    (reads_first(id) ? reads : rest).push_back(id);
    in_array[id] = reads_first(id);
  }
  for (int id : reads) line(str_cat(type_name(k_.instrs[id].type), " ", name(id), "[", together, "];"));
  const std::string index = std::exchange(array_index, "j");
  looping = true;
  guard = "in";
  for (const bool writes : {false, true}) {
    open(str_cat("UNROLL for (int j = 0; j < ", together, "; ++j) {"));
    declare();
    values_of(writes ? rest : reads);
    if (writes) {
      for (int r : form_.loops[loop].reduces) take(r);
      for (int id : form_.loops[loop].stores) store(id);
    }
    close();
  }
  looping = false;
  guard.clear();
  array_index = index;
  in_array.clear();
}

bool KernelWriter::moves(int slot) const {
  const auto& strides = k_.operands[slot].strides;
  return std::any_of(strides.begin(), strides.begin() + k_.outer_axes(),
                     [](StrideKind s) { return s != StrideKind::kZero; });
}
std::string KernelWriter::pointer_name(int slot) {
  if (!moves(slot)) return operand_pointer(slot);
  return str_cat(k_.operands[slot].output ? "y" : "x", slot);
}
std::string KernelWriter::operand_pointer(int slot) {
  const loop_ir::Operand& o = k_.operands[slot];
  return params.pointer(str_cat(o.output ? "" : "const ", memory_type(o.dtype)), str_cat(o.output ? "y" : "x", slot),
                        {Pointer::kOperand, slot});
}
std::string KernelWriter::stride(int slot, int axis, bool narrow) {
  const std::string field = str_cat("s", slot, "_", axis);
  const int64_t s = low_.bound[slot].strides[axis];
  return narrow ? params.i32(field, s) : params.i64(field, s);
}
std::string KernelWriter::extent(int axis, bool narrow) {
  const std::string field = str_cat("n", axis);
  return narrow ? params.i32(field, low_.extents[axis]) : params.i64(field, low_.extents[axis]);
}

std::string KernelWriter::point() const { return k_.outer_axes() == 1 ? "i0" : "o"; }
void KernelWriter::outer_positions(bool narrow) {
  const int outer = k_.outer_axes();
  const std::string type = narrow ? "i32" : "i64";
  if (outer == 0) return;
  if (outer == 1) return;  // point() is i0 itself
  std::string rest = "o", s = str_cat("const ", type, " ");
  for (int a = outer - 1; a > 0; --a) {
    const std::string n = narrow ? params.div(str_cat("n", a), low_.extents[a]) : extent(a, false);
    s += str_cat("i", a, " = ", rest, " % ", n, ", ");
    rest = str_cat(rest, " / ", n);
  }
  line(str_cat(s, "i0 = ", rest, ";"));
}

void KernelWriter::open_units(const std::string& units, bool narrow) {
  const std::string type = narrow ? "i32" : "i64";
  open(str_cat("for (", type, " unit = (", type, ")blockIdx.x; unit < ", units, "; unit += (", type, ")gridDim.x) {"));
}

std::string KernelWriter::open_rows(int rows, int team, bool full, bool narrow_rows, bool narrow_length) {
  const int64_t n = low_.outer_points();
  const std::string type = narrow_rows ? "i32" : "i64",
                    points = narrow_rows ? params.i32("points", n) : params.i64("points", n),
                    many = rows == 1 ? "" : str_cat(rows, " * "), length = extent(k_.axes - 1, narrow_length);
  open(str_cat("for (", type, " o0 = ", many, "(", type, ")blockIdx.x; o0 < ", points, "; o0 += ", many,
               narrow_rows ? "" : "(i64)", "gridDim.x) {"));
  if (rows == 1) {
    line(str_cat("const ", type, " ", point(), " = o0;"));
    return length;
  }
  const std::string row = str_cat("threadIdx.x / ", team);
  if (full) {
    line(str_cat("const ", type, " ", point(), " = o0 + ", row, ";"));
    return length;
  }
  line(str_cat("const ", type, " mine = o0 + ", row, ", ", point(), " = mine < ", points, " ? mine : ", points,
               " - 1;"));
  line(str_cat("const ", narrow_length ? "i32" : "i64", " n = mine < ", points, " ? ", length, " : 0;"));
  return "n";
}
std::string KernelWriter::has_row(int rows, bool full, bool narrow_rows) {
  if (rows == 1 || full) return "";
  const int64_t n = low_.outer_points();
  return str_cat("mine < ", narrow_rows ? params.i32("points", n) : params.i64("points", n), " && ");
}

void KernelWriter::outer_pointers(bool narrow, const std::vector<int>& used) {
  for (int slot = 0; slot < static_cast<int>(k_.operands.size()); ++slot) {
    const bool reads = std::any_of(used.begin(), used.end(), [&](int id) {
      const Instr& i = k_.instrs[id];
      return (i.op == Op::kLoad || i.op == Op::kStore) && i.slot == slot;
    });
    if (!reads || !moves(slot)) continue;
    const loop_ir::Operand& o = k_.operands[slot];
    std::string at = operand_pointer(slot);
    for (int a = 0; a < k_.outer_axes(); ++a) {
      if (o.strides[a] == StrideKind::kZero) continue;
      at += str_cat(" + i", a);
      if (o.strides[a] == StrideKind::kAny) at += str_cat(" * ", stride(slot, a, narrow));
    }
    line(str_cat(o.output ? "" : "const ", memory_type(o.dtype), "* const ", pointer_name(slot), " = ", at, ";"));
  }
}

std::vector<int> KernelWriter::needed(int first, int last, bool ends) const {
  std::vector<int> all;
  for (int id = 0; id < static_cast<int>(k_.instrs.size()); ++id)
    if (form_.same[id] == id && form_.outside[id]) all.push_back(id);
  for (int loop = first; loop < last; ++loop) {
    for (int id : form_.closure(loop, {})) all.push_back(id);
    for (int id : form_.loops[loop].stores) all.push_back(id);
  }
  if (ends) all.insert(all.end(), form_.last.begin(), form_.last.end());
  return all;
}

// ---- the whole ----
// ---- the launch ----
std::string KernelWriter::symbol() const {
  if (!job_.options.symbol.empty()) return job_.options.symbol + suffix;
  if (!job_.options.notes) return "kernel";
  std::string s = (k_.name.empty() ? "kernel" : k_.name) + suffix;
  for (char& c : s)
    if (!codegen::is_letter(c)) c = '_';
  if (s[0] >= '0' && s[0] <= '9') s = "k" + s;
  return s;
}

std::vector<int> KernelWriter::row_values(int loop) const {
  std::vector<bool> wanted(k_.instrs.size());
  auto want = [&](int x) {
    if (x < 0 || form_.in_loop(x)) return;
    const int id = form_.same[x];
    if (k_.instrs[id].op != Op::kConst && k_.instrs[id].op != Op::kParam) wanted[id] = true;
  };
  for (int id : form_.closure(loop, {}))
    for (int x : {k_.instrs[id].a, k_.instrs[id].b, k_.instrs[id].c}) want(x);
  for (const std::vector<int>* sinks : {&form_.loops[loop].columns, &form_.loops[loop].stores})
    for (int id : *sinks) want(k_.instrs[id].a);
  std::vector<int> values;
  for (size_t id = 0; id < wanted.size(); ++id)
    if (wanted[id]) values.push_back(static_cast<int>(id));
  return values;
}

std::string KernelWriter::partial(int slot, const std::string& type) {
  int64_t total = 0;
  const std::vector<int64_t> offsets = partial_offsets(job_, &total);
  return params.pointer(type, str_cat("partial", slot), {Pointer::kScratch, slot, offsets[slot]});
}

void KernelWriter::loops_at_point(bool narrow, const std::function<void(int)>& loop) {
  outer_positions(narrow);
  outer_pointers(false, all_needed());
  const int loops = static_cast<int>(form_.loops.size());
  for (int l = 0; l < loops; ++l) {
    values_before(l);
    loop(l);
  }
  values_before(loops);
}

CudaLaunch KernelWriter::finish(int threads, int shared_bytes, Grid grid, const std::string& how) {
  CudaLaunch launch;
  Kernel& kernel = launch.kernel;
  kernel.symbol = symbol();
  kernel.threads = threads;
  kernel.shared_bytes = shared_bytes;
  kernel.max_spill_bytes = 32;  // the assembler spills a few bytes to fit another thread block
  std::string head;
  if (job_.options.notes) {
    head = str_cat("// ", k_.name.empty() ? "kernel" : k_.name, suffix, ": ", how, "\n");
    if (suffix.empty()) {
      for (size_t s = 0; s < k_.operands.size(); ++s)
        head += str_cat("//   ", k_.operands[s].output ? "y" : "x", s, ": ", to_string_view(k_.operands[s].dtype),
                        k_.operands[s].name.empty() ? "" : " ", k_.operands[s].name, "\n");
      char cost[96];
      if (low_.bytes > 0) {
        std::snprintf(cost, sizeof cost, "//   cost: %.4g kB, %.4g kflop\n", low_.bytes / 1e3, low_.flops / 1e3);
        head += cost;
      }
    }
  }
  const std::string parameters = kernel.symbol + "_args";
  kernel.text = str_cat(head, params.text(parameters), "extern \"C\" __global__ void __launch_bounds__(", threads, ") ",
                        kernel.symbol, "(const __grid_constant__ ", parameters, " p) {\n", body(), "}\n");
  launch.grid = grid;
  params.write(&launch);
  return launch;
}

}  // namespace weft::cuda
