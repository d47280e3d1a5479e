// TokenDataset: a long sequence of token ids from memory, mapped shards or a generator. open_data() makes it from
// --data.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/data/tokenizer.h"

namespace weft::data {

/// A source of tokens. copy() is thread-safe.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual int64_t size() const = 0;
  virtual void copy(int64_t begin, std::span<int32_t> out) const = 0;
};

/// A range of a TokenSource. Copies are cheap and share the source.
class TokenDataset {
 public:
  TokenDataset() = default;
  TokenDataset(std::shared_ptr<const TokenSource> source, int64_t vocab_size);
  static TokenDataset from_tokens(std::span<const int32_t> ids, int64_t vocab_size);
  /// Shard files as one sequence, in this order. They must have the same tokenizer and vocabulary.
  static TokenDataset from_shards(const std::vector<std::string>& paths);
  /// The same for .bin files of llm.c and nanoGPT, whose ids belong to `tokenizer`.
  static TokenDataset from_bins(const std::vector<std::string>& paths, const Tokenizer& tokenizer);
  /// `size` uniform random ids in [0, vocab_size): a pure function of seed and position that needs no memory.
  static TokenDataset synthetic(int64_t vocab_size, int64_t size, uint64_t seed);

  int64_t size() const { return end_ - begin_; }
  int64_t vocab_size() const { return vocab_size_; }
  /// Copies ids [begin, begin + out.size()); throws OutOfRange beyond the end.
  void copy(int64_t begin, std::span<int32_t> out) const;
  std::vector<int32_t> tokens(int64_t begin, int64_t count) const;
  TokenDataset slice(int64_t begin, int64_t end) const;

  struct Split;
  /// Holds out the last `fraction` of the tokens for validation, but at least `seq_len` + 1. Throws if fewer than
  /// `seq_len` + 1 remain for training.
  Split split(int64_t seq_len, double fraction = 0.05) const;

 private:
  std::shared_ptr<const TokenSource> source_;
  int64_t begin_ = 0, end_ = 0, vocab_size_ = 0;
};

struct TokenDataset::Split {
  TokenDataset train, validation;
};

struct TokenizeOptions {
  /// The folder of the shards; empty: default_cache_folder().
  std::string cache_folder;
  /// Texts of at most `memory_bytes` bytes are tokenized in memory in every run; larger texts are tokenized once, into
  /// shards.
  int64_t memory_bytes = int64_t{64} << 20;
  /// Number of tokens of one shard file.
  int64_t shard_tokens = int64_t{1} << 28;
  /// Called from time to time while shards are written, with the completed share (0 to 1).
  std::function<void(double)> progress;
};

/// $XDG_CACHE_HOME/weft/data or ~/.cache/weft/data.
std::string default_cache_folder();

/// Tokens of a text in memory. Throws if it is empty. `what` names the text in messages.
TokenDataset tokenize(std::string_view text, const Tokenizer& tokenizer, std::string_view what);

/// Tokens of a UTF-8 text file, of all .txt files below a folder (in path order), of a token shard (.tok), of a file of
/// llm.c or nanoGPT (.bin), or of a folder of either. Shards made from text are stored under a hash of content and
/// tokenizer, and reused if they are not damaged. Throws one sentence if the path is missing, empty or binary, or holds
/// a shard of another tokenizer.
TokenDataset prepare(const std::string& path, const Tokenizer& tokenizer, const TokenizeOptions& options = {});

/// The data for the flag --data: "" or "shakespeare" is the embedded text, "synthetic" is random ids below
/// `synthetic_vocab`, and any other value is a resolved path.
TokenDataset open_data(const std::string& data, const Tokenizer& tokenizer, int64_t synthetic_vocab = 256,
                       uint64_t seed = 0, const TokenizeOptions& options = {});

/// Identifies the data of open_data(): "2 files, 1024 bytes, checksum 3f...", of the names below `data`, the sizes, and
/// the content; of more than 64 MiB, of sampled blocks. Embedded and random data is its name. Throws as open_data().
std::string data_identity(const std::string& data);

}  // namespace weft::data
