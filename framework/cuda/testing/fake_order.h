// The order of the fake driver's work: vector clocks of streams, events and the host, and the last accesses to each
// byte. Work on the same memory must be ordered by an event, by a wait of the host or by one stream.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace weft::cuda::testing {

/// For each stream (by number), how many of its operations are known to be done or to come before.
class FakeClock {
 public:
  void join(const FakeClock& other) {
    for (const auto& [stream, n] : other.seen_) know(stream, n);
  }
  void know(uint64_t stream, uint64_t n) {
    uint64_t& mine = seen_[stream];
    if (mine < n) mine = n;
  }
  bool knows(uint64_t stream, uint64_t n) const {
    auto it = seen_.find(stream);
    return it != seen_.end() && it->second >= n;
  }

 private:
  std::map<uint64_t, uint64_t> seen_;
};

/// The position of one operation in the order.
struct FakePosition {
  uint64_t stream = 0, n = 0;  // the n-th operation of that stream
  FakeClock clock;             // the operations before it
};

class FakeAccesses {
 public:
  /// kUses: a kernel that may read or write; two of these are treated like two reads.
  enum Kind { kReads, kWrites, kUses };

  /// Records an access. Returns the access that is not ordered with it ("kernel k on stream 2"), or an empty string.
  std::string touch(uint64_t address, size_t bytes, Kind kind, const FakePosition& place, const std::string& what);
  void forget(uint64_t address, size_t bytes);

 private:
  struct Access {
    uint64_t n = 0;
    std::string what;
  };
  struct Segment {
    uint64_t end = 0;
    std::map<uint64_t, Access> by[3];  // the last access, by Kind and stream
  };
  void split(uint64_t at);
  std::map<uint64_t, Segment> segments_;  // key: begin; not overlapping
};

}  // namespace weft::cuda::testing
