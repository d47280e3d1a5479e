// Action tables as text, for user-defined schedules.
#pragma once
#include <string>
#include <string_view>

#include "distributed/pipeline/table.h"

namespace weft::dist::pipeline {

/// Lines "rank,action,stage,microbatch", such as "0,F,0,3", with each rank's lines in the rank's order. SEND and RECV
/// have the other stage as fifth field; GATHER, RELEASE and REDUCE end after the stage. "F&" is joined with the rank's
/// next action. The text begins with a comment.
std::string table_text(const Table& table);

/// Reads such lines. Skips empty lines and comments, which begin with #. A stage is on the rank of its first line.
/// `name` is the file's, for errors. Throws InvalidArgument with the line and the expected text; safe for any bytes.
/// Use check() to find out whether the table can run.
Table parse_table(std::string_view text, std::string_view name);

}  // namespace weft::dist::pipeline
