// Files of traces (framework/base/tracer.h) for chrome://tracing and ui.perfetto.dev, WEFT_TRACE, and one line per
// launch (WEFT_DEBUG=1).
#pragma once
#include <string>

#include "framework/base/origin.h"
#include "framework/base/tracer.h"

namespace weft {

/// Writes a trace as Chrome's JSON. A "pid" is 2 plus the rank, or 1 for events without a rank; a "tid" is a thread.
/// The arguments of a slice are scope, line, phase, bytes and rank, if known. Collectives are joined by flows from the
/// rank that came last to the others; the bytes that are live in the arena are a counter. Throws Unavailable if the
/// file cannot be written; `who` begins the message.
void save_trace(const internal::Trace& trace, const std::string& path, const char* who);

/// Writes the launches and collectives since WEFT_TRACE was set to the file that it names, the last kTraceRing of each
/// thread; also happens when the process ends and when a launch throws.
void flush_trace();

namespace internal {

/// Whether WEFT_TRACE is set. Opens or closes its window; another file begins a new one.
bool follow_trace_switch();
/// "name  failed at model.cc:12  scope" to stderr.
void print_failed_launch(const char* name, SourceLine line, const char* scope);
/// "name  12.3 us  4.5 GB/s  6.7 GFLOP/s  scope" to stderr.
void print_launch(const char* name, const char* scope, double us, double bytes, double flops);

}  // namespace internal
}  // namespace weft
