// The cost of uneven choices of experts for ranks that each have some of the experts.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tools/study/report.h"

namespace weft::moe_study {

struct LoadStudyOptions {
  int64_t ranks = 8, experts = 8, top_k = 2, tokens = 256, dim = 256, hidden = 512;
  int64_t rounds = 5;
};

/// Milliseconds of each rank's experts, run one rank at a time, with rows[e] rows for expert e; the minimum over
/// `rounds`. Throws UsageError unless ranks divide experts.
std::vector<double> expert_ms(const LoadStudyOptions& o, const std::vector<int64_t>& rows);

/// Draws choices by each law, and runs each rank's experts on their rows one rank at a time; the slowest rank is the
/// time of the phase. Throws UsageError unless ranks divide experts.
study::StudyReport load_study(const LoadStudyOptions& o, const std::vector<std::string>& routes);

}  // namespace weft::moe_study
