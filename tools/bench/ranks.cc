#include "tools/bench/ranks.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <vector>

#include "framework/base/error.h"

namespace weft::bench {

void run_ranks(int ranks, Report& report,
               const std::function<void(const std::string& folder, int rank, Report& report)>& rank) {
  std::string folder = (std::filesystem::temp_directory_path() / "weft-XXXXXX").string();
  if (!mkdtemp(folder.data())) throw Error(Code::kUnavailable, "cannot make a folder");
  std::vector<pid_t> children;
  for (int r = 1; r < ranks; ++r) {
    const pid_t child = fork();
    if (child == 0) {
      Report own("child");
      try {
        rank(folder, r, own);
      } catch (const std::exception& e) {
        std::fprintf(stderr, "rank %d: %s\n", r, e.what());
        _exit(1);
      }
      _exit(0);
    }
    children.push_back(child);
  }
  report.fact("ranks", std::to_string(ranks));
  rank(folder, 0, report);
  for (const pid_t child : children) waitpid(child, nullptr, 0);
  std::filesystem::remove_all(folder);
}

}  // namespace weft::bench
