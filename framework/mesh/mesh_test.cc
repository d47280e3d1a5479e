#include "framework/mesh/mesh.h"

#include <gtest/gtest.h>

#include <functional>

#include "framework/base/testing/error_of.h"

namespace weft::dist {
namespace {

using testing::error_of;

std::string error_of(std::string_view text) {
  return error_of([&] { Mesh::parse(text); });
}

TEST(Mesh, GroupsDifferOnlyAlongTheirAxes) {
  const Mesh m = Mesh::parse("dp2,cp3,tp4");
  EXPECT_EQ(m.size(), 24);
  EXPECT_EQ(m.to_string(), "dp2,cp3,tp4");
  EXPECT_EQ(m.group(17, "tp"), (std::vector<int>{16, 17, 18, 19}));
  EXPECT_EQ(m.group(17, "dp"), (std::vector<int>{5, 17}));
  EXPECT_EQ(m.group(17, "cp,dp"), (std::vector<int>{1, 13, 5, 17, 9, 21}));
  EXPECT_EQ(m.group(17, ""), std::vector<int>{17});
  EXPECT_EQ(m.group(3, "world").size(), 24u);
  for (int r = 0; r < 24; ++r)
    for (const char* names : {"tp", "dp,tp", "cp,dp", "tp:1", "world"})
      EXPECT_EQ(m.group(r, names)[static_cast<size_t>(m.coordinate(r, names))], r);
}

TEST(Mesh, NamesOfAxesReadBack) {
  const Mesh m = Mesh::parse("dp2,fsdp6,tp4");
  for (const char* names : {"tp", "dp,tp", "fsdp:0", "tp:1", "fsdp:1,tp", ""}) EXPECT_EQ(m.name(m.axes(names)), names);
  EXPECT_EQ(m.parts(m.axes("fsdp:1,tp")), 12);
}

TEST(Mesh, ViewsAreFoldedOverTheSameRanks) {
  const Mesh m = Mesh::parse("dp4,tp2,ep4(dp,tp)");
  EXPECT_EQ(m.size(), 8);
  EXPECT_EQ(m.to_string(), "dp4,tp2,ep4(dp,tp)");
  EXPECT_EQ(m.group(5, "ep"), (std::vector<int>{4, 5, 6, 7}));  // the innermost ranks of dp x tp
  EXPECT_EQ(m.name(m.axes("dp:1,tp")), "ep");
  EXPECT_EQ(m.group(5, "dp"), (std::vector<int>{1, 3, 5, 7}));
  EXPECT_EQ(Mesh::parse("dp6,ep2(dp)").group(3, "ep"), (std::vector<int>{2, 3}));
}

TEST(Mesh, ReplicasAreOneAxis) {
  const Mesh m = Mesh::parse("replica6,dp4");
  EXPECT_EQ(m.axes("replica").size(), 1);
  EXPECT_EQ(m.name(m.axes("replica,dp")), "replica,dp");
  EXPECT_EQ(m.group(1, "replica"), (std::vector<int>{1, 5, 9, 13, 17, 21}));
  EXPECT_EQ(Mesh::parse("replica1,dp2").axes("replica").size(), 0);
}

TEST(Mesh, OfOneDeviceHasAName) {
  EXPECT_EQ(Mesh().to_string(), "one");
  EXPECT_TRUE(Mesh::parse("one") == Mesh());
  EXPECT_EQ(error_of([] { Mesh::parse("one").axes("tp"); }), "mesh one has no dimension 'tp'; it has none");
}

TEST(Mesh, BadMeshesAreOneSentence) {
  EXPECT_NE(error_of("dp2,,tp2").find("need the name of a dimension"), std::string::npos);
  EXPECT_NE(error_of("dp").find("need a number of ranks"), std::string::npos);
  EXPECT_NE(error_of("dp2,").find("a dimension after ','"), std::string::npos);
  EXPECT_NE(error_of("dp0").find("need 1 or more"), std::string::npos);
  EXPECT_NE(error_of("dp2,dp2").find("given twice"), std::string::npos);
  EXPECT_NE(error_of("dp2,ep4(dp)").find("need a divisor"), std::string::npos);
  EXPECT_NE(error_of("dp2,ep2(tp)").find("view 'ep' lists 'tp', but 'tp' is not a dimension of the mesh"),
            std::string::npos);
  EXPECT_NE(error_of("dp6,ep4(dp)").find("dimension 'dp' of size 6 does not split into groups of 4"),
            std::string::npos);
  EXPECT_EQ(error_of("dp2,replica2"),
            "mesh: 'replica' is not the first dimension; need it there, as in replica2,fsdp2");
  EXPECT_EQ(error_of("replica2,ep2(replica)"),
            "mesh: view 'ep' lists 'replica', which only splits the batch; need other dimensions");
  EXPECT_NE(error_of("dp99999999999").find("more than"), std::string::npos);
  EXPECT_NE(error_of("dp2 tp2").find("need ','"), std::string::npos);
  EXPECT_EQ(error_of([] { Mesh::parse("dp2").axes("tp"); }), "mesh dp2 has no dimension 'tp'; it has dp");
  EXPECT_EQ(error_of([] { Mesh::parse("dp2").axes("dp:1"); }), "mesh: there is no axis 'dp:1'; need dp:0 to dp:0");
  EXPECT_EQ(error_of([] { Mesh::parse("dp2").axes("dp,dp"); }), "mesh: 'dp,dp' lists the same axis twice");
  EXPECT_EQ(Mesh::parse("").size(), 1);
}

}  // namespace
}  // namespace weft::dist
