// A forward pass as an ONNX model (onnx.ai, opset 17) for other runtimes. Ops without a row in rows.cc are written
// as their decompositions.
#pragma once
#include <string>
#include <vector>

#include "compiler/exec/compile.h"
#include "framework/io/file.h"
#include "framework/ir/graph.h"

namespace weft {

/// The place of cell values.
enum class OnnxWeights {
  kInline,    // in the model: at most 2 GB in all
  kExternal,  // in a file beside the model
  kNone,      // nowhere: each cell becomes an input of the model, with the cell's name
};

struct OnnxOptions {
  OnnxWeights weights = OnnxWeights::kInline;
  std::string data_name;             // kExternal: name of the file of weights, in the model's folder
  io::AtomicFile* data = nullptr;    // kExternal: receives the weights; the caller commits it before the model
  std::vector<std::string> inputs;   // names of the first inputs; the others are input_0, input_1, ... by place
  std::vector<std::string> outputs;  // names of the first outputs; the others are output_0, output_1, ... by place
};

/// The serialised onnx.ModelProto of a graph of stage "captured" or "joint". Materialises its cells, unless weights is
/// kNone. Throws Unimplemented, with op, line and scope, for a node that ONNX cannot express, FailedPrecondition for a
/// graph that writes cells, and InvalidArgument for more than 2 GB inside the model and for too many names.
std::string to_onnx(const Graph& g, const OnnxOptions& options = {});

/// Writes the model to `path`, and its weights to `path`.data if they are kExternal. A failure leaves both files
/// unchanged. Returns the bytes of the model.
size_t save_onnx(const Graph& g, OnnxOptions options, const std::string& path);

/// Writes the forward pass that `forward` ran or prepared last as an ONNX model, with the current values of its
/// weights, named by the paths of Module::named_cells(). Returns the bytes of the model. Throws FailedPrecondition
/// before the first call and for a step that writes cells: compile model(x) of a model in evaluation mode. Throws as
/// to_onnx() does. A failure leaves the files unchanged.
template <class Fn>
size_t onnx_export(const Compiled<Fn>& forward, const std::string& path, OnnxOptions options = {}) {
  return save_onnx(forward.graph("captured"), std::move(options), path);
}

}  // namespace weft
