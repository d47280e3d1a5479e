#include "framework/dispatch/dispatch.h"

#include "framework/base/tracer.h"
#include "framework/dispatch/capture.h"
#include "framework/dispatch/device/target.h"
#include "framework/dispatch/tape.h"

namespace weft {

using internal::LineScope;
using internal::thread_state;

namespace {

void check_operands(const OpDef& op, TensorPtrs in) {
  WEFT_BUG_IF(op.num_inputs >= 0 && static_cast<int>(in.size()) != op.num_inputs, op.name, ": ", in.size(),
              " operands");
  for (size_t i = 0; i < in.size(); ++i) {
    WEFT_CHECK_AS(kFailedPrecondition, in[i]->defined(), op.name, ": operand ", i,
                  " is an undefined tensor; need one with a value");
    if (!op.is(kPointwise)) check_device(op, i, in[i]->get().type.device, 0, in[0]->get().type.device);
  }
}

// The path of names of the current op. Consecutive ops mostly have the same path.
const char* current_scope() {
  if (!internal::origin.names) return "";
  static thread_local const char* last = "";
  const std::string path = internal::origin_path();
  return path == last ? last : last = intern(path);
}

SourceLine current_line() { return internal::origin.line ? *internal::origin.line : SourceLine(); }

void call(const OpDef& op, TensorPtrs in, const Attrs& attrs, std::span<const TensorType> types,
          std::span<Tensor> out) {
  if (thread_state.capture) {
    thread_state.capture->add_node(op, in, attrs, current_line(), types, out);
    return;
  }
  for (const Tensor* t : in)
    WEFT_CHECK_AS(
        kFailedPrecondition, !t->get().trace, op.name,
        ": an operand was traced by a capture that has ended; only the captured function's own return values leave it");
  internal::run_eager(op, in, attrs, types, out);
  if (should_record(op, in)) record(op, in, attrs, current_line(), out);
}

// Under Autocast: the operands in the dtypes that the op's record wants; none if they have them.
std::vector<Tensor> cast_operands(const OpDef& op, TensorPtrs in) {
  const bool contracts = op.is(kContraction);
  if (op.is(kCustom) || op.is(kPointwise) || !(contracts || op.is(kWantsF32))) return {};
  for (const Tensor* t : in)
    if (!t->defined() || t->dtype() == kFloat64) return {};
  std::vector<Tensor> own;
  bool any = false;
  for (size_t i = 0; i < in.size(); ++i) {
    const Tensor& t = *in[i];
    if (op.is(kAttention) && i > 2) {
      own.push_back(t);  // a table of the score, which is computed in f32
    } else {
      own.push_back(contracts ? internal::autocast(t) : internal::autocast_f32(t));
    }
    any |= own.back().dtype() != t.dtype();
  }
  return any ? own : std::vector<Tensor>();
}

Types infer(const OpDef& op, TensorPtrs in, const Attrs& attrs) {
  check_operands(op, in);
  SmallVec<TensorType, 4> types;
  for (const Tensor* t : in) types.push_back(t->get().type);
  return infer_types(op, attrs, types);
}

}  // namespace

Tensor dispatch(const OpDef& op, TensorPtrs in, const Attrs& attrs, SourceLine line) {
  LineScope here(line);
  if (thread_state.autocast) [[unlikely]]
    if (const std::vector<Tensor> own = cast_operands(op, in); !own.empty())
      return dispatch(op, internal::pointers(own), attrs, line);
  Types types = infer(op, in, attrs);
  WEFT_BUG_IF(types.size() != 1, op.name, ": one result expected, got ", types.size());
  Tensor out;
  call(op, in, attrs, types, {&out, 1});
  return out;
}

std::vector<Tensor> dispatch_multi(const OpDef& op, TensorPtrs in, const Attrs& attrs, SourceLine line) {
  LineScope here(line);
  if (thread_state.autocast) [[unlikely]]
    if (const std::vector<Tensor> own = cast_operands(op, in); !own.empty())
      return dispatch_multi(op, internal::pointers(own), attrs, line);
  Types types = infer(op, in, attrs);
  std::vector<Tensor> out(types.size());
  call(op, in, attrs, types, out);
  return out;
}

Tensor dispatch_pointwise(const OpDef& op, TensorPtrs in, const TensorType& type, SourceLine line) {
  LineScope here(line);
  checked_numel(type.shape, op.name);
  TensorType result = type;
  bool mixed = false;
  for (const Tensor* t : in) mixed |= !(t->get().type.device == type.device);
  if (mixed) {
    SmallVec<TensorType, 3> types;
    for (const Tensor* t : in) types.push_back(t->get().type);
    result.device = pointwise_device(op, types);
  }
  Tensor out;
  call(op, in, {}, {&result, 1}, {&out, 1});
  return out;
}

namespace internal {

std::vector<Tensor> decomposed(const OpDef& op, const Attrs& attrs, std::span<const Tensor> in,
                               std::span<const TensorType> types) {
  if (!op.is(kCustom)) return op.decompose(attrs, in);
  static thread_local int depth = 0;
  struct DepthGuard {
    DepthGuard() { ++depth; }
    ~DepthGuard() { --depth; }
  } level;
  constexpr int kMostLevels = 64;
  WEFT_CHECK(depth <= kMostLevels, op.name, ": `decompose` calls the op itself; need other ops");
  std::vector<Tensor> results = op.decompose(attrs, in);
  WEFT_CHECK(results.size() == types.size(), op.name, ": `decompose` returned ", results.size(), " tensors; need ",
             types.size());
  for (size_t i = 0; i < types.size(); ++i)
    WEFT_CHECK(results[i].defined() && results[i].shape() == types[i].shape && results[i].dtype() == types[i].dtype,
               op.name, ": result ", i, " of `decompose` is ",
               results[i].defined() ? results[i].type().to_string() : "an undefined tensor", "; need ", types[i],
               ", as `infer` says");
  return results;
}

void run_eager(const OpDef& op, TensorPtrs in, const Attrs& attrs, std::span<const TensorType> types,
               std::span<Tensor> out) {
  Device device = types.empty() ? Device::cpu() : types[0].device;
  if (device.type == DeviceType::kMeta) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = Tensor::empty(types[i]);
    return;
  }
  TraceScope trace(TraceEvent::kOp, op.name);
  if (TraceEvent* event = trace.event()) event->line = current_line(), event->scope = current_scope();
  if (!op.kernel && op.decompose) {
    NoGrad guard;
    const Autocast off(std::nullopt);
    SmallVec<Tensor, 4> args;
    for (const Tensor* t : in) args.push_back(*t);
    std::vector<Tensor> results = decomposed(op, attrs, args, types);
    for (size_t i = 0; i < out.size(); ++i) out[i] = std::move(results[i]);
    return;
  }
  SmallVec<StridedView, 4> views;
  views.reserve(in.size());
  for (const Tensor* t : in) {
    const TensorImpl& i = t->get();
    views.push_back({static_cast<char*>(i.storage->data()) + i.offset, i.type.dtype, i.type.shape, i.strides});
  }
  if (op.view) {
    Shape strides;
    int64_t offset = 0;
    if (op.view(attrs, views[0], types[0], &strides, &offset)) {
      const TensorImpl& base = in[0]->get();
      auto* impl = new TensorImpl;
      impl->type = types[0];
      impl->strides = strides;
      impl->storage = base.storage;
      impl->offset = base.offset + offset * itemsize(types[0].dtype);
      out[0] = Tensor(impl);
      return;
    }
  }
  WEFT_BUG_IF(!op.kernel, op.name, " has no kernel");
  SmallVec<StridedView, 2> results;
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = Tensor::empty(types[i]);
    const TensorImpl& r = out[i].get();
    results.push_back({r.storage->data(), r.type.dtype, r.type.shape, r.strides});
  }
  if (device.type != DeviceType::kCpu) {
    target_of(device.type, op.name).run_now({op, attrs, views, results}, device, current_line());
    return;
  }
  Ref<Storage> scratch;
  if (op.workspace) {
    int64_t bytes = op.workspace(attrs, views, results);
    if (bytes > 0) scratch = Storage::allocate(bytes, device);
  }
  op.kernel({op, attrs, views, results, scratch ? scratch->data() : nullptr});
}

}  // namespace internal
}  // namespace weft
