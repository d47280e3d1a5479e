// The ops that have an ONNX form: each row makes the nodes of opset 17 that compute a node of a Weft graph.
#pragma once
#include <onnx/onnx_pb.h>

#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "framework/ir/op_def.h"

namespace weft::internal {

using OnnxNames = std::vector<std::string>;
using Ints = std::vector<int64_t>;

/// ONNX's number of a dtype; throws for 8-bit floats, which opset 17 lacks.
int onnx_dtype(DType dtype);
/// Fills in dtype and shape.
void set_type(onnx::ValueInfoProto& info, const std::string& name, const TensorType& type);
/// Fills in dtype and shape, not the data.
void set_type(onnx::TensorProto& tensor, const std::string& name, const TensorType& type);
/// The elements in row-major order, as ONNX stores them.
std::string raw_bytes(const Tensor& t);

/// An ONNX graph under construction. Every name in it is unique.
class OnnxGraph {
 public:
  explicit OnnxGraph(onnx::GraphProto& proto) : proto_(proto) {}
  onnx::GraphProto& proto() { return proto_; }
  /// `wanted`, with a number appended if the graph has that name.
  std::string unique(const std::string& wanted);
  /// A constant with this value; equal constants are stored once.
  std::string constant(const Tensor& value);

 private:
  onnx::GraphProto& proto_;
  std::map<std::string, int> used_;
  std::map<std::string, std::string> constants_;  // key: type and bytes
};

/// One node of a Weft graph while its ONNX nodes are made.
class OnnxCall {
 public:
  using Attr = std::pair<const char*, std::variant<int64_t, Ints, std::string>>;

  OnnxCall(OnnxGraph& to, const Graph& from, const Node& node, OnnxNames in)
      : to_(to), from_(from), node_(node), in_(std::move(in)) {}

  const Node& node() const { return node_; }
  const Attrs& attrs() const { return node_.attrs; }
  const OnnxNames& in() const { return in_; }
  const std::string& in(size_t i) const { return in_[i]; }
  const TensorType& type(size_t i) const { return from_.type(node_.inputs[static_cast<int>(i)]); }
  const TensorType& out() const { return node_.outputs[0]; }
  /// The ONNX operator of the row.
  const char* onnx = nullptr;

  /// Appends a node and returns the names of its results.
  OnnxNames add_n(const char* op, const OnnxNames& in, std::initializer_list<Attr> attrs, size_t results);
  std::string add(const char* op, const OnnxNames& in, std::initializer_list<Attr> attrs = {}) {
    return add_n(op, in, attrs, 1)[0];
  }
  /// Constants: integers i64 [n], and a 0-d tensor.
  std::string ints(const Ints& values);
  std::string number(double value, DType dtype);
  std::string constant(const Tensor& value) { return to_.constant(value); }
  /// These functions return `x` itself if nothing changes.
  std::string cast(const std::string& x, DType from, DType to);
  std::string transpose(const std::string& x, const Ints& dims);
  std::string reshape(const std::string& x, const Ints& shape);

 private:
  OnnxGraph& to_;
  const Graph& from_;
  const Node& node_;
  OnnxNames in_;
};

/// The ONNX form of an op.
struct OnnxRow {
  std::string_view op;
  const char* onnx = nullptr;              // the operator; if `make` is null, it receives the operands alone
  OnnxNames (*make)(OnnxCall&) = nullptr;  // returns the results' names; none: these attributes have no ONNX form
};

std::span<const OnnxRow> onnx_rows();
/// The dtype to compute in: `dtype` if the op's operator accepts it.
DType computed_in(const OpDef& op, DType dtype);
/// The row of `op`, or null.
const OnnxRow* find_onnx_row(const OpDef& op);

}  // namespace weft::internal
