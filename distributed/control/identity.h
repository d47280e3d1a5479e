// The rank of this process and the size of its world, from the launcher's environment variables: a function of the
// variables alone. The first source that has set its rank is used:
//   torchrun    RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT
//   mpirun      OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE; PMIX_RANK must agree
//   mpiexec     PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS of MPICH and Intel MPI
//   Slurm       SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID, ...
//   Kubernetes  JOB_COMPLETION_INDEX of an indexed job, with WORLD_SIZE and MASTER_ADDR set in its pod
// JOB_STORE, which //tools:launch and programs with --ranks processes set, comes before all these sources.
// mpirun and mpiexec come before Slurm: inside a Slurm allocation, their processes also have the Slurm variables of
// another step.
// Incomplete or contradictory variables are an error that names them.
#pragma once
#include <cstdint>
#include <map>
#include <string>

namespace weft::control {

struct Identity {
  int64_t rank = 0, world = 1;
  int64_t local_rank = 0;   // position among the ranks of its host
  int64_t local_world = 1;  // number of ranks on its host; 0: not known
  std::string host;         // host of the coordination service; "127.0.0.1" if the world is on one host
  int port = 0;             // port of the coordination service; 0 in a world of 1 without a launcher
  std::string store;        // a folder in which rank 0 writes the address; empty: host and port are the address
  std::string job = "job";  // names the job and this start of it; equal on all ranks
  std::string source;       // "launch", "torchrun", "mpirun", "mpiexec", "Slurm", "Kubernetes" or "none"

  /// Whether all ranks are known to be on this host. Otherwise each process needs the token of the job.
  bool one_host() const { return local_world == world; }
  /// The host at which the processes reach the coordination service.
  std::string service_host() const { return one_host() ? "127.0.0.1" : host; }
};

using Environment = std::map<std::string, std::string>;

/// The identity that the variables give. Throws weft::Error (kInvalidArgument) that names the variables.
Identity identity_of(const Environment& variables);
/// The variables of this process.
Environment environment();
/// The first host of a list as Slurm writes it: "node1" of "node[1-3,7],login". Throws on any other text.
std::string first_host(const std::string& list);

}  // namespace weft::control
