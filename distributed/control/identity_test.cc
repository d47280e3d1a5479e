#include "distributed/control/identity.h"

#include <gtest/gtest.h>

#include <tuple>

#include "framework/base/str_cat.h"
#include "framework/base/testing/error_of.h"

namespace weft::control {
namespace {

struct Row {
  const char* name;
  Environment variables;
  const char* want;  // the identity, or a part of the error
};

std::string text_of(const Identity& i) {
  return str_cat(i.source, " ", i.rank, "/", i.world, " local ", i.local_rank, "/", i.local_world, " ", i.host, ":",
                 i.port);
}

TEST(Identity, RealExamples) {
  const Row rows[] = {
      {"nothing", {{"HOME", "/root"}}, "none 0/1 local 0/1 127.0.0.1:0"},
      {"torchrun, 2 nodes of 4",
       {{"RANK", "5"},
        {"WORLD_SIZE", "8"},
        {"LOCAL_RANK", "1"},
        {"LOCAL_WORLD_SIZE", "4"},
        {"GROUP_RANK", "1"},
        {"MASTER_ADDR", "node-0.cluster"},
        {"MASTER_PORT", "29500"},
        {"TORCHELASTIC_RUN_ID", "none"}},
       "torchrun 5/8 local 1/4 node-0.cluster:29500"},
      {"torchrun inside a task of Slurm",
       {{"RANK", "3"},
        {"WORLD_SIZE", "4"},
        {"LOCAL_RANK", "1"},
        {"LOCAL_WORLD_SIZE", "2"},
        {"MASTER_ADDR", "10.0.0.7"},
        {"MASTER_PORT", "12345"},
        {"SLURM_PROCID", "1"},
        {"SLURM_NTASKS", "2"}},
       "torchrun 3/4 local 1/2 10.0.0.7:12345"},
      {"torchrun whose own store has MASTER_PORT",
       {{"RANK", "1"},
        {"WORLD_SIZE", "2"},
        {"LOCAL_RANK", "1"},
        {"LOCAL_WORLD_SIZE", "2"},
        {"MASTER_ADDR", "localhost"},
        {"MASTER_PORT", "29500"},
        {"TORCHELASTIC_RUN_ID", "none"},
        {"TORCHELASTIC_RESTART_COUNT", "0"},
        {"TORCHELASTIC_USE_AGENT_STORE", "True"}},
       "torchrun 1/2 local 1/2 localhost:27177"},
      {"launch, inside a task of Slurm",
       {{"JOB_STORE", "/tmp/x"},
        {"RANK", "1"},
        {"WORLD_SIZE", "2"},
        {"LOCAL_RANK", "1"},
        {"LOCAL_WORLD_SIZE", "2"},
        {"SLURM_PROCID", "0"},
        {"SLURM_NTASKS", "1"}},
       "launch 1/2 local 1/2 127.0.0.1:0"},
      {"by hand, IPv6",
       {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "fe80::1"}, {"MASTER_PORT", "1"}},
       "torchrun 0/2 local 0/0 fe80::1:1"},
      {"torchrun, one rank", {{"RANK", "0"}, {"WORLD_SIZE", "1"}}, "torchrun 0/1 local 0/1 127.0.0.1:29500"},
      {"srun, 4 nodes",
       {{"SLURM_PROCID", "6"},
        {"SLURM_NTASKS", "7"},
        {"SLURM_STEP_NUM_TASKS", "7"},
        {"SLURM_LOCALID", "0"},
        {"SLURM_NODEID", "3"},
        {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
        {"SLURM_STEP_NODELIST", "node[1-3,7]"},
        {"SLURM_NODELIST", "node[0-9]"},
        {"SLURM_JOB_ID", "4711"},
        {"SLURM_STEP_ID", "0"}},
       "Slurm 6/7 local 0/1 node1:28450"},
      {"srun, the same job's rank 0",
       {{"SLURM_PROCID", "0"},
        {"SLURM_NTASKS", "7"},
        {"SLURM_LOCALID", "0"},
        {"SLURM_NODEID", "0"},
        {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
        {"SLURM_STEP_NODELIST", "node[1-3,7]"},
        {"SLURM_JOB_ID", "4711"},
        {"SLURM_STEP_ID", "0"}},
       "Slurm 0/7 local 0/2 node1:28450"},
      {"srun with MASTER_ADDR and MASTER_PORT of the script",
       {{"SLURM_PROCID", "1"},
        {"SLURM_NTASKS", "2"},
        {"SLURM_LOCALID", "1"},
        {"SLURM_STEP_ID", "0"},
        {"MASTER_ADDR", "gpu7"},
        {"MASTER_PORT", "6000"},
        {"WORLD_SIZE", "2"}},
       "Slurm 1/2 local 1/0 gpu7:6000"},
      {"one task of Slurm",
       {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_LOCALID", "0"}},
       "Slurm 0/1 local 0/1 127.0.0.1:29500"},
      {"mpirun -n 4 of Open MPI 4.1",
       {{"OMPI_COMM_WORLD_RANK", "2"},
        {"OMPI_COMM_WORLD_SIZE", "4"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
        {"PMIX_RANK", "2"},
        {"PMIX_NAMESPACE", "2866348033"}},
       "mpirun 2/4 local 2/4 127.0.0.1:28876"},
      {"mpirun inside an allocation of Slurm",
       {{"OMPI_COMM_WORLD_RANK", "3"},
        {"OMPI_COMM_WORLD_SIZE", "4"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
        {"SLURM_PROCID", "1"},
        {"SLURM_NTASKS", "2"},
        {"MASTER_ADDR", "a"}},
       "mpirun 3/4 local 1/2 a:29500"},
      {"mpiexec of MPICH or Intel MPI, one host",
       {{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "2"}, {"MPI_LOCALNRANKS", "4"}, {"PMI_FD", "9"}},
       "mpiexec 2/4 local 2/4 127.0.0.1:29500"},
      {"mpiexec, two hosts",
       {{"PMI_RANK", "2"},
        {"PMI_SIZE", "4"},
        {"MPI_LOCALRANKID", "0"},
        {"MPI_LOCALNRANKS", "2"},
        {"MASTER_ADDR", "a"},
        {"MASTER_PORT", "7"},
        {"SLURM_PROCID", "1"},
        {"SLURM_NTASKS", "2"}},
       "mpiexec 2/4 local 0/2 a:7"},
      {"mpiexec that does not say how many are here",
       {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}},
       "mpiexec 1/2 local 1/2 127.0.0.1:29500"},
      {"mpiexec, one process", {{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}, "mpiexec 0/1 local 0/1 127.0.0.1:29500"},
      {"srun --mpi=pmi2",
       {{"PMI_RANK", "1"},
        {"PMI_SIZE", "2"},
        {"SLURM_PROCID", "1"},
        {"SLURM_NTASKS", "2"},
        {"SLURM_LOCALID", "0"},
        {"SLURM_NODEID", "1"},
        {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
        {"SLURM_STEP_NODELIST", "n[1-2]"}},
       "Slurm 1/2 local 0/1 n1:29500"},
      {"Flux, one task", {{"FLUX_TASK_RANK", "0"}, {"FLUX_JOB_SIZE", "1"}}, "none 0/1 local 0/1 127.0.0.1:0"},
      {"Kubernetes",
       {{"JOB_COMPLETION_INDEX", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "train-0.train"}, {"MASTER_PORT", "3000"}},
       "Kubernetes 1/2 local 0/1 train-0.train:3000"},
      // Errors.
      {"RANK alone", {{"RANK", "3"}}, "RANK=3 and WORLD_SIZE is not set"},
      {"WORLD_SIZE alone", {{"WORLD_SIZE", "4"}}, "WORLD_SIZE=4 and RANK is not set"},
      {"no MASTER_ADDR", {{"RANK", "0"}, {"WORLD_SIZE", "2"}}, "MASTER_ADDR is not set"},
      {"no MASTER_PORT", {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}}, "MASTER_PORT is not set"},
      {"rank too large", {{"RANK", "4"}, {"WORLD_SIZE", "4"}}, "RANK=4 and WORLD_SIZE=4"},
      {"no number", {{"RANK", "0x1"}, {"WORLD_SIZE", "4"}}, "RANK=0x1 (torchrun); need a whole number"},
      {"empty", {{"RANK", ""}, {"WORLD_SIZE", "4"}}, "need a whole number"},
      {"negative", {{"RANK", "-1"}, {"WORLD_SIZE", "4"}}, "need a whole number"},
      {"local rank too large",
       {{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "2"}},
       "LOCAL_RANK=2 and LOCAL_WORLD_SIZE=2"},
      {"local world too large",
       {{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "8"}},
       "LOCAL_WORLD_SIZE=8 and WORLD_SIZE=4"},
      {"port",
       {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "70000"}},
       "MASTER_PORT=70000"},
      {"host", {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a b"}, {"MASTER_PORT", "7"}}, "MASTER_ADDR=a b"},
      {"the batch script of Slurm",
       {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_NODELIST", "a"}},
       "need srun"},
      {"Slurm without NTASKS", {{"SLURM_PROCID", "0"}}, "SLURM_PROCID=0 and SLURM_NTASKS is not set"},
      {"Slurm, other WORLD_SIZE",
       {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_STEP_ID", "0"}, {"WORLD_SIZE", "8"}},
       "WORLD_SIZE=8 and SLURM_NTASKS=4 contradict"},
      {"Slurm without hosts",
       {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_STEP_ID", "0"}},
       "neither SLURM_STEP_NODELIST nor MASTER_ADDR"},
      {"Slurm, damaged hosts",
       {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_STEP_NODELIST", "node[1-3"}},
       "SLURM_STEP_NODELIST: 'node[1-3' is no list"},
      {"mpirun, PMIX_RANK differs",
       {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"PMIX_RANK", "2"}},
       "PMIX_RANK=2 and OMPI_COMM_WORLD_RANK=1 contradict"},
      {"PMIX_RANK alone", {{"PMIX_RANK", "2"}}, "PMIX_RANK=2 and OMPI_COMM_WORLD_SIZE is not set"},
      {"mpirun on two hosts without MASTER_ADDR",
       {{"OMPI_COMM_WORLD_RANK", "1"},
        {"OMPI_COMM_WORLD_SIZE", "4"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}},
       "mpirun -x MASTER_ADDR"},
      {"mpiexec on two hosts without MASTER_ADDR",
       {{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}},
       "need MASTER_ADDR, the host of rank 0, and JOB_TOKEN, one secret text, on all of them: mpiexec -genv"},
      {"mpiexec on unknown hosts",
       {{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}},
       "MPI_LOCALNRANKS not set: the processes are"},
      {"mpiexec without a size", {{"PMI_RANK", "1"}}, "PMI_RANK=1 and PMI_SIZE is not set"},
      {"MVAPICH",
       {{"MV2_COMM_WORLD_RANK", "1"}, {"MV2_COMM_WORLD_SIZE", "2"}},
       "the variables of MVAPICH are not read; need RANK, WORLD_SIZE, LOCAL_RANK"},
      {"Kubernetes without a size",
       {{"JOB_COMPLETION_INDEX", "1"}},
       "JOB_COMPLETION_INDEX=1 and WORLD_SIZE is not set"},
      {"Kubernetes without MASTER_ADDR", {{"JOB_COMPLETION_INDEX", "1"}, {"WORLD_SIZE", "2"}}, "JOB-0.SERVICE"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    std::string got;
    const std::string error = weft::testing::error_of([&] { got = text_of(identity_of(row.variables)); });
    if (error.empty()) {
      EXPECT_EQ(got, row.want);
    } else {
      EXPECT_EQ(error.rfind("identity: ", 0), 0u) << error;
      weft::testing::expect_has(error, row.want);
    }
  }
}

TEST(Identity, TasksOfSlurm) {
  const auto with = [](const char* tasks, const char* node) {
    return identity_of({{"SLURM_PROCID", "0"},
                        {"SLURM_NTASKS", "7"},
                        {"SLURM_LOCALID", "0"},
                        {"SLURM_NODEID", node},
                        {"SLURM_STEP_TASKS_PER_NODE", tasks},
                        {"SLURM_STEP_NODELIST", "n[1-4]"}});
  };
  const std::tuple<const char*, const char*, int64_t> rows[] = {
      {"7", "0", 7}, {"2(x3),1", "0", 2}, {"2(x3),1", "2", 2}, {"2(x3),1", "3", 1}, {"1,2(x3)", "0", 1}};
  for (const auto& [tasks, node, want] : rows) EXPECT_EQ(with(tasks, node).local_world, want) << tasks << " " << node;
  for (const char* tasks : {"", ",", "2,", ",2", "2(x3", "2(x3)4", "2(x)", "2x3", "(x3)", "2(y3)", "two", "2 ,1", "-2",
                            "0", "2(x0)", "99999999999999999999", "2(x99999999999999999999)", "2(x3),1(x"})
    weft::testing::expect_error([&] { with(tasks, "0"); }, "is no list of tasks; need tasks per node, such as 2(x3),1");
  weft::testing::expect_error([&] { with("2(x3),1", "4"); }, "has 4 nodes, and SLURM_NODEID=4");
}

TEST(Identity, FirstHost) {
  const std::pair<const char*, const char*> rows[] = {
      {"localhost", "localhost"},       {"node[1-3,7]", "node1"},    {"node[007-010]", "node007"},   {"a,b", "a"},
      {"gpu-[3,1].site", "gpu-3.site"}, {"r[1-2]n[04-05]", "r1n04"}, {"node12,node[1-3]", "node12"},
  };
  for (const auto& [list, want] : rows) EXPECT_EQ(first_host(list), want) << list;
  for (const char* list : {"", ",", "node[", "node[]", "node]", "node[a]", "node[-3]", "a b", "n\n", "[[1]]"})
    weft::testing::expect_error([&] { first_host(list); }, "is no list of hosts");
}

TEST(Identity, ReachesTheServiceOfOneHostByLoopback) {
  const Identity one{.world = 2, .local_world = 2, .host = "node1"};
  EXPECT_TRUE(one.one_host());
  EXPECT_EQ(one.service_host(), "127.0.0.1");
  for (const int64_t local : {0, 1}) {  // 0: not known
    const Identity many{.world = 2, .local_world = local, .host = "node1"};
    EXPECT_FALSE(many.one_host());
    EXPECT_EQ(many.service_host(), "node1");
  }
}

}  // namespace
}  // namespace weft::control
