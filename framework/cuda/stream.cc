#include "framework/cuda/stream.h"

#include "framework/cuda/gpu.h"
#include "framework/cuda/libraries/driver_error.h"

namespace weft::cuda {

Stream::Stream(Gpu& gpu, int priority) : gpu_(gpu) {
  gpu.make_current();
  check(driver().cuStreamCreateWithPriority(&handle_, CU_STREAM_NON_BLOCKING, priority), "making a stream on ",
        gpu.device());
}
Stream::~Stream() {
  gpu_.make_current_if_possible();
  ignore(driver().cuStreamDestroy_v2(handle_));
}

void Stream::synchronize() {
  gpu_.make_current();
  check(driver().cuStreamSynchronize(handle_), "waiting for ", gpu_.device());
}

bool Stream::idle() {
  gpu_.make_current();
  CUresult r = driver().cuStreamQuery(handle_);
  if (r == CUDA_ERROR_NOT_READY) return false;
  check(r, "asking for the state of a stream of ", gpu_.device());
  return true;
}

void Stream::wait(const Event& event) {
  gpu_.make_current();
  check(driver().cuStreamWaitEvent(handle_, event.handle(), 0), "ordering streams of ", gpu_.device());
}

void Stream::wait(Stream& other) {
  if (&other == this) return;
  Event event(other.gpu());
  event.record(other);
  wait(event);
}

bool Stream::capturing() const {
  gpu_.make_current();
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  check(driver().cuStreamGetCaptureInfo_v3(handle_, &status, nullptr, nullptr, nullptr, nullptr, nullptr),
        "asking whether a stream of ", gpu_.device(), " is capturing");
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

Event::Event(Gpu& gpu, bool timing) : gpu_(gpu) {
  gpu.make_current();
  check(driver().cuEventCreate(&handle_, timing ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING), "making an event on ",
        gpu.device());
}
Event::~Event() {
  gpu_.make_current_if_possible();
  ignore(driver().cuEventDestroy_v2(handle_));
}

void Event::record(Stream& stream) {
  stream.gpu().make_current();
  check(driver().cuEventRecord(handle_, stream.handle()), "recording an event on ", gpu_.device());
}

bool Event::done() const {
  gpu_.make_current();
  CUresult r = driver().cuEventQuery(handle_);
  if (r == CUDA_ERROR_NOT_READY) return false;
  check(r, "asking for an event of ", gpu_.device());
  return true;
}

void Event::synchronize() const {
  gpu_.make_current();
  check(driver().cuEventSynchronize(handle_), "waiting for an event of ", gpu_.device());
}

double Event::ms_since(const Event& start) const {
  start.synchronize();
  synchronize();
  float ms = 0;
  check(driver().cuEventElapsedTime(&ms, start.handle_, handle_), "reading the time between events of ", gpu_.device());
  return ms;
}

}  // namespace weft::cuda
