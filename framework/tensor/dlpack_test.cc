#include "framework/tensor/dlpack.h"

#include <gtest/gtest.h>

#include "framework/base/testing/error_of.h"

namespace weft {
namespace {

TEST(DLPack, RoundTripSharesMemory) {
  const float* address;
  Tensor back;
  {
    Tensor t = Tensor::from_vector({1, 2, 3, 4, 5, 6}, {2, 3});
    address = t.data<float>();
    back = from_dlpack(to_dlpack(t));
  }
  EXPECT_EQ(back.data<float>(), address);
  EXPECT_EQ(back.to_vector<float>(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(back.shape(), (Shape{2, 3}));
}

TEST(DLPack, MemoryIsFreedOnceBothSidesLetGo) {
  Device other = Device::cpu(7);
  int64_t live = memory_stats(other).live;
  DLManagedTensor* capsule = to_dlpack(Tensor::empty({kFloat32, other, {100}}));
  EXPECT_GT(memory_stats(other).live, live);
  capsule->deleter(capsule);
  EXPECT_EQ(memory_stats(other).live, live);
}

TEST(DLPack, StridesAndOffsetOfViews) {
  Tensor t = Tensor::from_vector({1, 2, 3, 4, 5, 6}, {2, 3});
  auto* impl = new TensorImpl(t.get());
  impl->type.shape = {3};
  impl->strides = {1};
  impl->offset = 3 * sizeof(float);
  DLManagedTensor* c = to_dlpack(Tensor(impl));
  const DLTensor& d = c->dl_tensor;
  EXPECT_EQ(static_cast<float*>(d.data)[d.byte_offset / 4], 4);
  EXPECT_EQ(d.ndim, 1);
  EXPECT_EQ(d.strides[0], 1);
  EXPECT_EQ(d.device.device_type, kDLCPU);
  EXPECT_EQ(from_dlpack(c).to_vector<float>(), (std::vector<float>{4, 5, 6}));
}

TEST(DLPack, EveryDtype) {
  for (DType t : {kFloat32, kFloat64, kBFloat16, kFloat16, kInt64, kInt32, kInt16, kInt8, kUInt8, kBool}) {
    Tensor x = Tensor::empty({t, Device::cpu(), {2}});
    EXPECT_EQ(from_dlpack(to_dlpack(x)).dtype(), t);
  }
}

// Kernels compute with the bytes.
TEST(DLPack, BoolsAreBytesOf0And1) {
  uint8_t bytes[] = {0, 1, 9, 1, 2, 0};
  int64_t shape[] = {2}, strides[] = {3};
  int deleted = 0;
  DLManagedTensor c = {{bytes, {kDLCPU, 0}, 1, {kDLBool, 8, 1}, shape, strides, 0},
                       &deleted,
                       [](DLManagedTensor* self) { ++*static_cast<int*>(self->manager_ctx); }};
  EXPECT_EQ(from_dlpack(&c).to_vector<bool>(), (std::vector<bool>{false, true}));  // not the 9 between them
  EXPECT_EQ(deleted, 1);
  c.dl_tensor.byte_offset = 1;
  testing::expect_error([&] { from_dlpack(&c); }, "from_dlpack: the bool at position 1 is the byte 2; need 0 or 1");
  EXPECT_EQ(deleted, 1);
  testing::expect_error([&] { Tensor::from_blob(bytes, {6}, kBool); },
                        "from_blob: the bool at position 2 is the byte 9; need 0 or 1");
  EXPECT_EQ(Tensor::from_blob(bytes, {2}, kBool).to_vector<bool>(), (std::vector<bool>{false, true}));
}

struct Foreign {
  int deleted = 0;
  float data[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  int64_t shape[2] = {2, 2}, strides[2] = {1, 2};
  DLManagedTensor capsule = {{data, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, strides, 8},
                             this,
                             [](DLManagedTensor* self) { ++static_cast<Foreign*>(self->manager_ctx)->deleted; }};
};

TEST(DLPack, ForeignCapsuleIsDeletedOnce) {
  Foreign f;
  {
    Tensor t = from_dlpack(&f.capsule), alias = t;
    EXPECT_EQ(t.to_vector<float>(), (std::vector<float>{2, 4, 3, 5}));
    EXPECT_EQ(f.deleted, 0);
  }
  EXPECT_EQ(f.deleted, 1);
  f.capsule.dl_tensor.strides = nullptr;  // row-major
  f.capsule.deleter = nullptr;            // allowed: nothing to free
  EXPECT_EQ(from_dlpack(&f.capsule).to_vector<float>(), (std::vector<float>{2, 3, 4, 5}));
}

TEST(DLPack, StridesOfSingleElementsMayBeAnyNumber) {
  Foreign f;
  f.shape[0] = 1;
  f.strides[0] = INT64_MIN;
  EXPECT_EQ(from_dlpack(&f.capsule).to_vector<float>(), (std::vector<float>{2, 4}));
  f.shape[1] = 0;
  f.strides[1] = INT64_MAX;
  EXPECT_EQ(from_dlpack(&f.capsule).numel(), 0);
}

TEST(DLPack, RefusesWhatItDoesNotHaveAndLeavesTheCapsule) {
  auto refused = [](void (*change)(Foreign&)) {
    Foreign f;
    change(f);
    const std::string text = testing::error_of([&] { from_dlpack(&f.capsule); });
    EXPECT_EQ(f.deleted, 0);
    return text;
  };
  EXPECT_EQ(refused([](Foreign& f) { f.capsule.dl_tensor.dtype.lanes = 4; }), "from_dlpack: got 4 lanes; need 1");
  EXPECT_EQ(refused([](Foreign& f) { f.capsule.dl_tensor.dtype.code = kDLComplex; }),
            "from_dlpack: got dtype code 5 of 32 bits; need f32, f64, bf16, f16, i64, i32, i16, i8, u8 or bool");
  EXPECT_EQ(refused([](Foreign& f) { f.capsule.dl_tensor.device.device_type = kDLCUDA; }),
            "from_dlpack: got device type 2; need cpu (1)");
  EXPECT_EQ(refused([](Foreign& f) { f.capsule.dl_tensor.ndim = 9; }), "from_dlpack: got 9 dimensions; need at most 8");
  EXPECT_EQ(refused([](Foreign& f) { f.shape[0] = -1; }),
            "from_dlpack: negative extent in shape [-1, 2]; need 0 or more");
  EXPECT_EQ(refused([](Foreign& f) { f.strides[0] = -1; }),
            "from_dlpack: got negative strides [-1, 2]; need strides of 0 and above");
  EXPECT_EQ(refused([](Foreign& f) { f.capsule.dl_tensor.data = nullptr; }),
            "from_dlpack: got null data for shape [2, 2]");
  EXPECT_EQ(refused([](Foreign& f) { f.capsule.dl_tensor.byte_offset = 2; }),
            "from_dlpack: got data that is not aligned to its 4-byte elements");
  // Layouts that overflow 64 bits, and layouts that end beyond the last address.
  EXPECT_EQ(refused([](Foreign& f) { f.strides[0] = INT64_MAX; }),
            "from_dlpack: shape [2, 2] with strides [9223372036854775807, 2] and byte_offset 8 reaches beyond the last "
            "address; need the strides (in elements) and the offset of existing memory");
  const std::string beyond = "reaches beyond the last address";
  for (const int64_t stride : {int64_t{1} << 61, int64_t{1} << 62}) {
    static int64_t s;
    s = stride;
    EXPECT_NE(refused([](Foreign& f) { f.strides[0] = f.strides[1] = s; }).find(beyond), std::string::npos);
  }
  EXPECT_NE(refused([](Foreign& f) { f.capsule.dl_tensor.byte_offset = UINT64_MAX - 3; }).find(beyond),
            std::string::npos);
  EXPECT_NE(refused([](Foreign& f) { f.capsule.dl_tensor.byte_offset = uint64_t{1} << 63; }).find(beyond),
            std::string::npos);
  EXPECT_THROW(from_dlpack(nullptr), Error);
  EXPECT_THROW(to_dlpack(Tensor::empty({kFloat32, Device::meta(), {2}})), Error);
  EXPECT_THROW(to_dlpack(Tensor::empty({kFloat8E4M3, Device::cpu(), {2}})), Error);
}

}  // namespace
}  // namespace weft
