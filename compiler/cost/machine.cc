#include "compiler/cost/machine.h"

#include <cmath>
#include <utility>

#include "framework/base/error.h"

namespace weft {
namespace {

constexpr double kMicro = 1e-6, kGiga = 1e9, kTera = 1e12;

// Nodes of 8 GPUs joined by NVLink. A kernel of a replayed CUDA graph adds about 2 us.
Machine sxm(const char* name) {
  Machine m{.launch = 2 * kMicro, .reached = 0.7, .memory = 80e9, .name = name};
  m.links.inner_hop = 4.3 * kMicro;
  m.links.inner_all_to_all_latency = 50 * kMicro;
  m.links.ramp = 0.87;
  return m;
}

// Peak rates are the dense ones of the data sheet, of f32 without TF32. Memory and points are measured with NCCL on
// nodes of 8 (figures of the AutoParallel cost model in PyTorch's distributed planner).
Machine h100() {
  Machine m = sxm("h100");
  m.bytes = 3.0e12;
  m.flops = m.products = 67 * kTera;
  m.products16 = 989.5 * kTera;
  m.products64 = 66.9 * kTera;
  m.products8 = 1979 * kTera;
  Links& l = m.links;
  l.inner_bus = 480 * kGiga;
  l.outer_hop = 4.72 * kMicro;
  l.outer_bus = 50 * kGiga;
  l.inner_gather = {{2, 8 * kMicro, 537 * kGiga}, {4, 17 * kMicro, 434 * kGiga}, {8, 30 * kMicro, 394 * kGiga}};
  l.inner_reduce = {{2, 10 * kMicro, 324 * kGiga}, {4, 15 * kMicro, 236 * kGiga}, {8, 31 * kMicro, 267 * kGiga}};
  l.outer_gather = {{2, 70.0 * kMicro, 409.6 * kGiga},
                    {4, 145.6 * kMicro, 396.4 * kGiga},
                    {8, 296.8 * kMicro, 390.1 * kGiga},
                    {16, 599.2 * kMicro, 387.0 * kGiga},
                    {32, 1204 * kMicro, 385.5 * kGiga}};
  l.outer_reduce = {{2, 131.6 * kMicro, 204.8 * kGiga},
                    {4, 282.8 * kMicro, 198.2 * kGiga},
                    {8, 585.2 * kMicro, 195.0 * kGiga},
                    {16, 1190 * kMicro, 193.5 * kGiga},
                    {32, 2399.6 * kMicro, 192.8 * kGiga}};
  l.inner_all_to_all = 380 * kGiga;
  l.outer_all_to_all = {{2, 37 * kMicro}, {4, 42 * kMicro}, {8, 60 * kMicro}, {16, 98 * kMicro}, {32, 290 * kMicro}};
  return m;
}

// An H100 with more and faster memory: 4.8 TB/s by its data sheet, 4.3 measured by a copy.
Machine h200() {
  Machine m = h100();
  m.name = "h200";
  m.bytes = 4.3e12;
  m.memory = 141e9;
  return m;
}

// Data sheet: 312 TFLOP/s bf16, 19.5 f32, 19.5 f64 on tensor cores, 2.0 TB/s, NVLink 3 with 600 GB/s both ways, one
// 200 Gb/s port for each device. Its links reach the same share of that as those of the H100.
Machine a100() {
  Machine m = sxm("a100");
  m.bytes = 1.8e12;
  m.flops = m.products = m.products64 = 19.5 * kTera;
  m.products16 = m.products8 = 312 * kTera;
  m.links.inner_bus = 235 * kGiga;
  m.links.outer_hop = 5 * kMicro;
  m.links.outer_bus = 25 * kGiga;
  m.links.inner_all_to_all = 200 * kGiga;
  return m;
}

// Two cores with AVX-512 and AMX, as measured. Ranks are threads that share cores and memory: a byte that is sent is a
// byte that a core copies.
Machine cpu() {
  Machine m{.bytes = 20e9,
            .flops = 120e9,
            .products = 350e9,
            .products16 = 1500e9,
            .launch = 1 * kMicro,
            .memory = 8e9,
            .shares_cores = true,
            .name = "cpu"};
  m.links.node = 1 << 20;
  m.links.inner_hop = 20 * kMicro;
  m.links.inner_bus = 5 * kGiga;
  m.links.inner_all_to_all = 5 * kGiga;
  m.links.inner_all_to_all_latency = 20 * kMicro;
  m.links.outer_hop = 50 * kMicro;
  m.links.outer_bus = 1 * kGiga;
  return m;
}

const std::vector<Machine>& presets() {
  static const auto* all = new std::vector<Machine>{h100(), h200(), a100(), cpu()};
  return *all;
}

// Throws unless `rate` is finite and above 0, or, with `or_zero`, 0.
void check_rate(const Machine& m, const char* what, double rate, bool or_zero) {
  WEFT_CHECK(std::isfinite(rate) && (or_zero ? rate >= 0 : rate > 0), "machine '", m.name, "': ", what, " is ", rate,
             or_zero ? "; need a finite number, 0 or more" : "; need a finite number above 0");
  constexpr double kLeast = 1e-12, kMost = 1e30;
  WEFT_CHECK(rate <= kMost && (rate == 0 || rate >= kLeast), "machine '", m.name, "': ", what, " is ", rate,
             "; need a number from ", kLeast, " to ", kMost);
}

}  // namespace

double Machine::products_of(DType operands) const {
  const int64_t bytes = itemsize(operands);
  if (bytes == 1 && products8 > 0) return products8;
  if (bytes <= 2) return products16;
  if (bytes <= 4) return products;
  return products64 > 0 ? products64 : products / 2;
}

const Machine& machine_preset(std::string_view name) {
  for (const Machine& m : presets())
    if (m.name == name) return m;
  std::string words;
  for (const Machine& m : presets()) words += str_cat(words.empty() ? "" : ", ", m.name);
  internal::fail(Code::kInvalidArgument, str_cat("machine: got '", name.substr(0, 40), "'; need one of ", words,
                                                 ", or a file that ends in .json"));
}

void check_rates(const Machine& m) {
  for (auto [what, rate] : {std::pair("bytes", m.bytes),
                            {"flops", m.flops},
                            {"products", m.products},
                            {"products16", m.products16},
                            {"reached", m.reached}})
    check_rate(m, what, rate, false);
  for (auto [what, rate] :
       {std::pair("products64", m.products64), {"products8", m.products8}, {"launch", m.launch}, {"memory", m.memory}})
    check_rate(m, what, rate, true);
  double before = 0;
  for (const MemoryRate& r : m.memory_rates) {
    const std::string at = str_cat("memory_rates of ", r.bytes, " bytes");
    check_rate(m, "the working set of memory_rates", r.bytes, false);
    WEFT_CHECK(r.bytes > before, "machine '", m.name, "': memory_rates has a working set of ", r.bytes,
               " bytes after one of ", before, "; need increasing ones");
    before = r.bytes;
    for (double rate : {r.read, r.write, r.copy}) check_rate(m, at.c_str(), rate, false);
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
  above("links.ramp", l.ramp);
  for (auto [what, seconds] : {std::pair("links.inner_hop", l.inner_hop),
                               {"links.outer_hop", l.outer_hop},
                               {"links.inner_all_to_all", l.inner_all_to_all},
                               {"links.inner_all_to_all_latency", l.inner_all_to_all_latency}})
    at_least(what, seconds);
  const auto points = [&](const char* what, const std::vector<LinkPoint>& all, bool with_bandwidth) {
    WEFT_CHECK(all.size() != 1, "machine '", m.name, "': ", what, " has 1 point; need 2 or more, or none");
    for (size_t i = 0; i < all.size(); ++i) {
      WEFT_CHECK(all[i].size > (i ? all[i - 1].size : 0), "machine '", m.name, "': ", what, " has a point for ",
                 all[i].size, " after one for ", i ? all[i - 1].size : 0, "; need rising numbers above 0");
      at_least(what, all[i].latency);
      if (with_bandwidth) above(what, all[i].bandwidth);
    }
  };
  points("links.inner_gather", l.inner_gather, true);
  points("links.inner_reduce", l.inner_reduce, true);
  points("links.outer_gather", l.outer_gather, true);
  points("links.outer_reduce", l.outer_reduce, true);
  points("links.outer_all_to_all", l.outer_all_to_all, false);
}

std::vector<std::string> machine_names() {
  std::vector<std::string> out;
  for (const Machine& m : presets()) out.push_back(m.name);
  return out;
}

const Machine& planned_machine(DeviceType type) {
  static const Machine &cpu = machine_preset("cpu"), &gpu = machine_preset("h100");
  return type == DeviceType::kCuda ? gpu : cpu;
}

}  // namespace weft
