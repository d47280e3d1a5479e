// Damaged text of meshes: parse() refuses it, or reads the mesh back from its printed text.
#include <gtest/gtest.h>

#include "framework/base/error.h"
#include "framework/mesh/mesh.h"
#include "framework/testing/fuzz.h"

namespace weft::dist {
namespace {

TEST(MeshFuzz, DamagedText) {
  const std::vector<std::string_view> words = {"dp",    "tp2", "ep4(dp,tp)", "(",   ")",   ",",  "world", "replica2",
                                               "dp:1",  ":",   "ep2()",      "1",   "0",   "_",  " ",     "-1",
                                               "dp997", "()",  "ep6(dp)",    "(,)", "cp1", "((", "fsdp8", "dp2,dp2"};
  auto read = [](const std::string& text) {
    const Mesh m = Mesh::parse(text);
    EXPECT_EQ(Mesh::parse(m.to_string()).to_string(), m.to_string());
    EXPECT_GE(m.size(), 1);
    for (const Mesh::Dim& d : m.dims()) {
      const Axes axes = m.axes(d.name);
      EXPECT_EQ(m.parts(axes), d.size) << text;
      EXPECT_EQ(m.axes(m.name(axes)), axes) << text;
      if (m.size() > 4096) continue;
      EXPECT_EQ(m.group(m.size() - 1, axes).size(), static_cast<size_t>(d.size)) << text;
    }
  };
  weft::testing::fuzz(
      {.seeds = {"", "dp2,tp2", "fsdp4,tp2,ep8(fsdp,tp)", "dp6,cp2,ep2(dp),ep_two6(dp)", "dp1,tp1"},
       .damage = [&](std::string& s, weft::testing::FuzzRandom& r) { weft::testing::damage_text(s, r, words); },
       .read = read,
       .names = "mesh"});
}

}  // namespace
}  // namespace weft::dist
