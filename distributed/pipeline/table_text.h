// Action tables as text, for schedules of one's own.
#pragma once
#include <string>
#include <string_view>

#include "distributed/pipeline/table.h"

namespace weft::dist::pipeline {

/// Lines "rank,action,stage,microbatch", those of a rank in its order: "0,F,0,3". SEND and RECV have the other stage as
/// fifth field; GATHER, RELEASE and REDUCE end behind the stage. "F&" is joined with the rank's next action. Begins
/// with a comment.
std::string table_text(const Table& table);

/// Reads such lines. Empty lines and what follows a # are left out. A stage is on the rank of its first line.
/// `name` is the file's, for errors. Throws InvalidArgument with the line and what is needed there; safe for any bytes.
/// Whether the table can run is for check() to say.
Table parse_table(std::string_view text, std::string_view name);

}  // namespace weft::dist::pipeline
