#include "distributed/control/address.h"

#include <gtest/gtest.h>

namespace weft::control {
namespace {

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
