#include "tools/machine.h"

#include <gmock/gmock.h>

#include <stdexcept>

#include "tools/facts.h"

namespace weft::tools {
namespace {

using testing::HasSubstr;

TEST(Facts, PrintsTextAndJson) {
  Facts facts;
  facts.add("a", "name", std::string("say \"hi\"\n"));
  facts.add("a", "rate", 2.5, "GB/s");
  facts.add_flag("b", "flag", true);
  facts.add_absent("b", "gpu", "no driver");
  EXPECT_EQ(facts.to_json(),
            "{\n \"a\": {\n  \"name\": \"say \\\"hi\\\"\\u000a\",\n  \"rate\": 2.50\n },\n \"b\": {\n"
            "  \"flag\": true,\n  \"gpu\": null,\n  \"gpu_reason\": \"no driver\"\n }\n}\n");
  EXPECT_THAT(facts.to_text(), HasSubstr("  rate        2.50 GB/s\n\nb\n"));
  EXPECT_THAT(facts.to_text(), HasSubstr("absent: no driver"));
  EXPECT_EQ(Facts().to_json(), "{}\n");
}

TEST(Machine, ChoosesAnInstructionSetThatIsThere) {
  Facts facts;
  add_choice(facts, "baseline");
  EXPECT_THAT(facts.to_json(), HasSubstr("\"isa\": \"baseline\""));
  EXPECT_NO_THROW(add_choice(facts, "auto"));
  EXPECT_THROW(add_choice(facts, "sse9"), std::invalid_argument);
  if (best_isa() != Isa::kAvx512) {
    EXPECT_THROW(add_choice(facts, "avx512"), std::invalid_argument);
  }
}

TEST(Machine, DescribesItself) {
  Facts facts;
  add_machine(facts);
  add_libraries(facts);
  for (const char* key : {"\"cpu\"", "\"cores\"", "\"amx_bf16\"", "\"onednn\"", "\"nccl\"", "\"g++\""})
    EXPECT_THAT(facts.to_json(), HasSubstr(key));
}

}  // namespace
}  // namespace weft::tools
