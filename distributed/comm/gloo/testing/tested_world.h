// For tests: worlds over TCP.
#pragma once
#include "distributed/comm/gloo/world.h"
#include "distributed/comm/testing/world_tests.h"

namespace weft::testing {

/// Worlds of this host, whose connections end if the other side is silent for 1 s.
inline TestedWorld gloo_world() {
  return {.name = "gloo",
          .make =
              [](dist::Store& store, int size, std::vector<int> local, WorldSetting s) {
                return dist::make_gloo_world(store, size, std::move(local),
                                             {.timeout = s.timeout, .silence = std::chrono::seconds(1)});
              },
          .death_errors =
              [](const dist::ProcessWorld& world, int rank) {
                const std::string died = world.name_of(rank) + " has died or cannot be reached";
                std::vector<std::string> errors{"collective aborted: " + died};
                for (int r = 0; r < world.size(); ++r)
                  errors.push_back(str_cat("collective aborted: rank ", r, " reports: ", died));
                return errors;
              },
          .deaths = 8};
}

}  // namespace weft::testing
