// Runs programs in parallel without a shell. It collects their output; a time limit ends them and their children.
#pragma once
#include <span>
#include <string>
#include <vector>

namespace weft::jit {

struct Command {
  std::vector<std::string> argv;         // argv[0] is a path
  std::vector<std::string> environment;  // "NAME=value"; overrides this process's environment
};

/// How a program ended.
struct ProgramOutcome {
  std::string output;   // the first 64 KiB of stdout and stderr together
  std::string failure;  // empty: exit status 0; otherwise "could not be started: ...", "was ended by signal 11", ...
  bool timed_out = false;
};

/// Runs all commands in parallel. Returns when all have ended, or after `seconds`, when it kills the rest.
std::vector<ProgramOutcome> run_all(std::span<const Command> commands, double seconds);

}  // namespace weft::jit
