// Launch traces: a Chrome trace file (WEFT_TRACE) and one line per launch (WEFT_DEBUG=1).
#pragma once
#include <cstdint>
#include <string>

#include "framework/ir/graph.h"

namespace weft {

/// Writes the launches recorded so far to the file that WEFT_TRACE names; also happens when the process ends. On a mesh
/// each event has the argument "rank", and each rank has its own "pid".
void flush_trace();

namespace internal {

/// Adds one launch to the trace. `scope`: the name scope of its op.
void record_launch(const char* name, const char* scope, double start_us, double us);
/// A launch that threw; its event has no length and the argument "failed".
void record_failed_launch(const char* name, const char* scope, double start_us);
/// "name  failed at model.cc:12  scope" to stderr.
void print_failed_launch(const char* name, SourceLine line, const char* scope);
/// "name  12.3 us  4.5 GB/s  6.7 GFLOP/s  scope" to stderr.
void print_launch(const char* name, const char* scope, double us, double bytes, double flops);

}  // namespace internal
}  // namespace weft
