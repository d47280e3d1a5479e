// The figures that the assembler reports about a kernel in verbose mode.
#pragma once
#include <optional>
#include <string_view>

namespace weft::cuda {

/// The resource usage of a compiled kernel: registers per thread, bytes of stack and spills per thread, and bytes of
/// shared memory declared in the kernel itself (the assembler does not know the dynamic shared memory).
struct Usage {
  int registers = 0;
  int stack_bytes = 0, spill_store_bytes = 0, spill_load_bytes = 0;
  int shared_bytes = 0;
  int barriers = 0;
};

/// The figures for `symbol` in a log of ptxas -v; none if the log does not have them.
std::optional<Usage> parse_ptxas_log(std::string_view log, std::string_view symbol);

/// The first error in a compiler's log, with the source line and the caret that follow it. If no line is marked as an
/// error: the first line that is not empty.
std::string_view first_error(std::string_view log);

}  // namespace weft::cuda
