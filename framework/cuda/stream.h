// Streams and events: queues of device work, and marks in them that another stream or the host waits for.
#pragma once
#include "framework/cuda/driver_api.h"

namespace weft::cuda {

class Gpu;
class Event;

/// A queue of work of one GPU; work of one stream runs in the order it was given. Never the default stream.
class Stream {
 public:
  /// `priority` 0 is the lowest, -1 and below go first.
  explicit Stream(Gpu& gpu, int priority = 0);
  /// Work still queued is done all the same.
  ~Stream();
  Stream(const Stream&) = delete;

  Gpu& gpu() const { return gpu_; }
  CUstream handle() const { return handle_; }
  /// Waits for everything queued so far. Throws what a kernel left behind.
  void synchronize();
  /// True if nothing is queued; throws what a kernel left behind.
  bool idle();
  /// Later work of this stream waits for the event's last record.
  void wait(const Event& event);
  /// Later work of this stream waits for everything queued on the other so far.
  void wait(Stream& other);
  /// True between begin and end of a capture on this stream, or once it was drawn into another's.
  bool capturing() const;

 private:
  Gpu& gpu_;
  CUstream handle_ = nullptr;
};

/// A mark in a stream. `timing` events can be subtracted, others cost less.
class Event {
 public:
  explicit Event(Gpu& gpu, bool timing = false);
  ~Event();
  Event(const Event&) = delete;

  CUevent handle() const { return handle_; }
  void record(Stream& stream);
  /// True if the last record was reached, or there is none.
  bool done() const;
  void synchronize() const;
  /// Milliseconds from the other event's record to this one's; both are waited for.
  double ms_since(const Event& start) const;

 private:
  Gpu& gpu_;
  CUevent handle_ = nullptr;
};

}  // namespace weft::cuda
