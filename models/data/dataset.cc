#include "models/data/dataset.h"

#include <algorithm>
#include <cmath>

#include "framework/base/error.h"
#include "models/data/mix.h"
#include "models/data/shard.h"

namespace weft::data {
namespace {

template <class T>
class MemorySource final : public TokenSource {
 public:
  MemorySource(std::span<const int32_t> ids) : ids_(ids.begin(), ids.end()) {}
  int64_t size() const override { return static_cast<int64_t>(ids_.size()); }
  void copy(int64_t begin, std::span<int32_t> out) const override {
    std::copy_n(ids_.begin() + begin, out.size(), out.begin());
  }

 private:
  std::vector<T> ids_;
};

class SyntheticSource final : public TokenSource {
 public:
  SyntheticSource(int64_t vocab_size, int64_t size, uint64_t seed)
      : vocab_(vocab_size), size_(size), key_(mix64(seed)) {}
  int64_t size() const override { return size_; }
  void copy(int64_t begin, std::span<int32_t> out) const override {
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<int32_t>(below(mix64(key_ ^ static_cast<uint64_t>(begin + i)), vocab_));
  }

 private:
  uint64_t vocab_;
  int64_t size_;
  uint64_t key_;
};

class ShardSource final : public TokenSource {
 public:
  explicit ShardSource(std::vector<Shard> shards) : shards_(std::move(shards)) {
    for (const Shard& s : shards_) begins_.push_back(size_), size_ += s.count();
  }
  int64_t size() const override { return size_; }
  void copy(int64_t begin, std::span<int32_t> out) const override {
    size_t i = std::upper_bound(begins_.begin(), begins_.end(), begin) - begins_.begin() - 1;
    for (; !out.empty(); ++i) {
      int64_t at = begin - begins_[i];
      size_t n = std::min<int64_t>(out.size(), shards_[i].count() - at);
      shards_[i].copy(at, out.first(n));
      out = out.subspan(n);
      begin += n;
    }
  }

 private:
  std::vector<Shard> shards_;
  std::vector<int64_t> begins_;
  int64_t size_ = 0;
};

}  // namespace

TokenDataset::TokenDataset(std::shared_ptr<const TokenSource> source, int64_t vocab_size)
    : source_(std::move(source)), end_(source_->size()), vocab_size_(vocab_size) {}

TokenDataset TokenDataset::from_tokens(std::span<const int32_t> ids, int64_t vocab_size) {
  for (int32_t id : ids)
    WEFT_CHECK_AS(kOutOfRange, id >= 0 && id < vocab_size, "tokens: got ", id, "; need 0 to ", vocab_size - 1);
  if (vocab_size <= 256) return {std::make_shared<MemorySource<uint8_t>>(ids), vocab_size};
  if (vocab_size <= 65536) return {std::make_shared<MemorySource<uint16_t>>(ids), vocab_size};
  return {std::make_shared<MemorySource<int32_t>>(ids), vocab_size};
}

TokenDataset TokenDataset::from_shards(const std::vector<std::string>& paths) {
  WEFT_CHECK(!paths.empty(), "token shards: got none; need at least one");
  std::vector<Shard> shards;
  for (const std::string& path : paths) {
    shards.emplace_back(path);
    WEFT_CHECK(
        shards.back().tokenizer() == shards[0].tokenizer() && shards.back().vocab_size() == shards[0].vocab_size(),
        path, ": tokens of '", shards.back().tokenizer(), "', but ", paths[0], " holds tokens of '",
        shards[0].tokenizer(), "'; need one tokenizer");
  }
  int64_t vocab_size = shards[0].vocab_size();
  return {std::make_shared<ShardSource>(std::move(shards)), vocab_size};
}

TokenDataset TokenDataset::from_bins(const std::vector<std::string>& paths, const Tokenizer& tokenizer) {
  std::vector<Shard> shards;
  for (const std::string& path : paths) shards.push_back(Shard::of_bin(path, tokenizer.name(), tokenizer.vocab_size()));
  return {std::make_shared<ShardSource>(std::move(shards)), tokenizer.vocab_size()};
}

TokenDataset TokenDataset::synthetic(int64_t vocab_size, int64_t size, uint64_t seed) {
  WEFT_CHECK(vocab_size > 0 && vocab_size <= int64_t{1} << 31, "synthetic data: got a vocabulary of ", vocab_size,
             "; need 1 to 2^31");
  WEFT_CHECK(size > 0, "synthetic data: got ", size, " tokens; need at least 1");
  return {std::make_shared<SyntheticSource>(vocab_size, size, seed), vocab_size};
}

void TokenDataset::copy(int64_t begin, std::span<int32_t> out) const {
  WEFT_CHECK_AS(kOutOfRange, begin >= 0 && begin <= size() && static_cast<int64_t>(out.size()) <= size() - begin,
                "tokens: got range ", begin, " to ", begin + static_cast<int64_t>(out.size()), "; the data has ",
                size());
  if (!out.empty()) source_->copy(begin_ + begin, out);
}

std::vector<int32_t> TokenDataset::tokens(int64_t begin, int64_t count) const {
  WEFT_CHECK(count >= 0, "tokens: got a count of ", count, "; need 0 or more");
  std::vector<int32_t> out(count);
  copy(begin, out);
  return out;
}

TokenDataset TokenDataset::slice(int64_t begin, int64_t end) const {
  WEFT_CHECK_AS(kOutOfRange, 0 <= begin && begin <= end && end <= size(), "tokens: got range ", begin, " to ", end,
                "; the data has ", size());
  TokenDataset out = *this;
  out.begin_ = begin_ + begin;
  out.end_ = begin_ + end;
  return out;
}

TokenDataset::Split TokenDataset::split(int64_t seq_len, double fraction) const {
  WEFT_CHECK(seq_len > 0, "data: got seq_len ", seq_len, "; need at least 1");
  WEFT_CHECK(fraction > 0 && fraction < 1, "data: got a validation share of ", fraction,
             "; need more than 0, less than 1");
  int64_t least = seq_len + 1;
  WEFT_CHECK(size() >= 2 * least, "data: the text has ", size(), " tokens; training and validation need at least ",
             least, " each at seq_len ", seq_len, "; give a longer text or a smaller seq_len");
  int64_t held = std::max(static_cast<int64_t>(std::llround(static_cast<double>(size()) * fraction)), least);
  held = std::min(held, size() - least);
  return {slice(0, size() - held), slice(size() - held, size())};
}

}  // namespace weft::data
