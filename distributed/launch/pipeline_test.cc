// Steps run the passes of the one list (compiler/passes/pipeline.h) in its order, on one device and on a mesh, and
// WEFT_DUMP writes the graph stages that the list names.
#include "compiler/passes/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "distributed/launch/compile.h"
#include "framework/base/switches.h"
#include "weft.h"

namespace weft::dist {
namespace {

struct Switched {
  Switched(const char* name, std::string value) : name_(name), was_(switch_value(name)) {
    set_switch(name, std::move(value));
  }
  ~Switched() { set_switch(name_, was_); }
  const char* name_;
  std::string was_;
};

// A training step with two parameters, whose gradients a mesh reduces.
struct Net {
  Parameter a{full({16, 16}, 0.5), "a"}, b{full({16, 16}, 0.25), "b"};
  Tensor operator()(const Tensor& x) {
    const Tensor loss = mean(square(matmul(tanh(matmul(x, a)), b)));
    const std::vector<Tensor> g = grad(loss, std::vector<Parameter>{a, b});
    a.set(a.value() - 0.1 * g[0]);
    b.set(b.value() - 0.1 * g[1]);
    return loss;
  }
};

template <class Step>
std::vector<float> two_steps(const Step& step) {
  std::vector<float> losses;
  for (int i = 0; i < 2; ++i) losses.push_back(step(full({8, 16}, 0.1 * (i + 1))).template item<float>());
  return losses;
}

/// The passes of a first call, as WEFT_DEBUG=2 prints them, with the text after each name.
template <class Step>
std::vector<std::pair<std::string, std::string>> passes_run(const Step& step) {
  Switched debug("WEFT_DEBUG", "2");
  ::testing::internal::CaptureStderr();
  step(full({8, 16}, 0.1));
  std::istringstream text(::testing::internal::GetCapturedStderr());
  std::vector<std::pair<std::string, std::string>> all;
  const std::string start = "weft: pass ";
  for (std::string line; std::getline(text, line);) {
    if (!line.starts_with(start)) continue;
    const size_t end = line.find("  ", start.size());
    all.emplace_back(line.substr(start.size(), end - start.size()), line.substr(end));
  }
  return all;
}

std::vector<std::string> names(const std::vector<std::pair<std::string, std::string>>& passes) {
  std::vector<std::string> all;
  for (const auto& [name, text] : passes) all.push_back(name);
  return all;
}

/// The rows of the list that run for such a step.
std::vector<std::string> rows(bool mesh) {
  std::vector<std::string> all;
  for (const PipelineStage& s : weft::pipeline()) {
    if (s.stage == PassStage::kRecompute || (!mesh && std::string_view(s.when) == "mesh")) continue;
    for (const Pass& p : s.passes)
      if (!std::string_view(p.why_here).starts_with("part of fuse") &&
          std::string_view(p.name) != "stages")  // stages is a pass of pp
        all.push_back(p.name);
  }
  return all;
}

TEST(Pipeline, OneDeviceRunsTheListInItsOrder) {
  Net net;
  EXPECT_EQ(names(passes_run(compile([&](Tensor x) { return net(x); }, {}))), rows(false));
}

TEST(Pipeline, MeshRunsTheListInItsOrder) {
  Net net;
  EXPECT_EQ(names(passes_run(compile([&](Tensor x) { return net(x); }, {.mesh = {{"dp", 2}}}))), rows(true));
}

TEST(Pipeline, PassesOfAMeshAreDisabledByName) {
  const Switched off("WEFT_DISABLE", "async_tp,bucket,overlap,cse");
  Net net;
  std::set<std::string> disabled;
  for (const auto& [name, text] : passes_run(compile([&](Tensor x) { return net(x); }, {.mesh = {{"fsdp", 2}}})))
    if (text == "  disabled") disabled.insert(name);
  EXPECT_EQ(disabled, (std::set<std::string>{"async_tp", "bucket", "overlap", "cse"}));
  Net one, two;
  EXPECT_EQ(two_steps(compile([&](Tensor x) { return one(x); }, {.mesh = {{"fsdp", 2}}, .verify_numerics = true})),
            two_steps(compile([&](Tensor x) { return two(x); }, {.mesh = {}, .verify_numerics = true})));
}

TEST(Pipeline, DumpsAreNamedByTheList) {
  namespace fs = std::filesystem;
  const char* tmp = std::getenv("TEST_TMPDIR");
  for (const Mesh& mesh : {Mesh(), Mesh({{"fsdp", 2}})}) {
    const fs::path folder = fs::path(tmp ? tmp : "/tmp") / str_cat("pipeline_dump_", mesh.size());
    fs::remove_all(folder);
    const Switched dump("WEFT_DUMP", folder.string());
    Net net;
    compile([&](Tensor x) { return net(x); }, {.mesh = mesh})(full({8, 16}, 0.1));
    std::set<std::string> known, stages, got_stages;
    for (const PipelineStage& s : weft::pipeline()) {
      // A stage begins with the graph of the stage before it.
      const std::vector<const char*> graphs = {s.graph, s.stage == PassStage::kJoint ? "captured" : s.graph,
                                               s.stage == PassStage::kFused ? "joint" : s.graph,
                                               s.stage == PassStage::kFused ? "partitioned" : s.graph};
      for (const char* graph : graphs) {
        known.insert(str_cat(graph, "_start"));
        for (const Pass& p : s.passes) known.insert(str_cat(graph, "_", p.name));
      }
      if (s.stage != PassStage::kRecompute && (mesh.size() > 1 || std::string_view(s.when) != "mesh"))
        stages.insert(s.graph);
    }
    for (const auto& e : fs::directory_iterator(folder)) {
      if (e.path().extension() != ".wir") continue;
      const std::string name = e.path().stem().string(), rest = name.substr(name.find('_') + 1);
      EXPECT_TRUE(known.contains(rest)) << name;
      got_stages.insert(rest.substr(0, rest.find('_')));
    }
    stages.insert("captured");
    EXPECT_EQ(got_stages, stages);
  }
}

}  // namespace
}  // namespace weft::dist
