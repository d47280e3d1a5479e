#include "framework/io/testing/faults.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace weft::io::testing {
namespace {

bool exchange = true;

struct State {
  std::string folder;
  int64_t at = -1;
  std::atomic<int64_t> calls = 0;  // threads write at the same time
  std::atomic<int64_t> written_end = 0;
  std::mutex mutex;
  std::vector<std::pair<int64_t, int64_t>> reserved;
  Fault fault = Fault::kKill;
  std::atomic<bool> held = false, released = false;  // kHold: a call waits; it may go on
};
State& state() {
  static auto* s = new State;
  return *s;
}

std::string path_of(int fd) {
  char link[40], path[PATH_MAX];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t n = ::readlink(link, path, sizeof path);
  return n > 0 ? std::string(path, static_cast<size_t>(n)) : "";
}

bool watched(const std::string& path) {
  const std::string& folder = state().folder;
  return !folder.empty() && path.starts_with(folder);
}

void note_write(int64_t end) {
  std::atomic<int64_t>& most = state().written_end;
  for (int64_t before = most; before < end && !most.compare_exchange_weak(before, end);) {
  }
}

void note_reserve(int64_t begin, int64_t end) {
  const std::lock_guard lock(state().mutex);
  state().reserved.emplace_back(begin, end);
}

/// The function of libc that a function of this file replaces.
template <class F>
F next(const char* name, F) {
  return reinterpret_cast<F>(::dlsym(RTLD_NEXT, name));
}

/// Counts a call for `path` and does `call` or the fault. `half` does half of a write; `removes` is true for a call
/// that needs no space. `kind`: the fault that refuses calls of this kind alone.
template <class Call, class Half>
auto run(const std::string& path, bool removes, Call&& call, Half&& half, Fault kind = Fault::kBroken)
    -> decltype(call()) {
  State& s = state();
  if (!watched(path)) return call();
  const int64_t i = s.calls++;
  if (s.at < 0 || i < s.at) return call();
  const auto refuse = [](int error) {
    errno = error;
    return decltype(call())(-1);
  };
  switch (s.fault) {
    case Fault::kKill:
      ::kill(::getpid(), SIGKILL);
      break;
    case Fault::kKillHalfway:
      half();
      ::kill(::getpid(), SIGKILL);
      break;
    case Fault::kShortWrite:
      if (i == s.at) return half();
      [[fallthrough]];
    case Fault::kNoSpace:
      return removes ? call() : refuse(ENOSPC);
    case Fault::kBroken:
      return i == s.at ? refuse(EIO) : call();
    case Fault::kNoOffsets:
    case Fault::kNoReserve:
      return kind == s.fault ? refuse(EOPNOTSUPP) : call();
    case Fault::kHold:
      if (i == s.at) {
        s.held = true;
        s.held.notify_all();
        s.released.wait(false);
      }
      return call();
  }
  return call();
}
template <class Call>
auto run(const std::string& path, bool removes, Call&& call) -> decltype(call()) {
  return run(path, removes, call, call);
}

}  // namespace

void set_fault(const std::string& folder, int64_t at, Fault fault) {
  state().folder = folder, state().at = at, state().calls = 0, state().fault = fault;
  state().written_end = 0;
  state().reserved.clear();
  state().held = state().released = false;
}
void wait_for_hold() { state().held.wait(false); }
void release() {
  state().released = true;
  state().released.notify_all();
}
void set_exchange(bool works) { exchange = works; }
int64_t total_calls() { return state().calls; }
int64_t written_end() { return state().written_end; }
std::vector<std::pair<int64_t, int64_t>> reserved() {
  const std::lock_guard lock(state().mutex);
  return state().reserved;
}

std::string fast_folder() {
  const char* parents[] = {"/dev/shm", std::getenv("TEST_TMPDIR"), "/tmp"};
  for (const char* parent : parents) {
    if (!parent || ::access(parent, W_OK) != 0) continue;
    std::string folder = std::string(parent) + "/weft-faults-XXXXXX";
    if (::mkdtemp(folder.data())) return folder;
  }
  return "";
}

}  // namespace weft::io::testing

namespace faults = weft::io::testing;

extern "C" {

int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = va_arg(list, mode_t);
  va_end(list);
  auto call = [&] { return faults::next("open", &open)(path, flags, mode); };
  return flags & O_CREAT ? faults::run(path, false, call) : call();
}

ssize_t pwrite(int fd, const void* data, size_t n, off_t offset) {
  const auto real = faults::next("pwrite", &pwrite);
  const std::string path = faults::path_of(fd);
  if (faults::watched(path)) faults::note_write(static_cast<int64_t>(offset) + static_cast<int64_t>(n));
  return faults::run(
      path, false, [&] { return real(fd, data, n, offset); }, [&] { return real(fd, data, (n + 1) / 2, offset); },
      offset > 0 ? faults::Fault::kNoOffsets : faults::Fault::kBroken);
}

int ftruncate(int fd, off_t bytes) {
  return faults::run(faults::path_of(fd), false, [&] { return faults::next("ftruncate", &ftruncate)(fd, bytes); });
}

int fallocate(int fd, int mode, off_t begin, off_t bytes) {
  auto call = [&] { return faults::next("fallocate", &fallocate)(fd, mode, begin, bytes); };
  const std::string path = faults::path_of(fd);
  if (faults::watched(path)) faults::note_reserve(begin, begin + bytes);
  return faults::run(path, false, call, call, faults::Fault::kNoReserve);
}

int fsync(int fd) {
  const std::string path = faults::path_of(fd);
  return faults::run(path, false, [&] { return faults::watched(path) ? 0 : faults::next("fsync", &fsync)(fd); });
}

int mkdir(const char* path, mode_t mode) {
  return faults::run(path, false, [&] { return faults::next("mkdir", &mkdir)(path, mode); });
}

int rename(const char* from, const char* to) {
  return faults::run(to, false, [&] { return faults::next("rename", &rename)(from, to); });
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  if (!faults::exchange && flags) return errno = EINVAL, -1;
  return faults::run(to, false,
                     [&] { return faults::next("renameat2", &renameat2)(from_folder, from, to_folder, to, flags); });
}

int unlink(const char* path) {
  return faults::run(path, true, [&] { return faults::next("unlink", &unlink)(path); });
}

int unlinkat(int folder, const char* path, int flags) {
  const std::string whole = folder == AT_FDCWD || *path == '/' ? path : faults::path_of(folder) + "/" + path;
  return faults::run(whole, true, [&] { return faults::next("unlinkat", &unlinkat)(folder, path, flags); });
}

}  // extern "C"
