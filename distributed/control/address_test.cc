#include "distributed/control/address.h"

#include <gtest/gtest.h>

#include "framework/base/str_cat.h"
#include "framework/base/testing/error_of.h"

namespace weft::control {
namespace {

TEST(Address, HostAndPort) {
  const auto text = [](const char* address, bool listens) {
    const HostPort a = parse_address(address, "test", listens);
    return str_cat(a.host, " ", a.port);
  };
  EXPECT_EQ(text("node1:29500", false), "node1 29500");
  EXPECT_EQ(text("[fd00::1]:65535", false), "fd00::1 65535");
  EXPECT_EQ(text(":0", true), " 0");
  for (const char* bad : {"node1", "node1:", "node1:0", ":29500", "node1:65536", "node1:95036", "node1:-1",
                          "node1:http", "[fd00::1]", ""})
    weft::testing::expect_has(weft::testing::error_of([&] { (void)parse_address(bad, "test"); }),
                              str_cat("test: got address '", bad, "'; need host:port, with a port from 1 to 65535"));
  weft::testing::expect_has(weft::testing::error_of([] { (void)parse_address("h:65536", "test", true); }),
                            "a port from 0 to 65535");
}

TEST(Address, PutsBracketsAroundColons) {
  EXPECT_EQ(with_port("node1", 29500), "node1:29500");
  EXPECT_EQ(with_port("fd00::1", 29500), "[fd00::1]:29500");
}

TEST(Address, LoopbackIsNotReachableFromOtherHosts) {
  EXPECT_FALSE(is_reachable("127.0.1.1"));
  EXPECT_FALSE(is_reachable("::1"));
  EXPECT_FALSE(is_reachable("no such host"));
  EXPECT_TRUE(is_reachable("192.0.2.1"));  // an address for documentation
  EXPECT_EQ(address_towards("127.0.0.1"), "");
  EXPECT_EQ(address_towards("no such host"), "");
  EXPECT_EQ(unknown_host("127.0.0.1"), "");
  EXPECT_NE(unknown_host("no such host"), "");
}

}  // namespace
}  // namespace weft::control
