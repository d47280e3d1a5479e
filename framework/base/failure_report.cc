#include "framework/base/failure_report.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace weft {

void report_failure(Code code, const std::string& text) {
  const char* const path = std::getenv(kFailureReport);
  if (!path || !*path) return;
  std::ofstream(path) << (follows(code) ? "follows " : "fails ") << text;
}

std::optional<FailureReport> read_failure(const std::string& path) {
  std::ifstream file(path);
  std::string kind;
  if (!(file >> kind)) return {};
  file.get();  // the space
  std::ostringstream text;
  text << file.rdbuf();
  return FailureReport{kind == "follows", text.str()};
}

}  // namespace weft
