// A communicator as one rank sees it: its started collectives, and how they advance. The mutex of the rank's engine
// guards all members, unless a comment says otherwise.
//
// A collective of a stream is published (its description is in shared memory), ready (all ranks have published theirs),
// copied (this rank's part is done) and done. They advance in the order in which they were started.
//
// Operands are in private memory. An input of at most kSmallBytes is copied into shared memory before it is published.
// A larger one passes through a ring of few pieces (copy.cc), so that shared memory stays small. Each rank fills its
// own result and takes over no part of another rank, since either may die.
//
// A rank that has done its part needs no other rank: data that others still read stays in shared memory.
#pragma once
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "distributed/comm/process_hub.h"
#include "distributed/comm/shared/control.h"
#include "distributed/comm/shared/piece_writes.h"

namespace weft::dist::shared {

class Engine;
class SharedGroup;

constexpr int64_t kPieces = 3;  // number of pieces in a ring

/// One collective as this rank sees it.
struct SharedOp final : internal::Op {
  enum class State { kQueued, kPublished, kCopying, kCopied, kDone, kFailed };
  using internal::Op::Op;
  uint64_t k = 0;   // its place in the stream, from 0
  int stream = 0;   // its stream, as this rank numbers them
  size_t mine = 0;  // this rank's position among `members`
  State state = State::kQueued;
  bool splits_here = false;
  StridedView in, out;    // this rank's operands
  void* stage = nullptr;  // a copy of the whole input, if it is in the heap
  bool whole = false;     // this rank's input does not pass in pieces
  bool inlined = false;   // the input is in the slot

  // For a collective whose input passes in pieces:
  std::vector<std::vector<internal::Box>> rounds;  // transfer, round -> the box that passes
  bool around = false;                             // pieces bypass the caches
  bool sliced = false;                             // an all-reduce, whose pieces are reduced by all ranks together
  int64_t tick = 0, ticks = 0;                     // ticks done, and all; 0: no input passes in pieces

  // The current copies of this rank: all of its part, or its part of one tick.
  bool planned = false;
  std::vector<internal::Transfer> copies;
  std::vector<internal::Box> boxes;
  std::atomic<size_t> next{0}, copied{0};
  std::atomic<int64_t> copy_ns{0};  // sum over all threads
  int workers = 0;                  // threads that copy boxes

  bool ended() const { return state == State::kDone || state == State::kFailed; }
};

/// A sequence of collectives of the same ranks.
struct Stream {
  uint64_t id = 0;           // the same on all ranks: 0, or 1 + from * n + to
  std::vector<int> members;  // positions in the group
  std::vector<int> indices;  // the number of the stream in the area of each member
  size_t mine = 0;
  std::deque<Ref<SharedOp>> ops;  // collectives that some rank has not ended; the first has k = base
  uint64_t base = 0, started = 0, published = 0, copied = 0, finished = 0;
  uint64_t ticks = 0;    // StreamCounters::ticks of this rank
  void* ring = nullptr;  // this rank's pieces, while it needs them
  SharedOp& at(uint64_t k) { return *ops[k - base]; }
};

class SharedGroup final : public internal::ProcessGroup {
 public:
  /// Adds the control area of this rank; `members` are ranks of the world. Does not wait.
  SharedGroup(std::shared_ptr<ProcessHub> hub, Engine& engine, const std::string& name, const std::vector<int>& members,
              uint64_t key);
  ~SharedGroup() override;

  // These lock the engine.
  void open(Work::Deadline deadline) override;
  Ref<internal::Op> start(int rank, const CommRequest& request, std::optional<Error>* error,
                          const std::pair<int, int>* color = nullptr) override;
  std::optional<Error> wait(internal::Op& op, Work::Deadline deadline) override;
  bool done(internal::Op& op) override;
  void leave(internal::Op& op, int rank) override;
  void abort(const std::string& cause) override;
  void retire(int rank, bool on) override;
  /// Copies boxes of this rank's part until none is left to start. Several threads may do so.
  void copy(SharedOp& op);

  // The caller of these holds the engine's lock.
  /// Advances all streams as far as possible without copying large operands.
  void progress();
  /// An op with boxes to copy, or null.
  Ref<SharedOp> to_copy();
  bool idle() const;
  /// Whether an unfinished op is large enough to wake another thread for it.
  bool busy() const;
  /// Makes the group fail on all ranks; `op` is the failed collective, or null.
  void fail(const Error& error, const SharedOp* op);
  /// Marks in this rank's area whether the rank will start no more collectives.
  void retire_locked(bool on);

 private:
  Stream& stream_of(const internal::Request& r);
  Segment& segment(int position) const { return *segments_[position]; }
  StreamCounters& counters(const Stream& s, size_t i) const { return areas_[s.members[i]].counters(s.indices[i]); }
  std::atomic<uint64_t>& state() const { return areas_[0].header().state; }
  void ring(int position) const;
  void ring_others(const Stream& s, bool all) const;
  uint64_t least_done(const Stream& s) const;

  PieceWrites& writes_of(const SharedOp& op) { return writes_[static_cast<size_t>(op.requests[op.mine].kind)]; }
  void share_input(SharedOp& op);
  void free_stage(SharedOp& op);
  void advance(Stream& s);
  bool room(Stream& s);
  void publish(Stream& s, SharedOp& op);
  void read_requests(Stream& s, SharedOp& op);
  void compare(const SharedOp& op) const;
  void check_retired(Stream& s, SharedOp& op);
  bool ready(Stream& s, SharedOp& op);
  void list_copies(Stream& s, SharedOp& op);
  void cut_rounds(SharedOp& op);
  bool plan(Stream& s, SharedOp& op);
  void plan_tick(Stream& s, SharedOp& op);
  static std::optional<internal::Transfer> mine(const SharedOp& op, size_t transfer);
  int64_t share_bytes(const SharedOp& op) const;
  StridedView in_ring(const Stream& s, const SharedOp& op, int member, size_t transfer, int64_t round) const;
  void leave_copy(SharedOp& op);
  bool decide(const Stream& s, uint64_t k);
  void refresh();
  void take_failure(uint64_t state);
  void time_out(SharedOp& op);
  std::vector<internal::LastStarted> last_of(const SharedOp& op) const;

  Engine& engine_;
  std::vector<Segment*> segments_;
  std::vector<Area> areas_;
  std::map<int, Stream> streams_;                    // key: this rank's number of the stream
  std::array<PieceWrites, kNumCollectives> writes_;  // index: kind
  bool open_ = false;                                // the areas of all members are known
  std::optional<Error> failed_;
};

}  // namespace weft::dist::shared
