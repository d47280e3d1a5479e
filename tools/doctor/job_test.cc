#include "tools/doctor/job.h"

#include <gmock/gmock.h>

namespace weft::tools {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string job(const control::Environment& variables) {
  FactList facts;
  add_job(facts, variables);
  return facts.to_json();
}

TEST(Job, SaysWhatHasStartedIt) {
  EXPECT_THAT(job({}), HasSubstr("nothing: a mesh has a process for each rank on this host"));
  const std::string text = job({{"RANK", "3"},
                                {"WORLD_SIZE", "4"},
                                {"LOCAL_RANK", "1"},
                                {"LOCAL_WORLD_SIZE", "2"},
                                {"MASTER_ADDR", "127.0.0.1"},
                                {"MASTER_PORT", "29511"},
                                {"JOB_TOKEN", "hidden"}});
  for (const char* part : {R"("started_by": "torchrun")", R"("rank": 3)", R"("processes": 4)",
                           R"("service": "127.0.0.1:29511")", R"("token": "in JOB_TOKEN")", "no address from which"})
    EXPECT_THAT(text, HasSubstr(part));
  EXPECT_THAT(text, Not(HasSubstr("hidden")));
}

TEST(Job, AHalfSetEnvironmentIsAFinding) {
  EXPECT_THAT(job({{"WORLD_SIZE", "4"}}), HasSubstr("error: identity: WORLD_SIZE=4 and RANK is not set"));
  EXPECT_THAT(job({{"JOB_COMPLETION_INDEX", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "job-0.svc"}}),
              HasSubstr("none: need JOB_TOKEN or JOB_TOKEN_FILE between hosts"));
}

}  // namespace
}  // namespace weft::tools
