// Memory that outlives the processes of a job: files in memory that their launcher holds open.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "distributed/launch/locked_folder.h"

namespace weft::dist {

/// The variables with the folder and, if there is none, with the reason, in the environment of the processes.
inline constexpr const char *kMemoryVariable = "JOB_MEMORY", *kNoMemoryVariable = "JOB_NO_MEMORY";

class HeldMemory {
 public:
  /// Makes a folder and `files` empty files in memory (memfd: a container's /dev/shm is small). path() is empty if
  /// `files` is 0, or if the system refuses them.
  explicit HeldMemory(int files);
  ~HeldMemory();
  HeldMemory(const HeldMemory&) = delete;

  /// The folder: empty but for links to the files. The destructor removes it.
  const std::string& path() const { return folder_.path(); }
  /// The reason why the system refused the folder or a file: "memfd_create: Too many open files". Empty: it did not.
  const std::string& refused() const { return refused_; }
  /// The link to a file in the folder of a HeldMemory.
  static std::string file(const std::string& folder, int number);
  /// The bytes of memory that the files in the folder of a HeldMemory have.
  static int64_t bytes(const std::string& folder);

 private:
  LockedFolder folder_;
  std::string refused_;
  std::vector<int> files_;
};

}  // namespace weft::dist
