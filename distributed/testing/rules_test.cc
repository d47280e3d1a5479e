// The rules of all ops: none wrong, none missing. DTensor's strategy_validation does the same for its strategies.
#include <gtest/gtest.h>

#include <memory>

#include "distributed/comm/self.h"
#include "distributed/testing/rule_check.h"

namespace weft::testing {
namespace {

class Rules : public ::testing::TestWithParam<const OpDef*> {
 protected:
  const OpDef& op() const { return *GetParam(); }
};

// Ops of which nothing can be split, and why.
struct Unsplittable {
  std::string_view op;
  const char* reason;
};
constexpr Unsplittable kUnsplittable[] = {
    {"constant", "a number has no dims"},
    {"expert_order", "an order of all tokens"},
};

TEST_P(Rules, NoneIsWrong) {
  int tried = 0;
  std::string wrong;
  for (const Sample& s : rule_samples(op())) {
    const WrongReport r = wrong_splits(op(), s);
    tried += r.tried;
    for (const std::string& w : r.wrong) wrong += "\n  " + w;
  }
  RecordProperty("tried", tried);
  EXPECT_TRUE(wrong.empty()) << wrong;
  bool excused = false;
  for (const Unsplittable& u : kUnsplittable) excused |= u.op == op().name;
  EXPECT_NE(tried > 0, excused) << "splits tried: " << tried;
}

TEST_P(Rules, NoneIsMissing) {
  if (const char* reason = only_wrong(op())) GTEST_SKIP() << reason;
  int valid = 0;
  std::string missing;
  for (const Sample& s : rule_samples(op())) {
    const MissingReport r = missing_splits(op(), s);
    valid += r.valid;
    for (const std::string& m : r.missing) missing += "\n  " + m;
  }
  RecordProperty("valid", valid);
  EXPECT_TRUE(missing.empty()) << missing;
}

INSTANTIATE_TEST_SUITE_P(Ops, Rules, ::testing::ValuesIn(ruled_ops()), [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace weft::testing
