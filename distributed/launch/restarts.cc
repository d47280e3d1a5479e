#include "distributed/launch/restarts.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>

#include "framework/base/error.h"

namespace weft::dist {
namespace {

// Exit codes: done, wrong flags (framework/cli), a file that cannot be executed, no such file.
constexpr int kFinal[] = {0, 2, 126, 127};
constexpr int kAskToEnd[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

}  // namespace

bool Restarts::may_follow(int status) const {
  if (WIFSIGNALED(status)) return std::ranges::count(kAskToEnd, WTERMSIG(status)) == 0;
  return o_.after_errors && std::ranges::count(kFinal, WEXITSTATUS(status)) == 0;
}

int64_t Restarts::committed() const try { return o_.committed ? o_.committed(memory()) : -1; } catch (const Error&) {
  return step_;
}

std::string Restarts::take() {
  if (!any_left()) return "";
  if (const int64_t now = committed(); now > step_) step_ = now, left_ = o_.most;
  --left_;
  again_ = true;
  const bool named = o_.names_step && o_.committed;
  return str_cat("starting again",
                 !named       ? ""
                 : step_ >= 0 ? str_cat(" from step ", step_)
                              : " from the beginning",
                 ", ", left_, left_ == 1 ? " restart" : " restarts", " left");
}

std::vector<std::string> Restarts::arguments() const {
  std::vector<std::string> all = o_.arguments;
  if (again_ && step_ >= 0) all.insert(all.end(), o_.resume.begin(), o_.resume.end());
  return all;
}

}  // namespace weft::dist
