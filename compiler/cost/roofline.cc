#include "compiler/cost/roofline.h"

#include <algorithm>

namespace weft {
namespace {

double seconds(double amount, double rate) { return rate > 0 ? amount / rate : 0; }

}  // namespace

double roofline_seconds(const Machine& m, const Cost& w) {
  return std::max({seconds(w.bytes, m.bytes), seconds(w.flops - w.products, m.flops),
                   seconds(w.products, m.products_of(w.product_dtype))}) /
         m.reached;
}

double launch_seconds(const Machine& m, const Cost& w) { return m.launch + roofline_seconds(m, w); }

double free_operations(const Machine& m, double bytes) { return operations_for(m, bytes, 1); }

double operations_for(const Machine& m, double bytes, double times) { return times * bytes / m.bytes * m.flops; }

std::vector<double> time_shares(const Machine& m, const std::vector<Cost>& kinds) {
  std::vector<double> times;
  for (const Cost& w : kinds) times.push_back(roofline_seconds(m, w));
  return shares_after_speedup(times, std::vector<double>(kinds.size(), 1));
}

std::vector<double> shares_after_speedup(const std::vector<double>& shares, const std::vector<double>& speedups) {
  std::vector<double> after;
  double all = 0;
  for (size_t k = 0; k < shares.size(); ++k) all += after.emplace_back(shares[k] / speedups[k]);
  for (double& s : after) s = all > 0 ? s / all : 0;
  return after;
}

}  // namespace weft
