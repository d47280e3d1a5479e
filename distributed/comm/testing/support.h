// For tests: helpers for ranks in forked processes.
#pragma once
#include <sys/mman.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "distributed/comm/process_world.h"
#include "distributed/comm/store.h"
#include "distributed/comm/testing/processes.h"

namespace weft::testing {

inline Work::Deadline in_a_minute() { return std::chrono::steady_clock::now() + std::chrono::minutes(1); }
inline std::string text(const std::optional<Error>& e) { return e ? e->what() : ""; }

template <class T>
StridedView view(std::vector<T>& v, Shape shape = {}) {
  if (shape.empty()) shape = {static_cast<int64_t>(v.size())};
  return {v.data(), DTypeOf<T>::value, shape, contiguous_strides(shape)};
}

inline int64_t now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }
inline double seconds_since(int64_t then) { return static_cast<double>(now() - then) * 1e-9; }

/// Memory that parent and children share.
template <class T>
class Common {
 public:
  Common() : p_(new (mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) T{}) {}
  ~Common() { munmap(p_, sizeof(T)); }
  Common(const Common&) = delete;
  T* operator->() const { return p_; }

 private:
  T* p_;
};

/// When something happened, and how long it took until it was seen.
struct Times {
  std::atomic<int64_t> event{0};
  std::atomic<int> ready{0};
  std::atomic<int64_t> longest{0};  // ns
  void longer(int64_t ns) {
    int64_t old = longest.load();
    while (ns > old && !longest.compare_exchange_weak(old, ns)) {
    }
  }
};

/// Runs fn(0) ... fn(n - 1) on threads.
inline void on_threads(size_t n, const std::function<void(size_t)>& fn) {
  std::vector<std::thread> threads;
  for (size_t i = 1; i < n; ++i) threads.emplace_back([&fn, i] { fn(i); });
  fn(0);
  for (std::thread& t : threads) t.join();
}

inline std::vector<int> all_of(int n) {
  std::vector<int> all;
  for (int i = 0; i < n; ++i) all.push_back(i);
  return all;
}

/// The ranks of each process.
using Layout = std::vector<std::vector<int>>;
inline Layout each(int n) {
  Layout layout;
  for (int i = 0; i < n; ++i) layout.push_back({i});
  return layout;
}

/// Makes the world of a test.
using MakeWorld = std::function<std::unique_ptr<dist::ProcessWorld>(dist::Store&, int size, std::vector<int> local)>;

/// The work of one rank with the communicator of all ranks.
using Body = std::function<void(Communicator&, dist::ProcessWorld&)>;

/// Joins as one process of the layout; runs the body on a thread for each of its ranks.
inline void in_world(const MakeWorld& make, const Layout& layout, int process, const std::string& folder,
                     const Body& body, const char* name = "world") {
  dist::FolderStore store(folder);
  int n = 0;
  for (const auto& ranks : layout) n += static_cast<int>(ranks.size());
  const auto world = make(store, n, layout[process]);
  auto mine = world->communicators(name, all_of(n));
  on_threads(mine.size(), [&](size_t i) { body(*mine[i], *world); });
}

/// The processes of a layout; returns their exit codes.
inline std::string run_world(const MakeWorld& make, const Layout& layout, const Body& body,
                             const char* name = "world") {
  const std::string folder = new_folder();
  Processes all(static_cast<int>(layout.size()), [&](int p) { in_world(make, layout, p, folder, body, name); });
  const std::string ends = all.wait();
  std::filesystem::remove_all(folder);
  return ends;
}

}  // namespace weft::testing
