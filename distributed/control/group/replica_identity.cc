#include "distributed/control/group/replica_identity.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "distributed/control/address.h"
#include "distributed/control/group/view.h"
#include "distributed/control/service/token.h"
#include "framework/base/error.h"
#include "framework/base/one_line.h"
#include "framework/base/parse_number.h"

namespace weft::control {
namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

const std::string& token() {
  static const auto* const token = [] {
    const std::string text = take_token("REPLICAS_TOKEN"), file = variable("REPLICAS_TOKEN_FILE");
    return new std::string(text.empty() && !file.empty() ? token_of_file(file) : text);
  }();
  return *token;
}

}  // namespace

std::optional<ReplicaIdentity> replica_identity() {
  const std::string address = variable("REPLICAS"), own = variable("REPLICA");
  if (address.empty()) return {};
  const std::string name = own.empty() ? variable("REPLICA_GROUP_ID") : own;
  WEFT_CHECK(!name.empty(), "replica: REPLICAS is ", one_line(address, 100),
             ", and REPLICA is not set; need the name of this replica in REPLICA, such as a");
  WEFT_CHECK(std::none_of(name.begin(), name.end(), [](unsigned char c) { return c < ' ' || c == 127; }),
             "replica: the name is '", one_line(name, 100), "'; need a name without control characters");
  (void)parse_address(address, "replica, REPLICAS");
  const std::string incarnation = variable(kIncarnationVariable);
  ReplicaIdentity id{name, address, token()};
  if (incarnation.empty()) return id;
  const std::optional<int64_t> number = parse_number<int64_t>(incarnation, 1, kMostIncarnation);
  WEFT_CHECK(number, "replica: got ", kIncarnationVariable, " ", one_line(incarnation, 40),
             "; need a number from 1 to ", kMostIncarnation, " that rises with each start");
  id.incarnation = *number;
  return id;
}

int64_t new_incarnation() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::max<int64_t>(1, std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

}  // namespace weft::control
