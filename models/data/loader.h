// Batches of windows of a TokenDataset. A loader has no hidden state: sample k of a run (k = 0, 1, 2, ...) is a pure
// function of data, seq_len, seed and k. Batch size and number of ranks do not matter.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "models/data/dataset.h"

namespace weft::data {

/// Both are row-major [rows, seq_len]. The targets are the tokens one position later.
struct Batch {
  int64_t rows = 0, seq_len = 0;
  std::vector<int32_t> tokens, targets;
};

struct LoaderOptions {
  int64_t batch_size = 0;
  int64_t seq_len = 0;
  uint64_t seed = 0;
  /// "training" or "validation", for messages.
  const char* what = "training";
};

/// Endless shuffled training batches. An epoch visits each of its windows once; they do not overlap. Their order and
/// offset depend on (seed, epoch). The only state to save is the position: the number of samples drawn so far.
class ShuffledLoader {
 public:
  ShuffledLoader(TokenDataset data, const LoaderOptions& options);

  int64_t batch_size() const { return options_.batch_size; }
  int64_t seq_len() const { return options_.seq_len; }
  /// Number of windows of an epoch.
  int64_t windows() const { return windows_; }

  /// The next batch_size samples. Advances the position by batch_size.
  Batch next();
  /// The next `rows` samples. Advances the position by `rows`.
  Batch next(int64_t rows);
  /// Samples drawn so far. A run with another batch size continues at the same sample.
  int64_t position() const { return position_; }
  void seek(int64_t position);

  /// Reads rows [begin, end) of the batch that starts at sample `position`, for one rank, into row-major
  /// [end - begin, seq_len]. Thread-safe.
  void read(int64_t position, int64_t begin, int64_t end, std::span<int32_t> tokens, std::span<int32_t> targets) const;
  void read(int64_t position, int64_t begin, int64_t end, std::span<int64_t> tokens, std::span<int64_t> targets) const;
  /// The position in the data where the window of a sample begins.
  int64_t window_begin(int64_t sample) const;

 private:
  TokenDataset data_;
  LoaderOptions options_;
  int64_t windows_ = 0;
  int64_t position_ = 0;
};

/// Validation batches: consecutive windows, the same in every pass. All batches are full: windows that do not fill the
/// last batch are left out; if there are too few windows for one batch, they repeat.
class SequentialLoader {
 public:
  SequentialLoader(TokenDataset data, const LoaderOptions& options);
  int64_t batch_size() const { return options_.batch_size; }
  int64_t seq_len() const { return options_.seq_len; }
  int64_t windows() const { return windows_; }
  /// Number of batches, at least 1.
  int64_t batches() const;
  Batch batch(int64_t index) const;
  /// Reads rows [begin, end) of batch `index`.
  void read(int64_t index, int64_t begin, int64_t end, std::span<int32_t> tokens, std::span<int32_t> targets) const;
  void read(int64_t index, int64_t begin, int64_t end, std::span<int64_t> tokens, std::span<int64_t> targets) const;

 private:
  TokenDataset data_;
  LoaderOptions options_;
  int64_t windows_ = 0;
};

/// Image of `i` under a permutation of [0, n) that `key` selects. A Feistel network on the next even number of bits is
/// applied until the value is below n (Black and Rogaway 2002), in constant expected time and without memory.
int64_t permute(int64_t i, int64_t n, uint64_t key);

}  // namespace weft::data
