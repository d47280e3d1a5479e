#include "ops/core/functions/custom_op.h"

#include <cctype>
#include <map>
#include <memory>
#include <mutex>
#include <new>

#include "framework/dispatch/dispatch.h"
#include "ops/kernels/kernels.h"

namespace weft {
namespace {

struct CustomRecord : OpDef {
  OpDef own;  // the program's record; the outer record checks the results of its functions
  std::string own_name;
};
const OpDef& own(const OpDef& op) { return static_cast<const CustomRecord&>(op).own; }

struct FreeAligned {
  void operator()(void* p) const { ::operator delete(p, std::align_val_t(64)); }
};

// A view as it is, or row-major memory for it.
class PackedView {
 public:
  explicit PackedView(const StridedView& v) : from_(v), view_(v) {
    if (v.contiguous()) return;
    view_.strides = contiguous_strides(v.shape);
    own_.reset(::operator new(static_cast<size_t>(v.nbytes()), std::align_val_t(64)));
    view_.data = own_.get();
  }
  const StridedView& view() const { return view_; }
  void read() const {
    if (own_) kernels::cast_copy(from_, view_);
  }
  void write() const {
    if (own_) kernels::cast_copy(view_, from_);
  }

 private:
  const StridedView from_;
  StridedView view_;
  std::unique_ptr<void, FreeAligned> own_;
};

void run_packed(const KernelCall& c) {
  const std::vector<PackedView> in(c.in.begin(), c.in.end()), out(c.out.begin(), c.out.end());
  SmallVec<StridedView, 4> operands, results;
  for (const PackedView& p : in) {
    p.read();
    operands.push_back(p.view());
  }
  for (const PackedView& p : out) results.push_back(p.view());
  own(c.op).kernel({c.op, c.attrs, operands, results, c.workspace});
  for (const PackedView& p : out) p.write();
}

// The types of `infer`, checked so that a compiled step or a mesh finds no error that an eager call missed.
Types checked_types(const InferCall& c) {
  const Types types = own(c.op).infer(c);
  WEFT_CHECK(c.op.num_outputs < 0 || types.size() == static_cast<size_t>(c.op.num_outputs), c.op.name,
             ": `infer` returned ", types.size(), " types; need ", c.op.num_outputs, ", as `num_outputs` says");
  if (!c.op.dims) return types;
  try {
    c.op.dims(c.attrs, c.in, types);
  } catch (const Error& e) {
    internal::fail(e.code(), str_cat(c.op.name, ": `dims`: ", e.what()));
  }
  return types;
}

Grads checked_gradients(const VjpCall& c) {
  WEFT_CHECK(own(c.op).vjp, c.op.name,
             " has no derivative; need `vjp` in its record, the trait kNotDifferentiable, or "
             "operands that are detached");
  Grads grads = own(c.op).vjp(c);
  WEFT_CHECK(grads.size() == c.in.size(), c.op.name, ": `vjp` returned ", grads.size(), " gradients; need ",
             c.in.size(), ", one for each operand (an undefined tensor is zero)");
  for (size_t i = 0; i < grads.size(); ++i) {
    if (!grads[i].defined()) continue;
    WEFT_CHECK(grads[i].shape() == c.in[i].shape(), c.op.name, ": gradient ", i, " of `vjp` is ", grads[i].type(),
               "; need the shape of the operand, ", c.in[i].type());
    grads[i] = grads[i].to(c.in[i].dtype());
  }
  return grads;
}

bool same_functions(const OpDef& a, const OpDef& b) {
  return a.infer == b.infer && a.vjp == b.vjp && a.dims == b.dims && a.cost == b.cost && a.kernel == b.kernel &&
         a.workspace == b.workspace && a.view == b.view && a.decompose == b.decompose && a.num_inputs == b.num_inputs &&
         a.num_outputs == b.num_outputs && a.traits == b.traits && a.linear == b.linear;
}

// The op of this name, which graphs compare ops by.
const OpDef* registered(const OpDef& record, const std::string& name) {
  static auto* const all = new std::map<std::string, const CustomRecord*>;
  static auto* const mutex = new std::mutex;
  const std::lock_guard lock(*mutex);
  if (const auto it = all->find(name); it != all->end()) {
    WEFT_CHECK(same_functions(it->second->own, record), "CustomOp: another op has the name '", name,
               "' and other functions; need a name for each");
    return it->second;
  }
  auto* const own = new CustomRecord;
  static_cast<OpDef&>(*own) = record;
  own->own_name = name;
  own->name = own->own_name.c_str();
  own->traits |= kCustom;
  own->own = record;
  own->infer = checked_types;
  if (!own->is(kNotDifferentiable)) own->vjp = checked_gradients;
  if (record.kernel) own->kernel = run_packed;
  return all->emplace(name, own).first->second;
}

}  // namespace

CustomOp::CustomOp(const OpDef& record, std::source_location loc) {
  const internal::LineScope here(loc);
  const std::string name = record.name ? record.name : "";
  bool plain = name.find('.') != name.npos;  // Weft's own ops have no '.', so the names differ
  for (char ch : name) plain &= std::isalnum(static_cast<unsigned char>(ch)) || ch == '_' || ch == '.';
  WEFT_CHECK(plain, "CustomOp: the name is '", name, "'; need letters, digits, '_' and a '.', such as \"my.op\"");
  WEFT_CHECK(record.infer, "CustomOp: '", name, "' has no `infer`; need a function that returns the results' types");
  WEFT_CHECK(record.kernel || record.decompose, "CustomOp: '", name,
             "' has neither `kernel` nor `decompose`; need one");
  WEFT_CHECK(record.num_outputs != 0 && record.num_outputs >= -1 && record.num_inputs >= -1, "CustomOp: '", name,
             "' has ", record.num_inputs, " operands and ", record.num_outputs,
             " results; need one result or more, and -1 for any number");
  constexpr uint32_t kAllowed =
      kPointwise | kReduction | kContraction | kSideEffect | kCommutative | kNotDifferentiable;
  const bool own_kind = record.leaf != internal::Leaf::kNone || record.placing != Placing::kNone ||
                        record.reduction != Reduction::kNone || record.start;
  WEFT_CHECK((record.traits & ~kAllowed) == 0 && !own_kind, "CustomOp: '", name,
             "' has traits of Weft's own ops; need kPointwise, kReduction, kContraction, kSideEffect, kCommutative or "
             "kNotDifferentiable");
  record_ = registered(record, name);
}

std::vector<Tensor> CustomOp::all(std::initializer_list<Arg> operands, const Attrs& attrs,
                                  std::source_location loc) const {
  const internal::LineScope here(loc);
  std::vector<Tensor> in;
  for (const Arg& a : operands) {
    WEFT_CHECK(a.is_tensor(), record_->name, ": operand ", in.size(),
               " is a number; need a tensor: numbers belong in the attributes");
    in.push_back(a.tensor());
  }
  return all(in, attrs, loc);
}

std::vector<Tensor> CustomOp::all(std::span<const Tensor> operands, const Attrs& attrs,
                                  std::source_location loc) const {
  const internal::LineScope here(loc);
  WEFT_CHECK(record_->num_inputs < 0 || operands.size() == static_cast<size_t>(record_->num_inputs), record_->name,
             ": got ", operands.size(), " operands; need ", record_->num_inputs);
  SmallVec<const Tensor*, 4> in;
  for (const Tensor& t : operands) {
    WEFT_CHECK_AS(kFailedPrecondition, t.defined(), record_->name, ": operand ", in.size(),
                  " is an undefined tensor; need one with a value");
    in.push_back(&t);
  }
  return dispatch_multi(*record_, in, attrs, loc);
}

Tensor CustomOp::operator()(std::initializer_list<Arg> operands, const Attrs& attrs, std::source_location loc) const {
  const internal::LineScope here(loc);
  WEFT_CHECK(record_->num_outputs == 1, record_->name, ": has ",
             record_->num_outputs < 0 ? std::string("any number of") : str_cat(record_->num_outputs),
             " results; call all()");
  return all(operands, attrs, loc)[0];
}

}  // namespace weft
