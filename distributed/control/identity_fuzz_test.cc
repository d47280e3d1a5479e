// Damaged variables: each set is refused with an error, or gives an identity without contradictions.
#include <gtest/gtest.h>

#include "distributed/control/identity.h"
#include "framework/base/error.h"
#include "framework/testing/fuzz.h"

namespace weft::control {
namespace {

Environment parse(const std::string& text) {
  Environment out;
  for (size_t i = 0; i < text.size();) {
    const size_t end = std::min(text.find('\n', i), text.size()), equals = text.find('=', i);
    if (equals < end) out[text.substr(i, equals - i)] = text.substr(equals + 1, end - equals - 1);
    i = end + 1;
  }
  return out;
}

TEST(IdentityFuzz, DamagedVariables) {
  const std::vector<std::string_view> words = {"RANK=0\n",
                                               "WORLD_SIZE=4\n",
                                               "LOCAL_RANK=1\n",
                                               "MASTER_ADDR=a\n",
                                               "MASTER_PORT=1\n",
                                               "SLURM_PROCID=1\n",
                                               "PMIX_RANK=1\n",
                                               "SLURM_NTASKS=2\n",
                                               "SLURM_STEP_ID=0\n",
                                               "[",
                                               "]",
                                               "node[1-3]",
                                               "2(x3)",
                                               "-1",
                                               "99999999999999999999",
                                               "=",
                                               "\n",
                                               " ",
                                               "OMPI_COMM_WORLD_SIZE=2\n",
                                               "JOB_COMPLETION_INDEX=0\n",
                                               "SLURM_NODEID=1\n"};
  const auto read = [](const std::string& text) {
    const Identity id = identity_of(parse(text));
    EXPECT_GE(id.rank, 0);
    EXPECT_LT(id.rank, id.world);
    EXPECT_GE(id.local_rank, 0);
    EXPECT_LT(id.local_rank, id.local_world == 0 ? id.world : id.local_world);
    EXPECT_LE(id.local_world, id.world);
    EXPECT_FALSE(id.host.empty());
    EXPECT_TRUE(id.port > 0 || id.source == "none");
    EXPECT_LE(id.port, 65535);
  };
  weft::testing::fuzz(
      {.seeds = {"RANK=5\nWORLD_SIZE=8\nLOCAL_RANK=1\nLOCAL_WORLD_SIZE=4\nMASTER_ADDR=node0\nMASTER_PORT=29500\n",
                 "SLURM_PROCID=6\nSLURM_NTASKS=7\nSLURM_LOCALID=0\nSLURM_NODEID=3\nSLURM_STEP_TASKS_PER_NODE=2(x3),1\n"
                 "SLURM_STEP_NODELIST=node[1-3,7]\nSLURM_JOB_ID=4711\nSLURM_STEP_ID=0\n",
                 "OMPI_COMM_WORLD_RANK=2\nOMPI_COMM_WORLD_SIZE=4\nOMPI_COMM_WORLD_LOCAL_RANK=2\n"
                 "OMPI_COMM_WORLD_LOCAL_SIZE=4\nPMIX_RANK=2\nPMIX_NAMESPACE=28663\n",
                 "JOB_COMPLETION_INDEX=1\nWORLD_SIZE=2\nMASTER_ADDR=train-0.train\nMASTER_PORT=3000\n"},
       .damage = [&](std::string& s, weft::testing::FuzzRandom& r) { weft::testing::damage_text(s, r, words); },
       .read = read,
       .names = "identity"});
}

}  // namespace
}  // namespace weft::control
