// Streams and events of the fake driver: queues that run only when something waits, and stream capture into graphs.
#include <algorithm>

#include "framework/base/error.h"
#include "framework/cuda/testing/fake_state.h"

namespace weft::cuda::testing {
namespace {

CUstream handle(FakeStream* s) { return reinterpret_cast<CUstream>(s); }
CUevent handle(FakeEvent* e) { return reinterpret_cast<CUevent>(e); }

CUresult check_event(FakeState& s, CUevent event, FakeEvent** out, const char* what) {
  auto it = s.events.find(reinterpret_cast<FakeEvent*>(event));
  if (it == s.events.end()) return s.complain(CUDA_ERROR_INVALID_HANDLE, what, ": no such event");
  *out = *it;
  return CUDA_SUCCESS;
}

uint64_t sum_of(const FakeRange& range) {
  const auto* p = reinterpret_cast<const unsigned char*>(range.address);
  uint64_t sum = range.bytes;
  for (size_t i = 0; i < range.bytes; ++i) sum = (sum ^ p[i]) * 0x100000001b3ull;
  return sum;
}

// Rejects a call that is not allowed on a capturing stream; the call breaks the capture.
CUresult refuse_capture(FakeState& s, FakeStream* stream, const char* what) {
  if (!stream->capture) return CUDA_SUCCESS;
  stream->capture->broken = true;
  return s.complain(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, what, ": the stream is capturing");
}

CUresult stream_create(CUstream* out, unsigned flags, int priority) {
  WEFT_FAKE_CONTEXT_CALL(cuStreamCreateWithPriority);
  if (flags != CU_STREAM_NON_BLOCKING)
    return s.complain(CUDA_ERROR_INVALID_VALUE,
                      "cuStreamCreateWithPriority: a stream that waits for the default stream");
  if (priority > 0 || priority < -5)
    return s.complain(CUDA_ERROR_INVALID_VALUE, "cuStreamCreateWithPriority: priority ", priority);
  auto* stream = new FakeStream;
  stream->device = device;
  stream->number = ++s.streams_made;
  s.streams.insert(stream);
  *out = handle(stream);
  return CUDA_SUCCESS;
}
CUresult stream_destroy(CUstream stream) {
  WEFT_FAKE_RELEASE_CALL(cuStreamDestroy_v2);
  auto it = s.streams.find(reinterpret_cast<FakeStream*>(stream));
  if (it == s.streams.end()) return s.complain(CUDA_ERROR_INVALID_HANDLE, "cuStreamDestroy_v2: no such stream");
  if ((*it)->capture) s.complain(CUDA_SUCCESS, "cuStreamDestroy_v2: the stream is capturing");
  s.run_until(*it, 0);  // its work runs nevertheless
  for (FakeEvent* e : s.events)
    if (e->stream == *it) e->stream = nullptr;
  delete *it;
  s.streams.erase(it);
  return CUDA_SUCCESS;
}
CUresult stream_synchronize(CUstream handle) {
  WEFT_FAKE_CONTEXT_CALL(cuStreamSynchronize);
  if (CUresult r = s.refuse_unsafe("cuStreamSynchronize"); r != CUDA_SUCCESS) return r;
  FakeStream* stream = nullptr;
  if (CUresult r = s.check_stream(handle, &stream, "cuStreamSynchronize"); r != CUDA_SUCCESS) return r;
  s.run_until(stream, 0);
  s.host.join(stream->clock);
  return s.sticky[device];
}
CUresult stream_query(CUstream handle) {
  WEFT_FAKE_CONTEXT_CALL(cuStreamQuery);
  if (CUresult r = s.refuse_unsafe("cuStreamQuery"); r != CUDA_SUCCESS) return r;
  FakeStream* stream = nullptr;
  if (CUresult r = s.check_stream(handle, &stream, "cuStreamQuery"); r != CUDA_SUCCESS) return r;
  if (stream->queue.empty()) return s.host.join(stream->clock), s.sticky[device];
  s.run_until(stream, stream->queue.size() - 1);  // repeated queries see it finish
  return CUDA_ERROR_NOT_READY;
}

CUresult event_create(CUevent* out, unsigned flags) {
  WEFT_FAKE_CONTEXT_CALL(cuEventCreate);
  if (flags & ~CU_EVENT_DISABLE_TIMING) return s.complain(CUDA_ERROR_INVALID_VALUE, "cuEventCreate: flags ", flags);
  auto* event = new FakeEvent;
  event->device = device;
  event->timing = !(flags & CU_EVENT_DISABLE_TIMING);
  s.events.insert(event);
  *out = handle(event);
  return CUDA_SUCCESS;
}
CUresult event_destroy(CUevent handle) {
  WEFT_FAKE_RELEASE_CALL(cuEventDestroy_v2);
  FakeEvent* event = nullptr;
  if (CUresult r = check_event(s, handle, &event, "cuEventDestroy_v2"); r != CUDA_SUCCESS) return r;
  s.run_event(event);
  s.events.erase(event);
  for (FakeStream* stream : s.streams)  // waits that are already satisfied
    for (FakeWork& w : stream->queue)
      if (w.event == event) w.event = nullptr;
  delete event;
  return CUDA_SUCCESS;
}
CUresult event_record(CUevent event_handle, CUstream stream_handle) {
  WEFT_FAKE_CONTEXT_CALL(cuEventRecord);
  FakeEvent* event = nullptr;
  FakeStream* stream = nullptr;
  if (CUresult r = check_event(s, event_handle, &event, "cuEventRecord"); r != CUDA_SUCCESS) return r;
  if (CUresult r = s.check_stream(stream_handle, &stream, "cuEventRecord"); r != CUDA_SUCCESS) return r;
  if (event->device != stream->device)
    return s.complain(CUDA_ERROR_INVALID_HANDLE, "cuEventRecord: event and stream of different devices");
  event->captured = stream->capture;
  event->stream = stream;
  if (stream->capture) {
    event->after = stream->last;
    return CUDA_SUCCESS;
  }
  FakeWork w;
  w.what = "event";
  w.event = event;
  w.ordinal = event->recorded = ++s.records;
  const CUresult r = s.enqueue(stream, std::move(w));
  event->clock = stream->clock;
  return r;
}
CUresult wait_event(CUstream stream_handle, CUevent event_handle, unsigned flags) {
  WEFT_FAKE_CONTEXT_CALL(cuStreamWaitEvent);
  FakeEvent* event = nullptr;
  FakeStream* stream = nullptr;
  if (CUresult r = check_event(s, event_handle, &event, "cuStreamWaitEvent"); r != CUDA_SUCCESS) return r;
  if (CUresult r = s.check_stream(stream_handle, &stream, "cuStreamWaitEvent"); r != CUDA_SUCCESS) return r;
  if (flags) return s.complain(CUDA_ERROR_INVALID_VALUE, "cuStreamWaitEvent: flags ", flags);
  if (event->captured) {
    if (!stream->capture) {
      stream->capture = event->captured;  // the stream joins the capture
      stream->last = event->after;
      stream->joined = event->after;
    }
    if (event->stream && event->stream != stream) event->stream->joined = event->after;
    return CUDA_SUCCESS;
  }
  if (stream->capture) {
    stream->capture->broken = true;
    return s.complain(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                      "cuStreamWaitEvent: a capture waits for work outside of it");
  }
  stream->clock.join(event->clock);
  if (event->recorded == event->done) return CUDA_SUCCESS;
  FakeWork w;
  w.what = "wait for an event";
  w.event = event;
  w.waits = true;
  w.ordinal = event->recorded;
  return s.enqueue(stream, std::move(w));
}
CUresult event_query(CUevent handle) {
  WEFT_FAKE_CONTEXT_CALL(cuEventQuery);
  if (CUresult r = s.refuse_unsafe("cuEventQuery"); r != CUDA_SUCCESS) return r;
  FakeEvent* event = nullptr;
  if (CUresult r = check_event(s, handle, &event, "cuEventQuery"); r != CUDA_SUCCESS) return r;
  if (event->captured)
    return s.complain(CUDA_ERROR_CAPTURED_EVENT, "cuEventQuery: the event was recorded under capture");
  if (event->done == event->recorded) return s.host.join(event->clock), s.sticky[device];
  if (event->stream && !event->stream->queue.empty()) s.run_until(event->stream, event->stream->queue.size() - 1);
  return CUDA_ERROR_NOT_READY;
}
CUresult event_synchronize(CUevent handle) {
  WEFT_FAKE_CONTEXT_CALL(cuEventSynchronize);
  if (CUresult r = s.refuse_unsafe("cuEventSynchronize"); r != CUDA_SUCCESS) return r;
  FakeEvent* event = nullptr;
  if (CUresult r = check_event(s, handle, &event, "cuEventSynchronize"); r != CUDA_SUCCESS) return r;
  if (event->captured)
    return s.complain(CUDA_ERROR_CAPTURED_EVENT, "cuEventSynchronize: the event was recorded under capture");
  s.run_event(event);
  s.host.join(event->clock);
  return s.sticky[device];
}
CUresult event_elapsed(float* milliseconds, CUevent start_handle, CUevent end_handle) {
  WEFT_FAKE_CONTEXT_CALL(cuEventElapsedTime);
  FakeEvent *start = nullptr, *end = nullptr;
  if (CUresult r = check_event(s, start_handle, &start, "cuEventElapsedTime"); r != CUDA_SUCCESS) return r;
  if (CUresult r = check_event(s, end_handle, &end, "cuEventElapsedTime"); r != CUDA_SUCCESS) return r;
  if (!start->timing || !end->timing || !start->recorded || !end->recorded)
    return s.complain(CUDA_ERROR_INVALID_HANDLE, "cuEventElapsedTime: an event without timing, or never recorded");
  if (start->done != start->recorded || end->done != end->recorded) return CUDA_ERROR_NOT_READY;
  *milliseconds = static_cast<float>(end->time_ms - start->time_ms);
  return CUDA_SUCCESS;
}

CUresult begin_capture(CUstream handle, CUstreamCaptureMode mode) {
  WEFT_FAKE_CONTEXT_CALL(cuStreamBeginCapture_v2);
  FakeStream* stream = nullptr;
  if (CUresult r = s.check_stream(handle, &stream, "cuStreamBeginCapture_v2"); r != CUDA_SUCCESS) return r;
  if (CUresult r = refuse_capture(s, stream, "cuStreamBeginCapture_v2"); r != CUDA_SUCCESS) return r;
  auto capture = std::make_shared<FakeCapture>();
  capture->graph = new FakeGraph;
  capture->origin = stream;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  s.graphs.insert(capture->graph);
  stream->capture = capture;
  stream->last = stream->joined = nullptr;
  return CUDA_SUCCESS;
}
CUresult end_capture(CUstream handle, CUgraph* graph) {
  WEFT_FAKE_CONTEXT_CALL(cuStreamEndCapture);
  *graph = nullptr;
  FakeStream* stream = nullptr;
  if (CUresult r = s.check_stream(handle, &stream, "cuStreamEndCapture"); r != CUDA_SUCCESS) return r;
  auto capture = stream->capture;
  if (!capture || capture->origin != stream)
    return s.complain(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "cuStreamEndCapture: this stream began no capture");
  bool unjoined = false;
  for (FakeStream* other : s.streams) {
    if (other->capture != capture) continue;
    unjoined |= other != stream && other->last != other->joined;
    other->capture = nullptr;
  }
  if (capture->broken || unjoined) {
    s.graphs.erase(capture->graph);
    delete capture->graph;
    if (capture->broken) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    return s.complain(CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
                      "cuStreamEndCapture: work of another stream was not waited for");
  }
  *graph = reinterpret_cast<CUgraph>(capture->graph);
  return CUDA_SUCCESS;
}
CUresult capture_info(CUstream handle, CUstreamCaptureStatus* status, uint64_t* id, CUgraph* graph,
                      const CUgraphNode** dependencies, const CUgraphEdgeData** edges, size_t* count) {
  WEFT_FAKE_CONTEXT_CALL(cuStreamGetCaptureInfo_v3);
  FakeStream* stream = nullptr;
  if (CUresult r = s.check_stream(handle, &stream, "cuStreamGetCaptureInfo_v3"); r != CUDA_SUCCESS) return r;
  *status = !stream->capture          ? CU_STREAM_CAPTURE_STATUS_NONE
            : stream->capture->broken ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                      : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (!stream->capture) return CUDA_SUCCESS;
  if (id) *id = reinterpret_cast<uint64_t>(stream->capture.get());
  if (graph) *graph = reinterpret_cast<CUgraph>(stream->capture->graph);
  if (dependencies) *dependencies = &stream->last;
  if (edges) *edges = nullptr;
  if (count) *count = stream->last ? 1 : 0;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult FakeState::check_stream(CUstream handle, FakeStream** out, const char* what) {
  if (!handle) return complain(CUDA_ERROR_INVALID_HANDLE, what, ": on the default stream");
  auto it = streams.find(reinterpret_cast<FakeStream*>(handle));
  if (it == streams.end()) return complain(CUDA_ERROR_INVALID_HANDLE, what, ": no such stream");
  if ((*it)->device != current())
    return complain(CUDA_ERROR_INVALID_CONTEXT, what, ": the stream is of device ", (*it)->device,
                    ", the context of device ", current());
  *out = *it;
  return CUDA_SUCCESS;
}

CUresult FakeState::refuse_unsafe(const char* what) {
  bool forbidden = false;
  for (const FakeStream* stream : streams) {
    if (!stream->capture || stream->capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
    if (stream->capture->mode != CU_STREAM_CAPTURE_MODE_GLOBAL && stream->capture->thread != std::this_thread::get_id())
      continue;
    stream->capture->broken = true;
    forbidden = true;
  }
  return forbidden ? complain(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, what, ": this thread has a stream capturing")
                   : CUDA_SUCCESS;
}

CUresult FakeState::enqueue(FakeStream* stream, FakeWork work) {
  if (!stream->capture) {
    // The work comes after the stream's earlier work and after everything that the host has waited for.
    stream->clock.join(host);
    stream->clock.know(stream->number, ++stream->count);
    work.place = {stream->number, stream->count, stream->clock};
    if (work.source >= 0) work.source_sum = sum_of(work.touches[work.source]);
    stream->queue.push_back(std::move(work));
    return CUDA_SUCCESS;
  }
  auto& nodes = stream->capture->graph->nodes;
  nodes.push_back(std::make_unique<FakeWork>(std::move(work)));
  stream->last = reinterpret_cast<CUgraphNode>(nodes.back().get());
  return CUDA_SUCCESS;
}

void FakeState::run_until(FakeStream* stream, size_t left) {
  while (stream->queue.size() > left) {
    FakeWork work = std::move(stream->queue.front());
    stream->queue.pop_front();
    execute(stream, work);
  }
}

void FakeState::run_event(FakeEvent* event) {
  const uint64_t ordinal = event->recorded;
  while (event->done < ordinal && event->stream && !event->stream->queue.empty())
    run_until(event->stream, event->stream->queue.size() - 1);
}

void FakeState::run_all(int device) {
  for (;;) {
    std::vector<FakeStream*> busy;
    for (FakeStream* stream : streams)
      if (stream->device == device && !stream->queue.empty()) busy.push_back(stream);
    if (busy.empty()) break;
    std::sort(busy.begin(), busy.end(), [](auto* a, auto* b) { return a->number < b->number; });
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    FakeStream* stream = busy[(random >> 32) % busy.size()];
    run_until(stream, stream->queue.size() - 1);
  }
  for (const FakeStream* stream : streams)
    if (stream->device == device) host.join(stream->clock);
}

void FakeState::check_order(const FakeWork& w) {
  const auto touch = [&](const FakeRange& r, FakeAccesses::Kind kind) {
    if (std::string other = accesses.touch(r.address, r.bytes, kind, w.place, w.what); !other.empty())
      complain(CUDA_SUCCESS, w.what, " on stream ", w.place.stream, " and ", other,
               " touch the same memory, and nothing orders them");
  };
  for (size_t i = 0; i < w.touches.size(); ++i)
    touch(w.touches[i],
          w.written < 0 || w.written == static_cast<int>(i) ? FakeAccesses::kWrites : FakeAccesses::kReads);
  if (w.launch && w.touches.empty())
    for (const FakeRange& r : w.launch->pointed) touch(r, FakeAccesses::kUses);
  if (w.source >= 0 && w.source_sum != sum_of(w.touches[w.source]))
    complain(CUDA_SUCCESS, w.what, " on stream ", w.place.stream, ": the host changed its source before it ran");
}

void FakeState::execute(FakeStream* stream, FakeWork& work) {
  ++steps;
  if (work.event && work.waits) {
    while (work.event->done < work.ordinal && work.event->stream && !work.event->stream->queue.empty())
      run_until(work.event->stream, work.event->stream->queue.size() - 1);
  } else if (work.event) {
    work.event->done = work.ordinal;
    work.event->time_ms = static_cast<double>(steps) * 1e-3;
  }
  CUresult& error = sticky[stream->device];
  if ((!work.run && !work.launch) || error != CUDA_SUCCESS) return;  // nothing runs on a failed device
  for (const FakeRange& t : work.touches)
    if (wrong(t, true) == "memory that was freed" || wrong(t, false) == "memory that was freed")
      return void(complain(CUDA_SUCCESS, work.what, ": memory was freed before it ran"));
  check_order(work);
  open_memory();
  if (work.run) work.run();
  if (work.launch) {
    run.push_back(work.launch->symbol);
    if (launches_to_failure >= 0 && launches_to_failure-- == 0) {
      error = launch_failure;
    } else if (work.function->kernel.run) {
      try {
        work.function->kernel.run(*work.launch);
      } catch (const Error& e) {
        error = CUDA_ERROR_ILLEGAL_ADDRESS;
        complain(CUDA_SUCCESS, "kernel ", work.launch->symbol, ": ", e.what());
      }
    }
  }
  close_memory();
}

void FakeCalls::add_streams(DriverApi& t) {
  t.cuStreamCreateWithPriority = stream_create;
  t.cuStreamDestroy_v2 = stream_destroy;
  t.cuStreamSynchronize = stream_synchronize;
  t.cuStreamQuery = stream_query;
  t.cuStreamWaitEvent = wait_event;
  t.cuStreamBeginCapture_v2 = begin_capture;
  t.cuStreamEndCapture = end_capture;
  t.cuStreamGetCaptureInfo_v3 = capture_info;
  t.cuEventCreate = event_create;
  t.cuEventDestroy_v2 = event_destroy;
  t.cuEventRecord = event_record;
  t.cuEventQuery = event_query;
  t.cuEventSynchronize = event_synchronize;
  t.cuEventElapsedTime = event_elapsed;
}

}  // namespace weft::cuda::testing
