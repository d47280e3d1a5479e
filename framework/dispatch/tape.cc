#include "framework/dispatch/tape.h"

#include <atomic>

#include "framework/dispatch/state/state.h"

namespace weft {
namespace {
std::atomic<uint64_t> next_sequence{1};

Tensor alias(const Tensor& t) {
  auto* impl = new TensorImpl(t.get());
  impl->grad = {};
  return Tensor(impl);
}

// A placeholder for a value that the derivative does not read: it has the type only, so that the memory can be freed.
Tensor type_only(const Tensor& t) {
  auto* impl = new TensorImpl;
  impl->type = t.get().type;
  impl->strides = t.get().strides;
  impl->grad = t.get().grad;
  impl->index = t.get().index;
  return Tensor(impl);
}
}  // namespace

TapeNode::~TapeNode() {
  // Long chains of nodes are freed in a loop, not by recursion: a tape may be millions of ops deep.
  thread_local std::vector<Tensor>* pending = nullptr;
  if (pending) {
    for (Tensor& t : in) pending->push_back(std::move(t));
    return;
  }
  std::vector<Tensor> queue;
  pending = &queue;
  for (Tensor& t : in) queue.push_back(std::move(t));
  while (!queue.empty()) {
    Tensor t = std::move(queue.back());
    queue.pop_back();
  }
  pending = nullptr;
}

Tensor with_tape(const Tensor& t, Ref<TapeNode> node, int index) {
  Tensor r = alias(t);
  r.impl()->grad = std::move(node);
  r.impl()->index = index;
  return r;
}

Ref<TapeNode> make_leaf() {
  auto n = make_ref<TapeNode>();
  n->sequence = n->variable = next_sequence.fetch_add(1, std::memory_order_relaxed);
  return n;
}

bool should_record(const OpDef& op, std::span<const Tensor* const> in) {
  if (!grad_enabled() || !op.vjp) return false;
  for (const Tensor* t : in)
    if (t->get().grad) return true;
  return false;
}

void record(const OpDef& op, std::span<const Tensor* const> in, const Attrs& attrs, SourceLine line,
            std::span<Tensor> out) {
  auto node = make_ref<TapeNode>();
  node->op = &op;
  node->attrs = attrs;
  node->line = line;
  node->sequence = next_sequence.fetch_add(1, std::memory_order_relaxed);
  for (size_t i = 0; i < in.size(); ++i)
    node->in.push_back(op.vjp_reads_in >> (i < 31 ? i : 31) & 1 ? *in[i] : type_only(*in[i]));
  for (size_t i = 0; i < out.size(); ++i) {
    node->out.push_back(op.vjp_reads_out >> (i < 31 ? i : 31) & 1 ? alias(out[i]) : type_only(out[i]));
    if (!is_floating(out[i].get().type.dtype)) continue;  // integer results carry no gradient
    if (out[i].get().refs.load(std::memory_order_relaxed) == 1 && !out[i].get().grad) {
      out[i].impl()->grad = node;
      out[i].impl()->index = static_cast<int32_t>(i);
    } else {
      out[i] = with_tape(out[i], node, static_cast<int>(i));
    }
  }
}

}  // namespace weft
