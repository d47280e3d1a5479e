#include "models/data/shard.h"

#include <bit>
#include <cstddef>
#include <cstring>

#include "framework/base/error.h"

namespace weft::data {
namespace {

static_assert(std::endian::native == std::endian::little);

struct ShardHeader {
  char magic[8];
  uint32_t version;
  uint32_t token_bytes;  // 2 or 4
  uint64_t count;
  uint64_t vocab_size;
  uint64_t data_checksum;
  char tokenizer[128];       // ends with 0
  char reserved[80];         // 0
  uint64_t header_checksum;  // checksum of the bytes before this field
};
static_assert(sizeof(ShardHeader) == 256);
constexpr char kMagic[8] = {'W', 'E', 'F', 'T', 'T', 'O', 'K', '\n'};
constexpr uint32_t kVersion = 1;

uint64_t own_checksum(const ShardHeader& h) {
  return io::checksum(std::as_bytes(std::span(&h, 1)).first(offsetof(ShardHeader, header_checksum)));
}

int64_t bytes_per_token(int64_t vocab_size) { return vocab_size <= 65536 ? 2 : 4; }

}  // namespace

ShardWriter::ShardWriter(const std::string& path, const std::string& tokenizer, int64_t vocab_size)
    : file_(path), tokenizer_(tokenizer), vocab_size_(vocab_size) {
  WEFT_CHECK(vocab_size > 0 && vocab_size <= int64_t{1} << 31, "token shard: got a vocabulary of ", vocab_size,
             "; need 1 to 2^31");
  WEFT_CHECK(tokenizer.size() < sizeof(ShardHeader::tokenizer), "token shard: the tokenizer name '", tokenizer,
             "' is longer than ", sizeof(ShardHeader::tokenizer) - 1, " bytes");
  ShardHeader blank{};
  file_.write(std::as_bytes(std::span(&blank, 1)));
}

void ShardWriter::append(std::span<const int32_t> ids) {
  size_t width = bytes_per_token(vocab_size_);
  buffer_.resize(ids.size() * width);
  for (size_t i = 0; i < ids.size(); ++i) {
    WEFT_CHECK_AS(kOutOfRange, ids[i] >= 0 && ids[i] < vocab_size_, "token shard: got token ", ids[i], "; need 0 to ",
                  vocab_size_ - 1);
    std::memcpy(buffer_.data() + i * width, &ids[i], width);  // low bytes come first
  }
  checksum_.update(buffer_);
  file_.write(buffer_);
  count_ += static_cast<int64_t>(ids.size());
}

void ShardWriter::commit() {
  ShardHeader h{};
  std::memcpy(h.magic, kMagic, sizeof kMagic);
  h.version = kVersion;
  h.token_bytes = static_cast<uint32_t>(bytes_per_token(vocab_size_));
  h.count = static_cast<uint64_t>(count_);
  h.vocab_size = static_cast<uint64_t>(vocab_size_);
  h.data_checksum = checksum_.value();
  std::memcpy(h.tokenizer, tokenizer_.data(), tokenizer_.size());
  h.header_checksum = own_checksum(h);
  file_.rewrite(0, std::as_bytes(std::span(&h, 1)));
  file_.commit();
}

bool Shard::looks_like(const std::string& path) {
  if (io::is_folder(path)) return false;
  io::MappedFile file(path);
  return file.size() >= static_cast<int64_t>(sizeof kMagic) &&
         std::memcmp(file.bytes().data(), kMagic, sizeof kMagic) == 0;
}

Shard::Shard(const std::string& path, int64_t verify_bytes) : file_(path) {
  int64_t size = file_.size();
  WEFT_CHECK_AS(kDataLoss, size >= static_cast<int64_t>(sizeof(ShardHeader)), path, ": not a token shard: ", size,
                " bytes are too few");
  ShardHeader h;
  std::memcpy(&h, file_.bytes().data(), sizeof h);
  WEFT_CHECK_AS(kDataLoss, std::memcmp(h.magic, kMagic, sizeof kMagic) == 0, path, ": not a token shard");
  WEFT_CHECK_AS(kUnimplemented, h.version == kVersion, path, ": token shard of version ", h.version,
                "; this program reads version ", kVersion);
  WEFT_CHECK_AS(kDataLoss, h.header_checksum == own_checksum(h), path,
                ": damaged token shard: its header's checksum differs");
  // The checksum finds damage; these checks find files that were written wrong.
  WEFT_CHECK_AS(kDataLoss,
                h.vocab_size > 0 && h.vocab_size <= uint64_t{1} << 31 &&
                    h.token_bytes == bytes_per_token(static_cast<int64_t>(h.vocab_size)) &&
                    std::memchr(h.tokenizer, 0, sizeof h.tokenizer),
                path, ": damaged token shard: its header is not valid");
  uint64_t data = static_cast<uint64_t>(size) - sizeof(ShardHeader);
  WEFT_CHECK_AS(kDataLoss, data % h.token_bytes == 0 && data / h.token_bytes == h.count, path,
                ": damaged token shard: its header says ", h.count, " tokens of ", h.token_bytes, " bytes, but ", data,
                " bytes follow");
  tokenizer_ = h.tokenizer;
  begin_ = sizeof(ShardHeader);
  token_bytes_ = h.token_bytes;
  count_ = static_cast<int64_t>(h.count);
  vocab_size_ = static_cast<int64_t>(h.vocab_size);
  checksum_ = h.data_checksum;
  if (static_cast<int64_t>(data) <= verify_bytes) verify();
  file_.advise(io::MappedFile::Advice::kRandom);
}

Shard Shard::of_bin(const std::string& path, const std::string& tokenizer, int64_t vocab_size) {
  constexpr int64_t kHeaderBytes = 1024;
  constexpr int32_t kMagics[2] = {20240520, 20240801}, kVersions[2] = {1, 7};  // headers of u16 and u32 ids
  Shard s;
  s.file_ = io::MappedFile(path);
  s.tokenizer_ = tokenizer;
  s.vocab_size_ = vocab_size;
  s.token_bytes_ = 2;
  int32_t h[3] = {};  // magic, version, number of ids
  if (s.file_.size() >= kHeaderBytes) std::memcpy(h, s.file_.bytes().data(), sizeof h);
  for (int i = 0; i < 2; ++i) {
    if (h[0] != kMagics[i]) continue;
    WEFT_CHECK_AS(kUnimplemented, h[1] == kVersions[i], path, ": shard of llm.c of version ", h[1],
                  "; this program reads version ", kVersions[i]);
    s.begin_ = kHeaderBytes;
    s.token_bytes_ = 2 << i;
  }
  const int64_t data = s.file_.size() - s.begin_;
  s.count_ = data / s.token_bytes_;
  WEFT_CHECK_AS(kDataLoss, data % s.token_bytes_ == 0 && data > 0 && (s.begin_ == 0 || s.count_ == h[2]), path,
                s.begin_ ? ": damaged shard of llm.c: its header says " : ": not ids of nanoGPT, ",
                s.begin_ ? str_cat(h[2], " tokens, but ") : "", data, " bytes ", s.begin_ ? "follow" : "of u16");
  s.file_.advise(io::MappedFile::Advice::kRandom);
  return s;
}

void Shard::copy(int64_t begin, std::span<int32_t> out) const {
  WEFT_BUG_IF(begin < 0 || begin + static_cast<int64_t>(out.size()) > count_, "copy beyond the end of ", file_.path());
  const std::byte* p = file_.bytes().data() + begin_ + begin * token_bytes_;
  if (token_bytes_ == 2) {
    const uint16_t* ids = reinterpret_cast<const uint16_t*>(p);
    for (size_t i = 0; i < out.size(); ++i) out[i] = ids[i];
  } else {
    std::memcpy(out.data(), p, out.size() * 4);
  }
  // The checksum finds damage; this finds files that were written wrong.
  for (size_t i = 0; i < out.size(); ++i)
    WEFT_CHECK_AS(kDataLoss, out[i] >= 0 && out[i] < vocab_size_, file_.path(), ": damaged token shard: token ",
                  begin + static_cast<int64_t>(i), " is ", static_cast<uint32_t>(out[i]), "; need 0 to ",
                  vocab_size_ - 1);
}

void Shard::verify() const {
  WEFT_CHECK_AS(kDataLoss, io::checksum(file_.bytes().subspan(sizeof(ShardHeader))) == checksum_, file_.path(),
                ": damaged token shard: the checksum of its tokens differs");
}

}  // namespace weft::data
