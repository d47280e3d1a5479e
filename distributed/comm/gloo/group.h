// A communicator as one rank sees it: its started collectives, and how they advance. The mutex of the hub, shared by
// all ranks of a process, guards all members.
//
// A rank that starts a collective sends its request to the others, with the input if that is small. When a rank has
// the requests of all, it compares them, divides the operands into chunks in the same way as all others, and sends
// each chunk to the ranks that need it. A chunk that is combined waits until all its sources are there: it is combined
// in the order of ranks. An all-reduce of large operands gives each rank a share of the chunks to combine and send to
// all.
//
// Operands are used only while chunks are packed or applied, never by the network, so a failed collective leaves them
// free as soon as no thread works on it.
#pragma once
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "distributed/comm/gloo/link.h"
#include "distributed/comm/process_hub.h"

namespace weft::dist::wire {

class GlooGroup;
struct GlooOp;

/// The services that groups use in their process.
class Hub {
 public:
  virtual ~Hub() = default;
  std::mutex mutex;
  /// Time from the first mismatch until the group fails: meanwhile other requests may arrive and show which rank is
  /// wrong.
  std::chrono::nanoseconds settles{std::chrono::milliseconds(40)};
  /// Sends a frame; `header.to` says where.
  virtual void send(Outgoing frame) = 0;
  /// Gives the runnable tasks of a collective to another thread.
  virtual void work(Ref<GlooGroup> group, Ref<GlooOp> op) = 0;
  /// Receives in this thread until a frame of one of these ranks has come; false if none comes within a short time.
  virtual bool poll(const std::vector<int>& ranks) = 0;
  /// Why the world has failed; empty: it has not. The caller holds the lock.
  virtual std::string aborted() const { return {}; }
  /// Why a rank will send no more frames; empty if it may. `left`: it has left in an orderly way.
  virtual std::string ending(int rank, bool* left) const = 0;
  /// A rank has dropped its communicator.
  virtual void remove(GlooGroup&) {}
};

/// A part of this rank's result.
struct Task {
  int transfer = 0;
  internal::Box box;
  std::vector<int> sources;  // positions, in the order in which they are combined
  std::vector<bool> arrived;
  std::vector<std::vector<char>> staged;  // index in `sources` -> chunks that wait for other chunks
  int missing = 0;                        // sources that are not staged yet
  bool from_owner = false;                // the result of an all-reduce, from the rank that has combined it
  bool forward = false;                   // the other ranks wait for the result
};

/// One collective.
struct GlooOp final : internal::Op {
  using internal::Op::Op;
  uint64_t k = 0, stream = 0;
  size_t mine = 0;
  std::vector<int64_t> times;  // start times by position
  std::vector<bool> inlined;
  std::vector<std::vector<char>> inputs;  // position -> the input, if it was sent with the request
  bool started = false, ready = false, done = false, failed = false;
  std::vector<Task> tasks;
  std::vector<std::vector<int>> task_of;        // indices: transfer and chunk; empty if only other ranks get the result
  std::deque<int> runnable;                     // tasks whose chunks are all there
  size_t to_send = 0, to_apply = 0, parts = 0;  // `parts`: their initial sum
  int workers = 0;                              // threads that use this rank's operands
  struct Early {
    FrameHeader header;
    std::vector<char> payload;
  };
  std::vector<Early> early;  // data that came before the last request
  int64_t early_bytes = 0;

  bool ended() const { return done || failed; }
};

/// A sequence of collectives of the same ranks.
struct Stream {
  uint64_t id = 0;           // 0, or 1 + from * n + to
  std::vector<int> members;  // positions in the group
  size_t mine = 0;
  std::vector<uint64_t> started;  // index: member
  std::deque<Ref<GlooOp>> ops;    // collectives that have not ended; the first has k = base
  uint64_t base = 0;
};

class GlooGroup final : public internal::ProcessGroup {
 public:
  /// `members` are ranks of the world; this one is `rank`. `world` lives as long as its groups. Does not wait.
  GlooGroup(Hub& hub, std::shared_ptr<ProcessHub> world, const std::string& name, const std::vector<int>& members,
            int rank, uint64_t key);

  uint64_t key() const { return key_; }
  int world_rank() const { return names_.ranks[me_]; }

  // These lock the hub.
  void open(Work::Deadline deadline) override;
  Ref<internal::Op> start(int rank, const CommRequest& request, std::optional<Error>* error,
                          const std::pair<int, int>* color = nullptr) override;
  std::optional<Error> wait(internal::Op& op, Work::Deadline deadline) override;
  bool done(internal::Op& op) override;
  void leave(internal::Op& op, int rank) override;
  void abort(const std::string& cause) override;
  void retire(int rank, bool on) override;
  void close() override { hub_.remove(*this); }
  /// Does the runnable tasks of an op.
  void work(GlooOp& op);

  // The caller of these holds the hub's lock; receive() may release it for a while.
  /// A frame for this rank; throws if it is wrong.
  void receive(const FrameHeader& h, const char* payload, std::unique_lock<std::mutex>& lock);
  /// Reports to the other ranks that this rank has created the group.
  void announce();
  /// Another rank has created the group.
  void opened(int position);
  /// A rank of the group has ended or left.
  void ended(int world_rank);
  /// Fails on this rank only.
  void fail_here(const Error& error, const GlooOp* op, uint64_t stream = 0, uint64_t number = 0,
                 bool of_collective = false);

 private:
  FrameHeader header(FrameKind kind, int to_position) const;
  void send_to_others(FrameKind kind, std::vector<char> bytes, uint64_t stream = 0, uint64_t number = 0);
  Stream& stream_of(uint64_t id);
  Ref<GlooOp> op_at(Stream& s, uint64_t k);
  void take(Stream& s, GlooOp& op, size_t position, StartedRequest r);
  void settle();  // fails the group by mismatch_ when its time has come
  void get_ready(GlooOp& op);
  std::vector<int> sources_of(const GlooOp& op, int transfer) const;
  bool needs_input(const internal::Request& r, int from, int to) const;
  void plan(GlooOp& op);
  void add_task(GlooOp& op, Task task);
  void send_chunk(GlooOp& op, int transfer, size_t chunk, size_t to, const StridedView& view);
  void receive_request(const FrameHeader& h, const char* payload);
  void receive_data(GlooOp& op, const FrameHeader& h, const char* payload, std::unique_lock<std::mutex>& lock);
  void apply(GlooOp& op, int task, const char* last, std::unique_lock<std::mutex>& lock);
  void run_task(const GlooOp& op, const Task& t, const char* last) const;
  void finish(GlooOp& op);
  void drop_ended(Stream& s);
  void check_retired(GlooOp& op);
  void fail(const Error& error, const GlooOp* op);
  void time_out(GlooOp& op);
  std::vector<internal::LastStarted> last_of(const GlooOp& op) const;

  Hub& hub_;
  std::condition_variable changed_;
  std::map<uint64_t, Stream> streams_;
  std::vector<bool> open_, retired_;
  std::vector<internal::LastStarted> last_;
  std::optional<Error> failed_;
  /// Two requests of an op that differ. The group fails at `settles`, or when no request of the op is missing.
  struct Mismatch {
    Ref<GlooOp> op;
    Error error;
    std::chrono::steady_clock::time_point settles;
  };
  std::optional<Mismatch> mismatch_;
};

}  // namespace weft::dist::wire
