// Checks that all process worlds share, and names of hosts and keys.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace weft::dist::internal {

/// The local ranks of a world of `size`, sorted; throws if they are not different ranks. `world` is for messages.
std::vector<int> checked_local_ranks(const char* world, int size, std::vector<int> ranks);
/// Throws if a group does not have different ranks of a world of `size`.
void check_group(const std::string& name, const std::vector<int>& group, int size);
/// A number for a name; not 0.
uint64_t key_of(const std::string& text);
/// 32 random hexadecimal digits, which no stranger guesses.
std::string random_text();

/// A text that is equal in two processes if and only if they reach each other at 127.0.0.1.
std::string own_network();

}  // namespace weft::dist::internal
