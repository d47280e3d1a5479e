#include "compiler/onnx/export.h"

#include <optional>

#include "compiler/onnx/rows.h"
#include "compiler/passes/dce.h"
#include "compiler/passes/retrace.h"
#include "framework/dispatch/capture.h"
#include "framework/dispatch/dispatch.h"
#include "framework/dispatch/parameter.h"
#include "ops/core/pointwise.h"

namespace weft {
namespace {

using namespace internal;

constexpr int64_t kIrVersion = 8, kOpset = 17;
constexpr int64_t kMostBytes = (int64_t{1} << 31) - 1;  // limit of a protobuf message
constexpr int64_t kLeastExternal = 1024;                // smaller weights stay in the model
constexpr int64_t kAlignment = 4096;  // alignment of weights in their file, so that readers can map them

bool can_expand(const Graph& g, const Node& n) {
  if (is_leaf(n)) return false;
  if (find_onnx_row(*n.op) && n.inputs.empty()) return false;
  if (find_onnx_row(*n.op)) return computed_in(*n.op, g.type(n.inputs[0]).dtype) != g.type(n.inputs[0]).dtype;
  return n.op->decompose && !n.op->is(kReadsTape);
}

// The replacement of a node for which can_expand() holds.
std::vector<Tensor> parts(const Node& n, std::span<const Tensor> in) {
  if (!find_onnx_row(*n.op)) return internal::decomposed(*n.op, n.attrs, in, n.outputs);
  const DType from = in[0].dtype(), to = computed_in(*n.op, from);
  std::vector<Tensor> operands;
  std::vector<const Tensor*> pointers;
  for (const Tensor& t : in) operands.push_back(t.dtype() == from ? cast(t, to) : t);
  for (const Tensor& t : operands) pointers.push_back(&t);
  std::vector<Tensor> results = dispatch_multi(*n.op, pointers, n.attrs);
  for (size_t i = 0; i < results.size(); ++i) results[i] = cast(results[i], n.outputs[static_cast<int>(i)].dtype);
  return results;
}

Ref<Graph> live(Ref<Graph> g) {
  const Ref<Graph> less = dce(*g);
  return less ? less : g;
}

// The graph in ops with rows, and ops that have neither row nor decomposition.
Ref<Graph> expanded(const Graph& g) {
  Ref<Graph> current = live(make_ref<Graph>(g));
  for (int round = 0;; ++round) {
    constexpr int kMostRounds = 16;  // a `decompose` that calls itself would not end
    bool any = false;
    for (int32_t id = 0; id < current->size() && !any; ++id) any = can_expand(*current, current->node(id));
    if (!any) return current;
    WEFT_CHECK(round < kMostRounds, "onnx: a `decompose` calls its own op; need other ops");
    current = live(retrace(*current, [&](const Node& n, std::span<const Tensor> in) {
      return can_expand(*current, n) ? parts(n, in) : std::vector<Tensor>();
    }));
  }
}

class ModelWriter {
 public:
  ModelWriter(const Graph& g, const OnnxOptions& options)
      : g_(g), options_(options), graph_(*model_.mutable_graph()), values_(static_cast<size_t>(g.size())) {
    if (options.weights == OnnxWeights::kExternal) data_ = options.data;
  }

  std::string run() {
    check_names("inputs", options_.inputs, g_.inputs.size());
    check_names("outputs", options_.outputs, g_.outputs.size());
    check_size();
    model_.set_ir_version(kIrVersion);
    model_.set_producer_name("weft");
    model_.add_opset_import()->set_version(kOpset);
    graph_.proto().set_name("forward");
    for (size_t i = 0; i < g_.inputs.size(); ++i) {
      std::string& name = values_[g_.inputs[i].node].emplace_back();
      name = graph_.unique(name_of(options_.inputs, i, "input_"));
      set_type(*graph_.proto().add_input(), name, g_.type(g_.inputs[i]));
    }
    // Before all nodes, so that no node has the name of an output or of a cell.
    OnnxNames outputs;
    for (size_t i = 0; i < g_.outputs.size(); ++i)
      outputs.push_back(graph_.unique(name_of(options_.outputs, i, "output_")));
    for (int32_t id = 0; id < g_.size(); ++id)
      if (is_cell(g_.node(id))) cell(id);
    for (int32_t id = 0; id < g_.size(); ++id)
      if (values_[id].empty()) node(id);
    for (size_t i = 0; i < outputs.size(); ++i) {
      onnx::NodeProto& n = *graph_.proto().add_node();
      n.set_op_type("Identity");
      n.set_name(outputs[i]);
      n.add_input(values_[g_.outputs[i].node][g_.outputs[i].index]);
      n.add_output(outputs[i]);
      set_type(*graph_.proto().add_output(), outputs[i], g_.type(g_.outputs[i]));
    }
    refuse_above(static_cast<int64_t>(model_.ByteSizeLong()));
    return model_.SerializeAsString();
  }

 private:
  static std::string name_of(const std::vector<std::string>& names, size_t i, const char* otherwise) {
    return i < names.size() ? names[i] : str_cat(otherwise, i);
  }

  static void check_names(const char* of, const std::vector<std::string>& names, size_t most) {
    WEFT_CHECK(names.size() <= most, "onnx: got ", names.size(), " names of ", of, "; need at most ", most,
               ", the number of ", of);
  }

  static void refuse_above(int64_t bytes) {
    WEFT_CHECK(bytes <= kMostBytes, "onnx: the model has ", bytes, " bytes; one file has at most ", kMostBytes,
               ": write the weights beside it with OnnxWeights::kExternal (--weights external)");
  }

  // Before the weights need memory.
  void check_size() {
    int64_t bytes = 0;
    if (options_.weights == OnnxWeights::kInline)
      for (const Ref<Cell>& c : g_.cells) bytes = saturating_add(bytes, c->type.nbytes());
    for (const Tensor& t : g_.captured) bytes = saturating_add(bytes, t.type().nbytes());
    refuse_above(bytes);
  }

  void cell(int32_t id) {
    const Ref<Cell>& c = g_.cells[g_.node(id).attrs.i("index")];
    const std::string name = graph_.unique(c->name.empty() ? "cell" : c->name);
    values_[id] = {name};
    if (options_.weights == OnnxWeights::kNone) return set_type(*graph_.proto().add_input(), name, c->type);
    WEFT_CHECK_AS(kFailedPrecondition, c->value.defined() || c->init || c->remote, "onnx: cell ", name,
                  " has no value here; need a model, or OnnxWeights::kNone (--weights none)");
    const Tensor value = CellHandle(c).value();
    onnx::TensorProto& t = *graph_.proto().add_initializer();
    set_type(t, name, c->type);
    if (!data_ || c->type.nbytes() < kLeastExternal) return t.set_raw_data(raw_bytes(value));
    if (const int64_t over = data_->size() % kAlignment) data_->write(std::string(kAlignment - over, '\0'));
    t.set_data_location(onnx::TensorProto::EXTERNAL);
    const auto entry = [&](const char* key, const std::string& v) {
      onnx::StringStringEntryProto& e = *t.add_external_data();
      e.set_key(key);
      e.set_value(v);
    };
    entry("location", options_.data_name);
    entry("offset", std::to_string(data_->size()));
    entry("length", std::to_string(c->type.nbytes()));
    data_->write(raw_bytes(value));
  }

  void node(int32_t id) {
    const Node& n = g_.node(id);
    const internal::OriginScope at(n, false);  // errors report line and scope
    OnnxNames& results = values_[id];
    if (n.op->leaf == internal::Leaf::kCaptured) {
      results = {graph_.constant(g_.captured[n.attrs.i("index")])};
      return;
    }
    OnnxNames in;
    for (Value v : n.inputs) in.push_back(values_[v.node][v.index]);
    const int before = graph_.proto().node_size();
    OnnxCall call(graph_, g_, n, std::move(in));
    if (const OnnxRow* row = find_onnx_row(*n.op)) {
      call.onnx = row->onnx;
      results = row->make ? row->make(call) : call.add_n(row->onnx, call.in(), {}, 1);
    }
    WEFT_CHECK_AS(
        kUnimplemented, !results.empty(), "onnx: op '", n.op->name, "' of ", n.outputs[0],
        " has no ONNX form; need a forward graph in evaluation mode, of ops with a row in compiler/onnx/rows.cc");
    // The types of results, for viewers. Other names are operands and constants, which have a type.
    for (int k = before; k < graph_.proto().node_size(); ++k)
      for (const std::string& made : graph_.proto().node(k).output())
        for (size_t i = 0; i < results.size(); ++i)
          if (made == results[i]) set_type(*graph_.proto().add_value_info(), made, n.outputs[static_cast<int>(i)]);
  }

  const Graph& g_;
  const OnnxOptions& options_;
  onnx::ModelProto model_;
  OnnxGraph graph_;
  std::vector<OnnxNames> values_;   // index: node
  io::AtomicFile* data_ = nullptr;  // null: all weights are in the model
};

}  // namespace

std::string to_onnx(const Graph& g, const OnnxOptions& options) {
  if (!g.writes.empty()) {
    const std::string& first = g.cells[g.writes[0].cell]->name;
    internal::fail(Code::kFailedPrecondition,
                   str_cat("onnx: the graph writes ", g.writes.size(), " cells, the first ",
                           first.empty() ? "without a name" : "'" + first + "'",
                           "; an ONNX model has no state: need a forward graph, captured after model.eval()"));
  }
  const NoGrad guard;
  return ModelWriter(*expanded(g), options).run();
}

size_t save_onnx(const Graph& g, OnnxOptions options, const std::string& path) {
  // Both files are complete before one of them gets its name. The model's appears last: it names the other.
  io::AtomicFile model(path);
  std::optional<io::AtomicFile> data;
  if (options.weights == OnnxWeights::kExternal) {
    options.data = &data.emplace(path + ".data");
    options.data_name = io::base_name(path) + ".data";
  }
  model.write(to_onnx(g, options));
  if (data) data->commit();
  model.commit();
  return static_cast<size_t>(model.size());
}

}  // namespace weft
