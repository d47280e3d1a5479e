// Store: a few small values that the processes of a job exchange when they start, such as addresses.
#pragma once
#include <chrono>
#include <optional>
#include <string>

namespace weft::dist {

class Store {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  virtual ~Store() = default;
  /// Sets the value of a key. A key is set once.
  virtual void set(const std::string& key, const std::string& value) = 0;
  /// Waits until a key is set and returns its value; throws DeadlineExceeded.
  virtual std::string get(const std::string& key, Deadline deadline) = 0;
  /// Throws the cause if the job has ended. Code that waits for other processes without the store calls it repeatedly.
  virtual void check() {}
};

/// A store in a folder that all processes can read and write, with one file for each key. Tests, and programs on one
/// host without a coordination service, use it. The folder must be new for each job.
class FolderStore final : public Store {
 public:
  /// The key whose value is why the job has ended: get() and check() throw it. The launcher sets it, because processes
  /// that have not joined yet learn from nobody else that one has died or is stopped.
  static constexpr const char* kEnded = "ended";

  /// Makes the folder if it does not exist; its parent must.
  explicit FolderStore(std::string folder);
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, Deadline deadline) override;
  void check() override;
  bool has(const std::string& key) const { return find(key).has_value(); }
  /// Removes a key if it is set.
  void remove(const std::string& key);

 private:
  std::string path_of(const std::string& key) const;
  std::optional<std::string> find(const std::string& key) const;
  std::string folder_;
};

}  // namespace weft::dist
