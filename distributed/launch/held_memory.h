// Memory that outlives the processes of a job: files in memory that their launcher holds open.
#pragma once
#include <string>
#include <vector>

#include "distributed/launch/locked_folder.h"

namespace weft::dist {

/// The variable with the folder, in the environment of the processes.
inline constexpr const char* kMemoryVariable = "JOB_MEMORY";

class HeldMemory {
 public:
  /// Makes a folder and `files` empty files in memory (memfd: a container's /dev/shm is small). path() is empty if
  /// `files` is 0, or if the system refuses them.
  explicit HeldMemory(int files);
  ~HeldMemory();
  HeldMemory(const HeldMemory&) = delete;

  /// The folder: empty but for links to the files. The destructor removes it.
  const std::string& path() const { return folder_.path(); }
  /// The link to a file in the folder of a HeldMemory.
  static std::string file(const std::string& folder, int number);

 private:
  LockedFolder folder_;
  std::vector<int> files_;
};

}  // namespace weft::dist
