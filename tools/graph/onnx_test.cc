// The models that to_onnx writes, by ONNX's checker and its shape inference.
#include <gtest/gtest.h>
#include <onnx/checker.h>
#include <onnx/shape_inference/implementation.h>

#include <map>
#include <set>

#include "compiler/onnx/export.h"
#include "compiler/onnx/rows.h"
#include "framework/io/file.h"
#include "framework/ir/rewrite.h"
#include "framework/testing/compare.h"
#include "ops/all_ops.h"
#include "ops/testing/cases.h"
#include "tools/step/model_step.h"

namespace weft::tools {
namespace {

onnx::ModelProto parsed(const std::string& bytes) {
  onnx::ModelProto m;
  EXPECT_TRUE(m.ParseFromString(bytes));
  return m;
}

/// The error of the checker, or of shape inference where it finds another type than Weft; empty if there is none.
std::string problem(const std::string& bytes) {
  onnx::ModelProto m = parsed(bytes);
  try {
    onnx::checker::check_model(m);
    onnx::shape_inference::InferShapes(m, onnx::OpSchemaRegistry::Instance(),
                                       {/*check_type=*/true, /*error_mode=*/1, /*data_propagation=*/true});
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

std::set<std::string> operators(const std::string& bytes) {
  std::set<std::string> ops;
  const onnx::ModelProto m = parsed(bytes);
  for (const onnx::NodeProto& n : m.graph().node()) ops.insert(n.op_type());
  return ops;
}

int64_t weights_in(const onnx::ModelProto& m) {
  int64_t count = 0;
  for (const onnx::TensorProto& t : m.graph().initializer()) count += t.name().find('.') != std::string::npos;
  return count;
}

StepChoice tiny(const char* model, const char* config) {
  return {.model = model, .config = config, .batch_size = 2, .seq_len = 16};
}

TEST(Onnx, LanguageModelsPassTheChecker) {
  for (const StepChoice& choice :
       {tiny("gpt", "gpt_tiny"), tiny("llama", "llama_tiny"), tiny("moe", "moe_tiny"), tiny("moe", "moe_small")}) {
    const ForwardPass pass = forward_pass(choice);
    const std::string bytes = to_onnx(*pass.graph, {.inputs = {"tokens"}, .outputs = {"logits"}});
    EXPECT_EQ(problem(bytes), "") << choice.config;
    const onnx::ModelProto m = parsed(bytes);
    ASSERT_EQ(m.graph().input_size(), 1);
    EXPECT_EQ(m.graph().input(0).name(), "tokens");
    ASSERT_EQ(m.graph().output_size(), 1);
    EXPECT_EQ(m.graph().output(0).name(), "logits");
    EXPECT_EQ(m.graph().output(0).type().tensor_type().shape().dim(2).dim_value(), pass.model->vocab());
    EXPECT_EQ(weights_in(m), static_cast<int64_t>(pass.graph->cells.size()));
  }
}

TEST(Onnx, ConvolutionalNetsPassTheChecker) {
  struct Net : nn::Module {
    nn::Conv2d conv{1, 4, 3, {.stride = 2, .padding = 1}}, grouped{4, 4, 3, {.padding = 1, .groups = 2}};
    nn::BatchNorm2d norm{4};
    nn::MaxPool2d max{2};
    nn::AvgPool2d mean{2};
    nn::Linear head{4, 10};
    Net() {
      register_module("conv", conv);
      register_module("grouped", grouped);
      register_module("norm", norm);
      register_module("head", head);
    }
    Tensor operator()(const Tensor& x) const {
      return softmax(head(mean(max(relu(grouped(relu(norm(conv(x))))))).flatten(1)), -1);
    }
  } net;
  net.named_cells();  // gives cells their names
  const TensorType image{kFloat32, Device::cpu(), {2, 1, 8, 8}};
  const auto captured = [&] {
    const NoGrad guard;
    return capture_graph([&](std::span<const Tensor> in) { return std::vector{net(in[0])}; }, {&image, 1});
  };
  EXPECT_EQ(testing::error_of([&] { to_onnx(*captured()); }),
            "onnx: the graph writes 3 cells, the first 'norm.running_mean'; an ONNX model has no state: need a forward "
            "graph, captured after model.eval()");
  net.eval();
  const std::string bytes = to_onnx(*captured());
  EXPECT_EQ(problem(bytes), "");
  EXPECT_TRUE(operators(bytes).count("Conv"));
}

TEST(Onnx, AModelOfOnesOwnIsExportedWithItsTrainedWeights) {
  struct Classifier : nn::Module {
    nn::Linear in{4, 8}, head{8, 3};
    Classifier() {
      register_module("in", in);
      register_module("head", head);
    }
    Tensor operator()(const Tensor& x) const { return head(relu(in(x))); }
  } net;
  optim::AdamW opt(net.parameters(), {.lr = 0.1});
  const auto step = compile([&](Tensor x, Tensor label) {
    Tensor loss = cross_entropy(net(x), label);
    opt.minimize(loss);
    return loss;
  });
  const auto forward = compile([&](Tensor x) { return net(x); });
  const std::string path = ::testing::TempDir() + "/own.onnx";
  EXPECT_EQ(testing::error_of([&] { onnx_export(forward, path); }),
            "graph: the function has not been captured yet; call it or prepare() first");
  const Tensor x = ones({2, 4});
  forward.prepare(x);
  step(x, Tensor::from_vector<int64_t>({0, 2}, {2}));  // the file has the values after this step
  const size_t bytes = onnx_export(forward, path, {.inputs = {"x"}, .outputs = {"scores"}});

  const std::string file = io::read_file(path);
  EXPECT_EQ(bytes, file.size());
  EXPECT_EQ(problem(file), "");
  const onnx::ModelProto m = parsed(file);
  ASSERT_EQ(m.graph().input_size(), 1);
  EXPECT_EQ(m.graph().input(0).name(), "x");
  ASSERT_EQ(m.graph().output_size(), 1);
  EXPECT_EQ(m.graph().output(0).name(), "scores");
  std::map<std::string, std::string> weights;
  for (const onnx::TensorProto& t : m.graph().initializer()) weights[t.name()] = t.raw_data();
  for (const auto& [name, parameter] : net.named_parameters()) {
    ASSERT_TRUE(weights.count(name)) << name;
    const std::vector<float> values = parameter.value().to_vector<float>();
    EXPECT_EQ(weights[name], std::string(reinterpret_cast<const char*>(values.data()), 4 * values.size())) << name;
  }

  // A training step writes 4 parameters, 8 moments and the count of steps.
  EXPECT_EQ(testing::error_of([&] { onnx_export(step, path); }),
            "onnx: the graph writes 13 cells, the first 'opt.steps'; an ONNX model has no state: need a forward graph, "
            "captured after model.eval()");
  EXPECT_EQ(testing::error_of([&] {
              onnx_export(forward, path, {.inputs = {"x", "mask"}});
            }),
            "onnx: got 2 names of inputs; need at most 1, the number of inputs");
  EXPECT_EQ(io::read_file(path), file);
}

TEST(Onnx, EachSampleOfEachRowPassesTheChecker) {
  for (const internal::OnnxRow& row : internal::onnx_rows()) {
    const OpDef* op = op_table().find(row.op);
    ASSERT_NE(op, nullptr) << row.op;
    for (const testing::Case& c : testing::cases_of(*op)) {
      std::vector<TensorType> types;
      for (const Tensor& t : c.in) types.push_back(t.type());
      Node n;
      n.op = op;
      n.attrs = c.attrs;
      n.outputs = infer_types(*op, c.attrs, types);
      std::string bytes;
      const std::string error = testing::error_of([&] { bytes = to_onnx(*graph_of_one(std::move(n), types)); });
      if (error.empty()) {
        EXPECT_EQ(problem(bytes), "") << row.op << ", " << c.label;
      } else {
        // Bits of integers came with opset 18.
        EXPECT_TRUE(row.op == "grouped_dot" || row.op.substr(0, 4) == "bit_") << row.op << ", " << c.label;
        EXPECT_NE(error.find("has no ONNX form"), error.npos) << error;
      }
    }
  }
}

TEST(Onnx, WeightsAreInsideOrBesideTheModelOrItsInputs) {
  const ForwardPass pass = forward_pass(tiny("gpt", "gpt_tiny"));
  const auto cells = static_cast<int>(pass.graph->cells.size());
  const std::string model = ::testing::TempDir() + "/model.onnx", data = model + ".data";
  const std::string whole = to_onnx(*pass.graph), none = to_onnx(*pass.graph, {.weights = OnnxWeights::kNone});
  const size_t size = save_onnx(*pass.graph, {.weights = OnnxWeights::kExternal}, model);
  const std::string beside = io::read_file(model);
  EXPECT_EQ(size, beside.size());

  EXPECT_EQ(problem(none), "");
  EXPECT_EQ(parsed(none).graph().input_size(), 1 + cells);
  EXPECT_EQ(weights_in(parsed(none)), 0);

  // The checker opens the weights' file where it finds the model.
  EXPECT_NO_THROW(onnx::checker::check_model(model));
  const std::string bytes = io::read_file(data);
  const onnx::ModelProto a = parsed(whole), b = parsed(beside);
  for (int i = 0; i < b.graph().initializer_size(); ++i) {
    const onnx::TensorProto& t = b.graph().initializer(i);
    if (t.data_location() != onnx::TensorProto::EXTERNAL) continue;
    const auto number = [&](int k) { return std::stoul(t.external_data(k).value()); };
    EXPECT_EQ(number(1) % 4096, 0u);
    EXPECT_EQ(bytes.substr(number(1), number(2)), a.graph().initializer(i).raw_data()) << t.name();
  }
}

TEST(Onnx, AModelThatCannotBeWrittenLeavesBothFiles) {
  const ForwardPass pass = forward_pass(tiny("gpt", "gpt_tiny"));
  const std::string model = ::testing::TempDir() + "/kept.onnx", data = model + ".data";
  const auto save = [&](const Graph& g) { save_onnx(g, {.weights = OnnxWeights::kExternal}, model); };
  save(*pass.graph);
  const std::string before[] = {io::read_file(model), io::read_file(data)};
  // An op without ONNX form, after other weights.
  const Buffer weights(ones({1024}));
  const Graph bad = capture([&](const Tensor& x) { return weights * cast(shift_left(x, 1), kFloat32); },
                            Tensor::from_vector<int32_t>({1}, {1}));
  EXPECT_NE(testing::error_of([&] { save(bad); }), "");
  EXPECT_EQ(io::read_file(model), before[0]);
  EXPECT_EQ(io::read_file(data), before[1]);
  // There is no place for the model.
  io::remove_all(model);
  io::make_folders(model);
  EXPECT_NE(testing::error_of([&] { save(*pass.graph); }), "");
  EXPECT_EQ(io::read_file(data), before[1]);
  io::remove_all(model);
}

TEST(Onnx, MoreThanAFileHoldsIsRefusedBeforeItIsMade) {
  const ForwardPass pass = forward_pass(tiny("llama", "llama-8b"));
  const std::string error = testing::error_of([&] { to_onnx(*pass.graph); });
  EXPECT_NE(error.find("bytes; one file has at most 2147483647"), error.npos) << error;
  EXPECT_NE(error.find("--weights external"), error.npos) << error;
  EXPECT_EQ(problem(to_onnx(*pass.graph, {.weights = OnnxWeights::kNone})), "");
}

TEST(Onnx, AnOpWithoutRowIsNamedWithLineAndScope) {
  const Graph g = capture(
      [](const Tensor& x) {
        const NameScope scope("bits");
        return shift_left(x, 1);
      },
      Tensor::from_vector<int32_t>({1, 2}, {2}));
  const std::string error = testing::placed_error_of([&] { to_onnx(g); }, Code::kUnimplemented);
  testing::expect_has(error, "onnx: op 'shift_left' of i32[2] has no ONNX form; need a forward graph");
  testing::expect_has(error, "; at tools/graph/onnx_test.cc:");
  testing::expect_has(error, ", in bits");
}

}  // namespace
}  // namespace weft::tools
