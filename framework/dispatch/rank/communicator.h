// Communicator: the one interface of all transports (threads of one process, shared memory, Gloo, NCCL, a dry run).
// Collectives are asynchronous: start() returns Work. A failure is a value of Work, never an exception across threads.
#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "framework/base/error.h"
#include "framework/base/ref.h"
#include "framework/tensor/view.h"

namespace weft {

enum class ReduceOp : uint8_t { kSum, kAvg, kMax, kMin };

enum class Collective : uint8_t {
  kAllReduce,      // out = the inputs of rank 0, 1, 2, ... combined in this order
  kAllGather,      // out = the inputs concatenated along out_dim, in rank order
  kReduceScatter,  // out = this rank's slice along in_dim of the combined inputs
  kAllToAll,       // the slice for rank p along in_dim becomes p's slice from this rank along out_dim
  kBroadcast,      // out = the input of rank `peer`
  kSend,           // to rank `peer`
  kRecv,           // from rank `peer`
  kBarrier,
  kPermute,  // a ring: out = the input of rank - shift
};
inline constexpr int kNumCollectives = 9;

/// "all_reduce", "all_gather", ...
constexpr std::string_view to_string_view(Collective c) {
  constexpr std::string_view k[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast",
                                    "send",       "recv",       "barrier",        "permute"};
  return k[static_cast<int>(c)];
}
/// "sum", "avg", "max", "min".
constexpr std::string_view to_string_view(ReduceOp op) {
  constexpr std::string_view k[] = {"sum", "avg", "max", "min"};
  return k[static_cast<int>(op)];
}

/// One collective as a rank starts it. All ranks of a communicator start the same collectives in the same order; sends
/// and receives are ordered only between their two ranks.
struct CommRequest {
  Collective kind = Collective::kBarrier;
  ReduceOp op = ReduceOp::kSum;
  StridedView in, out;                        // any strides; must stay alive until the Work is done
  std::span<const int64_t> send_counts = {};  // extents along in_dim for each peer; empty: equal parts
  std::span<const int64_t> recv_counts = {};  // extents along out_dim from each peer; empty: equal parts
  int peer = 0;                               // kBroadcast, kSend, kRecv
  uint64_t site = 0;                          // the node of the plan, for diagnosis
  int in_dim = 0, out_dim = 0;                // the dims along which `in` is split and `out` is concatenated
  int shift = 0;                              // kPermute
};

/// Sites from here on belong to transfers outside plans.
inline constexpr uint64_t kOwnSites = uint64_t{1} << 62;

/// The text that follows "rank 2 (...) " in an error about a rank whose connection has ended. Diagnosis reads it.
inline constexpr const char* kUnreachable = "has died or cannot be reached";

/// Seconds that a rank waits for the others in a collective, by default.
inline constexpr int kDefaultTimeout = 600;

/// A collective in progress. Dropping one that is not done makes it fail on all its ranks.
class Work : public RefCounted {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  /// Sleeps until the work is done or the deadline passes. Returns nothing, or an error that names rank and collective.
  virtual std::optional<Error> wait(Deadline deadline) = 0;
  /// True once wait() would not block.
  virtual bool done() = 0;
  /// After a wait() without error: when this rank learnt that all ranks had started it; the epoch if it is not known.
  virtual Deadline all_started() const { return {}; }
  /// For traces: a number that is unique to this collective and equal on all its ranks; 0: none.
  virtual uint64_t number() const { return 0; }
};

class Communicator : public RefCounted {
 public:
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual Ref<Work> start(const CommRequest& request) = 0;
  /// Ranks with the same colour form a new communicator, ordered by key. Itself a collective of this communicator;
  /// throws its error.
  virtual Ref<Communicator> split(int color, int key, Work::Deadline deadline) = 0;
  /// Makes every pending and later Work of all ranks fail at once with this cause.
  virtual void abort(const std::string& cause) = 0;
  /// Retires this communicator: its rank will start no more collectives until retire(false). Ranks that wait for a
  /// retired rank fail at once, before the deadline.
  virtual void retire(bool on) = 0;
};

}  // namespace weft
