// The record of a training step: phases, classes, work and memory of its launches.
#include "compiler/exec/record/record.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "framework/base/testing/error_of.h"
#include "framework/io/json.h"
#include "weft.h"

namespace weft {
namespace {

struct Net : nn::Module {
  nn::Linear up{16, 64}, down{64, 8};
  nn::LayerNorm norm{64};
  Net() {
    register_module("up", up);
    register_module("norm", norm);
    register_module("down", down);
  }
  Tensor operator()(const Tensor& x) const { return down(norm(gelu(up(x)))); }
};

std::string hex_of(std::string_view bytes) {
  std::string s;
  for (unsigned char c : bytes) s += {"0123456789abcdef"[c >> 4], "0123456789abcdef"[c & 15]};
  return s;
}

struct Step {
  Net net;
  optim::AdamW opt{net.parameters(), {.lr = 1e-3}};
  Tensor operator()(const Tensor& x, const Tensor& y) {
    const Tensor loss = cross_entropy(net(x), y);
    opt.minimize(loss);
    return loss;
  }
};

TEST(Record, HasThePartsOfATrainingStep) {
  Step model;
  auto step = compile([&](Tensor x, Tensor y) { return model(x, y); });
  const Tensor x = randn({32, 16}), y = randint(0, 8, {32});
  EXPECT_NE(testing::error_of([&] { step.record(); }).find("record: "), std::string::npos);
  step.prepare(x, y);
  const StepRecord before = step.record();
  EXPECT_EQ(before.sum().measured_us, 0);
  for (int i = 0; i < 5; ++i) step(x, y);
  const StepRecord r = step.record();
  const CompileStats stats = step.stats();
  EXPECT_EQ(static_cast<int64_t>(r.launches.size()), stats.kernels);
  EXPECT_EQ(r.peak_bytes, stats.planned_peak_bytes);
  EXPECT_EQ(r.peak_bytes, stats.measured_peak_bytes);
  EXPECT_EQ(r.measured_peak_bytes, stats.measured_peak_bytes);
  EXPECT_EQ(before.measured_peak_bytes, 0);

  // Each launch is in one phase and one class.
  double flops = 0, products = 0;
  int launches = 0;
  for (Phase p : {Phase::kForward, Phase::kBackward, Phase::kUpdate}) {
    const StepRecord::WorkSum s = r.sum(p);
    EXPECT_GT(s.launches, 0) << to_string(p);
    flops += s.work.flops;
    launches += s.launches;
  }
  EXPECT_EQ(launches, static_cast<int>(r.launches.size()));
  EXPECT_NEAR(flops, r.sum().work.flops, 1e-6 * flops);
  launches = 0;
  for (WorkClass c : {WorkClass::kContraction, WorkClass::kNormalisation, WorkClass::kElementwise, WorkClass::kMovement,
                      WorkClass::kCollective}) {
    products += r.sum(c).work.products;
    launches += r.sum(c).launches;
    if (c != WorkClass::kContraction) {
      EXPECT_EQ(r.sum(c).work.products, 0) << to_string(c);
    }
  }
  EXPECT_EQ(launches, static_cast<int>(r.launches.size()));
  // Two forward products and their gradients, without the gradient of x.
  const double rows = 2 * 32.0 * (16 * 64 + 64 * 8);
  EXPECT_EQ(products, rows + rows + 2 * 32.0 * 64 * 8);
  EXPECT_EQ(r.sum(Phase::kForward).work.products, rows);
  EXPECT_EQ(r.sum(WorkClass::kCollective).launches, 0);

  std::set<std::string> scopes;
  for (const LaunchRecord& l : r.launches) {
    EXPECT_GT(l.predicted_us, 0) << l.name;
    EXPECT_GT(l.measured_us, 0) << l.name;
    EXPECT_FALSE(l.results.empty()) << l.name;
    EXPECT_EQ(l.fused, l.kernel >= 0);
    EXPECT_EQ(l.fused, !l.ops.empty());
    scopes.insert(l.scope);
  }
  EXPECT_TRUE(scopes.contains("up") && scopes.contains("down")) << scopes.size();
}

// A group with operations of several phases has the phase of most operations. Without an optimiser, nothing is an
// update.
TEST(Record, ThereIsNoUpdateWithoutAnOptimiser) {
  auto step = compile([](Tensor x) {
    const Tensor v = x.requires_grad();
    const Tensor loss = sum(square(max_pool2d(relu(v), 2)));
    return std::pair{loss, grad(loss, {v})[0]};
  });
  step.prepare(randn({2, 3, 8, 8}));
  const StepRecord r = step.record();
  EXPECT_GT(r.sum(Phase::kForward).launches, 0);
  EXPECT_GT(r.sum(Phase::kBackward).launches, 0);
  for (const LaunchRecord& l : r.launches) EXPECT_NE(l.phase, Phase::kUpdate) << l.name;
}

// A loop has the class of the most expensive op of its body.
TEST(Record, LoopsWithProductsAreContractions) {
  auto step = compile([](Tensor w, Tensor xs) {
    const Tensor v = w.requires_grad();
    const auto fn = [&](const Tensor& h, const Tensor& x) {
      const Tensor next = tanh(matmul(h, v) + x);
      return std::pair{next, next};
    };
    const auto [all, last] = scan(fn, xs[0], xs);
    return grad(sum(all * all) + sum(last), {v})[0];
  });
  step.prepare(randn({16, 16}), randn({9, 4, 16}));
  std::vector<Phase> loops;
  for (const LaunchRecord& l : step.record().launches)
    if (l.name == "loop") {
      EXPECT_EQ(l.kind, WorkClass::kContraction);
      loops.push_back(l.phase);
    }
  EXPECT_EQ(loops, (std::vector<Phase>{Phase::kForward, Phase::kBackward}));
}

TEST(Record, KnowsWhoHasTheMemoryAtThePeak) {
  Step model;
  auto step = compile([&](Tensor x, Tensor y) { return model(x, y); });
  step.prepare(randn({32, 16}), randint(0, 8, {32}));
  const StepRecord r = step.record();
  ASSERT_GE(r.peak_launch, 0);
  ASSERT_FALSE(r.at_peak.empty());
  int64_t live = 0, last = INT64_MAX;
  for (int32_t i : r.at_peak) {
    const BufferRecord& b = r.buffers[static_cast<size_t>(i)];
    EXPECT_EQ(b.home, "arena");
    EXPECT_LE(b.first, r.peak_launch);
    EXPECT_GE(b.last, r.peak_launch);
    EXPECT_LE(b.bytes, last);
    EXPECT_FALSE(b.owner.empty());
    live += b.bytes;
    last = b.bytes;
  }
  EXPECT_LE(live, r.peak_bytes);
  std::set<std::string> cells;
  for (const BufferRecord& b : r.buffers)
    if (b.home == "cell") cells.insert(b.owner);
  EXPECT_TRUE(cells.contains("up.weight")) << cells.size();
}

TEST(Record, IsJson) {
  auto step = compile([](Tensor x) { return softmax(matmul(x, x) * 2.0, -1); });
  step.prepare(randn({40, 40}));
  const StepRecord r = step.record();
  const io::Json j = io::parse_json(r.to_json(), "record");
  EXPECT_EQ(j["launches"].size(), r.launches.size());
  EXPECT_EQ(j["buffers"].size(), r.buffers.size());
  EXPECT_EQ(j["device"], "cpu");
  EXPECT_EQ(j["peak_bytes"], r.peak_bytes);
  EXPECT_GT(j["machine"]["products"], 0.0);
  for (const io::Json& l : j["launches"]) {
    EXPECT_EQ(l["phase"], "forward");
    EXPECT_FALSE(l.contains("measured_us"));
    EXPECT_TRUE(l["line"].get<std::string>().find("record_test.cc:") != std::string::npos) << l.dump();
  }
}

TEST(Record, IsWrittenAndReadAsAMessage) {
  Step model;
  auto step = compile([&](Tensor x, Tensor y) { return model(x, y); });
  const Tensor x = randn({32, 16}), y = randint(0, 8, {32});
  for (int i = 0; i < 5; ++i) step(x, y);
  const StepRecord r = step.record();
  const StepRecord back = StepRecord::from_proto(r.to_proto());
  EXPECT_EQ(back.to_json(), r.to_json());
  EXPECT_EQ(back.to_proto(), r.to_proto());
  EXPECT_EQ(back.sum().work.products, r.sum().work.products);
  EXPECT_EQ(back.sum(Phase::kUpdate).launches, r.sum(Phase::kUpdate).launches);
  ASSERT_EQ(back.launches.size(), r.launches.size());
  for (size_t i = 0; i < r.launches.size(); ++i) {
    EXPECT_EQ(back.launches[i].results, r.launches[i].results);
    EXPECT_EQ(back.launches[i].node, r.launches[i].node);
    EXPECT_EQ(back.launches[i].line.to_string(), r.launches[i].line.to_string());
  }
}

// Files of earlier versions are read, and files of equal records are equal.
TEST(Record, IsWrittenByteForByte) {
  StepRecord r;
  r.title = "train", r.device = "cpu", r.mesh = "dp2", r.rank = 1;
  r.machine = {.bytes = 20e9, .flops = 50e9, .products = 1e11, .products16 = 2e11, .reached = 0.5};
  r.machine.name = "mine";
  r.machine.memory_rates = {{1024, 3, 2, 1}};
  r.passes = {{"cse", 0.5, 120, 97, true}};
  r.launches.resize(2);
  LaunchRecord& l = r.launches[0];
  l.name = "k0_add", l.scope = "blocks.3", l.line = {"model.cc", 41}, l.phase = Phase::kBackward;
  l.kind = WorkClass::kNormalisation, l.bound = Bound::kProducts;
  l.work = {.flops = 10,
            .bytes = 20,
            .products = 30,
            .product_dtype = kBFloat16,
            .at_most = true,
            .written = 4,
            .working_set = 5};
  l.axes = "dp", l.sent = 7, l.counted = true;
  l.done = {.flops = 1, .bytes = 2, .products = 3, .written = 1, .working_set = 2};
  l.predicted_us = 0.1, l.measured_us = 0.25, l.ops = "add, mul";
  l.results = {{kFloat32, Device::cpu(), {2, 300}}};
  l.fused = l.copy = l.in_place = true, l.node = 300, l.kernel = 0;
  r.kernels = {"kernel { }"};
  r.missed = {{MissedRecord::kSeparateKernels, "mul", "sum", "points", 64, 12}};
  r.buffers = {{.home = "cell", .index = 3, .owner = "w", .bytes = 64, .offset = 128, .first = 0, .last = 1}};
  r.step_us = 9, r.peak_bytes = 4096, r.measured_peak_bytes = 4160, r.peak_launch = 1, r.at_peak = {0};
  const std::string json =
      R"({"title":"train","device":"cpu","mesh":"dp2","rank":1,"machine":{"name":"mine","bytes":20000000000.0)"
      R"(,"flops":50000000000.0,"products":100000000000.0,"products16":200000000000.0,"reached":0.5,"memory_r)"
      R"(ates":[{"bytes":1024.0,"read":3.0,"write":2.0,"copy":1.0}]},"passes":[{"name":"cse","ms":0.5,"nodes_)"
      R"(before":120,"nodes_after":97,"disabled":true}],"launches":[{"name":"k0_add","scope":"blocks.3","line)"
      R"(":"model.cc:41","phase":"backward","class":"normalisation","bytes":20.0,"flops":10.0,"products":30.0)"
      R"(,"product_dtype":"bf16","at_most":true,"written":4.0,"working_set":5.0,"counted":true,"done_bytes":2)"
      R"(.0,"done_flops":1.0,"done_products":3.0,"done_written":1.0,"done_working_set":2.0,"bound":"products")"
      R"(,"axes":"dp","sent":7.0,"predicted_us":0.1,"measured_us":0.25,"kernel":0,"ops":"add, mul","results":)"
      R"(["f32[2, 300]"],"fused":true,"copy":true,"in_place":true,"node":300},{"name":"","phase":"forward","c)"
      R"(lass":"elementwise","bytes":0.0,"flops":0.0,"products":0.0,"bound":"memory","predicted_us":0.0,"resu)"
      R"(lts":[]}],"kernels":["kernel { }"],"missed":[{"kind":"separate kernels","from":"mul","to":"sum","rea)"
      R"(son":"points","bytes":64.0,"times":12}],"buffers":[{"home":"cell","index":3,"owner":"w","bytes":64,")"
      R"(offset":128,"first":0,"last":1}],"step_us":9.0,"peak_bytes":4096,"measured_peak_bytes":4160,"peak_la)"
      R"(unch":1,"at_peak":[0]})";
  const std::string hex =
      "0a0363707512590a046d696e6511000000205fa0124219000000e87648274221000000e87648374229000000e87648474249"
      "000000000000e03f522409000000000000904011000000000000084019000000000000004021000000000000f03f1afa010a"
      "066b305f6164641208626c6f636b732e331a0b6d6f64656c2e63633a343122086261636b776172642a0d6e6f726d616c6973"
      "6174696f6e320870726f6475637473390000000000003440410000000000002440490000000000003e405204626631365801"
      "619a9999999999b93f69000000000000d03f72086164642c206d756c7a0f0a0366333212036370751a0302ac028001018801"
      "019001019801ac02a00100aa01026470b1010000000000001c40b80101c1010000000000000040c901000000000000f03fd1"
      "010000000000000840d9010000000000001040e1010000000000001440e901000000000000f03ff10100000000000000401a"
      "0022140a0463656c6c120177184020800128003001380328802030013a01004205747261696e49000000000000224050c020"
      "5a0364703260016a140a0363736511000000000000e03f187820612801720a6b65726e656c207b207d7a2f0a107365706172"
      "617465206b65726e656c7312036d756c1a0373756d2206706f696e7473290000000000005040300cc03e01";
  EXPECT_EQ(r.to_json(), json);
  EXPECT_EQ(hex_of(r.to_proto()), hex);
  EXPECT_EQ(StepRecord::from_proto(r.to_proto()).to_json(), json);
  EXPECT_EQ(hex_of(StepRecord().to_proto()), "1200c03e01");
  EXPECT_EQ(StepRecord().to_json(),
            R"({"device":"","machine":{"name":"","reached":1.0},"passes":[],"launches":[],"kernels":[],"missed":[],)"
            R"("buffers":[],"peak_bytes":0,"peak_launch":-1,"at_peak":[]})");
}

TEST(Record, ErrorsNamePlaceGotAndNeed) {
  StepRecord r;
  r.machine = machine_preset("cpu");
  r.launches.resize(2);
  r.buffers = {{.home = "arena", .owner = "up", .bytes = 64, .first = 0, .last = 1}};
  EXPECT_EQ(StepRecord::from_proto(r.to_proto()).buffers[0].last, 1);
  struct Case {
    void (*change)(StepRecord&);
    const char* message;
    std::string_view from = {}, to = {};  // texts of equal length, replaced in the bytes
  };
  const Case cases[] = {
      {[](StepRecord& r) { r.launches[1].phase = Phase::kBackward; },
       "record: launches 1: phase: got \"backwood\"; need one of forward, backward, update", "backward", "backwood"},
      {[](StepRecord& r) { r.launches[1].kind = WorkClass::kMovement; },
       "record: launches 1: class: got \"move\\nent\"; need one of contraction, normalisation", "movement",
       "move\nent"},
      {[](StepRecord& r) { r.launches[1].work.product_dtype = kBFloat16; },
       "product_dtype: got \"bf17\"; need one of f32", "bf16", "bf17"},
      {[](StepRecord& r) { r.launches[0].work.bytes = std::nan(""); },
       "record: launches 0: bytes: got nan; need a finite number, 0 or more"},
      {[](StepRecord& r) { r.launches[0].predicted_us = -1; }, "predicted_us: got -1.0; need a finite"},
      {[](StepRecord& r) {
         r.launches[0].line = {"model.cc", 3};
       },
       "line: got \"model.cc.3\"; need a file and a line such as model.cc:41", "model.cc:3", "model.cc.3"},
      {[](StepRecord& r) { r.launches[0].kernel = 2; }, "record: launches 0: got kernel 2; need the index of one of 0"},
      {[](StepRecord& r) { r.missed = {{MissedRecord::kSeparateKernels}}; },
       "record: missed 0: kind: got \"separate_kernels\"; need one of copy, separate kernels", "separate kernels",
       "separate_kernels"},
      {[](StepRecord& r) {
         r.machine.memory_rates = {{1, 0, 0, 0}};
       },
       "record: machine 'cpu': memory_rates of 1 bytes is 0; need a finite number above 0"},
      {[](StepRecord& r) { r.launches[0].node = -2; }, "launches 0: node: got -2; need -1 or more"},
      {[](StepRecord& r) {
         r.launches[0].results = {{kFloat32, Device::cpu(), {2}}};
       },
       "record: launches 0: results 0: got \"cqu\"; need a device",
       "f32\x12\x03"
       "cpu",
       "f32\x12\x03"
       "cqu"},
      {[](StepRecord& r) { r.buffers[0].bytes = -64; }, "record: buffers 0: bytes: got -64; need 0 or more"},
      {[](StepRecord& r) { r.buffers[0].last = 2; }, "buffers 0: got last 2; need the index of one of 2"},
      {[](StepRecord& r) { r.buffers[0].first = -1; },
       "buffers 0: got first -1 and last 1; need launches in order, or -1 and -1"},
      {[](StepRecord& r) { r.buffers[0].home = "attic"; },
       "buffers 0: got home \"attic\"; need arena, constants, argument"},
      {[](StepRecord& r) { r.at_peak = {1}; }, "record: got at_peak 1; need the index of one of 1"},
      {[](StepRecord& r) { r.at_peak = {-1}; }, "record: got at_peak -1; need 0 or more"},
      {[](StepRecord& r) { r.peak_launch = 7; }, "record: got peak_launch 7; need the index of one of 2"},
      {[](StepRecord& r) { r.machine = {}; }, "record: machine '': bytes is 0; need a finite number above 0"},
  };
  for (const Case& c : cases) {
    StepRecord changed = r;
    c.change(changed);
    std::string bytes = changed.to_proto();
    if (!c.from.empty()) bytes.replace(bytes.find(c.from), c.from.size(), c.to);
    const std::string error = testing::error_of([&] { StepRecord::from_proto(bytes); });
    EXPECT_NE(error.find(c.message), std::string::npos) << c.message << "\n" << error;
    EXPECT_EQ(error.find("record: "), 0u) << error;
  }
  EXPECT_EQ(testing::error_of([] { StepRecord::from_proto("{}"); }),
            "record: got 2 bytes that are no complete record; need all bytes that were written");
}

}  // namespace
}  // namespace weft
