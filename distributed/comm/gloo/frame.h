// Frames, the messages between processes. Nothing in a received frame is trusted: readers check sizes and ranges before
// they use them, and throw Error.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "distributed/comm/matching.h"

namespace weft::dist::wire {

inline constexpr int64_t kChunkBytes = 256 << 10;    // largest data of a frame
inline constexpr int64_t kInlineBytes = 16 << 10;    // inputs up to this size are sent with the request
inline constexpr int64_t kMaxPayload = kChunkBytes;  // largest payload of a frame
inline constexpr uint32_t kMagic = 0x77667431;
inline constexpr int64_t kMaxElements = int64_t{1} << 48;

enum class FrameKind : uint8_t {
  kHello,     // the first on a connection, from each side: the token of the job (connect.h)
  kOpen,      // the sender has created a communicator
  kRequest,   // the sender has started a collective
  kData,      // a part of an operand
  kFail,      // the communicator has failed
  kRetire,    // `number`: 1: the sender starts no more collectives; 0: it may start them again
  kLeave,     // the process leaves; from now on it only answers
  kLeaveAck,  // the answer to kLeave
};
inline constexpr int kNumFrameKinds = 8;

struct FrameHeader {
  uint32_t magic = kMagic;
  FrameKind kind = FrameKind::kHello;
  uint8_t unused[3] = {};
  int32_t from = 0, to = 0;  // ranks of the world
  uint64_t group = 0;        // the key of a communicator
  uint64_t stream = 0;       // the sequence of collectives that this one belongs to
  uint64_t number = 0;       // its position in the stream, from 0
  uint32_t transfer = 0;     // kData: the part of the collective that the payload belongs to
  uint32_t chunk = 0;
  uint32_t bytes = 0;  // size of the payload
  uint32_t unused_end = 0;
};
static_assert(sizeof(FrameHeader) == 56);

/// The header of the frame in a buffer of the largest frame size; throws if there is no valid frame.
FrameHeader read_header(const char* buffer);

/// A collective as its rank has started it.
struct StartedRequest {
  internal::Request request;  // its views have no data and are dense
  int64_t time = 0;           // time of the start, in nanoseconds of the system clock
  bool splits = false;        // it is a split, with `color` and `key`
  int32_t color = 0, key = 0;
  bool inlined = false;     // the input is sent with requests only
  std::vector<char> input;  // dense; empty if the receiver does not need it
};
std::vector<char> encode(const StartedRequest& r);
/// Throws if the text is not a request; `size` is the communicator's.
StartedRequest decode_request(const char* data, size_t bytes, int size);

/// The failure of a communicator.
struct Failure {
  Code code = Code::kAborted;
  bool of_collective = false;  // only the collective that the header names failed
  std::string text;
};
std::vector<char> encode(const Failure& f);
Failure decode_failure(const char* data, size_t bytes);

}  // namespace weft::dist::wire
