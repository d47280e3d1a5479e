// The fields of Machine, for machine files (JSON) and records of steps (bytes). Rates of 0 are left out.
#pragma once
#include "compiler/cost/machine/machine.h"
#include "framework/io/fields/fields.h"

namespace weft {

inline constexpr io::Field kReadOnly{.in = io::In::kRead}, kReadCount{.least = 0, .in = io::In::kRead};

template <class V>
void fields(V& v, MemoryRate& r) {
  v("bytes", r.bytes, io::at(1)), v("read", r.read, io::at(2)), v("write", r.write, io::at(3));
  v("copy", r.copy, io::at(4));
}

template <class V>
void fields(V& v, ProductShare& p) {
  v("side", p.side), v("f32", p.f32), v("bits16", p.bits16);
}

template <class V>
void fields(V& v, LinkPoint& p) {
  v("size", p.size, io::kNotNegative), v("latency", p.latency), v("bandwidth", p.bandwidth, kReadOnly);
}

template <class V>
void fields(V& v, Links& l) {
  v("node", l.node, kReadCount);
  v("inner_hop", l.inner_hop, kReadOnly), v("inner_bus", l.inner_bus, kReadOnly);
  v("outer_hop", l.outer_hop, kReadOnly), v("outer_bus", l.outer_bus, kReadOnly);
  v("inner_all_to_all", l.inner_all_to_all, kReadOnly);
  v("inner_all_to_all_latency", l.inner_all_to_all_latency, kReadOnly);
  v("ramp", l.ramp, kReadOnly), v("host_bus", l.host_bus, kReadOnly);
  v("inner_gather", l.inner_gather, kReadOnly), v("inner_reduce", l.inner_reduce, kReadOnly);
  v("outer_gather", l.outer_gather, kReadOnly), v("outer_reduce", l.outer_reduce, kReadOnly);
  v("outer_all_to_all", l.outer_all_to_all, kReadOnly);
}

template <class V>
void fields(V& v, Theoretical& t) {
  v("bytes", t.bytes, kReadOnly), v("inner_bus", t.inner_bus, kReadOnly), v("outer_bus", t.outer_bus, kReadOnly);
}

template <class V>
void fields(V& v, Machine& m) {
  v("name", m.name, {.in = io::In::kWritten, .number = 1});
  v("bytes", m.bytes, io::if_set(2)), v("flops", m.flops, io::if_set(3)), v("products", m.products, io::if_set(4));
  v("products_tf32", m.products_tf32, io::if_set(0)), v("products16", m.products16, io::if_set(5));
  v("products64", m.products64, io::if_set(6)), v("products8", m.products8, io::if_set(7));
  v("products4", m.products4, io::if_set(0)), v("launch", m.launch, io::if_set(8));
  v("reached", m.reached, {.in = io::In::kWritten, .number = 9}), v("memory", m.memory, io::if_set(11));
  v("multiprocessors", m.multiprocessors, {.least = 0, .in = io::In::kIfSet}), v("l2", m.l2, io::if_set(0));
  v("hbm_stacks", m.hbm_stacks, {.least = 0, .in = io::In::kIfSet}), v("watts", m.watts, io::if_set(0));
  v("memory_rates", m.memory_rates, io::if_set(10));
  v("product_shares", m.product_shares, io::if_set(0)), v("attention_shares", m.attention_shares, io::if_set(0));
  v("shares_cores", m.shares_cores, kReadOnly), v("links", m.links, kReadOnly);
  v("theoretical", m.theoretical, kReadOnly);
}

}  // namespace weft
