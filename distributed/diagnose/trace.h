// The state of a rank at a moment, from its records; and the ranks of a collective.
#pragma once
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "distributed/diagnose/job.h"

namespace weft::dist::diagnose {

inline constexpr int64_t kSecond = 1'000'000'000;

inline bool is_transfer(const flight::Record& r) { return r.kind == Collective::kSend || r.kind == Collective::kRecv; }
/// "all_reduce dp f32 4096 bytes".
std::string text_of(Collective kind, std::string_view axes, DType dtype, int64_t bytes);

/// The state of a rank at a moment.
struct Moment {
  size_t count = 0;                      // number of records up to then
  std::optional<flight::Record> waits;   // the event of an unfinished collective: its wait, or else its start
  uint8_t outcome = 0;                   // outcome of this event, if it has failed at this moment
  std::vector<flight::Record> phases;    // phases that have begun and not ended, the innermost last
  const flight::Record* last = nullptr;  // record
  const flight::Record* done = nullptr;  // the last collective that ended well
  bool failed_itself = false;            // the rank failed by an error outside collectives
};
Moment moment_at(const RankTrace& t, int64_t time);

class Groups {
 public:
  explicit Groups(const TracedJob& job);
  /// The ranks of the communicator of a record.
  std::vector<int> members(const RankTrace& t, const flight::Record& r) const;
  /// The other ranks of a collective that have not started it up to `time`.
  std::vector<int> missing(const RankTrace& t, const flight::Record& r, int64_t time) const;
  /// When a rank started the collective of another rank's record; nothing if it has not.
  std::optional<int64_t> start_of(int rank, const RankTrace& t, const flight::Record& r) const;

 private:
  std::vector<int> find_members(const RankTrace& t, const flight::Record& r) const;

  const TracedJob& job_;
  std::vector<std::map<std::pair<uint16_t, uint32_t>, int64_t>> starts_;  // index: rank; key: communicator and number
  mutable std::map<std::tuple<int, uint16_t, uint16_t>, std::vector<int>> members_;  // key: rank, plan and communicator
};

}  // namespace weft::dist::diagnose
