#include "compiler/aot/plan_text.h"

#include <algorithm>

#include "compiler/loop_ir/fused.h"
#include "compiler/loop_ir/prologue.h"
#include "compiler/targets/cpu/run/fused_kernel.h"
#include "framework/ir/text_reader.h"

namespace weft::internal {
namespace {

constexpr const char* kHomeNames[kHomes] = {"arena", "folded", "argument", "cell", "cell_new", "output", "captured"};

// Writer and Reader have the same interface, so the functions below them define the content of a record only once.
class Writer {
 public:
  void line(const char* tag) { out_ += str_cat(out_.empty() ? "" : "\n", tag); }
  template <class T>
  void operator()(const char* label, const T& v) {
    out_ += str_cat(' ', label, ' ');
    put(v);
  }
  /// A list of records, one per line.
  template <class List, class F>
  void list(const char* tag, const List& values, F&& each) {
    line(tag);
    out_ += str_cat(' ', values.size());
    for (const auto& v : values) {
      line("  ");
      each(v);
    }
  }
  std::string text() { return std::move(out_) + "\n"; }

 private:
  void put(bool v) { out_ += v ? "1" : "0"; }
  void put(double v) { out_ += exact(v); }
  void put(const std::string& v) { out_ += quoted(v); }
  void put(Home v) { out_ += kHomeNames[static_cast<int>(v)]; }
  void put(DType v) { out_ += to_string_view(v); }
  template <class T>
  requires std::is_integral_v<T>
  void put(T v) { out_ += str_cat(v); }
  template <class T>
  requires std::is_enum_v<T>
  void put(T v) { out_ += str_cat(static_cast<int>(v)); }
  void put(const Shape& v) { put_all(v); }
  template <class T>
  void put(const std::vector<T>& v) {
    put_all(v);
  }
  void put_all(const auto& values) {
    out_ += '[';
    bool first = true;
    for (const auto& v : values) {
      if (!first) out_ += ", ";
      first = false;
      put(v);
    }
    out_ += ']';
  }

  std::string out_;
};

class Reader : TextReader {
 public:
  explicit Reader(std::string_view text) : TextReader(text) {}

  void line(const char* tag) { keyword(tag); }
  template <class T>
  void operator()(const char* label, T& v) {
    keyword(label);
    get(v);
  }
  template <class List, class F>
  void list(const char* tag, List& values, F&& each) {
    keyword(tag);
    const int64_t n = index(int64_t{1} << 30, "records");
    for (int64_t i = 0; i < n; ++i) {
      values.push_back({});
      each(values[static_cast<int>(i)]);
    }
  }
  void end() {
    skip();
    if (pos_ < text_.size()) fail("the end of the text");
  }

 private:
  void get(bool& v) { v = integer() != 0; }
  void get(double& v) {
    v = std::visit([](auto x) { return static_cast<double>(x); }, number());
  }
  void get(std::string& v) { v = string(); }
  void get(Home& v) {
    const std::string_view w = word();
    for (int h = 0; h < kHomes; ++h)
      if (w == kHomeNames[h]) return void(v = static_cast<Home>(h));
    fail(quoted(w), "a memory kind");
  }
  void get(DType& v) {
    const std::string_view w = word();
    for (int t = 0; t < kNumDTypes; ++t)
      if (w == to_string_view(static_cast<DType>(t))) return void(v = static_cast<DType>(t));
    fail(quoted(w), "a dtype");
  }
  template <class T>
  requires std::is_integral_v<T>
  void get(T& v) { v = static_cast<T>(integer()); }
  template <class T>
  requires std::is_enum_v<T>
  void get(T& v) { v = static_cast<T>(integer()); }
  void get(Shape& v) { get_all<int64_t>(v); }
  template <class T>
  void get(std::vector<T>& v) {
    get_all<T>(v);
  }
  template <class T>
  void get_all(auto& values) {
    expect('[');
    while (!take(']')) {
      if (!values.empty()) expect(',');
      T v{};
      get(v);
      values.push_back(v);
    }
  }
};

void visit(auto& a, auto& p, const BufferPlace*) {
  a("buffer", p.buffer);
  a("at", p.offset);
  a("of", p.type.dtype);
  a("shape", p.type.shape);
  a("strides", p.strides);
}

void visit(auto& a, auto& b, const PlanBuffer*) {
  a("home", b.home);
  a("index", b.index);
  a("bytes", b.bytes);
  a("at", b.offset);
  a("first", b.first);
  a("last", b.last);
}

void visit(auto& a, auto& c, const PlanCell*) {
  a("used", c.used);
  a("read", c.read);
  a("written", c.written);
  a("first_write", c.first_write);
  a("direct", c.direct);
}

void visit(auto& a, auto& f, const loop_ir::Finish*) {
  a("slot", f.slot);
  a("output", f.output);
  a("rd", f.rd);
  a("type", f.type);
}

void visit(auto& a, auto& b, const loop_ir::Bound*) {
  a("output", b.output);
  a("index", b.index);
  a("offset", b.offset);
  a("strides", b.strides);
  a("index_stride", b.index_stride);
}

// The part of a kernel's loop IR that its driver reads.
void visit(auto& a, auto& low, const loop_ir::Lowered*) {
  auto& k = low.kernel;
  a("mode", k.mode);
  a("axes", k.axes);
  a("params", low.params);
  a("kept", k.kept);
  a("columns", k.columns);
  a("partials", k.partials);
  a("extents", low.extents);
  a("dot", low.dot);
  a("tile", low.tile);
  a("flops", low.flops);
  a("bytes", low.bytes);
  auto each = [&]<class T>(T& v) { visit(a, v, static_cast<const std::remove_cv_t<T>*>(nullptr)); };
  a.list("bound", low.bound, each);
  a.list("finished_columns", low.columns, each);
  a.list("finished_partials", low.partials, each);
}

template <class T>
void record(auto& a, T& v) {
  visit(a, v, static_cast<const std::remove_cv_t<T>*>(nullptr));
}

// A launch, with the index of its kernel.
struct LaunchText {
  Launch launch;
  int32_t kernel = -1;
};

void visit(auto& a, auto& t, const LaunchText*) {
  auto& l = t.launch;
  a("node", l.node);
  a("copy", l.copy);
  a("kernel", t.kernel);
  a("workspace", l.workspace);
  a.list("in", l.in, [&](auto& p) { record(a, p); });
  a.list("out", l.out, [&](auto& p) { record(a, p); });
}

struct KernelText {
  std::string name;
  int32_t node = -1;           // a node that it runs, to find its body
  int32_t part = -1;           // 0, 1: it computes that operand of the node's product
  std::vector<int32_t> parts;  // of a product: the kernels of its operands; -1: read from memory
  bool reduces = false;
  loop_ir::Lowered lowered;
  std::vector<DType> dtypes;    // of the kernel's operands
  std::vector<BufferPlace> in;  // types and strides with which the operands were lowered
};

void visit(auto& a, auto& k, const KernelText*) {
  a("name", k.name);
  a("node", k.node);
  a("part", k.part);
  a("parts", k.parts);
  a("reduces", k.reduces);
  a("dtypes", k.dtypes);
  record(a, k.lowered);
  a.list("operands", k.in, [&](auto& p) { record(a, p); });
}

void visit(auto& a, auto& o, const PlanOutput*) {
  a("kind", o.kind);
  a("index", o.index);
  record(a, o.place);
}

// The whole plan, with the texts of its kernels and launches.
void visit_plan(auto& a, auto& plan, auto& kernels, auto& setup, auto& launches) {
  auto each = [&](auto& v) { record(a, v); };
  a.list("buffers", plan.buffers, each);
  a.list("kernels", kernels, each);
  a.list("setup", setup, each);
  a.list("launches", launches, each);
  a.list("results", plan.outputs, each);
  a.list("cells", plan.cells, each);
  a.line("sizes");
  a("blocks", plan.output_blocks);
  a("arena", plan.arena_bytes);
  a("live", plan.live_bytes);
  a("folded", plan.folded_bytes);
  a("setup_workspace", plan.setup_workspace);
  a("fixed", plan.fixed_bytes);
}

// Grows workspaces whose size depends on the number of threads.
void fit_workspaces(MemoryPlan& plan) {
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

std::string plan_to_text(const MemoryPlan& plan) {
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
  const std::vector<LaunchText> setup = texts(plan.setup), launches = texts(plan.launches);
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
  Writer w;
  w.line("plan");
  visit_plan(w, plan, kernels, setup, launches);
  return w.text();
}

MemoryPlan plan_from_text(std::string_view text, Ref<Graph> graph, std::span<const void* const> functions) {
  MemoryPlan plan;
  std::vector<KernelText> kernels;
  std::vector<LaunchText> setup, launches;
  Reader r(text);
  r.line("plan");
  visit_plan(r, plan, kernels, setup, launches);
  r.end();
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
    WEFT_CHECK(n.op == &loop_ir::fused_op, "plan: node ", k.node, " is ", n.op->name, "; need fused");
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
    one->bind(reinterpret_cast<loop_ir::Fn>(const_cast<void*>(functions[fused.size()])));
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
  return plan;
}

}  // namespace weft::internal
