// For tests: worlds of forked processes that share memory.
#pragma once
#include "distributed/comm/shared/world.h"
#include "distributed/comm/testing/world_tests.h"

namespace weft::testing {

inline MakeWorld with_options(const dist::SharedWorldOptions& options = {}) {
  return [options](dist::Store& store, int size, std::vector<int> local) {
    return dist::make_shared_world(store, size, std::move(local), options);
  };
}

/// Variants have pieces of two sizes, with and without the thread that makes progress.
inline TestedWorld shared_world() {
  return {.name = "shared",
          .make =
              [](dist::Store& store, int size, std::vector<int> local, WorldSetting s) {
                dist::SharedWorldOptions options{.timeout = s.timeout};
                if (s.variant) {
                  options.piece_bytes = s.variant % 3 ? 4096 : 256 << 10;
                  options.progress_thread = s.variant % 2 == 0;
                }
                return with_options(options)(store, size, std::move(local));
              },
          .death_errors =
              [](const dist::ProcessWorld& world, int rank) {
                return std::vector{str_cat("collective aborted: ", world.name_of(rank), " has died")};
              },
          .deaths = 20};
}

}  // namespace weft::testing
