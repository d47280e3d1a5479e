// Machine: the rates of one device and of the links that join devices. Presets are files of the program
// (presets/*.json), so a plan is the same on every machine that makes it. rates.h has the rates of this machine's
// devices.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "framework/tensor/device.h"
#include "framework/tensor/dtype.h"

namespace weft {

/// A measured collective: seconds before the first byte counts, and bytes per second of the larger of operand and
/// result ("algorithm bandwidth").
struct LinkPoint {
  int size = 2;  // ranks of one node, or nodes
  double latency = 0, bandwidth = 0;
};

/// The links between devices. The time of a collective comes from the measured points, or from a ring if there are
/// none.
struct Links {
  int node = 8;                         // devices of a node
  double inner_hop = 0, inner_bus = 0;  // ring within a node: seconds per step, bytes per second of a link
  double outer_hop = 0, outer_bus = 0;  // ring between nodes: bytes per second of one device's share of the network
  std::vector<LinkPoint> inner_gather = {};                     // all-gather and reduce-scatter, by ranks of one node
  std::vector<LinkPoint> inner_reduce = {};                     // all-reduce, by ranks of one node
  std::vector<LinkPoint> outer_gather = {}, outer_reduce = {};  // all devices of each node, by nodes
  double inner_all_to_all = 0, inner_all_to_all_latency = 0;
  std::vector<LinkPoint> outer_all_to_all = {};  // latency only; the bandwidth is the network's, less 0.44 / nodes
  double ramp = 1;                               // share of the outer bandwidth that large messages reach
  double host_bus = 0;                           // bytes per second between a device and its host, one way; 0: unknown
};

/// Data-sheet values of rates for which Machine contains measured values. 0: unknown.
struct Theoretical {
  double bytes = 0, inner_bus = 0, outer_bus = 0;
};

/// Bytes per second that threads read, write, or copy, while they pass over `bytes` of memory again and again. A copy
/// counts the bytes read plus the bytes written, to separate memory or in place, whichever is faster.
struct MemoryRate {
  double bytes = 0;  // the working set
  double read = 0, write = 0, copy = 0;
};

/// The rate of smaller products as a share of the rate of large products, for f32 and for 16-bit operands. `side`: the
/// smallest of m, n and k; in attention, the elements of a head.
struct ProductShare {
  double side = 0;
  double f32 = 1, bits16 = 1;
};

/// Rates per second. "Products" are the operations of contractions (2 m n k of a matrix product), which have units of
/// their own.
struct Machine {
  double bytes = 0;           // memory traffic, read plus written
  double flops = 0;           // elementwise operations
  double products = 0;        // f32 operands
  double products_tf32 = 0;   // f32 operands that are rounded to 11 bits; 0: as `products`
  double products16 = 0;      // 16-bit operands
  double products64 = 0;      // f64 operands; 0: half of `products`
  double products8 = 0;       // 8-bit operands; 0: as `products16`
  double products4 = 0;       // 4-bit operands; 0: as `products8`
  double launch = 0;          // seconds that a kernel of its own adds
  double reached = 1;         // share of the rates above that kernels reach
  double memory = 0;          // bytes of one device
  bool shares_cores = false;  // ranks are threads: the cores that compute also communicate
  int multiprocessors = 0;    // that a product's tiles are spread over; 0: any number of tiles fills the device
  double l2 = 0;              // bytes of the last cache; 0: unknown
  int hbm_stacks = 0;         // 0: none, or unknown
  double watts = 0;           // power of one device under load; 0: unknown
  std::string name = {};
  Links links = {};
  Theoretical theoretical = {};
  std::vector<MemoryRate> memory_rates = {};        // increasing working sets; empty: `bytes` for all
  std::vector<ProductShare> product_shares = {};    // increasing sides; empty: 1 for all
  std::vector<ProductShare> attention_shares = {};  // likewise, by elements of a head

  double products_of(DType operands) const;
};

/// "cpu" (threads of one process), h100-sxm, h100-pcie, h200, b200, gb200, a100 (SXM, 80 GB), mi300x, rtx-pro-6000.
/// Throws InvalidArgument naming them.
const Machine& machine_preset(std::string_view name);
std::vector<std::string> machine_names();
/// The machine for a run with CompileOptions::tf32 = `tf32`. If it is true, f32 products have the rate of TF32.
Machine with_tf32(Machine machine, bool tf32);
/// Throws InvalidArgument, with the name of the rate, if a rate of the device is not finite or not above 0, a share
/// above 1, or a time above 10 s.
void check_rates(const Machine& machine);
/// Checks the links too, and that their measured points are in order.
void check_machine(const Machine& machine);

/// The preset for plans on this kind of device: "cpu" or "h100-sxm". The ratios of an A100 are the same within a factor
/// of 1.9, which changes the place of few values.
const Machine& planned_machine(DeviceType type);

}  // namespace weft
