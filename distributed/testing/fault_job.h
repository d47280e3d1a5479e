// For tests: a job of processes or threads that trains like the trainers (loader, step, evaluation, checkpoint), with a
// fault in one rank.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace weft::testing {

enum class Kind : uint8_t {
  kNone,
  kDrop,     // the rank omits a collective
  kExtra,    // the rank starts an additional collective
  kReorder,  // the rank exchanges two collectives
  kResize,
  kRetype,
  kDelay,  // the rank is 3 s late
  kPause,  // the process is stopped for 1 s: no fault
  kExit,   // the process exits with code 3
  kThrow,
  kKill,
  kStop,    // the process is stopped forever
  kLoader,  // the loader does not return for 3 s
  kSeed,    // the seed differs from the other ranks' seed
  kLr,
  kBatch,
  kLink,  // the rank's TCP connections are cut
};
inline constexpr int kNumKinds = 17;
std::string_view to_string_view(Kind kind);

/// Where a fault is: at a collective of this phase of the training step, in the evaluation, in the checkpoint, or while
/// the process starts (before it joins the job, or for a signal while it joins).
enum class Where : uint8_t { kForward, kBackward, kUpdate, kCheckpoint, kEvaluation, kStart };
inline constexpr int kNumWheres = 6;
std::string_view to_string_view(Where where);

struct FaultCase {
  Kind kind = Kind::kNone;
  Where where = Where::kForward;
  std::string ranks = "threads";  // "threads", or a transport between processes: "shared", "gloo"
  std::string mesh = "fsdp2";
  int rank = 0;       // the rank with the fault
  int step = 0;       // step of the training, from 0
  uint64_t pick = 0;  // chooses one of several collectives
};

/// "drop backward shared fsdp2 1 3 17".
std::string to_string(const FaultCase& c);
FaultCase parse_fault_case(const std::string& text);

/// The meaningful cases, without mesh, rank, step and pick.
std::vector<FaultCase> fault_cases();

/// Runs this process's part of the job; returns its exit code. Writes the time of the fault (CLOCK_MONOTONIC, ns) to
/// the file `mark`.
int run_faulty(const FaultCase& c, const std::string& mark);

}  // namespace weft::testing
