#include "ops/core/record_parts.h"

#include "ops/kernels/kernels.h"

namespace weft::internal {

int checked_dim(const InferCall& c) {
  const int64_t d = c.attrs.i("dim");
  const Shape& shape = c.in[0].shape;
  WEFT_CHECK_AS(kOutOfRange, d >= 0 && d < shape.size(), c.op.name, ": dim ", d, " is out of range for ", shape,
                "; need 0 to ", shape.size() - 1);
  return static_cast<int>(d);
}

void check_computed(const InferCall& c) {
  const DType t = c.in[0].dtype;
  WEFT_CHECK(!is_floating(t) || is_computed_float(t), c.op.name, ": does not support ", t,
             "; convert with to(f32) first");
}

void check_float(const InferCall& c, DType t) {
  WEFT_CHECK(is_computed_float(t), c.op.name, ": does not support ", t, "; need one of f64, f32, bf16, f16");
}

void check_index(const InferCall& c, const TensorType& index) {
  WEFT_CHECK(is_index(index.dtype), c.op.name, ": index is ", index, "; need i64 or i32");
}

double number(const Attrs& attrs, const char* key) {
  const AttrValue* v = attrs.find(key);
  if (!v) return 0;
  const double* d = std::get_if<double>(v);
  return d ? *d : static_cast<double>(std::get<int64_t>(*v));
}

uint32_t mask_of(const Shape& dims) {
  uint32_t m = 0;
  for (int64_t d : dims) m |= 1u << d;
  return m;
}

Shape inverse_order(const Shape& order) {
  Shape r = order;
  for (int i = 0; i < order.size(); ++i) r[static_cast<int>(order[i])] = i;
  return r;
}

double bytes_of(std::span<const TensorType> types) {
  double bytes = 0;
  for (const TensorType& t : types) bytes += static_cast<double>(t.nbytes());
  return bytes;
}

Types infer_same(const InferCall& c) { return {c.in[0]}; }
DimMap dims_pointwise(const Attrs&, std::span<const TensorType> in, std::span<const TensorType> out) {
  return DimMap::pointwise(in, out);
}
Grads vjp_same(const VjpCall& c) { return {c.grad[0]}; }
void run_copy(const KernelCall& c) { kernels::cast_copy(c.in[0], c.out[0]); }

Attrs with_device(Attrs attrs, Device device) {
  return device == Device::cpu() ? attrs : attrs.with("device", device.to_string());
}

std::string factor_name(int i) {
  std::string s(1, static_cast<char>('a' + i % 26));
  return i < 26 ? s : s + std::to_string(i / 26);
}

std::string join_words(const std::vector<std::string>& words) {
  std::string s;
  for (const std::string& w : words) s += (s.empty() ? "" : " ") + w;
  return s;
}

std::pair<std::string, std::string> words_of_equal(const Shape& from, const Shape& to) {
  std::vector<std::string> a, b;
  for (int d = 0; d < from.size(); ++d) {
    const bool same = from[d] == to[d];
    a.push_back(factor_name(2 * d) + (same ? "" : "?"));
    b.push_back(same ? factor_name(2 * d) : factor_name(2 * d + 1) + "?");
  }
  return {join_words(a), join_words(b)};
}

DimMap dims_with_whole(int whole, std::span<const TensorType> in, std::span<const TensorType> out) {
  std::vector<std::string> words;
  for (int d = 0; d < in[0].shape.size(); ++d) words.push_back(factor_name(d) + (d == whole ? "?" : ""));
  return DimMap::parse(join_words(words) + " -> " + join_words(words), in, out);
}

DimMap dims_along(const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out) {
  return dims_with_whole(static_cast<int>(attrs.i("dim")), in, out);
}

}  // namespace weft::internal
