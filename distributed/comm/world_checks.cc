#include "distributed/comm/world_checks.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <random>

#include "framework/base/error.h"

namespace weft::dist::internal {

std::vector<int> checked_local_ranks(const char* world, int size, std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  WEFT_CHECK(size >= 1 && !ranks.empty(), world, ": ", size, " ranks, of which this process owns ", ranks.size(),
             "; need 1 or more");
  for (size_t i = 0; i < ranks.size(); ++i)
    WEFT_CHECK(ranks[i] >= 0 && ranks[i] < size && (i == 0 || ranks[i] != ranks[i - 1]), world,
               ": got the local ranks ", ranks, "; need different ones from 0 to ", size - 1);
  return ranks;
}

void check_group(const std::string& name, const std::vector<int>& group, int size) {
  std::vector<bool> seen(size);
  for (int r : group) {
    WEFT_CHECK(r >= 0 && r < size && !seen[r], "communicator ", name, ": got the ranks ", group,
               "; need different ones from 0 to ", size - 1);
    seen[r] = true;
  }
}

uint64_t key_of(const std::string& text) {
  uint64_t h = 0xcbf29ce484222325;
  for (const char c : text) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return h ? h : 1;
}

std::string random_text() {
  std::random_device random;
  std::string text;
  while (text.size() < 32) text += "0123456789abcdef"[random() % 16];
  return text;
}

std::string own_network() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  char name[64] = {};
  if (readlink("/proc/self/ns/net", name, sizeof name - 1) < 0) name[0] = 0;
  return str_cat(boot, "/", name);
}

}  // namespace weft::dist::internal
