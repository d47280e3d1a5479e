#include "compiler/aot/plan_text.h"

#include <algorithm>

#include "compiler/loop_ir/fused.h"
#include "compiler/loop_ir/prologue.h"
#include "compiler/targets/cpu/run/fused_kernel.h"
#include "framework/io/fields/text_fields.h"

namespace weft {

namespace loop_ir {

template <class V>
void fields(V& v, Finish& f) {
  v("slot", f.slot), v("output", f.output), v("rd", f.rd), v("type", f.type);
}

template <class V>
void fields(V& v, BoundOperand& b) {
  v("output", b.output), v("index", b.index), v("offset", b.offset), v("strides", b.strides);
  v("index_stride", b.index_stride);
}

// The part of a kernel's loop IR that its driver reads.
template <class V>
void fields(V& v, Lowered& low) {
  Kernel& k = low.kernel;
  v("mode", k.mode), v("axes", k.axes), v("params", low.params), v("kept", k.kept), v("columns", k.columns);
  v("partials", k.partials), v("extents", low.extents), v("dot", low.dot), v("tile", low.tile);
  v("flops", low.flops), v("bytes", low.bytes), v("bound", low.bound), v("finished_columns", low.columns);
  v("finished_partials", low.partials), v("joined", low.joined);
}

}  // namespace loop_ir

namespace internal {

constexpr std::string_view kHomeNames[] = {"arena", "folded", "argument", "cell", "cell_new", "output", "captured"};
static constexpr int count_of(Home) { return kHomes; }
static constexpr std::string_view to_string_view(Home h) { return kHomeNames[static_cast<int>(h)]; }

template <class V>
void fields(V& v, BufferPlace& p) {
  v("buffer", p.buffer), v("at", p.offset), v("of", p.type.dtype), v("shape", p.type.shape), v("strides", p.strides);
}

template <class V>
void fields(V& v, MemoryBlock& b) {
  v("home", b.home), v("index", b.index), v("bytes", b.bytes), v("at", b.offset), v("first", b.first);
  v("last", b.last);
}

template <class V>
void fields(V& v, CellUse& c) {
  v("used", c.used), v("read", c.read), v("written", c.written), v("first_write", c.first_write);
  v("direct", c.direct);
}

template <class V>
void fields(V& v, OutputPlace& o) {
  v("kind", o.kind), v("index", o.index);
  fields(v, o.place);
}

namespace {

// A launch, with the index of its kernel.
struct LaunchText {
  Launch launch;
  int32_t kernel = -1;
};

template <class V>
void fields(V& v, LaunchText& t) {
  Launch& l = t.launch;
  v("node", l.node), v("copy", l.copy), v("kernel", t.kernel), v("workspace", l.workspace);
  v("in", l.in), v("out", l.out);
}

struct KernelText {
  std::string name;
  int32_t node = -1;           // a node that it runs, to find its body
  int32_t part = -1;           // 0, 1: it computes that operand of the node's product
  std::vector<int32_t> parts;  // the kernels of a product's operands; -1: read from memory
  bool reduces = false;
  loop_ir::Lowered lowered;
  std::vector<DType> dtypes;    // dtypes of the kernel's operands
  std::vector<BufferPlace> in;  // types and strides with which the operands were lowered
};

template <class V>
void fields(V& v, KernelText& k) {
  v("name", k.name), v("node", k.node), v("part", k.part), v("parts", k.parts), v("reduces", k.reduces);
  v("dtypes", k.dtypes);
  fields(v, k.lowered);
  v("operands", k.in);
}

// The whole plan, with the texts of its kernels and launches.
struct LayoutText {
  MemoryLayout plan;
  std::vector<KernelText> kernels;
  std::vector<LaunchText> setup, launches;
};

template <class V>
void fields(V& v, LayoutText& t) {
  MemoryLayout& plan = t.plan;
  v.line("plan");
  v("buffers", plan.buffers), v("kernels", t.kernels), v("setup", t.setup), v("launches", t.launches);
  v("results", plan.outputs), v("cells", plan.cells);
  v.line("sizes");
  v("blocks", plan.output_blocks), v("arena", plan.arena_bytes), v("live", plan.live_bytes);
  v("folded", plan.folded_bytes), v("setup_workspace", plan.setup_workspace), v("fixed", plan.fixed_bytes);
}

// Grows workspaces whose size depends on the number of threads.
void fit_workspaces(MemoryLayout& plan) {
  for (const Launch& l : plan.setup)
    plan.setup_workspace = std::max(plan.setup_workspace, l.operation->workspace_bytes());
  bool grown = false;
  for (size_t t = 0; t < plan.launches.size(); ++t) {
    Launch& l = plan.launches[t];
    const int64_t bytes = l.operation->workspace_bytes();
    if (bytes == 0 || (l.workspace >= 0 && plan.buffers[l.workspace].bytes >= bytes)) continue;
    grown = true;
    if (l.workspace < 0) {
      l.workspace = static_cast<int32_t>(plan.buffers.size());
      plan.buffers.push_back({Home::kArena, 0, 0, 0, static_cast<int32_t>(t), static_cast<int32_t>(t)});
    }
    plan.buffers[l.workspace].bytes = bytes;
  }
  if (!grown) return;
  lay_out(plan);
  plan.live_bytes = bytes_live(plan);
}

}  // namespace

std::string plan_to_text(const MemoryLayout& plan) {
  const std::vector<const FusedKernel*> fused = fused_kernels(operations_of(plan));
  std::vector<KernelText> kernels(fused.size());
  auto number = [&](const FusedKernel* k) {
    return static_cast<int32_t>(std::find(fused.begin(), fused.end(), k) - fused.begin());
  };
  auto texts = [&](const std::vector<Launch>& launches) {
    std::vector<LaunchText> all;
    for (const Launch& l : launches) {
      all.push_back({l, -1});
      const FusedKernel* kernel = fused_kernel(l.operation.get());
      if (!kernel) continue;
      KernelText& k = kernels[all.back().kernel = number(kernel)];
      // Launches that share an operation have bodies with equal numbers of nodes.
      if (k.node >= 0) continue;
      k.node = l.node;
      for (int part = 0; part < 2; ++part) {
        const FusedKernel* operand = kernel->parts().kernel[part].get();
        k.parts.push_back(operand ? number(operand) : -1);
        if (!operand) continue;
        kernels[k.parts.back()].node = l.node;
        kernels[k.parts.back()].part = part;
      }
    }
    return all;
  };
  LayoutText all{plan, {}, texts(plan.setup), texts(plan.launches)};
  for (size_t i = 0; i < fused.size(); ++i) {
    KernelText& k = kernels[i];
    WEFT_BUG_IF(k.node < 0, "plan: no node has the body of kernel ", fused[i]->name());
    k.name = fused[i]->lowered().kernel.name;
    k.lowered = fused[i]->lowered();
    for (const loop_ir::Operand& o : k.lowered.kernel.operands) k.dtypes.push_back(o.dtype);
    const auto& instrs = k.lowered.kernel.instrs;
    k.reduces =
        std::any_of(instrs.begin(), instrs.end(), [](const loop_ir::Instr& i) { return i.op == loop_ir::Op::kReduce; });
    for (const StridedView& v : fused[i]->in()) k.in.push_back({0, 0, {v.dtype, {}, v.shape}, v.strides});
  }
  all.kernels = std::move(kernels);
  io::TextFieldWriter writer;
  fields(writer, all);
  return writer.text();
}

MemoryLayout plan_from_text(std::string_view text, Ref<Graph> graph, std::span<const void* const> functions) {
  LayoutText all;
  io::TextFieldReader reader(text);
  fields(reader, all);
  reader.end();
  auto& [plan, kernels, setup, launches] = all;
  WEFT_CHECK(kernels.size() == functions.size(), "plan: ", kernels.size(), " kernels; got ", functions.size(),
             " functions");
  plan.graph = std::move(graph);
  auto node = [&](int32_t id) -> const Node& {
    WEFT_CHECK(id >= 0 && id < plan.graph->size(), "plan: node ", id, " of a graph of ", plan.graph->size());
    return plan.graph->node(id);
  };
  std::vector<std::shared_ptr<FusedKernel>> fused;
  for (KernelText& k : kernels) {
    loop_ir::Kernel& kernel = k.lowered.kernel;
    kernel.name = k.name;
    for (DType t : k.dtypes) kernel.operands.emplace_back().dtype = t;
    // Drivers only ask whether any instruction reduces.
    if (k.reduces) kernel.instrs.emplace_back().op = loop_ir::Op::kReduce;
    std::vector<StridedView> in;
    for (const BufferPlace& p : k.in) in.push_back({nullptr, p.type.dtype, p.type.shape, p.strides});
    const Node& n = node(k.node);
    WEFT_CHECK(n.op->is(kGroup), "plan: node ", k.node, " is ", n.op->name, "; need fused");
    Ref<Graph> body = n.attrs.get<Ref<Graph>>("body");
    FusedDot dot;
    const bool computes = std::any_of(k.parts.begin(), k.parts.end(), [](int32_t p) { return p >= 0; });
    if (k.part >= 0 || computes) {
      std::optional<loop_ir::DotParts> parts = loop_ir::take_apart(*body);
      WEFT_CHECK(parts && k.part < 2, "plan: node ", k.node, " computes no operand of a product");
      if (computes) dot.main = parts->main;
      for (int part = 0; part < 2 && computes; ++part) {
        dot.prologue[part] = std::move(parts->operand[part]);
        if (k.parts.at(part) >= 0) dot.kernel[part] = fused.at(k.parts[part]);
      }
      if (k.part >= 0) body = parts->operand[k.part].body;
    }
    auto one = std::make_shared<FusedKernel>(std::move(body), std::move(k.lowered), in, std::move(dot));
    one->bind(reinterpret_cast<loop_ir::KernelFunction>(const_cast<void*>(functions[fused.size()])));
    fused.push_back(std::move(one));
  }
  auto make = [&](std::vector<LaunchText>& from, std::vector<Launch>& to) {
    for (LaunchText& t : from) {
      Launch& l = t.launch;
      const Node& n = node(l.node);
      l.op = l.copy ? &loop_ir::copy_op : n.op;
      if (t.kernel >= 0) {
        l.operation = fused.at(t.kernel);
      } else {
        WEFT_CHECK(l.op->kernel, "plan: ", l.op->name, " has no kernel");
        SmallVec<StridedView, 4> in, out;
        for (const BufferPlace& p : l.in) in.push_back({nullptr, p.type.dtype, p.type.shape, p.strides});
        for (const BufferPlace& p : l.out) out.push_back({nullptr, p.type.dtype, p.type.shape, p.strides});
        l.operation = host_target().prepare({}, *l.op, l.copy ? Attrs() : n.attrs, in, out, 1, {});
      }
      to.push_back(std::move(l));
    }
  };
  make(setup, plan.setup);
  make(launches, plan.launches);
  fit_workspaces(plan);
  return std::move(plan);
}

}  // namespace internal
}  // namespace weft
