#include "ops/core/custom_op.h"

#include <memory>
#include <new>

#include "framework/dispatch/dispatch.h"
#include "ops/kernels/kernels.h"

namespace weft {
namespace {

struct Record : OpDef {
  void (*own)(const KernelCall&) = nullptr;  // the program's kernel
  std::string own_name;
};

struct FreeAligned {
  void operator()(void* p) const { ::operator delete(p, std::align_val_t(64)); }
};

// A view as it is, or row-major memory for it.
class Packed {
 public:
  explicit Packed(const StridedView& v) : from_(v), view_(v) {
    if (v.contiguous()) return;
    view_.strides = contiguous_strides(v.shape);
    own_.reset(::operator new(static_cast<size_t>(v.numel() * itemsize(v.dtype)), std::align_val_t(64)));
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
  const std::vector<Packed> in(c.in.begin(), c.in.end()), out(c.out.begin(), c.out.end());
  SmallVec<StridedView, 4> operands, results;
  for (const Packed& p : in) {
    p.read();
    operands.push_back(p.view());
  }
  for (const Packed& p : out) results.push_back(p.view());
  static_cast<const Record&>(c.op).own({c.op, c.attrs, operands, results, c.workspace});
  for (const Packed& p : out) p.write();
}

}  // namespace

CustomOp::CustomOp(const OpDef& record, std::source_location loc) {
  const internal::LineScope here(loc);
  const std::string name = record.name ? record.name : "";
  bool plain = !name.empty();
  for (char ch : name) plain &= std::isalnum(static_cast<unsigned char>(ch)) || ch == '_' || ch == '.';
  WEFT_CHECK(plain, "CustomOp: the name is '", name, "'; need letters, digits, '_' and '.', such as \"my.op\"");
  WEFT_CHECK(record.infer, "CustomOp: '", name, "' has no `infer`; need a function that returns the results' types");
  WEFT_CHECK(record.kernel || record.decompose, "CustomOp: '", name,
             "' has neither `kernel` nor `decompose`; need one");
  WEFT_CHECK(record.num_outputs != 0 && record.num_outputs >= -1 && record.num_inputs >= -1, "CustomOp: '", name,
             "' has ", record.num_inputs, " operands and ", record.num_outputs,
             " results; need one result or more, and -1 for any number");
  auto* const own = new Record;
  static_cast<OpDef&>(*own) = record;
  own->own_name = name;
  own->name = own->own_name.c_str();
  own->own = record.kernel;
  if (record.kernel) own->kernel = run_packed;
  record_ = own;
}

std::vector<Tensor> CustomOp::all(std::initializer_list<Arg> operands, const Attrs& attrs,
                                  std::source_location loc) const {
  const internal::LineScope here(loc);
  WEFT_CHECK(record_->num_inputs < 0 || operands.size() == static_cast<size_t>(record_->num_inputs), record_->name,
             ": got ", operands.size(), " operands; need ", record_->num_inputs);
  SmallVec<const Tensor*, 4> in;
  for (const Arg& a : operands) {
    WEFT_CHECK(a.is_tensor() && a.tensor().defined(), record_->name, ": operand ", in.size(), " is ",
               a.is_tensor() ? "an undefined tensor" : "a number", "; need a tensor: numbers belong in the attributes");
    in.push_back(&a.tensor());
  }
  return dispatch_multi(*record_, in, attrs, loc);
}

Tensor CustomOp::operator()(std::initializer_list<Arg> operands, const Attrs& attrs, std::source_location loc) const {
  const internal::LineScope here(loc);
  std::vector<Tensor> results = all(operands, attrs, loc);
  WEFT_CHECK(results.size() == 1, record_->name, ": has ", results.size(), " results; call all()");
  return results[0];
}

}  // namespace weft
