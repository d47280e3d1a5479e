// Streams and events: queues of device work, and positions in them that another stream or the host can wait for.
#pragma once
#include "framework/cuda/libraries/driver_api.h"

namespace weft::cuda {

class Gpu;
class Event;

/// A queue of work of one GPU; work of one stream runs in the order in which it was queued. Never the default stream.
class Stream {
 public:
  /// Priority 0 is the lowest; -1 and below run first.
  explicit Stream(Gpu& gpu, int priority = 0);
  /// Work still queued runs nevertheless.
  ~Stream();
  Stream(const Stream&) = delete;

  Gpu& gpu() const { return gpu_; }
  CUstream handle() const { return handle_; }
  /// Waits for everything queued so far. Throws the error of a failed kernel.
  void synchronize();
  /// True if nothing is queued; throws the error of a failed kernel.
  bool idle();
  /// Later work of this stream waits for the event's last record.
  void wait(const Event& event);
  /// Later work of this stream waits for everything queued on `other` so far.
  void wait(Stream& other);
  /// True between begin and end of a capture on this stream, or after the stream joined another stream's capture.
  bool capturing() const;

 private:
  Gpu& gpu_;
  CUstream handle_ = nullptr;
};

/// A position in a stream. `timing` events can be subtracted; others cost less.
class Event {
 public:
  explicit Event(Gpu& gpu, bool timing = false);
  ~Event();
  Event(const Event&) = delete;

  CUevent handle() const { return handle_; }
  void record(Stream& stream);
  /// True if the last record was reached, or if there is none.
  bool done() const;
  void synchronize() const;
  /// Milliseconds from the record of `start` to this event's record; waits for both.
  double ms_since(const Event& start) const;

 private:
  Gpu& gpu_;
  CUevent handle_ = nullptr;
};

}  // namespace weft::cuda
