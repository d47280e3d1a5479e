#include "models/train/device.h"

#include <gtest/gtest.h>

#include "framework/base/testing/error_of.h"
#include "framework/cuda/testing/fake_driver.h"

namespace weft::train {
namespace {

std::string error_of(const std::string& name) {
  return weft::testing::error_of([&] { parse_device(name); });
}

TEST(ParseDevice, WithGpus) {
  cuda::testing::FakeDriver fake({}, 2);
  cuda::ScopedDriver in_place(fake.table());
  EXPECT_EQ(parse_device("cpu"), Device::cpu());
  EXPECT_EQ(parse_device("cuda"), Device::cuda(0));
  EXPECT_EQ(parse_device("cuda:1"), Device::cuda(1));
  EXPECT_EQ(error_of("cuda:2"), "--device cuda:2: this machine has 2 GPUs; need an index below that");
  for (const char* bad : {"gpu", "", "cuda:", "cuda:x", "cuda:-1", "cuda1", "meta"})
    EXPECT_EQ(error_of(bad), std::string("--device: got '") + bad + "'; need cpu, cuda or cuda:N");
}

TEST(ParseDevice, WithoutOne) {
  cuda::testing::FakeDriver fake;
  fake.set_version(12030);
  cuda::ScopedDriver in_place(fake.table());
  EXPECT_EQ(parse_device("cpu"), Device::cpu());
  EXPECT_EQ(error_of("cuda"),
            "--device cuda: the NVIDIA driver is too old: it is for CUDA 12.3; need a driver for CUDA 12.4 or later");
}

}  // namespace
}  // namespace weft::train
