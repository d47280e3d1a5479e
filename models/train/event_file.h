// Scalars of a run for TensorBoard: a file of TFRecords (a length, its checksum, the bytes, their checksum), which
// contain messages Event of tensorflow/core/util/event.proto.
#pragma once
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace weft::train {

struct StepMetrics;

/// crc32c (Castagnoli) of the bytes, rotated and shifted as TFRecord stores it.
uint32_t masked_crc32c(std::string_view bytes);

/// Appends scalars to a new file in a folder, which may contain files of earlier runs.
class EventFile {
 public:
  /// Writes nothing.
  EventFile() = default;
  /// TensorBoard drops scalars of earlier files from step `first` on. Throws if the file cannot be made.
  EventFile(const std::string& folder, int64_t first);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  void scalar(std::string_view tag, double value, int64_t step);
  /// loss, grad_norm, lr, tokens_per_s and the like, as "train/loss". A step that is made again is not written again.
  void write(const StepMetrics& m);
  const std::string& path() const { return path_; }

 private:
  void record(const std::string& event);
  std::FILE* file_ = nullptr;
  std::string path_;
  int64_t newest_ = 0;  // the newest step
};

}  // namespace weft::train
