// The mark of a temporary folder: an empty file with the folder's name in its own. A name alone is no proof that Weft
// made a folder, so only marked ones are removed after the process that made them has died.
#pragma once
#include <string>

namespace weft::io {

/// Marks the name `name`: makes the file `.weft-made-NAME` in the folder `place`. Returns false if this fails, as on a
/// full disk.
bool set_mark(const std::string& place, const std::string& name);
bool has_mark(const std::string& place, const std::string& name);
void remove_mark(const std::string& place, const std::string& name);
/// The name that a file name `.weft-made-NAME` marks; "" for other names.
std::string marked_name(const std::string& file);

}  // namespace weft::io
