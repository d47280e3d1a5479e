#include "framework/dispatch/capture.h"

#include "framework/dispatch/tape.h"

namespace weft {

using internal::thread_state;

// The link from a traced tensor to its capture. It outlives the capture, so that later uses are detected.
struct Capture::CaptureLink final : RefCounted {
  Capture* capture = nullptr;
};

Capture::Capture(CaptureKind kind)
    : kind_(kind),
      parent_(thread_state.capture),
      saved_grad_(thread_state.grad_enabled),
      saved_step_(thread_state.step),
      graph_(make_ref<Graph>()),
      link_(make_ref<CaptureLink>()),
      recorded_(make_leaf()) {
  constexpr int kMostNested = 64;
  int depth = 0;
  for (const Capture* c = parent_; c; c = c->parent_) ++depth;
  WEFT_CHECK(depth < kMostNested, "capture: ", depth,
             " captures are open inside one another; need fewer: does a captured function, or the derivative of a "
             "custom_grad, call itself?");
  link_->capture = this;
  thread_state.capture = this;
  if (kind == kStep) thread_state.step = &own_step_;
  if (kind == kBody) thread_state.grad_enabled = true;
}

Capture::~Capture() {
  link_->capture = nullptr;
  thread_state.capture = parent_;
  thread_state.grad_enabled = saved_grad_;
  thread_state.step = saved_step_;
}

Capture* Capture::root() {
  Capture* c = this;
  while (c && c->kind_ == kBody) c = c->parent_;
  return c;
}

Tensor Capture::wrap(Value v) {
  auto* impl = new TensorImpl;
  impl->type = graph_->type(v);
  impl->trace = link_;
  impl->node = v.node;
  impl->index = v.index;
  return Tensor(impl);
}

bool Capture::owns(const Tensor& t) const { return t.get().trace.get() == link_.get(); }

Tensor Capture::recorded(const Tensor& t) const {
  auto* impl = new TensorImpl(t.get());
  impl->grad = recorded_;
  return Tensor(impl);
}

Tensor Capture::add_input(const TensorType& type, bool is_recorded) {
  const Tensor t = wrap(graph_->add_input(type));
  // Only its caller knows whether an operand of a body is recorded. The results of a body are recorded if any operand
  // is.
  return is_recorded || (kind_ == kBody && is_floating(type.dtype)) ? recorded(t) : t;
}

Value Capture::value_of(const Tensor& t) {
  const TensorImpl& i = t.get();
  if (i.trace.get() == link_.get()) return {i.node, i.index};
  if (i.trace) {
    Capture* owner = static_cast<CaptureLink*>(i.trace.get())->capture;
    bool outer = false;
    for (Capture* c = parent_; c; c = c->parent_) outer |= c == owner;
    WEFT_CHECK_AS(
        kFailedPrecondition, owner && outer && kind_ == kBody, "capture: a traced ", i.type,
        " is used outside the captured function that made it; only returned values leave a captured function");
  }
  // Each read of a cell makes a new handle, so traced tensors are identified by their value, not by their address.
  const void* key = i.trace ? static_cast<const void*>(i.trace.get()) : &i;
  if (i.trace) {
    for (size_t k = 0; k < lifted_.size(); ++k) {
      const TensorImpl& l = lifted_[k].get();
      if (l.trace == i.trace && l.node == i.node && l.index == i.index && !l.grad == !i.grad)
        return graph_->inputs[graph_->inputs.size() - lifted_.size() + k];
    }
  } else if (auto it = seen_.find(key); it != seen_.end()) {
    return it->second;
  } else if (i.grad && kind_ == kBody) {  // another handle of a recorded value: of a parameter, or a copy
    for (const Tensor& other : keep_) {
      const TensorImpl& o = other.get();
      if (o.grad == i.grad && o.index == i.index && o.storage == i.storage && o.offset == i.offset) return seen_.at(&o);
    }
  }
  Value v;
  if (kind_ == kBody) {
    lifted_.push_back(t);
    v = graph_->add_input(i.type);
  } else {
    v = graph_->add_captured(t.detach());
  }
  if (!i.trace) {
    seen_.emplace(key, v);
    keep_.push_back(t);
  }
  return v;
}

// A cell that was read under NoGrad is a constant for grad(), although this handle has the same value as all other
// handles of the cell. (Values that this step wrote: see read_cell. A recapture reads no cells: its handles say nothing
// about grad().)
Value Capture::recorded_operand(const Tensor& t) {
  const TensorImpl& i = t.get();
  if (!i.grad && i.trace.get() == link_.get()) {
    const Node& n = graph_->node(i.node);
    const Cell* cell = is_cell(n) ? graph_->cells[n.attrs.i("index")].get() : nullptr;
    if (cell && cell->requires_grad && cell_now_.count(cell)) return value_of(t.detach());
  }
  return value_of(t);
}

void Capture::add_node(const OpDef& op, std::span<const Tensor* const> in, const Attrs& attrs, SourceLine line,
                       std::span<const TensorType> types, std::span<Tensor> out) {
  Node n;
  n.op = &op;
  const bool is_recorded = should_record(op, in);
  for (const Tensor* t : in) n.inputs.push_back(is_recorded ? recorded_operand(*t) : value_of(*t));
  n.attrs = attrs;
  n.outputs = SmallVec<TensorType, 1>(types);
  n.line = line;
  const std::string path = internal::origin_path();
  const char* const last = graph_->size() ? graph_->node(graph_->size() - 1).scope : "";
  n.scope = path == last ? last : intern(path);  // a lookup only where the names change
  n.no_grad = !thread_state.grad_enabled;
  n.backward = thread_state.backward;
  int32_t id = graph_->add(std::move(n));
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = wrap({id, static_cast<int32_t>(i)});
    if (is_recorded && is_floating(types[i].dtype)) out[i].impl()->grad = recorded_;
  }
}

Tensor Capture::read_cell(const Ref<Cell>& cell) {
  if (kind_ == kInitializer) {
    // Generator state and other cells are constants of an initialiser: read them as if no capture were open.
    Capture* saved = std::exchange(thread_state.capture, nullptr);
    Tensor now;
    try {
      now = CellHandle(cell).value();
    } catch (...) {
      thread_state.capture = saved;
      throw;
    }
    thread_state.capture = saved;
    return wrap(value_of(now));
  }
  auto it = cell_now_.find(cell.get());
  if (it == cell_now_.end()) it = cell_now_.emplace(cell.get(), graph_->add_cell(cell)).first;
  const auto detached = [&] {
    Capture* saved = std::exchange(thread_state.capture, this);
    const Tensor t = wrap(it->second).detach();
    thread_state.capture = saved;
    return t;
  };
  // A cell holds a value without its history: gradients stop at the argument of set(), as they do eagerly.
  if (written_.erase(cell.get())) it->second = value_of(detached());
  if (!cell->requires_grad) return wrap(it->second);
  if (!grad_enabled()) return is_cell(graph_->node(it->second.node)) ? wrap(it->second) : detached();
  std::vector<Value>& reads = recorded_reads_[cell.get()];
  if (reads.empty() || !(reads.back() == it->second)) reads.push_back(it->second);
  return recorded(wrap(it->second));
}

std::vector<Tensor> Capture::recorded_reads(const Cell* cell) {
  std::vector<Tensor> reads;
  if (const auto it = recorded_reads_.find(cell); it != recorded_reads_.end())
    for (Value v : it->second) reads.push_back(recorded(wrap(v)));
  return reads;
}

void Capture::write_cell(const Ref<Cell>& cell, const Tensor& t) {
  int index = graph_->find_cell(cell.get());
  if (index < 0) {
    read_cell(cell);
    index = graph_->find_cell(cell.get());
  }
  Value v = value_of(t);
  cell_now_[cell.get()] = v;
  written_.insert(cell.get());
  for (CellWrite& w : graph_->writes) {
    if (w.cell == index) {
      w.value = v;
      return;
    }
  }
  graph_->writes.push_back({index, v});
}

Ref<Graph> Capture::finish(std::span<const Tensor> outputs) {
  for (const Tensor& t : outputs) graph_->outputs.push_back(value_of(t));
  return graph_;
}

bool HostFlag::get() const {
  if (Capture* c = thread_state.capture) {
    Capture* r = c;
    while (r->parent()) r = r->parent();
    bool known = false;
    for (auto& f : r->flags) known |= f.first == *this;
    if (!known) r->flags.emplace_back(*this, peek());
  }
  return peek();
}

Ref<Graph> recapture(const Graph& g, Recapture replacement) {
  Capture capture(Capture::kStep);
  Graph& to = capture.graph();
  to.captured = g.captured;
  to.cells = g.cells;
  to.inputs.resize(g.inputs.size());
  std::vector<std::vector<Tensor>> values(g.size());
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    std::vector<Tensor> in;
    for (Value v : n.inputs) in.push_back(values[v.node][v.index]);
    if (auto replaced = replacement(n, in)) {
      values[id] = std::move(*replaced);
      continue;
    }
    Node copy = n;
    copy.inputs.clear();
    for (const Tensor& t : in) copy.inputs.push_back(capture.value_of(t));
    const int32_t now = to.add(std::move(copy));
    if (is_argument(n)) to.inputs[n.attrs.i("index")] = {now, 0};
    for (size_t i = 0; i < n.outputs.size(); ++i) values[id].push_back(capture.wrap({now, static_cast<int32_t>(i)}));
  }
  for (const CellWrite& w : g.writes)
    to.writes.push_back({w.cell, capture.value_of(values[w.value.node][w.value.index])});
  std::vector<Tensor> out;
  for (Value v : g.outputs) out.push_back(values[v.node][v.index]);
  Ref<Graph> next = capture.finish(out);
  next->stage = g.stage;
  return next;
}

Ref<Graph> capture_graph(const TensorFn& fn, std::span<const TensorType> inputs, bool recorded) {
  Capture c(Capture::kStep);
  std::vector<Tensor> in;
  for (const TensorType& t : inputs) in.push_back(c.add_input(t, recorded && is_floating(t.dtype)));
  return c.finish(fn(in));
}

Body capture_body(const TensorFn& fn, std::span<const TensorType> inputs, bool positions_only) {
  Capture c(Capture::kBody);
  c.positions_only = positions_only;
  std::vector<Tensor> in;
  for (const TensorType& t : inputs) in.push_back(c.add_input(t));
  Ref<Graph> g = c.finish(fn(in));
  return {g, c.lifted()};
}

}  // namespace weft
