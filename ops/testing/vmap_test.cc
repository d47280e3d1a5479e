// vmap() of every op against one call for each example.
#include "ops/core/functions/vmap.h"

#include <gtest/gtest.h>

#include <set>

#include "framework/base/testing/error_of.h"
#include "framework/dispatch/dispatch.h"
#include "framework/testing/compare.h"
#include "ops/all_ops.h"
#include "ops/core/core.h"
#include "ops/testing/cases.h"

namespace weft::testing {
namespace {

// Ops that cannot be applied to a batch: vmap() says so. All others can.
const std::set<std::string_view> kRefused = {
    // The difference between examples is not in the operands, or the op acts outside.
    "random_bits", "random_bits_at", "debug_print",
    // Rows in ragged groups.
    "grouped_dot", "expert_order", "dispatch_rows", "combine_rows", "row_dots",
    // Only passes make these ops.
    "check_index", "exact_dot", "exact_grouped_dot", "exact_row_dots", "exact_index_add"};

constexpr int kExamples = 3;

// One call of vmap(): the operands of which each example has its own.
std::string check(const Case& c, const weft::internal::Sample& s, DType dtype, const std::vector<bool>& own) {
  std::vector<Case> examples;
  for (uint64_t seed = 0; seed < kExamples; ++seed) examples.push_back(make_case(*c.op, s, dtype, 17 + seed));
  std::vector<Tensor> in;
  std::vector<std::optional<int64_t>> dims;
  for (size_t i = 0; i < c.in.size(); ++i) {
    std::vector<Tensor> all;
    for (Case& e : examples) {
      if (!own[i]) e.in[i] = examples[0].in[i];
      all.push_back(e.in[i]);
    }
    dims.push_back(own[i] ? std::optional<int64_t>(0) : std::nullopt);
    in.push_back(own[i] ? stack(all) : all[0]);
  }
  std::vector<Tensor> got;
  const std::string error = error_of([&] {
    got = internal::run_vmap(
        [&](std::span<const Tensor> args) {
          return run(c, {args.begin(), args.end()});
        },
        in, dims, 0, {});
  });
  if (!error.empty()) return kRefused.contains(c.op->name) && error.rfind("vmap: ", 0) == 0 ? "" : error;
  for (int k = 0; k < kExamples; ++k) {
    const std::vector<Tensor> want = run(examples[k], examples[k].in);
    for (size_t o = 0; o < want.size(); ++o) {
      const Tensor one = contiguous(select(got[o], 0, k));
      if (one.type() != want[o].type()) return str_cat("gives ", one.type(), "; need ", want[o].type());
      if (const auto same = close(one, want[o], dtype, 200); !same)
        return str_cat("example ", k, ", result ", o, ": ", same.message());
    }
  }
  return "";
}

std::vector<const OpDef*> with_samples() {
  std::vector<const OpDef*> ops;
  for (const OpDef* op : all_ops())
    if (op->samples && !op->is(kCollective)) ops.push_back(op);
  return ops;
}

class Vmap : public ::testing::TestWithParam<const OpDef*> {};

TEST_P(Vmap, IsTheOpOfEachExample) {
  const OpDef& op = *GetParam();
  for (const weft::internal::Sample& s : op.samples()) {
    if (!s.error.empty()) continue;
    DType dtype = kFloat64;
    Case c = make_case(op, s, dtype, 17);
    if (!error_of([&] { infer(c, c.in); }).empty()) c = make_case(op, s, dtype = kInt64, 17);
    if (c.in.empty()) continue;
    bool full = false;
    for (const Tensor& t : c.in) full |= t.dim() == kMaxDims;
    for (const TensorType& t : infer(c, c.in)) full |= t.shape.size() == kMaxDims;
    if (full) continue;
    std::vector<std::vector<bool>> choices{std::vector<bool>(c.in.size(), true)};
    for (size_t i = 0; i < c.in.size() && c.in.size() > 1; ++i) {
      choices.emplace_back(c.in.size());
      choices.back()[i] = true;
    }
    for (const std::vector<bool>& own : choices) {
      std::string which;
      for (bool b : own) which += b ? "1" : "0";
      EXPECT_EQ(check(c, s, dtype, own), "") << c.label << ", operands " << which;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Vmap, ::testing::ValuesIn(with_samples()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace weft::testing
