// check_index: the indices of a rank's look-up are checked against the whole table before the rank looks at its own
// part of it. The error is the same as on one device: it has the position in the whole index.
#include "framework/base/thread_pool.h"
#include "ops/core/collectives/collective.h"
#include "ops/core/collectives/collective_types.h"
#include "ops/core/record_parts.h"
#include "ops/kernels/kernels.h"

namespace weft {
namespace {

constexpr int64_t kGrain = 1 << 14;

int64_t value_at(const StridedView& v, int64_t at) {
  return v.dtype == kInt64 ? v.as<int64_t>()[at] : v.as<int32_t>()[at];
}

Types infer_check_index(const InferCall& c) {
  WEFT_CHECK(!c.in.empty(), "check_index: no operands; need an index");
  internal::check_index(c, c.in[0]);
  const Shape &index = c.in[0].shape, &whole = c.attrs.ints("shape"), &dims = c.attrs.ints("dims");
  WEFT_CHECK(whole.size() == index.size() && dims.size() + 1 == static_cast<int>(c.in.size()), "check_index: index ",
             index, " of ", whole, " with positions of ", dims.size(), " dims in ", c.in.size() - 1,
             " operands; need equal ranks, and one operand for each dim");
  for (int k = 0; k < dims.size(); ++k) {
    const int64_t d = dims[k];
    const TensorType& at = c.in[static_cast<size_t>(k) + 1];
    WEFT_CHECK(d >= 0 && d < index.size() && at.dtype == kInt64 &&
                   (at.shape.empty() || at.shape == Shape{index[static_cast<int>(d)]}),
               "check_index: the positions of dim ", d, " of ", index, " are ", at,
               "; need the first one, or one for each index");
  }
  return {c.in[0]};
}

// The offset in memory of the element with this flat position.
int64_t offset_of(const StridedView& v, int64_t at) {
  int64_t offset = 0;
  for (int d = v.shape.size() - 1; d >= 0; at /= v.shape[d--]) offset += at % v.shape[d] * v.strides[d];
  return offset;
}

// The flat position, in the whole index, of the element with this flat position here.
int64_t whole_position(const KernelCall& c, int64_t at) {
  const Shape &here = c.in[0].shape, &whole = c.attrs.ints("shape"), &dims = c.attrs.ints("dims");
  Shape place = here;
  for (int d = here.size() - 1; d >= 0; at /= here[d--]) place[d] = at % here[d];
  for (int k = 0; k < dims.size(); ++k) {
    const StridedView& positions = c.in[static_cast<size_t>(k) + 1];
    int64_t& p = place[static_cast<int>(dims[k])];
    p = positions.shape.empty() ? p + *positions.as<int64_t>() : positions.as<int64_t>()[p * positions.strides[0]];
  }
  int64_t position = 0;
  for (int d = 0; d < here.size(); ++d) position = position * whole[d] + place[d];
  return position;
}

void run_check_index(const KernelCall& c) {
  const StridedView& index = c.in[0];
  const int64_t limit = c.attrs.i("limit"), n = index.numel();
  const int64_t ignored = c.attrs.i("ignore", 0);  // 0 is in range, if anything is
  const bool dense = index.contiguous();
  parallel_chunks(n, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t v = value_at(index, dense ? i : offset_of(index, i));
      if ((v >= 0 && v < limit) || (v == ignored && ignored != 0)) continue;
      if (c.attrs.has("instead")) internal::fail(Code::kInvalidArgument, c.attrs.get<std::string>("instead"));
      internal::fail(Code::kOutOfRange,
                     str_cat(c.attrs.get<std::string>("before"), v, " at position ", whole_position(c, i),
                             c.attrs.get<std::string>("after"),
                             limit > 0 ? str_cat("; need 0 to ", limit - 1) : ": there is nothing to choose from"));
    }
  });
  if (c.out[0].data != index.data || !(c.out[0].strides == index.strides)) kernels::cast_copy(index, c.out[0]);
}

std::vector<internal::Sample> samples_check_index() {
  auto attrs = [](int64_t limit, const Shape& whole, const Shape& dims) {
    return Attrs{{"before", std::string("gather: index ")},
                 {"after", std::string(" is out of range")},
                 {"limit", limit},
                 {"shape", whole},
                 {"dims", dims}};
  };
  const internal::SampleInput offset{Shape{}, kInt64, 2, 2};
  return {
      {{{Shape{9}, kInt64, 0, 16}}, attrs(17, {9}, {})},
      {{{Shape{3, 5}, kInt32, 0, 16}, offset}, attrs(17, {6, 5}, {0})},
      {{{Shape{0}, kInt64, 0, 0}}, attrs(0, {0}, {})},
      {{{Shape{2}, kInt64, -1, -1}}, attrs(3, {2}, {}).with("ignore", int64_t{-1})},
      {{{Shape{2}, kInt64, 3, 3}}, attrs(3, {2}, {}), "gather: index 3 at position 0 is out of range; need 0 to 2"},
      {{{Shape{2}, kInt64, 3, 3}},
       attrs(3, {2}, {}).with("instead", std::string("f: bad; need good")),
       "f: bad; need good"},
      {{{Shape{1, 1}, kInt64, 7, 7}, offset, offset},
       attrs(3, {4, 5}, {1, 0}),
       "gather: index 7 at position 12 is out of range; need 0 to 2"},
      {{{Shape{1}, kInt64, 7, 7}, {Shape{1}, kInt64, 3, 3}}, attrs(3, {4}, {0}), "gather: index 7 at position 3 is"},
      {{{Shape{2}}}, attrs(3, {2}, {}), "check_index: index is f32[2]; need i64 or i32"},
      {{{Shape{2}, kInt64, 0, 1}, offset}, attrs(3, {2}, {}), "need equal ranks, and one operand for each dim"},
      {{{Shape{2}, kInt64, 0, 1}, {Shape{3}, kInt64, 0, 1}}, attrs(3, {4}, {0}), "check_index: the positions of dim 0"},
  };
}

}  // namespace

const OpDef check_index_op = {
    .name = "check_index",
    .doc = "The indices, of which each is at least 0 and below {limit}, or {ignore}.",
    .traits = kCollective | kInPlace | kNotDifferentiable | kMayThrow,
    .num_inputs = -1,
    .flops_per_point = 0,
    .infer = infer_check_index,
    .dims =
        [](const Attrs&, std::span<const TensorType> in, std::span<const TensorType> out) {
          DimMap m = DimMap::pointwise(in.first(1), out);  // only the type of the positions matters
          for (size_t i = 1; i < in.size(); ++i) {
            DimFactors whole(static_cast<size_t>(in[i].shape.size()));
            for (size_t d = 0; d < whole.size(); ++d) {
              whole[d] = {static_cast<int>(m.factors.size())};
              m.factors.push_back({str_cat("p", i), FactorKind::kWhole, in[i].shape[static_cast<int>(d)]});
            }
            m.in.push_back(std::move(whole));
          }
          return m;
        },
    .kernel = run_check_index,
    .samples = samples_check_index,
};

}  // namespace weft
