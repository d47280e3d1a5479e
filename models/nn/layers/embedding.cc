#include "models/nn/layers/embedding.h"

#include "ops/composite/loss/distance.h"
#include "ops/core/core.h"

namespace weft::nn {

Embedding::Embedding(int64_t count, int64_t dim, const EmbeddingOptions& options, std::source_location loc) {
  internal::LineScope line(loc);
  WEFT_CHECK(count > 0 && dim > 0, "Embedding: need positive sizes; got ", count, " x ", dim);
  WEFT_CHECK(options.max_norm.value_or(1) > 0 && options.norm_type > 0, "Embedding: max_norm is ",
             options.max_norm.value_or(1), " and norm_type ", options.norm_type, "; need positive numbers");
  max_norm_ = options.max_norm, norm_type_ = options.norm_type;
  padding_idx_ = options.padding_idx;
  if (padding_idx_) {
    WEFT_CHECK(*padding_idx_ >= -count && *padding_idx_ < count, "Embedding: padding_idx is ", *padding_idx_, "; need ",
               -count, " to ", count - 1);
    if (*padding_idx_ < 0) *padding_idx_ += count;
    const Shape shape{count, dim};
    weight = Parameter(
        TensorType{.shape = shape},
        [&] { return where(eq(unsqueeze(arange(count), 1), *padding_idx_), 0.0, normal(shape, 0, options.std)); }, "",
        {});
  } else {
    weight = normal_parameter({count, dim}, options.std);
  }
  register_parameter("weight", weight);
}

Embedding Embedding::from_pretrained(const Tensor& values, bool freeze, const EmbeddingOptions& options,
                                     std::source_location loc) {
  internal::LineScope line(loc);
  WEFT_CHECK(values.dim() == 2 && is_floating(values.dtype()), "Embedding: the values are ", values.type(),
             "; need floats [count, dim]");
  Embedding made(values.size(0), values.size(1), options, loc);
  made.weight = Parameter(values.detach());
  made.weight.requires_grad(!freeze);
  return made;
}

// As torch.embedding_renorm_: the gradient is the gradient of a lookup in the weight after the write.
void Embedding::limit_norms(const Tensor& indices) const {
  NoGrad guard;
  const Tensor at = flatten(indices), table = weight.value(), rows = embedding(at, table);
  const Tensor size = norm(rows, norm_type_, {-1}, true);
  const Tensor scaled = rows * (*max_norm_ / (size + 1e-7));
  weight.set(index_copy(table, 0, at, where(size > *max_norm_, scaled, rows)));
}

Tensor Embedding::operator()(const Arg& indices) const {
  CallScope call(*this, indices.line());
  if (max_norm_) limit_norms(internal::tensor_of(indices, "Embedding"));
  const Tensor y = embedding(indices, weight);
  if (!padding_idx_) return call.result(y);
  return call.result(where(unsqueeze(eq(indices, *padding_idx_), -1), y.detach(), y));
}

}  // namespace weft::nn
