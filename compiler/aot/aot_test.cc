// Steps compiled ahead of time, built without the code generator. They train with the same bits as compile(step), and
// report arguments that they do not accept.
#include <gtest/gtest.h>

#include <bit>
#include <cstdio>
#include <cstdlib>

#include "compiler/aot/export.h"
#include "compiler/aot/gpt_bf16_step.h"
#include "compiler/aot/gpt_step.h"
#include "compiler/aot/mlp_step.h"
#include "compiler/aot/step.h"
#include "compiler/aot/testing/batches.h"
#include "compiler/aot/testing/examples.h"
#include "compiler/targets/cpu/target.h"
#include "compiler/verify/launch_check.h"
#include "framework/base/cpu.h"
#include "framework/base/testing/error_of.h"
#include "framework/dispatch/dispatch.h"
#include "framework/io/file.h"
#include "framework/io/safetensors.h"
#include "framework/testing/compare.h"

namespace weft {
namespace {

using testing::error_of;
using testing::same_bits;

constexpr const char* kFolder = "compiler/aot/";
constexpr int kSteps = 20;

std::string scratch(const std::string& name) { return std::string(std::getenv("TEST_TMPDIR")) + "/" + name; }

std::string run(const std::string& command) {
  std::string out;
  FILE* p = ::popen((command + " 2>&1").c_str(), "r");
  for (char buffer[4096]; size_t n = std::fread(buffer, 1, sizeof buffer, p);) out.append(buffer, n);
  EXPECT_EQ(::pclose(p), 0) << command << "\n" << out;
  return out;
}

class Exported : public ::testing::TestWithParam<const char*> {};

TEST_P(Exported, TrainsWithTheBitsOfTheCompiledStep) {
  const std::string name = GetParam();
  const bool mlp = name == "mlp_step";
  auto step = aot_example::make(name);
  std::string want;
  for (int i = 0; i < kSteps; ++i) {
    const auto in = aot_example::batch(mlp, i);
    char line[16];
    std::snprintf(line, sizeof line, "%08x\n", std::bit_cast<uint32_t>(step(in[0], in[1]).item<float>()));
    want += line;
  }
  // The environment has no compiler, no cache and nothing on PATH.
  const std::string values = mlp ? "-" : kFolder + name + ".safetensors", saved = scratch(name + ".safetensors");
  for (int threads : {1, 3})
    EXPECT_EQ(run(str_cat("PATH= WEFT_CXX=/nowhere WEFT_CACHE=off WEFT_THREADS=", threads, " ", kFolder, "trainer ",
                          name, " ", values, " ", kSteps, " ", saved)),
              want)
        << name << ", " << threads << " threads";
  const io::SafetensorsFile file(saved);
  const Graph& g = step.graph("scheduled");
  ASSERT_EQ(file.tensors().size(), g.cells.size());
  for (size_t i = 0; i < g.cells.size(); ++i) {
    const std::string cell = internal::aot_cell_name(g, i);
    const auto bytes = file.bytes(cell);
    const StridedView v = g.cells[i]->value.view_for_kernel();
    EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
              std::string_view(v.as<char>(), v.nbytes()))
        << cell;
  }
}

INSTANTIATE_TEST_SUITE_P(Steps, Exported, ::testing::Values("mlp_step", "gpt_step", "gpt_bf16_step"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Aot, TheProgramHasNoCodeGenerator) {
  const std::string deps = io::read_file(std::string(kFolder) + "step_deps");
  EXPECT_NE(deps.find("//compiler/exec:replay"), std::string::npos) << deps;
  for (const char* package :
       {"//compiler/targets/cpu/print", "//compiler/jit", "//compiler/passes", "//compiler/exec:exec\n", "//:weft"})
    EXPECT_EQ(deps.find(package), std::string::npos) << package;
  const std::string program = io::read_file(std::string(kFolder) + "trainer");
  for (const char* symbol : {"weft7codegen", "weft3jit", "weft_text_"})
    EXPECT_EQ(program.find(symbol), std::string::npos) << symbol;
}

TEST(Aot, TheFileIsOneTextThatShowsTheStep) {
  const std::string header = io::read_file(std::string(kFolder) + "gpt_step.h"),
                    source = io::read_file(std::string(kFolder) + "gpt_step.cc");
  EXPECT_NE(header.find("class gpt_step final : public weft::AotStep"), std::string::npos) << header;
  EXPECT_NE(header.find("(i64[4, 16], i64[4, 16]) -> f32[]"), std::string::npos) << header;
  EXPECT_NE(source.find("graph scheduled ("), std::string::npos);
  EXPECT_NE(source.find("# model.cc:"), std::string::npos) << "lines of the user's ops";
}

TEST(Aot, KernelsGiveTheBitsOfTheirOps) {
  if (selected_isa() != best_isa()) GTEST_SKIP() << "the kernels were exported for " << to_string_view(best_isa());
  internal::aot_check_for_test = [] { return internal::make_launch_check(internal::cpu_target(), {}); };
  const auto in = aot_example::batch(false, 0), features = aot_example::batch(true, 0);
  gpt_step gpt;
  gpt.load(std::string(kFolder) + "gpt_step.safetensors");
  mlp_step mlp;
  EXPECT_EQ(error_of([&] { gpt(in[0], in[1]); }), "");
  EXPECT_EQ(error_of([&] { mlp(features[0], features[1]); }), "");
  internal::aot_check_for_test = nullptr;
}

TEST(Aot, StateIsReadAndWrittenByName) {
  mlp_step step;
  const auto in = aot_example::batch(true, 0);
  const float first = step(in[0], in[1]).item<float>();
  EXPECT_LT(step(in[0], in[1]).item<float>(), first);
  const Tensor weight = step.cell("hidden.weight");
  EXPECT_EQ(weight.shape(), (Shape{32, 16}));
  step.save(scratch("mlp.safetensors"));
  const float third = step(in[0], in[1]).item<float>();
  EXPECT_FALSE(same_bits(step.cell("hidden.weight"), weight));
  mlp_step other;
  other.load(scratch("mlp.safetensors"));
  EXPECT_EQ(other(in[0], in[1]).item<float>(), third);
  other.set("hidden.weight", weight);
  EXPECT_TRUE(same_bits(other.cell("hidden.weight"), weight));
  EXPECT_EQ(error_of([&] { other.set("out.weight", in[0]); }),
            "mlp_step: cell 'out.weight' is f32[10, 32]; got f32[32, 16]");
}

TEST(Aot, WrongCallsSayWhatIsWrong) {
  mlp_step step;
  const auto in = aot_example::batch(true, 0);
  const Tensor weight = step.cell("out.weight");
  EXPECT_EQ(error_of([&] { step(in[0].slice(0, 0, 8), in[1]); }),
            "mlp_step: argument 0 is f32[8, 16]; it was exported for f32[32, 16]");
  EXPECT_EQ(error_of([&] { step(in[0], in[1].to(kInt32)); }),
            "mlp_step: argument 1 is i32[32]; it was exported for i64[32]");
  EXPECT_EQ(error_of([&] { step(Tensor(), in[1]); }), "mlp_step: argument 0 holds no memory; need f32[32, 16]");
  EXPECT_EQ(error_of([&] { step.cell("nothing"); }),
            str_cat("mlp_step: there is no cell 'nothing'; need one of its ", step.cells().size(), " cells"));
  EXPECT_NE(error_of([&] { step.load(scratch("missing.safetensors")); }).find("missing.safetensors"),
            std::string::npos);
  io::write_safetensors(scratch("wrong.safetensors"), {});
  EXPECT_NE(error_of([&] { step.load(scratch("wrong.safetensors")); }).find("wrong.safetensors"), std::string::npos);
  EXPECT_TRUE(same_bits(step.cell("out.weight"), weight));
  // Arguments with other layouts are accepted.
  const Tensor turned = in[0].transpose(0, 1).contiguous().transpose(0, 1);
  mlp_step twin;
  EXPECT_EQ(step(turned, in[1]).item<float>(), twin(in[0], in[1]).item<float>());
}

TEST(Aot, ExportNeedsAPlanAndAName) {
  auto step = compile([](Tensor x) { return exp(x) * 2 + 1; });
  EXPECT_EQ(error_of([&] { aot_export(step, "twice", {.folder = scratch("")}); }),
            "aot_export: the function has not been captured yet; call it or prepare() first");
  step(Tensor::from_vector({1, 2}, {2}));
  EXPECT_EQ(error_of([&] { aot_export(step, "two times", {.folder = scratch("")}); }),
            "aot_export: got the name 'two times'; need a C++ identifier");
  EXPECT_EQ(testing::placed_error_of([&] { aot_export(step, "1", {.folder = scratch("")}); }),
            str_cat("aot_export: got the name '1'; need a C++ identifier; at compiler/aot/aot_test.cc:", __LINE__ - 1));
  const AotFiles files = aot_export(step, "twice", {.folder = scratch("")});
  EXPECT_TRUE(files.values.empty());
  EXPECT_NE(io::read_file(files.source).find("twice_0_"), std::string::npos);

  for (const char* name : {"class", "co_await", "xor_eq", "std", "weft", "AotStep", "run", "main"})
    EXPECT_EQ(error_of([&] { aot_export(step, name, {.folder = scratch("")}); }),
              str_cat("aot_export: got the name '", name, "', which C++ or the exported file uses; need another one"));
  for (const char* name : {"__x", "_x", "x__y"})
    EXPECT_EQ(error_of([&] { aot_export(step, name, {.folder = scratch("")}); }),
              str_cat("aot_export: got the name '", name,
                      "'; C++ reserves names that begin with _ or contain __; need another one"));
  for (const char c : {'"', '\n', '\\'})
    EXPECT_EQ(
        error_of([&] { aot_export(step, "thrice", {.folder = scratch(""), .include_folder = std::string("a") + c}); }),
        str_cat("aot_export: include_folder contains the character with the code ", static_cast<int>(c),
                "; need a path for #include \"...\""));
  EXPECT_FALSE(io::exists(scratch("thrice.h")));
}

TEST(Aot, ReplacesItsOwnFilesOnly) {
  Buffer state(ones({3}));
  auto step = compile([&](Tensor x) {
    state.set(state.value() * x);
    return state.value();
  });
  step(Tensor::from_vector({1, 2, 3}, {3}));
  auto exported = [&] { return aot_export(step, "own", {.folder = scratch(""), .inline_bytes = 0}); };
  const AotFiles files = exported();
  exported();
  const Tensor seven = ones({1}) * 7;
  const io::NamedView weights{"weights", seven.view_for_kernel()};
  for (const std::string& path : {files.header, files.source, files.values}) {
    const std::string before = io::read_file(path);
    for (const bool tensors : {false, true}) {
      if (tensors) io::write_safetensors(path, {&weights, 1});
      if (!tensors) io::write_file_atomic(path, "// Three days of work.\nint main() {}\n");
      const std::string foreign = io::read_file(path);
      EXPECT_EQ(error_of([&] { exported(); }),
                str_cat("aot_export: ", path,
                        " exists, and aot_export did not write it; need another name or folder, or remove the file"));
      EXPECT_EQ(io::read_file(path), foreign);
    }
    io::write_file_atomic(path, before);
  }
}

TEST(Aot, RefusesAnOpOfTheUser) {
  static const OpDef op = {.name = "twice_as_large",
                           .doc = "The operand doubled.",
                           .infer = [](const InferCall& c) { return Types{c.in[0]}; },
                           .kernel =
                               [](const KernelCall& c) {
                                 for (int64_t i = 0; i < c.in[0].numel(); ++i)
                                   c.out[0].as<float>()[i] = 2 * c.in[0].as<float>()[i];
                               }};
  auto step = compile([](const Tensor& x) { return dispatch(op, {&x}, {}, std::source_location::current()) + 1.0; });
  step(Tensor::from_vector({1, 2}, {2}));
  EXPECT_NE(error_of([&] { aot_export(step, "own", {.folder = scratch("")}); })
                .find(str_cat("aot_export: twice_as_large at compiler/aot/aot_test.cc:", __LINE__ - 3,
                              " is not an op of Weft")),
            std::string::npos);
}

}  // namespace
}  // namespace weft
