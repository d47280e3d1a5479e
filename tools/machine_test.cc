#include "tools/machine.h"

#include <gmock/gmock.h>

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
  EXPECT_EQ(Facts().to_json(), "{}\n");
}

TEST(Machine, DescribesItself) {
  Facts facts;
  add_choice(facts);
  add_machine(facts);
  add_libraries(facts);
  for (const char* key :
       {"\"isa\"", "\"threads\"", "\"kernel_compiler\"", "\"kernel_cache\"", "\"cpu\"", "\"cores\"", "\"amx_bf16\"", "\"onednn\"", "\"nccl\"", "\"g++\""})
    EXPECT_THAT(facts.to_json(), HasSubstr(key));
}

}  // namespace
}  // namespace weft::tools
