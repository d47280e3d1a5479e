// What the assembler reports of a kernel when asked to be verbose.
#pragma once
#include <optional>
#include <string_view>

namespace weft::cuda {

/// What a compiled kernel takes: registers of a thread, bytes of a thread's stack and spills, bytes of shared memory
/// declared in the kernel itself (dynamic shared memory is not known to the assembler).
struct Usage {
  int registers = 0;
  int stack_bytes = 0, spill_store_bytes = 0, spill_load_bytes = 0;
  int shared_bytes = 0;
  int barriers = 0;
};

/// The figures for `symbol` in a log of ptxas -v; none if it does not tell them.
std::optional<Usage> parse_ptxas_log(std::string_view log, std::string_view symbol);

/// The first error of a compiler's log with the line of source and the caret that follow it; the first line that is
/// not empty where no error is marked.
std::string_view first_error(std::string_view log);

}  // namespace weft::cuda
