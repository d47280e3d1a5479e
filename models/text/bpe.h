// The byte-pair model: pieces of text to ids. Short pieces come from a cache; in a long piece a heap of 64-bit keys
// finds the next merge.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/text/formats/description.h"

namespace weft::text {

/// Results of short pieces; direct-mapped, one cache line each. Equality is of the whole piece. The encoder fetches the
/// lines of the next pieces while it copies the ids of one.
class PieceCache {
 public:
  static constexpr size_t kLongest = 31, kMostIds = 7;
  /// A piece as 32 bytes: its bytes, zeros, and its length in the last byte.
  struct Key {
    uint64_t word[4];
    bool operator==(const Key&) const = default;
    std::string_view piece() const { return {reinterpret_cast<const char*>(word), static_cast<size_t>(word[3] >> 56)}; }
  };
  struct Line {
    Key key{};
    int32_t ids[kMostIds];
    int32_t count = 0;
  };
  static_assert(sizeof(Line) == 64);

  PieceCache() : lines_(size_t{1} << kBits) {}
  Line& line(const Key& k) {
    uint64_t h = (k.word[0] ^ k.word[3] * 0xC2B2AE3D27D4EB4Fu) * 0x9E3779B97F4A7C15u;
    h = (h ^ h >> 32 ^ k.word[1] ^ k.word[2] * 0x165667B19E3779F9u) * 0xD6E8FEB86659FD93u;
    return lines_[h >> (64 - kBits)];
  }

 private:
  static constexpr int kBits = 16;
  std::vector<Line> lines_;
};

/// The key of a piece of at most kLongest bytes. `readable` bytes from its beginning on can be read.
PieceCache::Key key_of(std::string_view piece, size_t readable);

/// Memory of merging; one for each thread.
struct BpeMemory {
  PieceCache cache;
  std::vector<int32_t> ids, next, previous, made;
  std::vector<uint32_t> rank;
  std::vector<uint64_t> heap;
};

class Bpe {
 public:
  explicit Bpe(const Description& d);

  /// Appends the ids of a piece. `readable` bytes from its beginning on can be read.
  void encode(std::string_view piece, size_t readable, BpeMemory& memory, std::vector<int32_t>& out) const;
  /// The same for a short piece whose line of the cache is known.
  void encode(const PieceCache::Key& key, PieceCache::Line& line, BpeMemory& memory, std::vector<int32_t>& out) const {
    if (line.key == key) [[likely]]
      out.insert(out.end(), line.ids, line.ids + line.count);
    else
      encode_new(key, line, memory, out);
  }
  /// Appends the ids of a byte that is not part of a character.
  void encode_byte(unsigned char byte, std::vector<int32_t>& out) const;
  /// The id of a token, as bytes of text; -1 if there is none.
  int32_t find(std::string_view token) const;
  /// Whether no merge joins a symbol that ends with the character or byte `a` and one that begins with `b`.
  bool parted(uint32_t a, uint32_t b) const;
  /// The number of different bytes that have no token of their own.
  int missing_bytes() const;

 private:
  struct Slot {
    uint32_t left = ~0u, right = 0, rank = 0;
    int32_t made = 0;
  };
  void encode_new(const PieceCache::Key& key, PieceCache::Line& line, BpeMemory& memory,
                  std::vector<int32_t>& out) const;
  std::string_view bytes_of(int32_t id) const {
    const auto i = static_cast<size_t>(id);
    return std::string_view(bytes_).substr(begins_[i], begins_[i + 1] - begins_[i]);
  }
  size_t slot_of(uint32_t left, uint32_t right) const;
  const Slot* merge(int32_t left, int32_t right) const;
  int32_t class_of(uint32_t code) const;
  void part_unmergeable(const Description& d);
  void symbols(std::string_view piece, std::vector<int32_t>& out) const;
  void merge_piece(std::string_view piece, BpeMemory& memory, std::vector<int32_t>& out) const;
  void merge_parts(std::string_view piece, BpeMemory& memory, std::vector<int32_t>& out) const;
  void merge_symbols(std::string_view piece, BpeMemory& memory, std::vector<int32_t>& out) const;
  void merge_short(int32_t* ids, size_t n, std::vector<int32_t>& out) const;
  void merge_long(BpeMemory& memory, std::vector<int32_t>& out) const;

  bool byte_level_, byte_fallback_, fuse_unk_, ignore_merges_;
  int32_t unk_;
  int32_t byte_ids_[256];  // byte level: of bytes; else of ASCII characters
  int32_t fallback_[256];  // ids of <0x00> to <0xFF>
  std::vector<Slot> slots_;
  int slot_shift_ = 0;
  std::string bytes_;                // bytes of all tokens
  std::vector<uint32_t> begins_;     // begin of each token in bytes_
  std::vector<int32_t> vocabulary_;  // open addressing, by hash of bytes
  std::vector<bool> joined_;         // [class of the last character, class of the first]
};

}  // namespace weft::text
