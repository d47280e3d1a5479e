// Shards that ranks make by themselves have the bits of the whole value.
#include "distributed/launch/initial_shard.h"

#include <gtest/gtest.h>

#include <cstring>

#include "weft.h"

namespace weft::dist {
namespace {

const Mesh kMesh = Mesh::parse("fsdp4,tp2");

DimSpec dim(std::initializer_list<std::pair<int64_t, const char*>> segs) {
  DimSpec d;
  for (const auto& [extent, names] : segs) d.push_back({extent, kMesh.axes(names)});
  return canonical(kMesh, d);
}

TEST(InitialShard, HasTheBitsOfTheWhole) {
  const Tensor table = randn({26, 12});
  const std::pair<const char*, Initializer> initialisers[] = {
      {"normal",
       [] {
         return randn({26, 12}) * 0.02;
       }},
      {"uniform",
       [] {
         return rand({26, 12}) * 2.0 - 1.0;
       }},
      {"bf16",
       [] {
         return randn({26, 12}).to(kBFloat16).to(kFloat32);
       }},
      {"constant",
       [] {
         return full({26, 12}, 0.5);
       }},
      {"permuted",
       [] {
         return randn({12, 26}).transpose(0, 1);
       }},
      {"reshaped",
       [] {
         return reshape(randn({2, 13, 12}), {26, 12});
       }},
      {"joined",
       [] {
         return cat({randn({8, 12}), zeros({18, 12})}, 0);
       }},
      {"positions",
       [] {
         return reshape(arange(26 * 12), {26, 12}).to(kFloat32);
       }},
      {"clamped",
       [] {
         return where(rand({26, 12}) < 0.5, clamp(randn({26, 12}), -1.0, 1.0), zeros({26, 12}));
       }},
      {"of a tensor", [&] { return table + 1.0; }},
      {"needs all",
       [] {
         return matmul(randn({26, 5}), randn({5, 12}));
       }},
      {"sorted",
       [] {
         return sort(randn({26, 12}), 0).values;
       }},
  };
  const std::pair<const char*, Spec> specs[] = {
      {"whole", {{dim({{26, ""}}), dim({{12, ""}})}}},
      {"uneven rows", {{dim({{26, "fsdp"}}), dim({{12, ""}})}}},
      {"columns", {{dim({{26, ""}}), dim({{12, "tp"}})}}},
      {"both", {{dim({{26, "fsdp"}}), dim({{12, "tp"}})}}},
      {"two axes", {{dim({{26, "fsdp,tp"}}), dim({{12, ""}})}}},
      {"factors", {{dim({{26, ""}}), dim({{3, ""}, {4, "tp"}})}}},
  };
  for (const auto& [name, make] : initialisers) {
    manual_seed(7);
    Parameter p({kFloat32, Device::cpu(), {26, 12}}, make, "p");
    const Graph& init = *p.cell().init;
    const Tensor whole = p.value();
    for (const auto& [how, spec] : specs)
      for (int r = 0; r < kMesh.size(); ++r) {
        const Tensor own = initial_shard(kMesh, spec, init, r), want = shard(kMesh, spec, whole, r);
        ASSERT_EQ(own.shape(), want.shape()) << name << ", " << how << ", rank " << r;
        EXPECT_EQ(own.dtype(), want.dtype());
        EXPECT_EQ(std::memcmp(own.view_for_kernel().data, want.view_for_kernel().data,
                              static_cast<size_t>(want.type().nbytes())),
                  0)
            << name << ", " << how << ", rank " << r;
      }
  }
}

}  // namespace
}  // namespace weft::dist
