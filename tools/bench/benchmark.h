// The main of a benchmark with a report.
#pragma once
#include "tools/bench/report.h"

namespace weft::bench {

/// The main of the benchmark `name`: parses the flags, calls `run`, prints its rows and writes them to --json. If there
/// are no rows (a program that serves lines of standard input), prints nothing.
int run_benchmark(int argc, char** argv, const char* name, const char* doc, void (*run)(Report& report));

}  // namespace weft::bench
