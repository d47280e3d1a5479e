// A forward graph as an ONNX model (onnx.ai, opset 17) for other runtimes. Ops without a row in onnx_rows.cc are
// written as their decompositions.
#pragma once
#include <string>
#include <vector>

#include "framework/io/file.h"
#include "framework/ir/graph.h"

namespace weft::tools {

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
  std::vector<std::string> inputs;   // names; without them input_0, input_1, ...
  std::vector<std::string> outputs;  // names; without them output_0, output_1, ...
};

/// The serialised onnx.ModelProto of a graph of stage "captured" or "joint". Materialises its cells, unless weights is
/// kNone. Throws Unimplemented, with op, line and scope, for a node that ONNX cannot express, FailedPrecondition for a
/// graph that writes cells, and InvalidArgument for more than 2 GB inside the model.
std::string to_onnx(const Graph& g, const OnnxOptions& options = {});

/// Writes the model to `path`, and its weights to `path`.data if they are kExternal. A failure leaves both files
/// unchanged. Returns the bytes of the model.
size_t save_onnx(const Graph& g, OnnxOptions options, const std::string& path);

}  // namespace weft::tools
