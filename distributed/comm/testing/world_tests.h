// For tests: suites that every kind of ProcessWorld passes. The tests of a transport instantiate them with its
// TestedWorld.
#pragma once
#include <gtest/gtest.h>

#include "distributed/comm/testing/support.h"

namespace weft::testing {

struct WorldSetting {
  std::chrono::nanoseconds timeout = std::chrono::seconds(kDefaultTimeout);  // see the options of the worlds
  uint64_t variant = 0;  // chooses one of the transport's variants, such as another piece size; 0: the default
};

struct TestedWorld {
  const char* name;
  std::function<std::unique_ptr<dist::ProcessWorld>(dist::Store&, int size, std::vector<int> local, WorldSetting)> make;
  /// Possible errors of a collective after the process of a rank has died.
  std::function<std::vector<std::string>(const dist::ProcessWorld&, int rank)> death_errors;
  int deaths;  // number of deaths that the test can do in 8 s

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
