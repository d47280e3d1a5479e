// Plans as text and as JSON.
#pragma once
#include "tools/plan/advice.h"
#include "tools/plan/search.h"

namespace weft::planner {

struct Price {
  double usd_per_gpu_hour = 0, kw_per_gpu = 0;
  /// Of 10^9 tokens at this speed.
  double usd(double tokens_per_gpu_second) const;
  double kwh(double tokens_per_gpu_second) const;
};

std::string plan_report(const Workload& setup, const Search& search, const Price& price);
/// The best plan and the advice before and after a change.
std::string what_if_report(const Workload& before, const Workload& after, const std::string& changes, const Search& was,
                           const Search& is);
std::string plan_json(const Workload& setup, const Search& search, const Price& price);
/// One sentence: no plan, and why.
std::string nothing_fits(const Workload& setup, const Search& search);

}  // namespace weft::planner
