#include "compiler/cost/machine/machine.h"

#include <cmath>
#include <utility>

#include "framework/base/error.h"

namespace weft {
namespace {

// Throws unless `rate` is finite and above 0, or, with `or_zero`, 0.
void check_rate(const Machine& m, const char* what, double rate, bool or_zero) {
  WEFT_CHECK(std::isfinite(rate) && (or_zero ? rate >= 0 : rate > 0), "machine '", m.name, "': ", what, " is ", rate,
             or_zero ? "; need a finite number, 0 or more" : "; need a finite number above 0");
  constexpr double kLeast = 1e-12, kMost = 1e30;
  WEFT_CHECK(rate <= kMost && (rate == 0 || rate >= kLeast), "machine '", m.name, "': ", what, " is ", rate,
             "; need a number from ", kLeast, " to ", kMost);
}

void check_share(const Machine& m, const char* what, double share) {
  WEFT_CHECK(std::isfinite(share) && share > 0 && share <= 1, "machine '", m.name, "': ", what, " is ", share,
             "; need a share above 0, at most 1");
}

void check_seconds(const Machine& m, const char* what, double seconds) {
  constexpr double kMost = 10;
  WEFT_CHECK(std::isfinite(seconds) && seconds >= 0 && seconds <= kMost, "machine '", m.name, "': ", what, " is ",
             seconds, "; need seconds from 0 to ", kMost);
}

}  // namespace

double Machine::products_of(DType operands) const {
  const int64_t bytes = itemsize(operands);
  if (bytes == 1 && products8 > 0) return products8;
  if (bytes <= 2) return products16;
  if (bytes <= 4) return products;
  return products64 > 0 ? products64 : products / 2;
}

Machine with_tf32(Machine m, bool tf32) {
  if (tf32 && m.products_tf32 > 0) m.products = m.products_tf32;
  return m;
}

void check_rates(const Machine& m) {
  for (auto [what, rate] :
       {std::pair("bytes", m.bytes), {"flops", m.flops}, {"products", m.products}, {"products16", m.products16}})
    check_rate(m, what, rate, false);
  check_share(m, "reached", m.reached);
  check_seconds(m, "launch", m.launch);
  for (auto [what, rate] : {std::pair("products64", m.products64),
                            {"products_tf32", m.products_tf32},
                            {"products8", m.products8},
                            {"products4", m.products4},
                            {"memory", m.memory},
                            {"l2", m.l2},
                            {"watts", m.watts},
                            {"theoretical.bytes", m.theoretical.bytes},
                            {"theoretical.inner_bus", m.theoretical.inner_bus},
                            {"theoretical.outer_bus", m.theoretical.outer_bus}})
    check_rate(m, what, rate, true);
  for (auto [what, count] : {std::pair("multiprocessors", m.multiprocessors), {"hbm_stacks", m.hbm_stacks}})
    WEFT_CHECK(count >= 0, "machine '", m.name, "': ", what, " is ", count, "; need 0 or more");
  double before = 0;
  for (const MemoryRate& r : m.memory_rates) {
    const std::string at = str_cat("memory_rates of ", r.bytes, " bytes");
    check_rate(m, "the working set of memory_rates", r.bytes, false);
    WEFT_CHECK(r.bytes > before, "machine '", m.name, "': memory_rates has a working set of ", r.bytes,
               " bytes after one of ", before, "; need increasing working sets");
    before = r.bytes;
    for (double rate : {r.read, r.write, r.copy}) check_rate(m, at.c_str(), rate, false);
  }
  for (auto [what, shares] :
       {std::pair("product_shares", &m.product_shares), {"attention_shares", &m.attention_shares}}) {
    double side = 0;
    for (const ProductShare& p : *shares) {
      const std::string at = str_cat(what, " of side ", p.side);
      check_rate(m, at.c_str(), p.side, false);
      WEFT_CHECK(p.side > side, "machine '", m.name, "': ", what, " has a side of ", p.side, " after one of ", side,
                 "; need increasing sides");
      side = p.side;
      for (double share : {p.f32, p.bits16}) check_share(m, at.c_str(), share);
    }
  }
}

void check_machine(const Machine& m) {
  check_rates(m);
  const auto above = [&](const char* what, double rate) { check_rate(m, what, rate, false); };
  const auto at_least = [&](const char* what, double rate) { check_rate(m, what, rate, true); };
  const Links& l = m.links;
  WEFT_CHECK(l.node >= 1, "machine '", m.name, "': links.node is ", l.node, "; need 1 device of a node or more");
  above("links.inner_bus", l.inner_bus);
  above("links.outer_bus", l.outer_bus);
  check_share(m, "links.ramp", l.ramp);
  at_least("links.host_bus", l.host_bus);
  at_least("links.inner_all_to_all", l.inner_all_to_all);
  for (auto [what, seconds] : {std::pair("links.inner_hop", l.inner_hop),
                               {"links.outer_hop", l.outer_hop},
                               {"links.inner_all_to_all_latency", l.inner_all_to_all_latency}})
    check_seconds(m, what, seconds);
  const auto points = [&](const char* what, const std::vector<LinkPoint>& all, bool with_bandwidth) {
    WEFT_CHECK(all.size() != 1, "machine '", m.name, "': ", what, " has 1 point; need 2 or more, or none");
    for (size_t i = 0; i < all.size(); ++i) {
      WEFT_CHECK(all[i].size > (i ? all[i - 1].size : 0), "machine '", m.name, "': ", what, " has a point for ",
                 all[i].size, " after one for ", i ? all[i - 1].size : 0, "; need rising numbers above 0");
      check_seconds(m, what, all[i].latency);
      if (with_bandwidth) above(what, all[i].bandwidth);
    }
  };
  points("links.inner_gather", l.inner_gather, true);
  points("links.inner_reduce", l.inner_reduce, true);
  points("links.outer_gather", l.outer_gather, true);
  points("links.outer_reduce", l.outer_reduce, true);
  points("links.outer_all_to_all", l.outer_all_to_all, false);
}

const Machine& planned_machine(DeviceType type) {
  static const Machine &cpu = machine_preset("cpu"), &gpu = machine_preset("h100-sxm");
  return type == DeviceType::kCuda ? gpu : cpu;
}

}  // namespace weft
