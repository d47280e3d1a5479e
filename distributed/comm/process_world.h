// ProcessWorld: the ranks of several processes, by whatever transport connects them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "framework/dispatch/communicator.h"

namespace weft::dist {

class ProcessWorld {
 public:
  virtual ~ProcessWorld() = default;
  /// The number of ranks.
  virtual int size() const = 0;
  /// Creates a communicator of the ranks `group`; returns those of this process's ranks, in the order of `group`. All
  /// processes with ranks in it create the same communicators in the same order. Returns when all have done so.
  virtual std::vector<Ref<Communicator>> communicators(const std::string& name, const std::vector<int>& group) = 0;
};

namespace internal {

/// The local ranks of a world of `size`, sorted; throws if they are not different ranks. `world` is for messages.
std::vector<int> checked_local_ranks(const char* world, int size, std::vector<int> ranks);
/// Throws if a group does not have different ranks of a world of `size`.
void check_group(const std::string& name, const std::vector<int>& group, int size);
/// A number for a name; not 0.
uint64_t key_of(const std::string& text);

/// The same text in processes that reach each other at 127.0.0.1, and in no others: the host, and its network namespace.
std::string own_network();

}  // namespace internal
}  // namespace weft::dist
