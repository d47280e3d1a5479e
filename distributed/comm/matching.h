// Shared code of all transports: matches and compares the requests of ranks, lists their copies, and writes error
// messages. Nothing here waits or copies.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "distributed/comm/transfer.h"
#include "framework/dispatch/rank/communicator.h"

namespace weft::dist::internal {

inline constexpr int64_t kBoxBytes = 256 << 10;   // a thread checks for failure after each box
inline constexpr int64_t kSmallBytes = 64 << 10;  // up to this size latency costs more than moving the bytes

/// One rank's request, with its own copy of the counts.
struct Request : CommRequest {
  std::vector<int64_t> send, recv;
  Request() = default;
  explicit Request(const CommRequest& r)
      : CommRequest(r),
        send(r.send_counts.begin(), r.send_counts.end()),
        recv(r.recv_counts.begin(), r.recv_counts.end()) {}
  /// "all_reduce sum of f32[4] (site 3)".
  std::string to_string() const;
};

/// Whether other ranks read the input of `rank`, which starts the request.
inline bool others_read(const Request& r, int rank) {
  return r.kind == Collective::kBroadcast ? r.peer == rank
                                          : r.kind != Collective::kBarrier && r.kind != Collective::kRecv;
}
/// Whether the collective has two ranks only.
inline bool point_to_point(Collective c) { return c == Collective::kSend || c == Collective::kRecv; }
/// Whether the collective combines the operands of ranks.
inline bool combines(Collective c) { return c == Collective::kAllReduce || c == Collective::kReduceScatter; }

/// The requests of one collective, and the copies that implement it.
struct Match {
  std::vector<int> members;  // ranks of the communicator, by position in `requests`
  std::vector<Request> requests;
  std::vector<bool> here;           // position -> whether the rank has started it
  int first = -1;                   // position of the rank that started it first
  uint64_t number = 0;              // number among the collectives of its ranks, for messages; 0: none
  Work::Deadline all_started = {};  // when build() was called
  int splits = 0;                   // number of ranks that called split(); `colors` contains their colours and keys
  std::vector<std::pair<int, int>> colors;
  std::vector<Transfer> transfers;
  std::vector<std::vector<int>> sources, receivers;  // for each transfer: the positions of its sources and destinations

  explicit Match(std::vector<int> ranks = {}, uint64_t n = 0)
      : members(std::move(ranks)), requests(members.size()), here(members.size()), number(n), colors(members.size()) {}
  /// The position of a rank.
  size_t position(int rank) const;
};

/// The last collective that a rank started, for messages.
struct LastStarted {
  Collective kind = Collective::kBarrier;
  uint64_t number = 0;  // 0: nothing yet
};

/// The names of a communicator and of its ranks, and the rules and errors that need them.
struct GroupNames {
  std::string name;
  std::vector<int> ranks;  // their numbers in the world

  /// Completes `ranks` to `size` numbers.
  GroupNames(int size, std::string group_name, std::vector<int> world_ranks);
  int size() const { return static_cast<int>(ranks.size()); }

  /// "rank 4".
  std::string who(int rank) const;
  /// "all_reduce #2 over dp: ".
  std::string where(Collective kind, uint64_t number) const;

  /// The error of a send or receive whose peer is not another rank; nothing for other requests.
  std::optional<Error> wrong_peer(const Request& r, int rank) const;
  /// Throws if the ranks at these positions started different collectives.
  void agree(const Match& m, int first, size_t second) const;
  /// Lists the copies of a collective that all ranks have started; throws if their types do not fit.
  void build(Match& m) const;
  /// The groups that a split makes: the ranks of each colour in the order of their keys.
  std::vector<std::pair<int, std::vector<int>>> parts(const Match& m) const;
  /// The name of the group of a colour.
  std::string part_name(int color) const;

  /// "WHAT; missing: rank 4 (last started barrier #1); waiting in all_reduce sum of f32[4]: rank 0, rank 2"; `last` is
  /// by position.
  Error missing(const Match& m, const std::vector<LastStarted>& last, Code code, const std::string& what) const;
  /// missing() for a rank that will start no more collectives.
  Error returned(const Match& m, const std::vector<LastStarted>& last, size_t position) const;
  /// The deadline has passed, and `left` of `all` parts are not copied yet.
  Error still_copying(const Match& m, size_t left, size_t all) const;
  /// A rank dropped the collective without waiting for it.
  Error dropped(Collective kind, uint64_t number, int rank) const;

 private:
  StridedView part(const Match& m, int rank, const StridedView& view, int dim, const std::vector<int64_t>& counts,
                   int peer) const;
  void add(Match& m, Transfer t, int from_rank, const std::vector<int>& to_ranks) const;
  void check_reducible(const Match& m) const;
};

/// The error of abort() with this cause.
Error abort_error(const std::string& cause);
/// The error of all other and later collectives of a communicator that has failed.
Error aborted_by(const std::string& what);

/// Hashes two numbers into one, for keys and numbers of collectives.
uint64_t mix(uint64_t h, uint64_t x);

}  // namespace weft::dist::internal
