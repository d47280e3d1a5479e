#include "compiler/exec/fused_table.h"

#include <chrono>
#include <cstring>

#include "compiler/kir/fused.h"
#include "framework/base/hash.h"
#include "framework/base/mutex.h"

namespace weft::internal {
namespace {

// Functions this process has, by kernel_key. Generated code is never unloaded.
struct Loaded {
  Mutex mutex;
  std::unordered_map<std::string, kir::Fn> fns WEFT_GUARDED_BY(mutex);
};
Loaded& loaded() {
  static Loaded* l = new Loaded;
  return *l;
}

}  // namespace

std::string kernel_key(const kir::Kernel& k) {
  std::string key;
  auto put = [&](const auto& v) { key.append(reinterpret_cast<const char*>(&v), sizeof v); };
  auto small = [&](auto v) { put(static_cast<int16_t>(v)); };
  small(k.mode);
  small(k.axes);
  for (int n : {k.params, k.kept, k.columns, k.partials}) small(n);
  small(k.operands.size());
  for (const kir::Operand& o : k.operands) {
    small(o.dtype);
    small(o.output);
    for (kir::StrideKind s : o.strides) small(s);
  }
  small(k.instrs.size());
  for (const kir::Instr& i : k.instrs) {
    small(i.op);
    small(i.type);
    small(i.level);
    small(i.a);
    small(i.b);
    small(i.c);
    small(i.slot);
    put(i.value);
    small(i.pw);
    small(i.rd);
    small(i.dtype);
  }
  for (const kir::Segment& s : k.segments) {
    small(s.loop);
    small(s.instrs.size());
    for (int i : s.instrs) small(i);
  }
  return key;
}

uint64_t FusedTable::hash_of(const Ref<Graph>& body) {
  auto [at, fresh] = hashes_.try_emplace(body.get(), 0);
  if (fresh) {
    hashed_.push_back(body);
    at->second = structural_hash(*body);
  }
  return at->second;
}

std::shared_ptr<FusedKernel> FusedTable::get(const Node& n, std::span<const StridedView> in,
                                             std::span<const StridedView> out) {
  const Ref<Graph>& body = n.attrs.get<Ref<Graph>>("body");
  const uint64_t hash = hash_of(body);
  std::vector<Shape> strides;
  for (const auto& list : {in, out})
    for (const StridedView& v : list) strides.push_back(v.strides);
  auto [begin, end] = kernels_.equal_range(hash);
  for (auto e = begin; e != end; ++e)
    if (e->second.strides == strides && structurally_equal(e->second.kernel->body(), *body)) return e->second.kernel;

  std::vector<kir::Layout> layouts_in, layouts_out;
  for (size_t i = 0; i < in.size(); ++i) layouts_in.push_back({body->type(body->inputs[i]), in[i].strides});
  for (size_t i = 0; i < out.size(); ++i) layouts_out.push_back({n.outputs[static_cast<int>(i)], out[i].strides});
  std::shared_ptr<FusedKernel> kernel;
  try {
    kernel = std::make_shared<FusedKernel>(body, kir::lower_group(*body, layouts_in, layouts_out, options_), in);
  } catch (const Error& e) {
    throw CannotLower{body, e.what()};
  }
  kernels_.emplace(hash, Entry{std::move(strides), kernel});
  return kernel;
}

LoadReport FusedTable::load() {
  LoadReport report;
  std::unordered_map<std::string, int> seen;
  for (auto& [hash, e] : kernels_) seen[kernel_key(e.kernel->lowered().kernel)]++;
  report.kernels = static_cast<int64_t>(seen.size());
  (void)loaded;
  return report;
}

}  // namespace weft::internal
