// main() of the tests that run under each WEFT_ISA: skips all tests, with a reason, if the machine lacks the set.
#include <gtest/gtest.h>

#include "framework/base/cpu.h"
#include "framework/base/error.h"

namespace {
class Skip : public testing::Environment {
 public:
  explicit Skip(std::string why) : why_(std::move(why)) {}
  void SetUp() override { GTEST_SKIP() << why_; }

 private:
  std::string why_;
};
}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  try {
    weft::selected_isa();
  } catch (const weft::Error& e) {
    testing::AddGlobalTestEnvironment(new Skip(e.what()));
  }
  return RUN_ALL_TESTS();
}
