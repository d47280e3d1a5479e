#include "compiler/exec/plan/stamp.h"

#include <algorithm>

#include "compiler/exec/record/record.h"
#include "compiler/loop_ir/fused.h"
#include "compiler/targets/operations.h"
#include "framework/autodiff/grad.h"
#include "framework/ir/op_def.h"
#include "framework/ir/rewrite.h"

namespace weft::internal {

std::set<size_t> shared_outputs(const MemoryLayout& plan) {
  std::set<size_t> found;
  std::set<int32_t> blocks;
  for (size_t o = 0; o < plan.outputs.size(); ++o) {
    const OutputPlace& out = plan.outputs[o];
    if (out.kind != OutputPlace::kBlock) {
      found.insert(o);
      continue;
    }
    const MemoryBlock& b = plan.buffers[static_cast<size_t>(out.place.buffer)];
    const bool whole = b.home == Home::kOutput && out.place.offset == 0 && out.place.type.nbytes() == b.bytes &&
                       is_contiguous(out.place.type.shape, out.place.strides);
    if (!whole || !blocks.insert(b.index).second) found.insert(o);
  }
  return found;
}

Ref<Graph> with_copies(const Graph& g, const std::set<size_t>& outputs) {
  const auto copied = make_ref<Graph>(g);
  for (size_t o : outputs) {
    Value& v = copied->outputs[o];
    Node n;
    n.op = &loop_ir::copy_op;
    n.inputs.push_back(v);
    n.outputs.push_back(copied->type(v));
    n.line = copied->node(v).line;
    n.scope = copied->node(v).scope;
    v = {copied->add(std::move(n)), 0};
  }
  return copied;
}

Stamper::Stamper(const Graph& like, std::span<const TensorType> arguments, Operations& operations)
    : operations_(operations), plan_{.graph = make_ref<Graph>()}, graph_(*plan_.graph) {
  graph_.cells = like.cells;
  graph_.captured = like.captured;
  graph_.stage = "scheduled";
  for (const TensorType& t : arguments) graph_.add_input(t);
  plan_.device = operations.device();
  plan_.alignment = operations.target().limits().buffer_alignment;
  plan_.cells.resize(like.cells.size());
  shared_.resize(kHomes);
  cell_nodes_.assign(like.cells.size(), -1);
  captured_nodes_.assign(like.captured.size(), -1);
  scratch_ = add_buffer(Home::kArena, 0, 0);
}

int32_t Stamper::add_buffer(Home home, int32_t index, int64_t bytes) {
  plan_.buffers.push_back({home, index, bytes});
  return static_cast<int32_t>(plan_.buffers.size()) - 1;
}

// The one buffer of an argument, an output, a cell or a captured tensor.
int32_t Stamper::shared_buffer(Home home, int32_t index, int64_t bytes) {
  std::vector<int32_t>& all = shared_[static_cast<size_t>(home)];
  if (all.size() <= static_cast<size_t>(index)) all.resize(static_cast<size_t>(index) + 1, -1);
  int32_t& buffer = all[static_cast<size_t>(index)];
  if (buffer < 0) buffer = add_buffer(home, index, bytes);
  return buffer;
}

int32_t Stamper::add_block(int64_t bytes) {
  blocks_.push_back(add_buffer(Home::kArena, 0, bytes));
  return static_cast<int32_t>(blocks_.size()) - 1;
}

int32_t Stamper::add_node(Node node) { return graph_.add(std::move(node)); }

int32_t Stamper::add_part(const MemoryLayout& plan, std::span<const Value> operands) {
  StampedPart p{.plan = plan};
  const Graph& from = *plan.graph;
  NodeCopier now(from, graph_);
  for (int32_t id = 0; id < from.size(); ++id) {
    const Node& n = from.node(id);
    if (is_argument(n)) {
      p.nodes.push_back(-1);
      now.map({id, 0}, operands[static_cast<size_t>(n.attrs.i("index"))]);
      continue;
    }
    // One node for each cell and captured tensor.
    std::vector<int32_t>* const leaves = is_cell(n)                      ? &cell_nodes_
                                         : n.op->leaf == Leaf::kCaptured ? &captured_nodes_
                                                                         : nullptr;
    int32_t* const leaf = leaves ? &(*leaves)[static_cast<size_t>(n.attrs.i("index"))] : nullptr;
    if (leaf && *leaf >= 0) {
      now.map(id, *leaf);
      p.nodes.push_back(*leaf);
      continue;
    }
    p.nodes.push_back(now.copy(id));
    if (leaf) *leaf = p.nodes.back();
  }
  for (Value v : from.outputs) p.results.push_back(now(v));
  for (const CellWrite& w : from.writes) graph_.writes.push_back({w.cell, now(w.value)});
  p.workspaces.assign(plan.buffers.size(), -1);
  p.outputs.resize(plan.output_blocks.size());
  for (size_t o = 0; o < plan.outputs.size(); ++o)
    p.outputs[static_cast<size_t>(plan.buffers[static_cast<size_t>(plan.outputs[o].place.buffer)].index)] =
        static_cast<int32_t>(o);
  plan_.buffers[static_cast<size_t>(scratch_)].bytes =
      std::max(plan_.buffers[static_cast<size_t>(scratch_)].bytes, plan.arena_bytes);
  if (plan.folded_bytes > 0) {
    p.folded = add_buffer(Home::kFolded, 0, plan.folded_bytes);
    plan_.buffers.back().offset = plan_.folded_bytes;
    plan_.folded_bytes += aligned(plan.folded_bytes, plan.alignment);
  }
  plan_.setup_workspace = std::max(plan_.setup_workspace, plan.setup_workspace);
  for (const Launch& l : plan.setup) plan_.setup.push_back(stamped(p, l, {}, {}));
  for (const std::string& note : plan.notes)
    if (std::find(plan_.notes.begin(), plan_.notes.end(), note) == plan_.notes.end()) plan_.notes.push_back(note);
  parts_.push_back(std::move(p));
  return static_cast<int32_t>(parts_.size()) - 1;
}

BufferPlace Stamper::place(const StampPlace& p, const TensorType& type, const Shape& strides) {
  switch (p.kind) {
    case StampPlace::kBlock:
      return {blocks_[static_cast<size_t>(p.index)], p.offset, type, strides};
    case StampPlace::kArgument:
      return {
          shared_buffer(Home::kArgument, p.index, graph_.type(graph_.inputs[static_cast<size_t>(p.index)]).nbytes()),
          p.offset, type, strides};
    default:
      return {shared_buffer(Home::kOutput, p.index, type.nbytes()), p.offset, type, strides};
  }
}

BufferPlace Stamper::place(const StampedPart& part, const BufferPlace& p, std::span<const StampPlace> in,
                           std::span<const StampPlace> out) {
  const MemoryBlock& b = part.plan.buffers[static_cast<size_t>(p.buffer)];
  const auto index = static_cast<size_t>(b.index);
  BufferPlace to = p;
  switch (b.home) {
    case Home::kArena:
      to.buffer = scratch_;
      to.offset += b.offset;
      return to;
    case Home::kFolded:
      to.buffer = part.folded;
      to.offset += b.offset;
      return to;
    case Home::kArgument:
    case Home::kOutput:
      to = place(b.home == Home::kArgument ? in[index] : out[static_cast<size_t>(part.outputs[index])], p.type,
                 p.strides);
      to.offset += p.offset;
      return to;
    default:
      to.buffer = shared_buffer(b.home, b.index, b.bytes);
      return to;
  }
}

Launch Stamper::stamped(StampedPart& part, const Launch& l, std::span<const StampPlace> in,
                        std::span<const StampPlace> out) {
  Launch to = l;
  to.node = part.nodes[static_cast<size_t>(l.node)];
  // The copied operand is no node of the part. Reports need one: they get an input of the step.
  if (to.node < 0) to.node = graph_.inputs.empty() ? 0 : graph_.inputs[0].node;
  for (BufferPlace& p : to.in) p = place(part, p, in, out);
  for (BufferPlace& p : to.out) p = place(part, p, in, out);
  if (l.workspace >= 0) {
    const MemoryBlock& b = part.plan.buffers[static_cast<size_t>(l.workspace)];
    int32_t& workspace = part.workspaces[static_cast<size_t>(l.workspace)];
    if (workspace < 0) {
      workspace = add_buffer(Home::kArena, 0, 0);  // inside the scratch memory
      plan_.buffers.back().offset = b.offset;
    }
    to.workspace = workspace;
  }
  return to;
}

void Stamper::run(int32_t number, std::span<const StampPlace> in, std::span<const StampPlace> out) {
  StampedPart& part = parts_[static_cast<size_t>(number)];
  const int32_t first = launches();
  for (const Launch& l : part.plan.launches) plan_.launches.push_back(stamped(part, l, in, out));
  for (size_t c = 0; c < part.plan.cells.size(); ++c) {
    const CellUse& of_part = part.plan.cells[c];
    CellUse& cell = plan_.cells[c];
    cell.used |= of_part.used;
    cell.read |= of_part.read;
    cell.written |= of_part.written;
    cell.direct |= of_part.direct;
    if (of_part.first_write >= 0 && cell.first_write < 0) cell.first_write = first + of_part.first_write;
  }
}

void Stamper::run_node(int32_t id, std::span<const StampPlace> in, std::span<const StampPlace> out) {
  const Node& n = graph_.node(id);
  Launch l;
  l.op = n.op;
  l.node = id;
  SmallVec<StridedView, 4> views_in, views_out;
  const auto add = [&](const StampPlace& p, const TensorType& type, auto& places, auto& views) {
    places.push_back(place(p, type, contiguous_strides(type.shape)));
    views.push_back({nullptr, type.dtype, type.shape, places.back().strides});
  };
  for (size_t i = 0; i < in.size(); ++i) add(in[i], graph_.type(n.inputs[static_cast<int>(i)]), l.in, views_in);
  for (size_t o = 0; o < out.size(); ++o) add(out[o], n.outputs[static_cast<int>(o)], l.out, views_out);
  l.operation = operations_.get(*l.op, n.attrs, views_in, views_out, 0);
  plan_.launches.push_back(std::move(l));
}

MemoryLayout Stamper::finish(std::span<const Value> outputs) {
  int64_t end = aligned(plan_.buffers[static_cast<size_t>(scratch_)].bytes, plan_.alignment);
  for (int32_t b : blocks_) {
    MemoryBlock& block = plan_.buffers[static_cast<size_t>(b)];
    block.offset = end;
    end += aligned(block.bytes, plan_.alignment);
  }
  plan_.arena_bytes = plan_.live_bytes = end;
  for (size_t o = 0; o < outputs.size(); ++o) {
    const TensorType& type = graph_.type(outputs[o]);
    graph_.outputs.push_back(outputs[o]);
    plan_.output_blocks.push_back(type.nbytes());
    plan_.outputs.push_back(
        {OutputPlace::kBlock, 0,
         place({StampPlace::kOutput, static_cast<int32_t>(o), 0}, type, contiguous_strides(type.shape))});
  }
  scan_uses(plan_);
  plan_.fixed_bytes = plan_.folded_bytes;
  for (size_t c = 0; c < plan_.cells.size(); ++c)
    if (plan_.cells[c].used) plan_.fixed_bytes += accounted(graph_.cells[c]->type.nbytes());
  for (int64_t bytes : plan_.output_blocks) plan_.fixed_bytes += accounted(bytes);
  const std::vector<Phase> phases = phases_of(graph_);
  for (Launch& l : plan_.launches) l.phase = to_string(phases[static_cast<size_t>(l.node)]);
  return std::move(plan_);
}

}  // namespace weft::internal
