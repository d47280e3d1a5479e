// Published figures that the roofline must reproduce.
#include "compiler/cost/roofline.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

// An A100 as the source rounds it: 10 TFLOP/s of f32, 2 TB/s.
const Machine kA100{.bytes = 2e12, .flops = 10e12, .products = 312e12};

TEST(Roofline, V18MultipliesAreFreeUntilTheyTakeAsLongAsMemory) {
  const double element = 4 + 4;  // read and written
  EXPECT_DOUBLE_EQ(kA100.bytes / element, 250e9);
  EXPECT_DOUBLE_EQ(operations_for(kA100, element, 1), 40);
  EXPECT_DOUBLE_EQ(operations_for(kA100, element, 2), 80);
  auto time = [&](double multiplies) { return roofline_seconds(kA100, {.flops = multiplies, .bytes = element}); };
  for (double k : {1.0, 8.0, 39.0, 40.0}) EXPECT_DOUBLE_EQ(time(k), time(1)) << k;
  EXPECT_GT(time(41), time(1));
  EXPECT_DOUBLE_EQ(time(80), 2 * time(1));
  EXPECT_DOUBLE_EQ(time(160), 4 * time(1));
}

// The dense rate of an H100 (half of the sparse rate in tables), by the data sheet's bandwidth and by the measured
// bandwidth, which plans use.
TEST(Roofline, V19ProductsNeedHundredsOfOperationsForEachByte) {
  const Machine& h100 = machine_preset("h100-sxm");
  const double dense = h100.products_of(kBFloat16);
  EXPECT_DOUBLE_EQ(dense, 989.5e12);
  EXPECT_NEAR(dense / 3.35e12, 295, .5);
  EXPECT_NEAR(dense / h100.bytes, 330, .5);
  auto time = [&](double operations) {
    return roofline_seconds(h100,
                            {.flops = operations, .bytes = 1, .products = operations, .product_dtype = kBFloat16});
  };
  EXPECT_DOUBLE_EQ(time(329), time(1));
  EXPECT_GT(time(331), time(1));
}

// Data Movement Is All You Need (Ivanov et al. 2021), table 1: a transformer's products, normalisations and pointwise
// ops are 99.80, 0.17 and 0.03 % of its operations but 61.0, 25.5 and 13.5 % of its time. On a machine with 139
// operations to the byte these are the intensities of 16-bit work: a softmax or norm does about 0.57 operations for
// each byte, a pointwise op one for the 5.3 bytes that it reads and writes.
TEST(Roofline, V20FewOperationsTakeManySecondsWhereTheyWaitForMemory) {
  const Machine v100{.bytes = 0.9e12, .flops = 14e12, .products = 125e12};
  const double all = 1e15;
  const Cost products{.flops = .998 * all, .bytes = .998 * all / 1000, .products = .998 * all};
  const Cost norms{.flops = .0017 * all, .bytes = .0017 * all / .566};
  const Cost pointwise{.flops = .0003 * all, .bytes = .0003 * all / .189};
  std::vector<double> times;
  for (const Cost& kind : {products, norms, pointwise}) times.push_back(roofline_seconds(v100, kind));
  const std::vector<double> share = shares_after_speedup(times, {1, 1, 1});
  EXPECT_NEAR(share[0], .610, .001);
  EXPECT_NEAR(share[1], .255, .001);
  EXPECT_NEAR(share[2], .135, .001);
  // Work that waited for memory is nearly free after fusion into the products' kernels.
  const double fused = roofline_seconds(v100, {all, products.bytes, products.products});
  EXPECT_NEAR(fused / roofline_seconds(v100, products), 1, 1e-12);
}

// Matrix units made products ten times as fast: work that took 15 % of the time took nearly two thirds afterwards.
TEST(Roofline, V34TheRestGrowsWhenProductsBecomeFast) {
  EXPECT_NEAR(shares_after_speedup({.85, .15}, {10, 1})[1], .638, .0005);
  EXPECT_DOUBLE_EQ(shares_after_speedup({.85, .15}, {1, 1})[1], .15);
  // Arithmetic that is not a product runs at the elementwise rate of an A100: 15 times and more slower in 16 bits.
  const double n = 4096, operations = 2 * n * n * n;
  const double product = roofline_seconds(kA100, {operations, 3 * n * n * 2, operations});
  const double other = roofline_seconds(kA100, {operations, 3 * n * n * 2});
  EXPECT_NEAR(other / product, 31.2, .01);
  EXPECT_NEAR(roofline_seconds({2e12, 19.5e12, 312e12}, {.flops = operations}) / product, 16, .01);
}

// 132 multiprocessors: 132 tiles of 128 x 256 fill a wave, one tile more needs a second one.
TEST(Roofline, ProductsPayForTheirLastWave) {
  const Machine m{.bytes = 1, .flops = 1, .products = 1, .multiprocessors = 132};
  EXPECT_DOUBLE_EQ(wave_share(m, {1, 128 * 12, 256 * 11}), 1);
  EXPECT_DOUBLE_EQ(wave_share(m, {133, 128, 256}), 0.8 * 133 * 4 / (5 * 132));  // tiles of 128 x 64
  EXPECT_DOUBLE_EQ(wave_share(m, {1, 64, 64}), 0.65 / 132);
  EXPECT_GT(wave_share(m, {1, 8192, 8192}), 0.9);
  EXPECT_EQ(wave_share({}, {1, 64, 64}), 1);
  EXPECT_EQ(wave_share(m, {}), 1);
  const Cost w{.flops = 10, .bytes = 1, .products = 10};
  EXPECT_DOUBLE_EQ(roofline_seconds(m, w, {133, 128, 256}), 10 / wave_share(m, {133, 128, 256}));
}

// Small products reach a share that depends on the smallest side, linear in its logarithm between two measured sides.
TEST(Roofline, SmallProductsReachLess) {
  const Machine m{.bytes = 1e30,
                  .flops = 1e30,
                  .products = 1,
                  .products16 = 2,
                  .product_shares = {{32, 0.25, 0.5}, {128, 0.75, 1}},
                  .attention_shares = {{32, 0.2, 1}, {128, 0.4, 1}}};
  const auto share = [&](ProductShape s, double k, DType t = kFloat32) {
    const double operations = 2 * s.count * s.m * s.n * k;
    const Cost w{.flops = operations, .bytes = 1, .products = operations, .product_dtype = t};
    return operations / m.products_of(t) / roofline_seconds(m, w, s);
  };
  for (const ProductShape& s : {ProductShape{1, 512, 32}, {3, 32, 512}}) EXPECT_DOUBLE_EQ(share(s, 512), 0.25);
  EXPECT_DOUBLE_EQ(share({1, 512, 512}, 64), 0.5);
  EXPECT_DOUBLE_EQ(share({1, 512, 512}, 64, kBFloat16), 0.75);
  EXPECT_DOUBLE_EQ(share({1, 8, 512}, 512), 0.25);
  EXPECT_DOUBLE_EQ(share({1, 512, 512}, 512), 0.75);
  EXPECT_DOUBLE_EQ(roofline_seconds(m, {.flops = 10, .bytes = 1, .products = 10}), 10);  // a product of unknown shape
  EXPECT_NEAR(roofline_seconds(m, {.flops = 10, .bytes = 1, .products = 10}, {.head = 64}), 10 / 0.3, 1e-12);
}

TEST(Roofline, NothingTakesNoTime) {
  EXPECT_EQ(roofline_seconds({}, {1, 1, 1}), 0);
  EXPECT_EQ(shares_after_speedup({0, 0}, {1, 1}), (std::vector<double>{0, 0}));
}

}  // namespace
}  // namespace weft
