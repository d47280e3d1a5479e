// A communicator as one rank sees it: the collectives that it has started, and how they advance. All members are
// guarded by the mutex of the rank's engine, except where it says otherwise.
//
// A collective of a stream is published (its description is in shared memory), ready (all ranks have published theirs),
// copied (this rank's part is done) and done. They advance in the order in which they were started.
//
// Who copies: each rank fills its own result, because only it can reach a result in private memory. The exception is an
// all-reduce of more than kSmallBytes, whose boxes are divided among the ranks; each writes its boxes to the results of
// all. No rank takes over the boxes of another one, which may die with them.
//
// When it is done: if all inputs were copied into shared memory by the transport, a rank needs its own part only
// ("early"). Otherwise all ranks must have done their part, because they use the operands in place.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "distributed/comm/matching.h"
#include "distributed/comm/shared/control.h"

namespace weft::dist::shared {

class Engine;
class Group;

/// One collective as this rank sees it.
struct Op : RefCounted, internal::Match {
  enum class State { kQueued, kPublished, kCopying, kCopied, kCopyingOut, kDone, kFailed };
  using Match::Match;
  uint64_t id = 0;  // Work::number()
  uint64_t k = 0;   // its place in the stream, from 0
  int stream = 0;   // its stream, as this rank numbers them
  size_t mine = 0;  // this rank's position among `members`
  State state = State::kQueued;
  bool splits_here = false;
  StridedView in, out;               // this rank's operands
  SharedView shared_in, shared_out;  // the same as other processes see them
  void* stage = nullptr;             // memory for copies of operands
  void* stage_out = nullptr;         // the same for the result
  bool staged = false, inlined = false, in_place = false;
  bool early = false, sliced = false;
  std::vector<internal::Box> boxes;  // this rank's
  internal::Transfer rest;           // from shared memory to a private result, after all have written theirs
  std::vector<internal::Box> rest_boxes;
  std::atomic<size_t> next{0}, copied{0};
  int workers = 0;  // threads that copy boxes
  std::optional<Error> error;

  bool ended() const { return state == State::kDone || state == State::kFailed; }
};

/// A sequence of collectives of the same ranks.
struct Stream {
  uint64_t id = 0;           // the same on all ranks: 0, or 1 + from * n + to
  std::vector<int> members;  // positions in the group
  std::vector<int> indices;  // the number of the stream in the area of each member
  size_t mine = 0;
  std::deque<Ref<Op>> ops;  // not all ranks have done their part yet; the first has k = base
  uint64_t base = 0, started = 0, published = 0, copied = 0, finished = 0;
  Op& at(uint64_t k) { return *ops[k - base]; }
};

class Group final : public RefCounted {
 public:
  /// Adds the control area of this rank; `members` are ranks of the world. Does not wait.
  Group(std::shared_ptr<void> world, Engine& engine, std::string name, std::vector<int> members, uint64_t key);
  ~Group() override;
  /// Waits until all other ranks have added theirs; throws the error of one that does not.
  void open(Work::Deadline deadline);

  int rank() const { return me_; }
  int size() const { return names_.size(); }
  const internal::GroupNames& names() const { return names_; }
  Engine& engine() const { return engine_; }
  const std::shared_ptr<void>& world() const { return world_; }

  // These lock the engine.
  /// The op of this request; null with `*error` set if the group has failed.
  Ref<Op> start(const CommRequest& request, std::optional<Error>* error, const std::pair<int, int>* color = nullptr);
  std::optional<Error> wait(Op& op, Work::Deadline deadline);
  bool done(Op& op);
  /// The rank drops the op. If it is not done, it fails; returns when no other rank uses its operands.
  void leave(Op& op);
  void abort(const std::string& cause);
  void retire(bool on);
  /// Copies boxes of this rank's part until none is left to start. Several threads may do so.
  void copy(Op& op);

  // These need the engine's lock.
  /// Advances all streams as far as possible without copying large operands.
  void progress();
  /// An op with boxes to copy, or null.
  Ref<Op> to_copy();
  bool idle() const;
  /// Whether an op is not done that is large enough to wake another thread for it.
  bool busy() const;
  bool has(int world_rank) const;
  /// Makes the group fail on all ranks; `op` is the collective that failed, if it is one.
  void fail(const Error& error, const Op* op);
  /// This rank leaves the world: its areas say that it starts nothing more.
  void retire_locked(bool on);
  uint64_t key() const { return key_; }

 private:
  Stream& stream_of(const internal::Request& r);
  Segment& segment(int position) const { return *segments_[position]; }
  StreamCounters& counters(const Stream& s, size_t i) const { return areas_[s.members[i]].counters(s.indices[i]); }
  std::atomic<uint64_t>& state() const { return areas_[0].header().state; }
  bool failed_now() const { return state().load(std::memory_order_relaxed) & 0xffff; }
  void ring(int position) const;
  void ring_others(const Stream& s, bool all) const;
  uint64_t least_done(const Stream& s) const;

  void share_operands(Op& op);
  SharedView shared_view(const StridedView& v, const void* data) const;
  StridedView mapped(const StridedView& v, const SharedView& s) const;
  void advance(Stream& s);
  bool room(Stream& s);
  void publish(Stream& s, Op& op);
  void read_requests(Stream& s, Op& op);
  void compare(const Op& op) const;
  void check_retired(Stream& s, Op& op);
  bool ready(Stream& s, Op& op);
  void plan_copies(Stream& s, Op& op);
  void begin_copy_out(Op& op);
  bool enter(Op& op);
  void leave_copy(Op& op);
  void copied(Op& op);
  bool decide(const Stream& s, uint64_t k);
  void refresh();
  void take_failure(uint64_t state);
  void time_out(Op& op);
  bool used_by_others(const Op& op) const;
  std::vector<internal::LastStarted> last_of(const Op& op) const;

  const std::shared_ptr<void> world_;
  Engine& engine_;
  const internal::GroupNames names_;
  const uint64_t key_;
  int me_ = 0;
  std::vector<Segment*> segments_;
  std::vector<Area> areas_;
  std::map<int, Stream> streams_;  // by this rank's number
  bool open_ = false;              // the areas of all members are known
  std::optional<Error> failed_;
};

}  // namespace weft::dist::shared
