// Texts and comparisons of the coordination service.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "distributed/control/service/state.h"
#include "framework/base/error.h"

namespace weft::control {

/// The members whose facts differ from the majority, and the facts that differ; code 0 if all are equal.
End difference_of(const std::map<uint32_t, Member>& members);
/// "ranks 2 and 3", "rank 1", "ranks 0, 1, 2 and 9 more".
std::string ranks_text(const std::vector<uint32_t>& ranks);
/// ranks_text() with the host and pid of each rank: "ranks 2 (host b, pid 7) and 3 (host b, pid 8)".
std::string names_text(const std::vector<const Process*>& processes);
Failure failure_of(Code code, const std::string& text);
/// "2.4 s".
std::string seconds_text(int64_t ms);

}  // namespace weft::control
