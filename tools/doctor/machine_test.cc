#include "tools/doctor/machine.h"

#include <gmock/gmock.h>

#include "framework/cuda/testing/fake_driver.h"
#include "tools/doctor/facts.h"
#include "tools/doctor/gpus.h"

namespace weft::tools {
namespace {

using testing::HasSubstr;

TEST(Facts, PrintsTextAndJson) {
  FactList facts;
  facts.add("a", "name", std::string("say \"hi\"\n"));
  facts.add("a", "rate", 2.5, "GB/s");
  facts.add_flag("b", "flag", true);
  facts.add_absent("b", "gpu", "no driver");
  EXPECT_EQ(facts.to_json(),
            R"({
 "a": {
  "name": "say \"hi\"\n",
  "rate": 2.5
 },
 "b": {
  "flag": true,
  "gpu": null,
  "gpu_reason": "no driver"
 }
}
)");
  EXPECT_THAT(facts.to_text(), HasSubstr("  rate        2.50 GB/s\n\nb\n"));
  EXPECT_THAT(facts.to_text(), HasSubstr("absent: no driver"));
  EXPECT_EQ(FactList().to_json(), "{}\n");
}

TEST(Machine, DescribesItself) {
  FactList facts;
  add_choice(facts);
  add_machine(facts);
  add_gpus(facts);
  for (const char* key : {"\"isa\"", "\"threads\"", "\"kernel_compiler\"", "\"kernel_cache\"", "\"cpu\"", "\"cores\"",
                          "\"amx_bf16\"", "\"nccl\"", "\"g++\""})
    EXPECT_THAT(facts.to_json(), HasSubstr(key));
}

TEST(Machine, ListsGpusOrSaysWhyNot) {
  auto described = [] {
    FactList facts;
    add_gpus(facts);
    return facts.to_json();
  };
  {
    cuda::testing::FakeDriver fake({.name = "Fake H100", .memory = size_t{3} << 30}, 2);
    cuda::ScopedDriver in_place(fake.table());
    std::string text = described();
    EXPECT_THAT(text, HasSubstr(R"("cuda_driver": "13.0")"));
    EXPECT_THAT(text, HasSubstr(R"("gpus": 2.0)"));
    EXPECT_THAT(text, HasSubstr(R"("gpu_1": "Fake H100, compute capability 9.0, 132 multiprocessors, 3.0 GiB")"));
    for (const char* library : {"\"nvrtc\"", "\"cublaslt\"", "\"nccl\""}) EXPECT_THAT(text, HasSubstr(library));
  }
  cuda::ScopedDriver none((cuda::DriverApi()));
  EXPECT_THAT(described(), HasSubstr(R"("cuda_driver_reason": "the NVIDIA driver is too old: the table lacks cuInit)"));
}

}  // namespace
}  // namespace weft::tools
