// The one writer of safetensors files: SafetensorsFiles makes and commits the files, and write_parts() writes the bytes
// that a process has. Several processes may write parts of the same files at once, without locks.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "framework/io/file.h"
#include "framework/io/safetensors_layout.h"
#include "framework/tensor/part.h"

namespace weft::io {

/// Elements of a tensor that a process has: `data` is row-major and has the shape of the part.
struct TensorPiece {
  size_t tensor = 0;  // number in the layout
  TensorPart part;
  const void* data = nullptr;
};

/// The files of a layout under temporary names, with their final sizes. They get their names at commit(); destroyed
/// without it, they leave nothing.
class SafetensorsFiles {
 public:
  /// Makes the files in `folder`, which exists; "": the paths of the layout are whole. `layout` must outlive this.
  /// `memory`: the file that gets the bytes of a layout of one file (AtomicFile).
  SafetensorsFiles(const SafetensorsLayout& layout, const std::string& folder, const std::string& memory = "");
  /// The temporary path of each file, absolute: processes have their own working directories.
  std::vector<std::string> paths() const;
  /// Writes headers and the index, after all parts are written. `shares`: the results of write_parts(), joined by XOR.
  void commit(std::vector<uint32_t> shares);

 private:
  const SafetensorsLayout& layout_;
  const std::string prefix_;
  std::vector<std::unique_ptr<AtomicFile>> files_;
};

/// Writes pieces to the files at `paths` and to disk. Returns the share (crc32c.h) of these bytes in the checksum of
/// each block of the layout. All pieces, of all processes, are disjoint. `one_host`: all writers run on this host.
/// Calls `pause` after each 128 KiB or less, on the thread that has written them.
std::vector<uint32_t> write_parts(const SafetensorsLayout& layout, const std::vector<std::string>& paths,
                                  std::vector<TensorPiece> pieces, bool one_host,
                                  const std::function<void()>& pause = {});

}  // namespace weft::io
