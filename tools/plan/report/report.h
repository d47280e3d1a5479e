// Plans as text and as JSON.
#pragma once
#include "tools/plan/report/advice.h"
#include "tools/plan/report/what_if.h"
#include "tools/plan/search.h"

namespace weft::planner {

struct Price {
  double usd_per_gpu_hour = 0, kw_per_gpu = 0;
  /// The price and the energy of 10^9 tokens at this speed.
  double usd(double tokens_per_gpu_second) const;
  double kwh(double tokens_per_gpu_second) const;
};

/// The plans, or the reason why there are none, with a legend.
std::string plan_report(const Workload& setup, const Search& search, const Price& price);
/// A workload of --what_if and its best plans.
struct Compared {
  WhatIf what;
  Search search;
};
/// The best plan of each workload, one a row.
std::string what_if_report(std::span<const Compared> all);
std::string plan_json(const Workload& setup, const Search& search, const Price& price,
                      std::span<const Compared> what_if);
/// One sentence: no plan, and why.
std::string nothing_fits(const Workload& setup, const Search& search);

}  // namespace weft::planner
