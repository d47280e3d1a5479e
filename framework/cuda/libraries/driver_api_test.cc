// Tests availability() with good and bad drivers.
#include "framework/cuda/libraries/driver_api.h"

#include <cstdlib>

#include "framework/base/error.h"
#include "framework/cuda/libraries/driver_error.h"
#include "framework/cuda/testing/fake_gpu_test.h"

namespace weft::cuda {
namespace {

using testing::error_of;
using testing::FakeDriver;

TEST(DriverApi, ThisMachinesAnswerIsOneSentence) {
  const Availability& a = availability();
  if (a.ok) {
    EXPECT_EQ(a.why, "");
    EXPECT_GE(a.devices, 1);
    EXPECT_GE(a.version, kLeastDriverVersion);
  } else {
    EXPECT_NE(a.why, "");
    EXPECT_EQ(a.why.find('\n'), std::string::npos);
    EXPECT_EQ(error_of([] { driver(); }), "cuda: " + a.why);
  }
}

TEST(DriverApi, AGoodDriver) {
  FakeDriver fake({}, 2);
  ScopedDriver in_place(fake.table());
  EXPECT_TRUE(availability().ok) << availability().why;
  EXPECT_EQ(availability().devices, 2);
  EXPECT_EQ(version_text(availability().version), "13.0");
}

TEST(DriverApi, ReplacementsNest) {
  const bool real = availability().ok;
  FakeDriver fake;
  {
    ScopedDriver outer(fake.table());
    {
      ScopedDriver none(DriverApi{});
      EXPECT_FALSE(availability().ok);
    }
    EXPECT_TRUE(availability().ok);
  }
  EXPECT_EQ(availability().ok, real);
}

TEST(DriverApi, SaysWhatIsWrong) {
  auto why = [](auto change) {
    FakeDriver fake;
    DriverApi table = fake.table();
    change(fake, table);
    ScopedDriver in_place(table);
    EXPECT_FALSE(availability().ok);
    EXPECT_EQ(error_of([] { driver(); }), "cuda: " + availability().why);
    return availability().why;
  };
  unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(why([](FakeDriver& f, DriverApi&) { f.set_version(11080); }),
            "the NVIDIA driver is too old: it is for CUDA 11.8; need a driver for CUDA 12.4 or later");
  EXPECT_EQ(why([](FakeDriver&, DriverApi& t) { t.cuGraphLaunch = nullptr; }),
            "the NVIDIA driver is too old: the table lacks cuGraphLaunch; need a driver for CUDA 12.4 or later");
  EXPECT_EQ(why([](FakeDriver& f, DriverApi&) { f.set_init_result(CUDA_ERROR_NO_DEVICE); }),
            "the NVIDIA driver finds no GPU");
  EXPECT_EQ(why([](FakeDriver& f, DriverApi&) { f.set_init_result(CUDA_ERROR_STUB_LIBRARY); }),
            "no NVIDIA driver: a table of the test is the toolkit's stub");
  EXPECT_EQ(why([](FakeDriver& f, DriverApi&) { f.set_init_result(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH); }),
            "the NVIDIA driver does not start: cuInit gives CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (system has unsupported "
            "display driver / "
            "cuda driver combination)");
  EXPECT_EQ(why([](FakeDriver& f, DriverApi&) { f.set_init_result(static_cast<CUresult>(12345)); }),
            "the NVIDIA driver does not start: cuInit gives error 12345");
  EXPECT_EQ(why([](FakeDriver&, DriverApi& t) { t.cuDeviceGetCount = [](int* n) { return *n = 0, CUDA_SUCCESS; }; }),
            "the NVIDIA driver finds no GPU");
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  EXPECT_EQ(why([](FakeDriver& f, DriverApi&) { f.set_init_result(CUDA_ERROR_NO_DEVICE); }),
            "the NVIDIA driver finds no GPU (CUDA_VISIBLE_DEVICES is '')");
  unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST(DriverApi, ErrorsSayWhatWasBeingDone) {
  FakeDriver fake;
  ScopedDriver in_place(fake.table());
  EXPECT_EQ(error_of([] { check(CUDA_SUCCESS, "nothing"); }), "");
  EXPECT_EQ(error_of([] { check(CUDA_ERROR_INVALID_VALUE, "copying ", 12, " bytes"); }),
            "cuda: copying 12 bytes: CUDA_ERROR_INVALID_VALUE (invalid argument)");
  EXPECT_EQ(error_of([] { check(CUDA_ERROR_ILLEGAL_ADDRESS, "waiting for cuda:0"); }),
            "cuda: waiting for cuda:0: CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered); a kernel "
            "launched "
            "before this failed on the device: run again with WEFT_SYNC=1 to have it named");
  try {
    check(CUDA_ERROR_OUT_OF_MEMORY, "pinning");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kResourceExhausted);
  }
}

}  // namespace
}  // namespace weft::cuda
