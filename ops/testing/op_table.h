// The op tests: checks that every record must pass. A family's test file is one INSTANTIATE over its records.
#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "distributed/comm/self.h"
#include "framework/ir/op_def.h"

namespace weft::testing {

class OpTable : public ::testing::TestWithParam<const OpDef*> {
 protected:
  const OpDef& op() const { return *GetParam(); }

 private:
  // Collectives run in a world of one rank.
  std::unique_ptr<RankContext> alone_ = dist::make_alone();
  ScopedRank rank_{*alone_};
};

/// The records that are tested by samples: all but structural records and records with nested graphs (attention), which
/// have their own tests.
std::vector<const OpDef*> tested(std::span<const OpDef* const> ops);
inline std::string name_of(const ::testing::TestParamInfo<const OpDef*>& info) { return info.param->name; }

/// The tests of a family of records.
#define WEFT_TEST_OPS(Family, ops)                                            \
  INSTANTIATE_TEST_SUITE_P(Family, OpTable, ::testing::ValuesIn(tested(ops)), \
                           [](const auto& info) { return name_of(info); })

}  // namespace weft::testing
