// For tests: worlds of forked processes that share memory.
#pragma once
#include <functional>
#include <string>

#include "distributed/comm/shared/world.h"
#include "distributed/comm/testing/support.h"

namespace weft::testing {

/// What one rank does with the communicator of all ranks.
using Body = std::function<void(Communicator&, dist::SharedWorld&, int rank)>;

/// Joins as one process of the layout; runs the body on a thread for each of its ranks.
inline void in_world(const Layout& layout, int process, const std::string& folder, const Body& body,
                     dist::SharedWorldOptions options = {}) {
  dist::FolderStore store(folder);
  int n = 0;
  for (const auto& ranks : layout) n += static_cast<int>(ranks.size());
  dist::SharedWorld world(store, n, layout[process], options);
  auto mine = world.communicators("world", all_of(n));
  on_threads(mine.size(), [&](size_t i) { body(*mine[i], world, mine[i]->rank()); });
}

/// The processes of a layout; returns their exit codes.
inline std::string run_world(const Layout& layout, const Body& body, dist::SharedWorldOptions options = {}) {
  const std::string folder = new_folder();
  Processes all(static_cast<int>(layout.size()), [&](int p) { in_world(layout, p, folder, body, options); });
  const std::string ends = all.wait();
  std::filesystem::remove_all(folder);
  return ends;
}

}  // namespace weft::testing
