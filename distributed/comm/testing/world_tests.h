// For tests: suites of what holds for every kind of ProcessWorld. The tests of a transport instantiate them with its
// TestedWorld.
#pragma once
#include <gtest/gtest.h>

#include "distributed/comm/testing/support.h"

namespace weft::testing {

struct WorldSetting {
  std::chrono::nanoseconds timeout = std::chrono::seconds(kDefaultTimeout);  // see the options of the worlds
  uint64_t variant = 0;  // chooses among what the transport can vary, such as sizes of its pieces; 0: the default
};

struct TestedWorld {
  const char* name;
  std::function<std::unique_ptr<dist::ProcessWorld>(dist::Store&, int size, std::vector<int> local, WorldSetting)> make;
  /// The errors of a collective if the process of a rank has died.
  std::function<std::vector<std::string>(const dist::ProcessWorld&, int rank)> death_errors;
  int deaths;  // that 8 s suffice for

  MakeWorld with(WorldSetting setting) const {
    return [make = make, setting](dist::Store& store, int size, std::vector<int> local) {
      return make(store, size, std::move(local), setting);
    };
  }
};
inline void PrintTo(const TestedWorld& w, std::ostream* out) { *out << w.name; }

class WorldTest : public ::testing::TestWithParam<TestedWorld> {
 protected:
  /// The exit codes of the processes of a layout.
  static std::string run(const Layout& layout, const Body& body) {
    return run_world(GetParam().with({}), layout, body);
  }
};

class WorldCommunicators : public WorldTest {};  // communicator_tests.cc
class WorldFailure : public WorldTest {};        // failure_tests.cc: one rank fails
class WorldDeath : public WorldTest {};          // death_tests.cc: a process ends or stops

}  // namespace weft::testing
