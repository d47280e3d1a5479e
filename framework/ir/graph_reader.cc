#include "framework/ir/graph_reader.h"

#include <cstdlib>
#include <limits>
#include <set>

#include "framework/base/parse_number.h"
#include "framework/ir/equal.h"
#include "framework/ir/text.h"

namespace weft::internal {
namespace {

constexpr int kMaxDepth = 32;                            // depth of nested graphs
constexpr int64_t kMaxCapturedBytes = int64_t{1} << 30;  // size of all tensors whose elements were not written

}  // namespace

void GraphReader::refuse(std::string_view got, std::string_view need) const {
  fail(Code::kInvalidArgument, str_cat(place(), "got ", got, "; need ", need));
}

DType GraphReader::dtype_named(std::string_view name) const {
  for (int i = 0; i < kNumDTypes; ++i)
    if (name == to_string_view(static_cast<DType>(i))) return static_cast<DType>(i);
  refuse(quoted(name), "a dtype: f32 f64 bf16 f16 i64 i32 i16 i8 u8 bool f8e4m3 f8e5m2");
}

Device GraphReader::device_named(std::string_view name) const {
  if (name == "meta") return Device::meta();
  const size_t colon = std::min(name.find(':'), name.size());
  const std::string_view kind = name.substr(0, colon);
  Device d;
  if (kind == "cuda") {
    d.type = DeviceType::kCuda;
  } else if (kind == "other") {
    d.type = DeviceType::kOther;
  } else if (kind != "cpu") {
    refuse(quoted(name), "a device: cpu, cuda, meta or other");
  }
  if (colon == name.size()) return d;
  const auto index = parse_number<decltype(d.index)>(name.substr(colon + 1), 0);
  if (!index) refuse(quoted(name), str_cat("the index of a device: 0 to ", std::numeric_limits<int16_t>::max()));
  d.index = *index;
  return d;
}

const OpDef& GraphReader::op_named(std::string_view name, const OpTable& ops) const {
  const OpDef* op = ops.find(name);
  if (!op) refuse(str_cat("unknown op ", quoted(name)), str_cat("one of the ", ops.ops().size(), " ops of the table"));
  return *op;
}

void GraphReader::check_shape(const TensorType& t) const {
  try {
    checked_numel(t.shape, "type");
  } catch (const Error& e) {
    refuse(t.to_string(), e.what());
  }
}

Attrs GraphReader::distinct(std::vector<Attrs::AttrEntry> entries) const {
  std::set<std::string_view> names;
  for (const Attrs::AttrEntry& e : entries) {
    if (e.first.empty()) refuse("an attribute without a name", "a name");
    if (!names.insert(e.first).second) refuse(str_cat("attribute ", e.first, " twice"), "distinct names");
  }
  return Attrs(std::move(entries));
}

void GraphReader::check_count(const OpDef& op, const char* what, size_t have, int need) const {
  if (need >= 0 && have != static_cast<size_t>(need))
    refuse(str_cat(op.name, " with ", have, " ", what), std::to_string(need));
}

void GraphReader::check_inline(const TensorType& t) const {
  if (t.shape.numel() > kInlineElements || t.device.type != DeviceType::kCpu)
    refuse(str_cat("elements of ", t), str_cat("at most ", kInlineElements, " elements on cpu"));
}

Tensor GraphReader::zeros(const TensorType& t) {
  if (t.device.type != DeviceType::kCpu) {
    try {
      return Tensor::empty(t);
    } catch (const Error& e) {
      fail(e.code(), str_cat(place(), "captured tensor ", t, ": ", e.what()));
    }
  }
  const int64_t bytes = t.nbytes();
  if (bytes > kMaxCapturedBytes - captured_bytes_)
    refuse(str_cat("a captured tensor of ", bytes, " bytes"),
           str_cat("at most ", kMaxCapturedBytes, " bytes of them in all"));
  captured_bytes_ += bytes;
  void* p = std::calloc(static_cast<size_t>(bytes) + 1, 1);
  if (!p) refuse(str_cat("a captured tensor of ", bytes, " bytes"), "a tensor that fits in memory");
  return Tensor::from_blob(p, t.shape, t.dtype, [](void* q) { std::free(q); });
}

GraphReader::Level::Level(GraphReader& r) : depth_(r.depth_) {
  if (depth_ == kMaxDepth) r.refuse("graphs nested more deeply", str_cat("at most ", kMaxDepth, " levels"));
  ++depth_;
}

}  // namespace weft::internal
