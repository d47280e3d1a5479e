#include "compiler/targets/cuda/print/stage.h"

#include <algorithm>

#include "compiler/targets/cpu/print/choices.h"
#include "framework/base/str_cat.h"

namespace weft::cuda {

using loop_ir::Instr;
using loop_ir::Op;
using loop_ir::StrideKind;
using loop_ir::Type;

namespace {

constexpr int kMuch = 8;  // a value with at least this many operations is kept instead of recomputed

// The operations of a value in a loop, counted from loads and from values in `have`.
std::vector<int> costs(const KernelWriter& writer, const std::vector<bool>& have) {
  const Form& form = writer.form_;
  const auto& all = form.kernel->instrs;
  std::vector<int> cost(all.size(), 0);
  for (size_t id = 0; id < all.size(); ++id) {
    const Instr& i = all[form.same[id]];
    if (!form.in_loop(static_cast<int>(id)) || i.op == Op::kIndex) continue;
    int c = i.op == Op::kPw ? writer.cost_of(i) : i.op == Op::kLoad ? (i.a >= 0 && form.in_loop(i.a) ? kMuch : 0) : 1;
    for (int x : {i.a, i.b, i.c})
      if (x >= 0 && !have[form.same[x]]) c += cost[form.same[x]];
    cost[id] = std::min(c, 1000);
  }
  return cost;
}

}  // namespace

StageWriter::StageWriter(const PrintJob& job, int64_t n) : KernelWriter(job), n_(n) {
  int narrowest = 0;
  auto see = [&](int slot) {
    const int size = static_cast<int>(itemsize(k_.operands[slot].dtype));
    narrowest = narrowest == 0 ? size : std::min(narrowest, size);
  };
  for (int id : needed(0, static_cast<int>(form_.loops.size()), false)) {
    const Instr& i = k_.instrs[id];
    if (i.op == Op::kStore && Form::in_loop(i.level) && is_unit(i.slot)) see(i.slot);
    if (i.op != Op::kLoad || !Form::in_loop(i.level) || form_.same[id] != id || !is_unit(i.slot) || tile_of(id))
      continue;
    const bool gathered = i.a >= 0;
    if (gathered ? form_.in_loop(i.a) || form_.stage[form_.same[i.a]] > 0 : !moves(i.slot) && points_ > 1) continue;
    see(i.slot);
    loads_.push_back({id, 0, is_even(i.slot, gathered), gathered, false});
  }
  width_ = narrowest == 0 ? 1 : std::min(8, std::max(1, 16 / narrowest));
  even_ = lanes_ % width_ == 0;
  for (int id : form_.loops.empty() ? std::vector<int>() : form_.loops.back().stores)
    even_ = even_ && (!is_unit(k_.instrs[id].slot) || is_even(k_.instrs[id].slot, false));
  element = [this](const Instr& i) { return place(i); };
}

// Whether rows of the operand start and end at multiples of 16 bytes.
bool StageWriter::is_even(int slot, bool indexed) const {
  const loop_ir::BoundOperand& b = low_.bound[slot];
  const auto size = static_cast<int64_t>(itemsize(k_.operands[slot].dtype));
  bool even = job_.options.alignment >= 16 && b.offset * size % 16 == 0 && lanes_ * size % 16 == 0;
  for (int a = 0; a < k_.outer_axes(); ++a) even = even && (low_.extents[a] <= 1 || b.strides[a] * size % 16 == 0);
  return even && (!indexed || b.index_stride * size % 16 == 0);
}

void StageWriter::find_parts(bool keeps) {
  parts_.clear();
  kept_.clear();
  std::vector<bool> have(k_.instrs.size());
  auto add = [&](int loop, bool stores, const std::vector<int>& sinks) {
    if (sinks.empty()) return;
    StagePart part{loop, stores, sinks, {}, {}};
    for (int id : form_.closure_of(sinks, have)) (have[id] ? part.reads : part.compute).push_back(id);
    for (int id : part.reads)
      if (!tile_of(id)) kept_.push_back({id, 0, true, false, true});
    const std::vector<int> cost = costs(*this, have);
    std::vector<bool> now = have;
    for (int id : part.compute)
      now[id] = keeps && cost[id] >= kMuch && (k_.instrs[id].type == Type::f32 || k_.instrs[id].type == Type::i32);
    have = now;
    parts_.push_back(std::move(part));
  };
  for (size_t loop = 0; loop < form_.loops.size(); ++loop)
    add(static_cast<int>(loop), false, form_.loops[loop].reduces);
  if (!form_.loops.empty()) add(static_cast<int>(form_.loops.size()) - 1, true, form_.loops.back().stores);
  find_first_part();
  row_bytes_ = 0;
  for (StagedTile& t : loads_) {
    t.offset = row_bytes_;
    row_bytes_ += (n_ * static_cast<int64_t>(itemsize(k_.operands[k_.instrs[t.id].slot].dtype)) + 16 + 15) / 16 * 16;
  }
  for (StagedTile& t : kept_) {
    t.offset = row_bytes_;
    row_bytes_ += (n_ * 4 + 15) / 16 * 16;
  }
}

void StageWriter::find_first_part() {
  std::vector<bool> early(k_.instrs.size());
  std::vector<int> values;
  for (const StagedTile& t : kept_)
    if (form_.stage[t.id] == 0) early[t.id] = true, values.push_back(t.id);
  if (values.empty() || !even_) return;
  StagePart first{0, true, {}, {}, {}};
  std::vector<StagePart> rest = parts_;
  if (rest.back().stores) {
    std::vector<int> later;
    for (int id : rest.back().sinks)
      (form_.stage[form_.same[k_.instrs[id].a]] == 0 ? first.sinks : later).push_back(id);
    rest.back().sinks = later;
  }
  std::vector<bool> have(k_.instrs.size()), needed(k_.instrs.size());
  for (const StagedTile& t : kept_) have[t.id] = early[t.id];
  for (StagePart& part : rest) {
    part.reads.clear();
    part.compute.clear();
    for (int id : form_.closure_of(part.sinks, have)) {
      (have[id] ? part.reads : part.compute).push_back(id);
      if (!have[id]) needed[id] = true;
    }
    for (int id : part.compute)
      if (std::any_of(kept_.begin(), kept_.end(), [&](const StagedTile& t) { return t.id == id; })) have[id] = true;
  }
  // The order in which the values for kept values are computed.
  first.compute = form_.closure_of(first.sinks, {}, values);
  // Values read later must not be overwritten before, so operands that a result may overwrite rule out a first part.
  // Operands that only the first part reads must be readable in vectors.
  for (const StagePart& part : rest)
    for (int id : part.compute) {
      const Instr& i = k_.instrs[id];
      if (i.op == Op::kLoad && Form::in_loop(i.level) && !tile_of(id) && !is_unwritten(i.slot)) return;
    }
  std::vector<StagedTile> loads;
  for (const StagedTile& t : loads_) {
    if (needed[t.id]) {
      loads.push_back(t);
    } else if (!t.even) {
      return;
    }
  }
  loads_ = loads;
  if (rest.back().stores && rest.back().sinks.empty()) rest.pop_back();
  parts_ = std::move(rest);
  parts_.insert(parts_.begin(), std::move(first));
}

bool StageWriter::has_gathered() const {
  return std::any_of(loads_.begin(), loads_.end(), [](const StagedTile& t) { return t.gathered; });
}

bool StageWriter::tiles_even() const {
  return std::all_of(loads_.begin(), loads_.end(), [](const StagedTile& t) { return t.even; });
}
std::vector<int> StageWriter::staged() const {
  std::vector<int> ids;
  for (const StagedTile& t : loads_) ids.push_back(t.id);
  return ids;
}
std::vector<int> StageWriter::unstaged(const std::vector<int>& ids) const {
  std::vector<int> rest;
  for (int id : ids)
    if (!tile_of(id)) rest.push_back(id);
  return rest;
}

const StageWriter::StagedTile* StageWriter::tile_of(int id) const {
  for (const std::vector<StagedTile>* list : {&loads_, &kept_})
    for (const StagedTile& t : *list)
      if (t.id == id) return &t;
  return nullptr;
}

std::string StageWriter::address(const Instr& i) { return str_cat(pointer_name(i.slot), index_term(i), origin); }

void StageWriter::declare_tiles(const std::string& at) {
  for (const std::vector<StagedTile>* list : {&loads_, &kept_})
    for (const StagedTile& t : *list) {
      const std::string e = t.kept ? type(t.id) : memory_type(k_.operands[k_.instrs[t.id].slot].dtype);
      line(str_cat("const Shared<", e, "> t", t.id, " = shared_at<", e, ">(", at,
                   t.offset ? str_cat(" + ", t.offset) : "", ");"));
    }
}

void StageWriter::copy_tiles(bool gathered, const std::string& n, const std::string& who, const std::string& team) {
  for (const StagedTile& t : loads_) {
    if (t.gathered != gathered) continue;
    const std::string p = address(k_.instrs[t.id]);
    if (!t.even) line(str_cat("const int shift", t.id, " = shift_of(", p, ");"));
    line(str_cat("stage<", t.even ? "true" : "false", ">(t", t.id, ", ", p, ", ", n, ", ", who, ", ", team, ");"));
  }
}

bool StageWriter::packed(int id) const {
  const Instr& i = k_.instrs[id];
  if (!in_vectors_ || !Form::in_loop(i.level) || !is_unit(i.slot)) return false;
  if (i.op == Op::kStore) return true;
  return even_ && (i.a < 0 || gathers_rows(i)) && !tile_of(id) && is_even(i.slot, i.a >= 0);
}

std::string StageWriter::place(const Instr& i) {
  const int id = static_cast<int>(&i - k_.instrs.data());
  if (const StagedTile* t = i.op == Op::kLoad ? tile_of(id) : nullptr; t && !t->kept) {
    if (in_vectors_ && even_ && t->even) return str_cat("v", id, "[j]");
    return str_cat(memory_type(k_.operands[i.slot].dtype), "(t", id, "[", t->even ? "" : str_cat("shift", id, " + "),
                   tile_index, "])");
  }
  if (packed(id)) return i.op == Op::kStore ? str_cat("r", i.slot, "[j]") : str_cat("v", id, "[j]");
  std::string index = "0";
  if (Form::in_loop(i.level)) {
    if (is_unit(i.slot)) index = "l";
    if (k_.operands[i.slot].strides.back() == StrideKind::kAny)
      index = str_cat("l * ", stride(i.slot, k_.axes - 1, narrow_));
  }
  const std::string at = str_cat(pointer_name(i.slot), "[", index, index_term(i), "]");
  return i.op == Op::kLoad && is_unwritten(i.slot) ? str_cat("unwritten(", at, ")") : at;
}

void StageWriter::lane_values(const StagePart& part) {
  for (int id : part.reads) line(str_cat("const ", type(id), " ", name(id), " = t", id, "[l];"));
  values_of(part.compute);
  for (int id : part.compute)
    if (const StagedTile* t = tile_of(id); t && t->kept) line(str_cat("t", id, "[l] = ", name(id), ";"));
}

void StageWriter::load_vectors(const std::vector<int>& ids, bool kept) {
  for (int id : ids) {
    const Instr& i = k_.instrs[id];
    const StagedTile* t = tile_of(id);
    const std::string e = t && t->kept        ? type(id)
                          : i.op == Op::kLoad ? memory_type(k_.operands[i.slot].dtype)
                                              : "",
                      vector = str_cat("const Pack<", e, ", ", width_, "> v", id, " = ");
    if (t && even_ && t->even && (!t->kept || kept)) {
      line(str_cat(vector, "load_tile<", width_, ">(t", id, ", l0);"));
    } else if (!t && i.op == Op::kLoad && packed(id)) {
      line(str_cat(vector, "load", is_unwritten(i.slot) ? "_unwritten<" : "<", width_, ">(", address(i), " + l0);"));
    }
  }
}

void StageWriter::print_stores(const StagePart& part, const std::string& n, const std::string& who,
                               const std::string& team) {
  const std::string w = str_cat(width_);
  in_vectors_ = true;
  std::string back;
  if (!even_) {
    // Vectors are aligned for the narrowest result.
    int first = -1;
    for (int id : part.sinks) {
      const int slot = k_.instrs[id].slot;
      if (is_unit(slot) && (first < 0 || itemsize(k_.operands[slot].dtype) < itemsize(k_.operands[first].dtype)))
        first = slot;
    }
    if (first >= 0) {
      line(str_cat("const int back = shift_of(", pointer_name(first), ") % ", w, ";"));
      back = "back";
    }
  }
  open(str_cat("for (int l0 = ", w, " * (", who, ")", back.empty() ? "" : " - " + back, "; l0 < ", n, "; l0 += ", w,
               " * ", team, ") {"));
  auto pack = [&](const std::string& e) { return str_cat("Pack<", e, ", ", w, ">"); };
  load_vectors(part.reads, true);
  load_vectors(part.compute);
  std::vector<int> outs;
  for (int id : part.sinks)
    if (packed(id)) outs.push_back(k_.instrs[id].slot);
  for (int slot : outs) line(str_cat(pack(memory_type(k_.operands[slot].dtype)), " r", slot, ";"));
  std::vector<int> keeps;
  for (int id : part.compute)
    if (const StagedTile* t = tile_of(id); t && t->kept) keeps.push_back(id);
  for (int id : keeps) line(str_cat(pack(type(id)), " k", id, ";"));
  open(str_cat("UNROLL for (int j = 0; j < ", w, "; ++j) {"));
  line("const int l = l0 + j;");
  looping = true;
  if (!even_) {
    line(str_cat("const bool in = l >= 0 && l < ", n, ";"));
    guard = "in";
  }
  for (int id : part.reads)
    line(str_cat("const ", type(id), " ", name(id), " = ",
                 even_ ? str_cat("v", id, "[j]") : str_cat("in ? ", type(id), "(t", id, "[l]) : ", type(id), "(0)"),
                 ";"));
  values_of(part.compute);
  for (int id : keeps) line(str_cat("k", id, "[j] = ", name(id), ";"));
  for (int id : part.sinks) store(id);
  looping = false;
  guard.clear();
  close();
  for (int id : keeps) line(str_cat("store_tile<", w, ">(t", id, ", l0, k", id, ");"));
  for (int slot : outs)
    line(even_ ? str_cat("store<", w, ">(", pointer_name(slot), " + l0, r", slot, ");")
               : str_cat("store_some<", w, ">(", pointer_name(slot), " + l0, r", slot, ", -l0, ", n, " - l0);"));
  close();
  in_vectors_ = false;
}

}  // namespace weft::cuda
