// Damaged texts that people and launchers write: meshes, variables of an environment, and tables of pipelines. Each is
// refused, or gives a value without contradictions.
#include <gtest/gtest.h>

#include "distributed/control/identity.h"
#include "distributed/pipeline/check.h"
#include "distributed/pipeline/communication.h"
#include "distributed/pipeline/schedules.h"
#include "distributed/pipeline/table_text.h"
#include "distributed/pipeline/testing/reference.h"
#include "framework/base/error.h"
#include "framework/mesh/mesh.h"
#include "framework/testing/fuzz.h"

namespace weft::dist {
namespace {

using namespace pipeline;

TEST(TextsFuzz, Meshes) {
  const std::vector<std::string_view> words = {"dp",    "tp2", "ep4(dp,tp)", "(",   ")",   ",",  "world", "replica2",
                                               "dp:1",  ":",   "ep2()",      "1",   "0",   "_",  " ",     "-1",
                                               "dp997", "()",  "ep6(dp)",    "(,)", "cp1", "((", "fsdp8", "dp2,dp2"};
  auto read = [](const std::string& text) {
    const Mesh m = Mesh::parse(text);
    EXPECT_EQ(Mesh::parse(m.to_string()).to_string(), m.to_string());
    EXPECT_GE(m.size(), 1);
    for (const Mesh::Dim& d : m.dims()) {
      const Axes axes = m.axes(d.name);
      EXPECT_EQ(m.parts(axes), d.size) << text;
      EXPECT_EQ(m.axes(m.name(axes)), axes) << text;
      if (m.size() > 4096) continue;
      EXPECT_EQ(m.group(m.size() - 1, axes).size(), static_cast<size_t>(d.size)) << text;
    }
  };
  weft::testing::fuzz(
      {.seeds = {"", "dp2,tp2", "fsdp4,tp2,ep8(fsdp,tp)", "dp6,cp2,ep2(dp),ep_two6(dp)", "dp1,tp1"},
       .damage = [&](std::string& s, weft::testing::FuzzRandom& r) { weft::testing::damage_text(s, r, words); },
       .read = read,
       .names = "mesh"});
}

control::Environment variables(const std::string& text) {
  control::Environment out;
  for (size_t i = 0; i < text.size();) {
    const size_t end = std::min(text.find('\n', i), text.size()), equals = text.find('=', i);
    if (equals < end) out[text.substr(i, equals - i)] = text.substr(equals + 1, end - equals - 1);
    i = end + 1;
  }
  return out;
}

TEST(TextsFuzz, VariablesOfLaunchers) {
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
    const control::Identity id = control::identity_of(variables(text));
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

/// Whether the reference supports the whole table.
bool simple(const Table& table) {
  size_t actions = 0;
  for (const std::vector<Action>& rank : table.ranks) {
    actions += rank.size();
    for (const Action& a : rank)
      if (a.peer >= table.stages() || !(computes(a.kind) || transfers(a.kind))) return false;
  }
  return actions < 100;
}

TEST(TextsFuzz, PipelineTables) {
  const std::vector<std::string_view> words = {"0,F,0,0\n", "F",       "I",      "W", "B", "SEND", "RECV", "GATHER",
                                               "RELEASE",   "REDUCE",  "F&",     "&", ",", ",,",   "#",    "\r\n",
                                               "rank",      "0,B,0,0", "1,F,1,", "0", "1", "2",    " ",    "1,W,1,1\n"};
  auto read = [](const std::string& text) {
    const Table table = parse_table(text, "my.csv");
    const StageLinks links(table.stages());
    bool valid = true;
    try {
      EXPECT_GT(check(table, links).alive.size(), 0u);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::kInvalidArgument) << e.what();
      valid = false;
    }
    EXPECT_TRUE(!valid || parse_table(table_text(table), "my.csv") == table);
    if (simple(table)) {
      EXPECT_EQ(pipeline::testing::Reference(table, links).valid(), valid) << text;
    }
  };
  std::vector<std::string> seeds = {
      "0,GATHER,0\n0,F,0,0\n0,RELEASE,0\n0,GATHER,0\n0,I,0,0\n0,RELEASE,0\n0,W,0,0\n"
      "0,REDUCE,0\n"};
  for (const char* name : {"1f1b", "zb_v", "dualpipe_v"}) {
    const Table table = make_schedule(name, {.ranks = 2, .microbatches = 4, .pairs = true});
    seeds.push_back(table_text(table));
    seeds.push_back(
        table_text(add_communication(table, StageLinks(table.stages()), ActionCosts::equal(table.stages()))));
  }
  weft::testing::fuzz(
      {.seeds = seeds,
       .damage = [&](std::string& s, weft::testing::FuzzRandom& r) { weft::testing::damage_text(s, r, words); },
       .read = read,
       .names = "my.csv"});
}

}  // namespace
}  // namespace weft::dist
