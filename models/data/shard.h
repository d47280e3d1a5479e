// A token shard: one file of token ids, memory-mapped. Little-endian layout: 256-byte header (see shard.cc), then the
// ids as u16 (vocabularies up to 65536) or u32. The files of llm.c and nanoGPT are read too.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "framework/io/checksum.h"
#include "framework/io/file.h"

namespace weft::data {

/// Writes a shard in pieces; the file appears only when it is complete.
class ShardWriter {
 public:
  /// `vocab_size` selects u16 or u32; `tokenizer` is Tokenizer::name(), at most 127 bytes.
  ShardWriter(const std::string& path, const std::string& tokenizer, int64_t vocab_size);
  void append(std::span<const int32_t> ids);
  int64_t count() const { return count_; }
  /// Completes the file and gives it its final name.
  void commit();

 private:
  io::AtomicFile file_;
  std::string tokenizer_;
  int64_t vocab_size_, count_ = 0;
  io::Checksum checksum_;
  std::string buffer_;
};

/// Reads a shard. The constructor checks header and size, and the checksum if the data has at most `verify_bytes`. It
/// throws DataLoss "PATH: ..." if one is wrong.
class Shard {
 public:
  explicit Shard(const std::string& path, int64_t verify_bytes = int64_t{1} << 30);
  /// A .bin file of llm.c (header 20240520 with u16 ids, 20240801 with u32) or of nanoGPT (u16 ids alone). These files
  /// name no tokenizer: their ids belong to `tokenizer`. Throws DataLoss "PATH: ..." for an inconsistent header.
  static Shard of_bin(const std::string& path, const std::string& tokenizer, int64_t vocab_size);
  int64_t count() const { return count_; }
  int64_t vocab_size() const { return vocab_size_; }
  const std::string& tokenizer() const { return tokenizer_; }
  /// Copies ids [begin, begin + out.size()) of the shard.
  void copy(int64_t begin, std::span<int32_t> out) const;
  /// Reads everything and compares the checksum.
  void verify() const;

  /// Whether the file begins like a shard.
  static bool looks_like(const std::string& path);

 private:
  Shard() = default;

  io::MappedFile file_;
  std::string tokenizer_;
  int64_t begin_ = 0, token_bytes_ = 0, count_ = 0, vocab_size_ = 0;  // begin_: of the ids, in bytes
  uint64_t checksum_ = 0;
};

}  // namespace weft::data
