// A temporary folder that later processes remove if its owner was killed: the owner holds a lock that the kernel
// releases.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace weft::dist {

/// The folder for temporary files: TMPDIR, or /tmp.
std::string temporary_parent();

class LockedFolder {
 public:
  LockedFolder() = default;
  /// A new folder PARENT/PREFIXxxxxxx. Removes folders of this form and user in `parent` whose owners have died, with
  /// the mark of new_folder. path() is empty if none can be made.
  LockedFolder(const std::string& parent, std::string_view prefix);
  /// Removes the folder with its content, unless another folder has its name now.
  ~LockedFolder();
  LockedFolder(LockedFolder&& o) noexcept;
  LockedFolder& operator=(LockedFolder&& o) noexcept;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int lock_ = -1;
};

/// A new folder in /dev/shm, where files cause no disk traffic, if there is room for `bytes`; else in
/// temporary_parent().
LockedFolder quick_folder(std::string_view prefix, int64_t bytes);

/// A new folder PARENT/PREFIXxxxxxx with its mark inside (framework/io/mark.h); empty if it cannot be made.
std::string new_folder(const std::string& parent, std::string_view prefix);

/// Removes all but the newest `keep` folders that new_folder has made in `parent` with this prefix, for this user, and
/// that no living process has locked.
void remove_left(const std::string& parent, std::string_view prefix, size_t keep);

}  // namespace weft::dist
