// The record of a training step: phases, classes, work and memory of its launches.
#include "compiler/exec/record.h"

#include <gtest/gtest.h>

#include <set>

#include "compiler/exec/record.pb.h"
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
    const StepRecord::Sum s = r.sum(p);
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

TEST(Record, ErrorsNamePlaceGotAndNeed) {
  StepRecord r;
  r.machine = machine_preset("cpu");
  r.launches.resize(2);
  r.buffers = {{.home = "arena", .owner = "up", .bytes = 64, .first = 0, .last = 1}};
  RecordProto valid;
  ASSERT_TRUE(valid.ParseFromString(r.to_proto()));
  EXPECT_EQ(StepRecord::from_proto(r.to_proto()).buffers[0].last, 1);
  using Change = void (*)(RecordProto&);
  const std::pair<Change, const char*> cases[] = {
      {[](RecordProto& p) { p.mutable_launches(1)->set_phase("later"); },
       "record: launches 1: phase: got \"later\"; need one of forward, backward, update"},
      {[](RecordProto& p) { p.mutable_launches(1)->set_kind("x\ny"); },
       "record: launches 1: class: got \"x\\ny\"; need one of contraction, normalisation"},
      {[](RecordProto& p) { p.mutable_launches(1)->set_product_dtype("f33"); }, "got \"f33\"; need a dtype: f32"},
      {[](RecordProto& p) { p.mutable_launches(0)->set_bytes(std::nan("")); },
       "record: launches 0: bytes: got nan; need a finite number, 0 or more"},
      {[](RecordProto& p) { p.mutable_launches(0)->set_predicted_us(-1); }, "predicted_us: got -1.0; need a finite"},
      {[](RecordProto& p) { p.mutable_launches(0)->set_line("model.cc"); },
       "line: got \"model.cc\"; need a file and a line such as model.cc:41"},
      {[](RecordProto& p) { p.mutable_launches(0)->set_kernel(2); },
       "record: launches 0: got kernel 2; need the index of one of 0"},
      {[](RecordProto& p) { p.add_missed()->set_kind("lost"); },
       "record: missed 0: kind: got \"lost\"; need one of copy, separate kernels"},
      {[](RecordProto& p) { p.mutable_machine()->add_memory_rates()->set_bytes(1); },
       "record: machine 'cpu': memory_rates of 1 bytes is 0; need a finite number above 0"},
      {[](RecordProto& p) { p.mutable_launches(0)->set_node(-2); }, "launches 0: node: got -2; need -1 or more"},
      {[](RecordProto& p) { p.mutable_launches(0)->add_results()->set_dtype("f32"); },
       "record: launches 0: results 0: got \"\"; need a device"},
      {[](RecordProto& p) { p.mutable_buffers(0)->set_bytes(-64); },
       "record: buffers 0: bytes: got -64; need 0 or more"},
      {[](RecordProto& p) { p.mutable_buffers(0)->set_last(2); }, "buffers 0: got last 2; need the index of one of 2"},
      {[](RecordProto& p) { p.mutable_buffers(0)->clear_first(); },
       "buffers 0: got first -1 and last 1; need launches in order, or -1 and -1"},
      {[](RecordProto& p) { p.mutable_buffers(0)->set_home("attic"); },
       "buffers 0: got home \"attic\"; need arena, constants, argument"},
      {[](RecordProto& p) { p.add_at_peak(1); }, "record: got at_peak 1; need the index of one of 1"},
      {[](RecordProto& p) { p.add_at_peak(-1); }, "record: got at_peak -1; need 0 or more"},
      {[](RecordProto& p) { p.set_peak_launch(7); }, "record: got peak_launch 7; need the index of one of 2"},
      {[](RecordProto& p) { p.clear_machine(); }, "record: machine '': bytes is 0; need a finite number above 0"},
  };
  for (const auto& [change, message] : cases) {
    RecordProto p = valid;
    change(p);
    const std::string error = testing::error_of([&] { StepRecord::from_proto(p.SerializeAsString()); });
    EXPECT_NE(error.find(message), std::string::npos) << message << "\n" << error;
    EXPECT_EQ(error.find("record: "), 0u) << error;
  }
  EXPECT_EQ(testing::error_of([] { StepRecord::from_proto("{}"); }),
            "record: got 2 bytes that are no complete message RecordProto; need all bytes that to_proto() returned");
}

}  // namespace
}  // namespace weft
