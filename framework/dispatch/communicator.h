// Communicator: the one interface of all transports (threads of one process, shared memory, Gloo, NCCL, a dry run).
// Collectives are asynchronous: start() returns Work; failure is a value there, never an exception across threads.
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
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,  // with per-peer row counts where `send_counts` is given
  kBroadcast,
  kSend,
  kRecv,
  kBarrier,
};

/// One collective as a rank starts it. All ranks of a communicator start the same collectives in the same order.
struct CommRequest {
  Collective kind = Collective::kBarrier;
  ReduceOp op = ReduceOp::kSum;
  StridedView in, out;                       // contiguous; must stay alive until the Work is done
  std::span<const int64_t> send_counts = {}; // kAllToAll: rows for each peer; empty: equal parts
  std::span<const int64_t> recv_counts = {};
  int peer = 0;                              // kBroadcast, kSend, kRecv
  uint64_t site = 0;                         // which node of the plan, for diagnosis
};

/// A collective under way.
class Work : public RefCounted {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  /// Waits, sleeping, until done or the deadline: nothing, or the error that says which rank and collective.
  virtual std::optional<Error> wait(Deadline deadline) = 0;
  /// True once wait() would not block.
  virtual bool done() = 0;
};

class Communicator : public RefCounted {
 public:
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual Ref<Work> start(const CommRequest& request) = 0;
  /// The ranks that give the same colour form a new communicator, ordered by key; collective over this one.
  virtual Ref<Communicator> split(int color, int key) = 0;
  /// Makes every pending and later Work of all ranks fail with this cause, at once.
  virtual void abort(const std::string& cause) = 0;
};

}  // namespace weft
