// Runs programs side by side without a shell: output is collected, a time limit ends them and all they started.
#pragma once
#include <span>
#include <string>
#include <vector>

namespace weft::jit {

struct Command {
  std::vector<std::string> argv;         // argv[0] is a path
  std::vector<std::string> environment;  // "NAME=value", over this process's own
};

struct Outcome {
  std::string output;  // the first 64 KiB of stdout and stderr together
  std::string
      failure;  // empty: exit status 0; else how it ended: "could not be started: ...", "was ended by signal 11"
  bool timed_out = false;
};

/// Runs all commands at once; returns when each has ended or `seconds` have passed and the rest is killed.
std::vector<Outcome> run_all(std::span<const Command> commands, double seconds);

}  // namespace weft::jit
