// TokenDataset: a long sequence of token ids, from memory, mapped shards or a generator; and how `--data` becomes one.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/data/tokenizer.h"

namespace weft::data {

/// Where tokens come from; copy() is safe from several threads.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual int64_t size() const = 0;
  virtual void copy(int64_t begin, std::span<int32_t> out) const = 0;
};

/// A range of a TokenSource. A small value: copies share the source.
class TokenDataset {
 public:
  TokenDataset() = default;
  TokenDataset(std::shared_ptr<const TokenSource> source, int64_t vocab_size);
  static TokenDataset from_tokens(std::span<const int32_t> ids, int64_t vocab_size);
  /// Shard files in this order, as one sequence; they must agree on tokenizer and vocabulary.
  static TokenDataset from_shards(const std::vector<std::string>& paths);
  /// `size` uniform random ids of [0, vocab_size), a pure function of seed and position; takes no memory.
  static TokenDataset synthetic(int64_t vocab_size, int64_t size, uint64_t seed);

  int64_t size() const { return end_ - begin_; }
  int64_t vocab_size() const { return vocab_size_; }
  /// Copies ids [begin, begin + out.size()); throws OutOfRange beyond the end.
  void copy(int64_t begin, std::span<int32_t> out) const;
  std::vector<int32_t> tokens(int64_t begin, int64_t count) const;
  TokenDataset slice(int64_t begin, int64_t end) const;

  struct Split;
  /// The last `fraction` of the tokens held out, at least `seq_len` + 1 of them; throws if training would keep less
  /// than that.
  Split split(int64_t seq_len, double fraction = 0.05) const;

 private:
  std::shared_ptr<const TokenSource> source_;
  int64_t begin_ = 0, end_ = 0, vocab_size_ = 0;
};

struct TokenDataset::Split {
  TokenDataset train, validation;
};

struct PrepareOptions {
  /// Where shards are kept; empty: default_cache_folder().
  std::string cache_folder;
  /// Texts up to this many bytes are tokenized in memory, each time; larger ones once, into shards.
  int64_t memory_bytes = int64_t{64} << 20;
  /// Tokens of one shard file.
  int64_t shard_tokens = int64_t{1} << 28;
  /// Called now and then with the share done (0 to 1) while shards are made.
  std::function<void(double)> progress;
};

/// $XDG_CACHE_HOME/weft/data or ~/.cache/weft/data.
std::string default_cache_folder();

/// Tokens of a text held in memory; throws if it is empty. `what` names it in messages.
TokenDataset tokenize(std::string_view text, const Tokenizer& tokenizer, std::string_view what);

/// Tokens of a UTF-8 text file, of all .txt files in a folder and the folders below (in path order), of a token shard
/// (.tok) or of a folder of those. Shards made from text are kept under a hash of content and tokenizer, and used again
/// if undamaged. Throws one sentence on a missing path, nothing to read, binary junk, or a shard of another tokenizer.
TokenDataset prepare(const std::string& path, const Tokenizer& tokenizer, const PrepareOptions& options = {});

/// What the flag --data says: "" or "shakespeare" the embedded text, "synthetic" random ids of `synthetic_vocab`, else
/// a path (already resolved).
TokenDataset open_data(const std::string& data, const Tokenizer& tokenizer, int64_t synthetic_vocab = 256,
                       uint64_t seed = 0, const PrepareOptions& options = {});

}  // namespace weft::data
