#include "tools/doctor/nccl_variables.h"

#include <gtest/gtest.h>

namespace weft::tools {
namespace {

std::string text(const std::map<std::string, std::string>& environment) {
  FactList facts;
  add_nccl_variables(facts, environment);
  return facts.to_text();
}

TEST(NcclVariables, EachThatIsSetIsExplained) {
  const std::string all = text({{"NCCL_DEBUG", "INFO"},
                                {"NCCL_IB_HCA", "=mlx5_0:1"},
                                {"NCCL_BLOCKING_WAIT", "1"},
                                {"NCCL_P2P_DISABEL", "1"},
                                {"MY_NCCL_DEBUG", "no"},
                                {"PATH", "/bin"}});
  for (const char* need :
       {"INFO (messages that NCCL prints", "=mlx5_0:1 (InfiniBand cards to use", "1 (deprecated: of PyTorch",
        "instead: TORCH_NCCL_BLOCKING_WAIT, since PyTorch 2.2", "1 (not known: a newer variable, or a wrong name)"})
    EXPECT_NE(all.find(need), all.npos) << need << "\n" << all;
  EXPECT_EQ(all.find("MY_NCCL"), all.npos) << all;
  EXPECT_EQ(all.find("PATH"), all.npos) << all;
}

TEST(NcclVariables, NothingWithoutVariables) { EXPECT_EQ(text({{"HOME", "/"}}), text({})); }

}  // namespace
}  // namespace weft::tools
