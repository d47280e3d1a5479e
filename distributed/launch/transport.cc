#include "distributed/launch/transport.h"

#include <algorithm>
#include <map>
#include <set>

#include "distributed/comm/threads.h"
#include "distributed/launch/processes.h"
#include "framework/base/mutex.h"

namespace weft::dist {
namespace {

// The communicators of the ranks of this process, by axes and first rank of their group.
class GroupTransport : public Transport {
 public:
  explicit GroupTransport(const Mesh& mesh) : mesh_(mesh) {}

  Ref<Communicator> get(int rank, const std::string& axes) override {
    const std::vector<int> group = mesh_.group(rank, axes);
    MutexLock lock(mutex_);
    auto& all = groups_[{axes, group[0]}];
    if (all.empty()) {
      all = make(axes, group);
      if (!cause_.empty()) all.begin()->second->abort(cause_);
      for (auto& [r, c] : all)
        if (returned_.contains(r)) set_retired(*c, true);
    }
    return all.at(rank);
  }

  void abort(const std::string& cause) override {
    MutexLock lock(mutex_);
    if (!cause_.empty()) return;
    cause_ = cause;
    for (auto& [key, all] : groups_)
      if (!all.empty()) all.begin()->second->abort(cause);
  }

  void leave(int rank) override {
    MutexLock lock(mutex_);
    returned_.insert(rank);
    for (auto& [key, all] : groups_)
      if (const auto it = all.find(rank); it != all.end()) set_retired(*it->second, true);
  }
  void begin() override {
    MutexLock lock(mutex_);
    if (returned_.empty()) return;
    returned_.clear();
    for (auto& [key, all] : groups_)
      for (auto& [r, c] : all) set_retired(*c, false);
  }

  void reset() override {
    MutexLock lock(mutex_);
    groups_.clear();
    cause_.clear();
  }

 protected:
  using Group = std::map<int, Ref<Communicator>>;  // by rank of this process
  virtual Group make(const std::string& axes, const std::vector<int>& group) = 0;

 private:
  const Mesh& mesh_;
  Mutex mutex_;
  std::map<std::pair<std::string, int>, Group> groups_;
  std::string cause_;
  std::set<int> returned_;
};

class ThreadTransport final : public GroupTransport {
 public:
  using GroupTransport::GroupTransport;

 private:
  Group make(const std::string& axes, const std::vector<int>& group) override {
    const std::vector<Ref<Communicator>> all = make_thread_communicators(static_cast<int>(group.size()), axes, group);
    Group made;
    for (size_t i = 0; i < group.size(); ++i) made[group[i]] = all[i];
    return made;
  }
};

class ProcessTransport final : public GroupTransport {
 public:
  ProcessTransport(const Mesh& mesh, Processes& job) : GroupTransport(mesh), job_(job) {}
  // Another process may be in its next call already, or still in its previous call.
  void leave(int) override {}
  void begin() override {}

 private:
  Group make(const std::string& axes, const std::vector<int>& group) override {
    const std::vector<Ref<Communicator>> all = job_.world().communicators(axes, group);
    Group made;
    auto next = all.begin();
    for (int r : group)
      if (job_.owns(r)) made[r] = *next++;
    return made;
  }

  Processes& job_;
};

}  // namespace

std::unique_ptr<Transport> make_thread_transport(const Mesh& mesh) { return std::make_unique<ThreadTransport>(mesh); }
std::unique_ptr<Transport> make_process_transport(const Mesh& mesh, Processes& job) {
  return std::make_unique<ProcessTransport>(mesh, job);
}

}  // namespace weft::dist
