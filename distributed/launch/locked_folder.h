// A temporary folder that later processes remove if its owner was killed: the owner holds a lock that the kernel
// releases.
#pragma once
#include <string>
#include <string_view>

namespace weft::dist {

/// The folder for temporary files: TMPDIR, or /tmp.
std::string temporary_parent();

class LockedFolder {
 public:
  LockedFolder() = default;
  /// A new folder PARENT/PREFIXxxxxxx. Removes folders of this prefix and user in `parent` whose owners have died.
  /// path() is empty if none can be made.
  LockedFolder(const std::string& parent, std::string_view prefix);
  /// Removes the folder with its content.
  ~LockedFolder();
  LockedFolder(LockedFolder&& o) noexcept;
  LockedFolder& operator=(LockedFolder&& o) noexcept;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int lock_ = -1;
};

/// A new folder in `parent`; empty if it cannot be made.
std::string new_folder(const std::string& parent, std::string_view prefix);

}  // namespace weft::dist
