#include "models/text/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "framework/base/error.h"
#include "framework/io/checksum.h"
#include "framework/io/utf8.h"
#include "models/text/bytes_as_text.h"

namespace weft::text {
namespace {

constexpr size_t kShort = 64;    // symbols that are merged by searching all
constexpr uint32_t kNone = ~0u;  // no merge
constexpr uint32_t kSpaceMark = 0x2581;
constexpr int32_t kClasses = 256;
constexpr int32_t kMarkClass = 128, kRestClass = 129;  // classes of characters beyond ASCII

size_t table_size(size_t entries) { return std::bit_ceil(std::max<size_t>(entries * 2, 16)); }

/// Masks of the first n of 32 bytes begin at 32 - n.
struct Masks {
  unsigned char bytes[64] = {};
  constexpr Masks() {
    for (int i = 0; i < 32; ++i) bytes[i] = 0xFF;
  }
};
constexpr Masks kMasks;

}  // namespace

PieceCache::Key key_of(std::string_view piece, size_t readable) {
  PieceCache::Key k{}, mask;
  const size_t n = piece.size();
  if (readable >= sizeof k) {
    std::memcpy(&k, piece.data(), sizeof k);
    std::memcpy(&mask, kMasks.bytes + 32 - n, sizeof mask);
    for (size_t i = 0; i < 4; ++i) k.word[i] &= mask.word[i];
  } else {
    std::memcpy(&k, piece.data(), n);
  }
  k.word[3] |= static_cast<uint64_t>(n) << 56;
  return k;
}

Bpe::Bpe(const Description& d)
    : byte_level_(d.byte_level),
      byte_fallback_(d.byte_fallback),
      fuse_unk_(d.fuse_unk),
      ignore_merges_(d.ignore_merges),
      unk_(d.unk) {
  std::fill(std::begin(byte_ids_), std::end(byte_ids_), -1);
  std::fill(std::begin(fallback_), std::end(fallback_), -1);
  vocabulary_.assign(table_size(d.tokens.size()), -1);
  begins_.push_back(0);
  for (size_t i = 0; i < d.tokens.size(); ++i) {
    // A token with a character that stands for no byte is found in no text.
    const std::string token = byte_level_ ? bytes_of_text(d.tokens[i]).value_or("") : d.tokens[i];
    bytes_ += token;
    begins_.push_back(static_cast<uint32_t>(bytes_.size()));
    if (token.empty()) continue;
    size_t at = io::checksum(token) & (vocabulary_.size() - 1);
    while (vocabulary_[at] >= 0) at = (at + 1) & (vocabulary_.size() - 1);
    vocabulary_[at] = static_cast<int32_t>(i);
    const auto first = static_cast<unsigned char>(token[0]);
    if (token.size() == 1 && (byte_level_ || first < 0x80)) byte_ids_[first] = static_cast<int32_t>(i);
    if (const int b = fallback_byte(token); b >= 0 && byte_fallback_) fallback_[b] = static_cast<int32_t>(i);
  }
  slots_.resize(table_size(d.merges.size()));
  slot_shift_ = 64 - std::countr_zero(slots_.size());
  for (const Merge& m : d.merges) {
    const auto left = static_cast<uint32_t>(m.left), right = static_cast<uint32_t>(m.right);
    slots_[slot_of(left, right)] = {left, right, m.rank, m.made};
  }
  part_unmergeable(d);
}

void Bpe::part_unmergeable(const Description& d) {
  joined_.assign(size_t{kClasses} * kClasses, false);
  const auto join_all = [&](int32_t c) {
    for (int32_t i = 0; i < kClasses; ++i)
      joined_[static_cast<size_t>(c * kClasses + i)] = joined_[static_cast<size_t>(i * kClasses + c)] = true;
  };
  // Characters without a token of their own become bytes, are fused or left out.
  for (int32_t c = 0; c < (byte_level_ ? 256 : 128); ++c)
    if (byte_ids_[c] < 0) join_all(c);
  if (!byte_level_) join_all(kRestClass);
  if (!byte_level_ && find("▁") < 0) join_all(kMarkClass);
  for (const Merge& m : d.merges) {
    const std::string_view left = bytes_of(m.left), right = bytes_of(m.right);
    if (left.empty() || right.empty()) continue;
    if (!byte_level_ && (fallback_byte(left) >= 0 || fallback_byte(right) >= 0)) {
      joined_.assign(joined_.size(), true);
      return;
    }
    const int32_t a = byte_level_ ? static_cast<unsigned char>(left.back()) : class_of(io::last_character(left).code);
    const int32_t b = byte_level_ ? static_cast<unsigned char>(right[0]) : class_of(io::code_point(right).code);
    joined_[static_cast<size_t>(a * kClasses + b)] = true;
  }
}

int32_t Bpe::class_of(uint32_t code) const {
  if (byte_level_ || code < 128) return static_cast<int32_t>(code & 255);
  return code == kSpaceMark ? kMarkClass : kRestClass;
}

bool Bpe::parted(uint32_t a, uint32_t b) const {
  return !joined_[static_cast<size_t>(class_of(a) * kClasses + class_of(b))];
}

int Bpe::missing_bytes() const {
  const int32_t* ids = byte_level_ ? byte_ids_ : fallback_;
  return static_cast<int>(std::count(ids, ids + 256, -1));
}

int32_t Bpe::find(std::string_view token) const {
  if (token.empty()) return -1;
  for (size_t at = io::checksum(token);; ++at) {
    const int32_t id = vocabulary_[at & (vocabulary_.size() - 1)];
    if (id < 0) return -1;
    if (bytes_of(id) == token) return id;
  }
}

/// The slot of a pair, or the free slot where it would be.
size_t Bpe::slot_of(uint32_t left, uint32_t right) const {
  size_t at = ((uint64_t{left} << 32 | right) * 0x9E3779B97F4A7C15u) >> slot_shift_;
  while (slots_[at].left != kNone && !(slots_[at].left == left && slots_[at].right == right))
    at = (at + 1) & (slots_.size() - 1);
  return at;
}

const Bpe::Slot* Bpe::merge(int32_t left, int32_t right) const {
  const Slot& s = slots_[slot_of(static_cast<uint32_t>(left), static_cast<uint32_t>(right))];
  return s.left == kNone ? nullptr : &s;
}

void Bpe::encode(std::string_view piece, size_t readable, BpeMemory& memory, std::vector<int32_t>& out) const {
  if (piece.empty()) return;
  if (piece.size() > PieceCache::kLongest) return merge_piece(piece, memory, out);
  const PieceCache::Key key = key_of(piece, readable);
  encode(key, memory.cache.line(key), memory, out);
}

void Bpe::encode_new(const PieceCache::Key& key, PieceCache::Line& line, BpeMemory& memory,
                     std::vector<int32_t>& out) const {
  const size_t before = out.size();
  merge_piece(key.piece(), memory, out);
  const size_t n = out.size() - before;
  if (n > PieceCache::kMostIds) return;
  line.key = key;
  line.count = static_cast<int32_t>(n);
  std::copy(out.begin() + static_cast<std::ptrdiff_t>(before), out.end(), line.ids);
}

void Bpe::encode_byte(unsigned char byte, std::vector<int32_t>& out) const {
  const int32_t id = byte_level_ ? byte_ids_[byte] : fallback_[byte] >= 0 ? fallback_[byte] : unk_;
  if (id >= 0) out.push_back(id);
}

/// The ids of the characters, or bytes, of a piece, as BPE::merge_word of `tokenizers` makes them.
void Bpe::symbols(std::string_view piece, std::vector<int32_t>& out) const {
  if (byte_level_) {
    for (char c : piece)
      if (const int32_t id = byte_ids_[static_cast<unsigned char>(c)]; id >= 0) out.push_back(id);
    return;
  }
  bool unknown = false;  // characters without a token, not yet appended
  for (size_t n; !piece.empty(); piece.remove_prefix(n)) {
    n = io::code_point(piece).size;
    const int32_t id = n == 1 ? byte_ids_[static_cast<unsigned char>(piece[0])] : find(piece.substr(0, n));
    if (id >= 0) {
      if (unknown) out.push_back(unk_);
      unknown = false;
      out.push_back(id);
      continue;
    }
    bool bytes = byte_fallback_;
    for (size_t i = 0; i < n; ++i) bytes = bytes && fallback_[static_cast<unsigned char>(piece[i])] >= 0;
    if (bytes) {
      for (size_t i = 0; i < n; ++i) out.push_back(fallback_[static_cast<unsigned char>(piece[i])]);
    } else if (unk_ >= 0) {
      if (unknown && !fuse_unk_) out.push_back(unk_);
      unknown = true;
    }
  }
  if (unknown) out.push_back(unk_);
}

void Bpe::merge_piece(std::string_view piece, BpeMemory& memory, std::vector<int32_t>& out) const {
  if (ignore_merges_) {
    if (const int32_t id = find(piece); id >= 0) {
      out.push_back(id);
      return;
    }
  } else if (piece.size() > PieceCache::kLongest) {
    return merge_parts(piece, memory, out);
  }
  merge_symbols(piece, memory, out);
}

void Bpe::merge_symbols(std::string_view piece, BpeMemory& memory, std::vector<int32_t>& out) const {
  memory.ids.clear();
  symbols(piece, memory.ids);
  if (memory.ids.size() <= kShort) return merge_short(memory.ids.data(), memory.ids.size(), out);
  merge_long(memory, out);
}

/// Cuts a long piece where no merge can join the characters: "the▁cat" before ▁.
void Bpe::merge_parts(std::string_view piece, BpeMemory& memory, std::vector<int32_t>& out) const {
  size_t begin = 0;
  const auto emit = [&](size_t end) {
    const std::string_view part = piece.substr(begin, end - begin);
    if (part.size() <= PieceCache::kLongest)
      encode(part, piece.size() - begin, memory, out);
    else
      merge_symbols(part, memory, out);
    begin = end;
  };
  if (byte_level_) {
    for (size_t i = 1; i < piece.size(); ++i)
      if (parted(static_cast<unsigned char>(piece[i - 1]), static_cast<unsigned char>(piece[i]))) emit(i);
  } else {
    io::CodePoint c = io::code_point(piece);
    for (size_t i = c.size; i < piece.size();) {
      const io::CodePoint d = io::code_point(piece.substr(i));
      if (parted(c.code, d.code)) emit(i);
      c = d;
      i += d.size;
    }
  }
  emit(piece.size());
}

void Bpe::merge_short(int32_t* ids, size_t n, std::vector<int32_t>& out) const {
  uint32_t rank[kShort];
  int32_t made[kShort];
  const auto look = [&](size_t i) {
    const Slot* s = merge(ids[i], ids[i + 1]);
    rank[i] = s ? s->rank : kNone;
    made[i] = s ? s->made : -1;
  };
  for (size_t i = 0; i + 1 < n; ++i) look(i);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i)
      if (rank[i] < rank[best]) best = i;
    if (rank[best] == kNone) break;
    ids[best] = made[best];
    const size_t moved = n - best - 2;
    std::memmove(ids + best + 1, ids + best + 2, moved * sizeof *ids);
    std::memmove(rank + best + 1, rank + best + 2, moved * sizeof *rank);
    std::memmove(made + best + 1, made + best + 2, moved * sizeof *made);
    --n;
    if (best > 0) look(best - 1);
    if (best + 1 < n) look(best);
  }
  out.insert(out.end(), ids, ids + n);
}

/// A list of symbols, and a heap of rank << 32 | place. A key is stale if the place has another rank now.
void Bpe::merge_long(BpeMemory& m, std::vector<int32_t>& out) const {
  const size_t n = m.ids.size();
  WEFT_CHECK_AS(kResourceExhausted, n < (size_t{1} << 31), "tokenizer: a piece of ", n,
                " characters; need less than 2^31");
  m.next.resize(n), m.previous.resize(n), m.rank.assign(n, kNone), m.made.resize(n);
  m.heap.clear();
  const auto look = [&](size_t i) {
    const Slot* s = merge(m.ids[i], m.ids[static_cast<size_t>(m.next[i])]);
    m.rank[i] = s ? s->rank : kNone;
    if (!s) return false;
    m.made[i] = s->made;
    m.heap.push_back(uint64_t{s->rank} << 32 | i);
    return true;
  };
  for (size_t i = 0; i < n; ++i) {
    m.next[i] = static_cast<int32_t>(i + 1);
    m.previous[i] = static_cast<int32_t>(i) - 1;
  }
  for (size_t i = 0; i + 1 < n; ++i) look(i);
  std::make_heap(m.heap.begin(), m.heap.end(), std::greater<>());
  while (!m.heap.empty()) {
    std::pop_heap(m.heap.begin(), m.heap.end(), std::greater<>());
    const uint64_t key = m.heap.back();
    m.heap.pop_back();
    const size_t at = key & 0xFFFFFFFFu;
    if (m.rank[at] != key >> 32) continue;
    m.ids[at] = m.made[at];
    const auto gone = static_cast<size_t>(m.next[at]);
    m.rank[gone] = kNone;
    m.next[at] = m.next[gone];
    m.rank[at] = kNone;
    if (static_cast<size_t>(m.next[at]) < n) {
      m.previous[static_cast<size_t>(m.next[at])] = static_cast<int32_t>(at);
      if (look(at)) std::push_heap(m.heap.begin(), m.heap.end(), std::greater<>());
    }
    if (m.previous[at] >= 0 && look(static_cast<size_t>(m.previous[at])))
      std::push_heap(m.heap.begin(), m.heap.end(), std::greater<>());
  }
  for (size_t i = 0; i < n; i = static_cast<size_t>(m.next[i])) out.push_back(m.ids[i]);
}

}  // namespace weft::text
