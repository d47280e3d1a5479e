// Handmade records for tests.
#pragma once
#include <string>

#include "compiler/exec/record/record.h"

namespace weft::profiler {

/// A launch that took `us`; the roofline predicts `predicted_us`.
inline LaunchRecord made_launch(const std::string& name, const std::string& scope, uint32_t line, WorkClass kind,
                                double us, double predicted_us, Cost work, Bound bound = Bound::kMemory) {
  LaunchRecord l;
  l.name = name;
  l.scope = scope;
  l.line = {"model.cc", line};
  l.kind = kind;
  l.bound = bound;
  l.work = work;
  l.measured_us = us;
  l.predicted_us = predicted_us;
  return l;
}

/// A step of 1000 us: two layers of a product (300 us each) and a norm (50 us each), and an update (100 us).
inline StepRecord made_record() {
  StepRecord r;
  r.title = "made";
  r.device = "cpu";
  r.machine = {.bytes = 10e9, .flops = 50e9, .products = 100e9, .products16 = 200e9};
  r.step_us = 1000;
  for (const char* layer : {"blocks.0", "blocks.1"}) {
    const std::string scope = layer;
    r.launches.push_back(made_launch("dot", scope + ".up", 12, WorkClass::kContraction, 300, 240,
                                     {.flops = 24e6, .bytes = 1e6, .products = 24e6}, Bound::kProducts));
    r.launches.push_back(
        made_launch("norm", scope + ".norm", 14, WorkClass::kNormalisation, 50, 40, {.flops = 1e5, .bytes = 4e5}));
  }
  r.launches.push_back(made_launch("update", "", 20, WorkClass::kElementwise, 100, 90, {.flops = 3e5, .bytes = 9e5}));
  r.launches.back().phase = Phase::kUpdate;
  return r;
}

}  // namespace weft::profiler
