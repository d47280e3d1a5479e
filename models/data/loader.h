// Batches of windows of a TokenDataset. A loader has no hidden state: sample k of a run (k = 0, 1, 2, ...) is a pure
// function of data, seq_len, seed and k, whatever the batch size and the number of ranks.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "models/data/dataset.h"

namespace weft::data {

/// Row-major [rows, seq_len] each; targets are the tokens one position later.
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

/// Endless shuffled training batches. An epoch visits windows that do not overlap, each once, in an order and with an
/// offset of their own by (seed, epoch). The position - samples drawn so far - is all there is to save.
class ShuffledLoader {
 public:
  ShuffledLoader(TokenDataset data, const LoaderOptions& options);

  int64_t batch_size() const { return options_.batch_size; }
  int64_t seq_len() const { return options_.seq_len; }
  /// Windows of one epoch.
  int64_t windows() const { return windows_; }

  /// The next batch_size samples; the position moves on by as many.
  Batch next();
  /// Samples drawn so far. With another batch size a run goes on at the same sample.
  int64_t position() const { return position_; }
  void seek(int64_t position);

  /// Rows [begin, end) of the batch that starts at sample `position`, as a rank reads them, into row-major
  /// [end - begin, seq_len]. Const: safe from several threads.
  void read(int64_t position, int64_t begin, int64_t end, std::span<int32_t> tokens, std::span<int32_t> targets) const;
  void read(int64_t position, int64_t begin, int64_t end, std::span<int64_t> tokens, std::span<int64_t> targets) const;
  /// Where in the data the window of a sample begins.
  int64_t window_begin(int64_t sample) const;

 private:
  TokenDataset data_;
  LoaderOptions options_;
  int64_t windows_ = 0;
  int64_t position_ = 0;
};

/// Validation batches: windows one after the other, always the same and always full. Where the windows do not fill the
/// last batch the rest is left out; where they do not fill one batch they repeat.
class SequentialLoader {
 public:
  SequentialLoader(TokenDataset data, const LoaderOptions& options);
  int64_t batch_size() const { return options_.batch_size; }
  int64_t seq_len() const { return options_.seq_len; }
  int64_t windows() const { return windows_; }
  /// Number of batches, at least 1.
  int64_t batches() const;
  Batch batch(int64_t index) const;
  /// Rows [begin, end) of batch `index`.
  void read(int64_t index, int64_t begin, int64_t end, std::span<int32_t> tokens, std::span<int32_t> targets) const;
  void read(int64_t index, int64_t begin, int64_t end, std::span<int64_t> tokens, std::span<int64_t> targets) const;

 private:
  TokenDataset data_;
  LoaderOptions options_;
  int64_t windows_ = 0;
};

/// Image of `i` under a permutation of [0, n) chosen by `key`, in constant expected time and no memory (a Feistel
/// network on the next even number of bits, walked until the value is below n: Black and Rogaway 2002).
int64_t permute(int64_t i, int64_t n, uint64_t key);

}  // namespace weft::data
