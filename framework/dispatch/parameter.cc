#include "framework/dispatch/parameter.h"

#include <atomic>
#include <limits>

#include "framework/dispatch/arg.h"
#include "framework/dispatch/capture.h"
#include "framework/dispatch/dispatch.h"
#include "framework/dispatch/interpreter.h"
#include "framework/dispatch/state/cell_access.h"
#include "framework/dispatch/state/torn.h"
#include "framework/dispatch/tape.h"
#include "framework/tensor/bools.h"

namespace weft {

using internal::CellOwner;
using internal::CellReader;
using internal::label;
using internal::LineScope;
using internal::thread_state;

namespace {

Ref<Cell> make_cell(const Tensor& value, std::string name, bool parameter, std::source_location loc) {
  LineScope here(loc);
  WEFT_CHECK_AS(kFailedPrecondition, value.defined(), "Parameter: undefined value; need one with a value");
  // A value on meta is a type: models and optimisers there can be planned.
  if (value.get().trace || value.device().type != DeviceType::kMeta) require_concrete(value, "Parameter", loc);
  auto c = make_ref<Cell>();
  c->name = std::move(name);
  c->type = value.type();
  c->value = value.detach().contiguous();
  c->is_parameter = c->requires_grad = parameter;
  return c;
}

Ref<Cell> make_lazy_cell(const TensorType& type, const Initializer& init, std::string name, bool parameter,
                         std::source_location loc) {
  auto c = make_ref<Cell>();
  c->name = std::move(name);
  c->type = type;
  {
    LineScope here(loc);
    checked_numel(type.shape, "Parameter");
  }
  c->is_parameter = c->requires_grad = parameter;
  NoGrad guard;
  Capture capture(Capture::kInitializer);
  Tensor t = init();
  LineScope here(loc);
  WEFT_CHECK(t.shape() == type.shape && t.dtype() == type.dtype, "Parameter: the initialiser made ", t.type(),
             "; need ", type);
  c->init = capture.finish({&t, 1});
  return c;
}

// During its lifetime, ops run at once and are not recorded: a body of eager code materialises cells, too.
class EagerScope {
 public:
  EagerScope() : saved_(std::exchange(thread_state.capture, nullptr)) {}
  ~EagerScope() { thread_state.capture = saved_; }
  EagerScope(const EagerScope&) = delete;

 private:
  Capture* const saved_;
  NoGrad no_grad_;
};

// The value that the initialiser makes.
Tensor initialised(const Cell& c) {
  WEFT_CHECK_AS(kFailedPrecondition, c.init, "cell ", label(c), " has neither value nor initialiser");
  // A read by Weft itself has no line of the user: its errors report the line that made the parameter.
  LineScope made_at(c.init->outputs.empty() ? SourceLine() : c.init->node(c.init->outputs[0]).line);
  const EagerScope eagerly;
  Tensor t;
  if (c.type.device.type == DeviceType::kMeta) {
    t = Tensor::empty(c.type);
  } else {
    t = interpret(*c.init, {})[0].contiguous();
    if (c.type.device.is_accelerator()) t = t.to(c.type.device);
    // The cell must own its memory alone: an initialiser may return a constant that is also used elsewhere.
    if (t.get().storage->use_count() > 1 || t.get().storage->bytes() != c.type.nbytes()) {
      Tensor own = Tensor::empty(t.type());
      const Device device = t.device();
      StridedView from = t.view_for_kernel();
      if (device.type != DeviceType::kCpu) {
        device_memory(device.type)->copy(from, device, own.view_for_kernel(), device);
      } else if (c.type.nbytes() > 0) {
        __builtin_memcpy(own.get().storage->data(), from.data, c.type.nbytes());
      }
      t = own;
    }
  }
  return t;
}

}  // namespace

void check_not_torn(const Cell& c) {
  WEFT_CHECK_AS(kDataLoss, !c.torn, "cell ", label(c), " was torn by a step that failed half-way; load a checkpoint ",
                internal::is_generator_state(c) ? "or call manual_seed first" : "first");
}

std::string torn_text(std::span<const Ref<Cell>> cells) {
  const Cell* first = nullptr;
  int64_t torn = 0;
  for (const Ref<Cell>& c : cells)
    if (c->torn && torn++ == 0) first = c.get();
  if (!first) return "";
  return str_cat("; cells were already being written: cell ", label(*first),
                 torn > 1 ? str_cat(" and ", torn - 1, " more are") : " is",
                 " torn: load a checkpoint before the next step, or set them");
}

// Declared in stored_value.h.
namespace internal {
std::vector<Ref<Cell>> ready_cells(const std::vector<std::pair<std::string, CellHandle>>& cells, bool make,
                                   const char* call) {
  std::vector<Ref<Cell>> all;
  for (const auto& [name, handle] : cells) {
    const Cell& c = handle.cell();
    bool lazy;
    {
      const CellReader read(c, call);
      lazy = !c.value.defined() && !c.remote && !c.torn;
    }
    // An initialiser may read other cells, so no cell is owned while it runs.
    if (make && lazy) static_cast<void>(handle.value({}));
    all.push_back(handle.ref());
  }
  return in_gate_order(std::move(all));
}
}  // namespace internal

std::map<std::string, Tensor> whole_values(const std::vector<std::pair<std::string, CellHandle>>& cells,
                                           std::vector<std::string>* torn) {
  NoGrad guard;
  const bool traced = thread_state.capture && thread_state.capture->root();
  std::vector<Ref<Cell>> all;
  if (!traced) all = internal::ready_cells(cells, /*make=*/true, "state_dict");
  const internal::CellsOwner at_once(all, "state_dict");
  std::vector<std::string> found;
  for (const auto& [name, handle] : cells)
    if (internal::is_torn(handle.cell())) found.push_back(name);
  std::string names;
  for (const std::string& name : found) names += str_cat(names.empty() ? "'" : ", '", name, "'");
  WEFT_CHECK_AS(kDataLoss, torn || found.empty(), "state_dict: ", found.size(), " of ", cells.size(),
                " cells were torn by a step that failed half-way: ", names,
                "; load a checkpoint or set them first, or get the values of the others with state_dict(&torn)");
  std::map<std::string, Tensor> values;
  for (const auto& [name, handle] : cells)
    if (!internal::is_torn(handle.cell()))
      values.emplace(name, traced ? handle.value({}) : internal::owned_value(handle.cell()));
  if (torn) *torn = std::move(found);
  return values;
}

std::string misfit(const CellHandle& cell, const Tensor& value) {
  if (!value.defined()) return "is undefined";
  if (value.shape() != cell.shape()) return str_cat("has shape ", value.shape(), ", need ", cell.shape());
  const DType have = value.dtype(), need = cell.dtype();
  if (!is_floating(need) && promote(have, need) != need) return str_cat("is ", have, ", need ", need);
  if (have == kBool && !value.is_traced() && value.device().type == DeviceType::kCpu) {
    const auto [at, byte] = internal::first_bad_bool(value.view_for_kernel());
    if (at >= 0) return str_cat("is bool and has the byte ", byte, " at position ", at, ", need 0 or 1");
  }
  return "";
}

Cell& CellHandle::cell() const {
  WEFT_CHECK_AS(kFailedPrecondition, cell_,
                "Parameter: used before it was given a cell, or after it was moved from; need one made from a value or "
                "an initialiser");
  return *cell_;
}

internal::Registered<Cell> CellHandle::clone_of(const internal::Registered<Cell>& cell) {
  return internal::Registered<Cell>::clone_of(cell, internal::clone_scope->of(cell.ref()), *internal::clone_scope);
}

Tensor CellHandle::value(Loc loc) const {
  LineScope here(loc);
  Cell& c = cell();
  if (Capture* capture = thread_state.capture)
    if (Capture* root = capture->root()) return root->read_cell(ref());
  const bool recorded = grad_enabled();
  bool lazy;
  {
    const CellReader read(c, "value");
    check_not_torn(c);
    const bool records = recorded && c.requires_grad;
    if (c.value.defined() && !records) return c.value;
    if (c.value.defined() && c.leaf) return with_tape(c.value, Ref<TapeNode>(static_cast<TapeNode*>(c.leaf.get())), 0);
    lazy = !c.value.defined() && !c.remote;
  }
  // An initialiser may read other cells, so no cell is owned while it runs.
  const Tensor made = lazy ? initialised(c) : Tensor();
  const CellOwner own(c, "value");
  check_not_torn(c);
  if (!c.value.defined() && !c.remote) c.value = made;
  const Tensor value = internal::owned_value(c);
  if (!c.requires_grad || !recorded) return value;
  if (!c.leaf) c.leaf = make_leaf();
  return with_tape(value, Ref<TapeNode>(static_cast<TapeNode*>(c.leaf.get())), 0);
}

Tensor internal::owned_value(Cell& c) {
  if (c.value.defined()) return c.value;
  if (c.remote) {
    const EagerScope eagerly;
    return c.value = c.remote->gather(c);
  }
  return c.value = initialised(c);
}

bool CellHandle::materialised() const {
  Cell& c = cell();
  if (!c.gate.enter()) return c.value.defined();
  const bool yes = c.value.defined();
  c.gate.leave();
  return yes;
}

// On a GPU, a small value (a learning rate, a step count) is copied into the cell's memory, so that captured launches
// with that address stay valid; not if the memory has another owner.
static bool stays_in_place(const Cell& c) {
  if (!c.type.device.is_accelerator() || !c.value.defined() || c.torn || c.type.nbytes() > 4096) return false;
  const TensorImpl& i = c.value.get();
  return i.refs.load(std::memory_order_acquire) == 1 && i.storage->use_count() == 1 && i.storage->owned();
}

// The new value is another tensor of the same parameter.
static void renew_leaf(Cell& c) {
  if (!c.leaf) return;
  Ref<TapeNode> leaf = make_leaf();
  leaf->variable = static_cast<TapeNode*>(c.leaf.get())->variable;
  leaf->trained = static_cast<TapeNode*>(c.leaf.get())->trained;
  c.leaf = std::move(leaf);
}

// Declared in stored_value.h.
namespace internal {
static std::atomic<void (*)(const std::string& what)> replacement_check{nullptr};

void set_replacement_check(void (*check)(const std::string& what)) { replacement_check = check; }

void check_replacement(const Cell& c, const char* call) {
  if (!c.remote) return;
  if (const auto check = replacement_check.load()) check(str_cat(call, ": cell ", label(c)));
}

void set_remote(Cell& c, Ref<RemoteValue> value) {
  const CellOwner own(c, "set");
  check_replacement(c, "set");
  renew_leaf(c);
  c.remote = std::move(value);
  c.value = {};
  c.torn = false;
}
}  // namespace internal

void CellHandle::set(const Tensor& value, Loc loc) const {
  LineScope here(loc);
  Cell& c = cell();
  WEFT_CHECK(value.shape() == c.type.shape && value.dtype() == c.type.dtype && value.device() == c.type.device,
             "set: cell ", label(c), " holds ", c.type, "; got ", value.type(),
             "; need the cell's type: convert first");
  Tensor t = value;
  if (thread_state.step && thread_state.step->ok.defined()) {
    NoGrad guard;
    t = internal::select(thread_state.step->ok, value, this->value());
  }
  if (Capture* capture = thread_state.capture) {
    WEFT_CHECK_AS(kFailedPrecondition, capture->kind() == Capture::kStep, "set: cell ", label(c),
                  " is written inside checkpoint, custom_grad, scan, while_loop, vmap, kernel or an initialiser, which "
                  "may run any number of times; return the value and write it outside");
    capture->write_cell(ref(), t);
    return;
  }
  require_concrete(t, "set", loc);
  const CellOwner own(c, "set");
  internal::check_replacement(c, "set");
  renew_leaf(c);
  if (stays_in_place(c)) {
    device_memory(c.type.device.type)
        ->copy(t.view_for_kernel(), c.type.device, c.value.view_for_kernel(), c.type.device);
    return;
  }
  c.value = t.detach().contiguous();
  c.torn = false;
}

// Replaces a cell's value, if it has one, by converted(value). A remote value is read first.
template <class F>
static void convert_value(Cell& c, const F& converted) {
  WEFT_CHECK_AS(
      kFailedPrecondition, !thread_state.capture || (!c.value.defined() && !c.remote), "to: cell ", label(c),
      " has a value, and inside a compiled function it cannot be converted or moved; call it before the step");
  internal::check_replacement(c, "to");
  NoGrad guard;
  if (c.remote) static_cast<void>(internal::owned_value(c));
  c.remote = {};
  if (c.leaf) {  // another variable, of the same parameter
    Ref<TapeNode> leaf = make_leaf();
    leaf->trained = static_cast<TapeNode*>(c.leaf.get())->trained;
    c.leaf = std::move(leaf);
  }
  if (c.value.defined()) c.value = converted(c.value);
}

void CellHandle::convert(DType dtype) const {
  Cell& c = cell();
  const CellOwner own(c, "to");
  if (c.type.dtype == dtype) return;
  convert_value(c, [&](const Tensor& t) { return t.to(dtype).contiguous(); });
  if (c.init) {
    NoGrad guard;
    Ref<Graph> init = c.init;
    Capture capture(Capture::kInitializer);
    Tensor t = interpret(*init, {})[0].to(dtype);
    c.init = capture.finish({&t, 1});
  }
  c.type.dtype = dtype;
}

void CellHandle::convert(Device device) const {
  Cell& c = cell();
  const CellOwner own(c, "to");
  if (c.type.device == device) return;
  convert_value(c, [&](const Tensor& t) { return t.to(device); });
  c.type.device = device;
}

Parameter::Parameter(const Tensor& value, std::string name, Loc loc)
    : CellHandle(make_cell(value, std::move(name), true, loc)) {}
Parameter::Parameter(const TensorType& type, const Initializer& init, std::string name, Loc loc)
    : CellHandle(make_lazy_cell(type, init, std::move(name), true, loc)) {}
const Parameter& Parameter::requires_grad(bool on) const {
  cell().requires_grad = on;
  return *this;
}
Buffer::Buffer(const Tensor& value, std::string name, Loc loc)
    : CellHandle(make_cell(value, std::move(name), false, loc)) {}
Buffer::Buffer(const TensorType& type, const Initializer& init, std::string name, Loc loc)
    : CellHandle(make_lazy_cell(type, init, std::move(name), false, loc)) {}

static Ref<Cell> clone_cell(Cell& c) {
  const CellOwner own(c, "clone");
  if (c.remote) static_cast<void>(internal::owned_value(c));
  auto n = make_ref<Cell>();
  n->name = c.name;
  n->type = c.type;
  n->init = c.init;
  n->value = c.value;  // copy on write: a step that finds a second owner writes to fresh storage
  n->torn = c.torn;
  n->requires_grad = c.requires_grad;
  n->is_parameter = c.is_parameter;
  return n;
}

thread_local constinit internal::CloneScope* internal::clone_scope = nullptr;
internal::CloneScope::CloneScope() : saved_(std::exchange(clone_scope, this)) {}
internal::CloneScope::~CloneScope() { clone_scope = saved_; }
Ref<RefCounted> internal::CloneScope::find(const RefCounted* original) const {
  for (const auto& [from, to] : seen_)
    if (from == original) return to;
  return {};
}
Ref<Cell> internal::CloneScope::of(const Ref<Cell>& cell) {
  if (!cell) return {};
  if (Ref<RefCounted> found = find(cell.get())) return Ref<Cell>(static_cast<Cell*>(found.get()));
  Ref<Cell> made = clone_cell(*cell);
  remember(cell.get(), made);
  return made;
}

Parameter Parameter::clone() const { return Parameter(clone_cell(cell())); }
Buffer Buffer::clone() const { return Buffer(clone_cell(cell())); }

int64_t internal::signed_of(uint64_t number, SourceLine line) {
  const LineScope here(line);
  WEFT_CHECK(number <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()), "a number is ", number,
             "; need one below 2^63");
  return static_cast<int64_t>(number);
}

}  // namespace weft
