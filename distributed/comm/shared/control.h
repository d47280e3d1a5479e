// The control area of one communicator in the segment of one rank: plain counters and descriptions of requests. Only
// its rank writes it, except `state` of the first member's area, which all ranks change by compare-and-swap. There is
// no lock, so a process that dies or stops between two instructions blocks no other process.
//
// A stream is a sequence of collectives of the same ranks: one stream for all ranks, and one for each ordered pair. The
// rank counts the collectives that it has started (`published`) and finished on its side (`done`). A ring has the
// descriptions of the last kWindow collectives: a slot is reused after all ranks have done their part of its
// collective.
#pragma once
#include <atomic>
#include <cstdint>

#include "distributed/comm/matching.h"
#include "distributed/comm/shared/segment.h"

namespace weft::dist::shared {

/// The type of an operand.
struct OperandType {
  uint8_t dtype, dims;
  int64_t shape[kMaxDims];
};

/// A request as other processes see it. `send` and then `recv` counts follow it.
struct Descriptor {
  int64_t time;  // ns of the monotonic clock
  uint64_t site;
  uint8_t kind, op;
  uint8_t whole;   // `offset` has a dense copy of the whole input, or nobody reads it; 0: pieces of it, in turn
  uint8_t around;  // pieces bypass the caches; the first member's value holds for all members
  uint8_t splits;  // split(), with its colour and key
  int32_t color, key;
  int32_t peer, in_dim, out_dim, shift;
  int32_t send, recv;  // numbers of counts
  uint64_t offset;     // offset in the segment of its rank; valid until all ranks have done their part
  OperandType in, out;
};

/// The counters of one stream.
struct alignas(64) StreamCounters {
  std::atomic<uint64_t> published, done;
  std::atomic<uint64_t> ticks;    // ticks (copy.cc) of all its collectives that move pieces
  std::atomic<uint32_t> blocked;  // not 0: this rank waits for a slot; wake the rank whenever `done` grows
};

/// The beginning of a control area.
struct AreaHeader {
  /// `finished << 16 | failed`, used only in the first member's area. `finished` counts the collectives of stream 0
  /// that have succeeded on every rank; `failed` is 1 + the position of the rank that made the communicator fail, or 0.
  /// Both are in one word, so that a collective succeeds on all ranks or on none.
  alignas(64) std::atomic<uint64_t> state;
  alignas(64) std::atomic<uint64_t> last;  // the last collective that this rank started: number << 8 | kind
  std::atomic<uint32_t> retired;
  // Why the communicator failed, as this rank sees it. Read only if `state` names this rank.
  int32_t failure_code;
  uint32_t failure_length;
  uint64_t failure_stream, failure_number;  // the collective that failed; number 0: none
  char failure_text[4096];
};

constexpr uint64_t kWindow = 16, kPairWindow = 4;
constexpr int64_t kInline = 256;  // bytes of a small operand that fits into the slot itself

/// Offsets of the parts of a control area, for a communicator of n ranks.
struct AreaLayout {
  int n;
  /// Capacity of a slot in counts, for each direction: more than a valid request has.
  int counts() const { return n + 8; }
  int64_t inline_offset() const { return (static_cast<int64_t>(sizeof(Descriptor)) + 16 * counts() + 63) / 64 * 64; }
  int64_t slot_bytes() const { return inline_offset() + kInline; }
  static uint64_t window(int stream) { return stream == 0 ? kWindow : kPairWindow; }
  /// Stream 0 is for collectives of all ranks, 1 + 2 p for sends to p, 2 + 2 p for receives from p.
  int streams() const { return 1 + 2 * n; }
  // All counters are together, so that a communicator of many ranks touches few pages.
  int64_t counters_offset(int stream) const {
    return static_cast<int64_t>(sizeof(AreaHeader)) + stream * static_cast<int64_t>(sizeof(StreamCounters));
  }
  int64_t slots_offset(int stream) const {
    const auto slots = stream == 0 ? 0 : kWindow + static_cast<uint64_t>(stream - 1) * kPairWindow;
    return counters_offset(streams()) + static_cast<int64_t>(slots) * slot_bytes();
  }
  int64_t bytes() const { return slots_offset(streams()); }
};

/// The control area of one member, as this process sees it.
class Area {
 public:
  Area() = default;
  Area(char* base, int n) : base_(base), layout_{n} {}
  explicit operator bool() const { return base_ != nullptr; }
  AreaHeader& header() const { return *reinterpret_cast<AreaHeader*>(base_); }
  StreamCounters& counters(int stream) const {
    return *reinterpret_cast<StreamCounters*>(base_ + layout_.counters_offset(stream));
  }
  char* slot(int stream, uint64_t number) const {
    const auto i = static_cast<int64_t>(number % AreaLayout::window(stream));
    return base_ + layout_.slots_offset(stream) + i * layout_.slot_bytes();
  }
  char* inline_data(int stream, uint64_t number) const { return slot(stream, number) + layout_.inline_offset(); }
  const AreaLayout& layout() const { return layout_; }

 private:
  char* base_ = nullptr;
  AreaLayout layout_{0};
};

/// Writes a request into a slot; `whole`, `around` and `offset` as in Descriptor.
void write_slot(const Area& area, int stream, uint64_t number, const internal::Request& r, bool whole, bool around,
                uint64_t offset, const std::pair<int, int>* color);
/// Reads a request; its views are dense, and have no addresses yet.
internal::Request read_slot(const Area& area, int stream, uint64_t number);
inline const Descriptor& descriptor(const Area& area, int stream, uint64_t number) {
  return *reinterpret_cast<const Descriptor*>(area.slot(stream, number));
}

}  // namespace weft::dist::shared
