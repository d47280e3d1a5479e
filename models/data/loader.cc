#include "models/data/loader.h"

#include <algorithm>
#include <bit>

#include "framework/base/error.h"
#include "models/data/mix.h"

namespace weft::data {
namespace {

void check(const TokenDataset& data, const LoaderOptions& o) {
  WEFT_CHECK(o.batch_size > 0, "data: got batch_size ", o.batch_size, "; need at least 1");
  WEFT_CHECK(o.seq_len > 0, "data: got seq_len ", o.seq_len, "; need at least 1");
  WEFT_CHECK(o.batch_size < int64_t{1} << 40 && o.seq_len < int64_t{1} << 40, "data: got batch_size ", o.batch_size,
             " and seq_len ", o.seq_len, "; need less than 2^40");
  WEFT_CHECK(data.size() - 1 >= o.seq_len, "data: the ", o.what, " text has ", data.size(), " tokens; need at least ",
             o.seq_len + 1, " (seq_len + 1); give a longer text or a smaller seq_len");
}

/// Fills rows from windows that begin at begin_of(row).
template <class T, class F>
void fill(const TokenDataset& data, int64_t seq_len, int64_t begin, int64_t end, std::span<T> tokens,
          std::span<T> targets, F&& begin_of) {
  WEFT_CHECK_AS(kOutOfRange, 0 <= begin && begin <= end, "data: got rows ", begin, " to ", end,
                "; need 0 <= begin <= end");
  int64_t need = (end - begin) * seq_len;
  WEFT_CHECK(static_cast<int64_t>(tokens.size()) == need && static_cast<int64_t>(targets.size()) == need,
             "data: got room for ", tokens.size(), " tokens and ", targets.size(), " targets; need ", need, " each");
  std::vector<int32_t> window(seq_len + 1);
  for (int64_t r = begin; r < end; ++r) {
    data.copy(begin_of(r), window);
    std::copy(window.begin(), window.end() - 1, tokens.begin() + (r - begin) * seq_len);
    std::copy(window.begin() + 1, window.end(), targets.begin() + (r - begin) * seq_len);
  }
}

Batch empty_batch(int64_t rows, int64_t seq_len) {
  Batch b{rows, seq_len, {}, {}};
  b.tokens.resize(rows * seq_len);
  b.targets.resize(rows * seq_len);
  return b;
}

}  // namespace

int64_t permute(int64_t i, int64_t n, uint64_t key) {
  WEFT_BUG_IF(i < 0 || i >= n, "permute ", i, " of ", n);
  int half = (std::bit_width(static_cast<uint64_t>(n - 1)) + 1) / 2;
  uint64_t mask = (uint64_t{1} << half) - 1;
  uint64_t x = static_cast<uint64_t>(i);
  do {
    uint64_t left = x >> half, right = x & mask;
    for (uint64_t round = 0; round < 6; ++round) {
      uint64_t next = left ^ (mix64(key ^ mix64(right * 8 + round)) & mask);
      left = right;
      right = next;
    }
    x = left << half | right;
  } while (x >= static_cast<uint64_t>(n));
  return static_cast<int64_t>(x);
}

ShuffledLoader::ShuffledLoader(TokenDataset data, const LoaderOptions& options)
    : data_(std::move(data)), options_(options) {
  check(data_, options_);
  // One window fewer than fits, because the epoch's offset may be up to one window.
  windows_ = std::max<int64_t>(1, (data_.size() - 1) / options_.seq_len - 1);
}

int64_t ShuffledLoader::window_begin(int64_t sample) const {
  WEFT_CHECK_AS(kOutOfRange, sample >= 0, "data: got sample ", sample, "; need 0 or more");
  int64_t epoch = sample / windows_;
  uint64_t key = mix64(mix64(options_.seed) ^ static_cast<uint64_t>(epoch));
  int64_t room = data_.size() - 1 - windows_ * options_.seq_len;
  int64_t offset = static_cast<int64_t>(below(mix64(key ^ 0x6f66667365740000u), static_cast<uint64_t>(room) + 1));
  return offset + permute(sample % windows_, windows_, key) * options_.seq_len;
}

void ShuffledLoader::read(int64_t position, int64_t begin, int64_t end, std::span<int32_t> tokens,
                          std::span<int32_t> targets) const {
  fill(data_, options_.seq_len, begin, end, tokens, targets, [&](int64_t r) { return window_begin(position + r); });
}
void ShuffledLoader::read(int64_t position, int64_t begin, int64_t end, std::span<int64_t> tokens,
                          std::span<int64_t> targets) const {
  fill(data_, options_.seq_len, begin, end, tokens, targets, [&](int64_t r) { return window_begin(position + r); });
}

Batch ShuffledLoader::next() { return next(options_.batch_size); }

Batch ShuffledLoader::next(int64_t rows) {
  Batch b = empty_batch(rows, options_.seq_len);
  read(position_, 0, rows, b.tokens, b.targets);
  position_ += rows;
  return b;
}

void ShuffledLoader::seek(int64_t position) {
  WEFT_CHECK_AS(kOutOfRange, position >= 0, "data: got position ", position, "; need 0 or more");
  position_ = position;
}

SequentialLoader::SequentialLoader(TokenDataset data, const LoaderOptions& options)
    : data_(std::move(data)), options_(options) {
  check(data_, options_);
  windows_ = (data_.size() - 1) / options_.seq_len;
}

int64_t SequentialLoader::batches() const { return std::max<int64_t>(1, windows_ / options_.batch_size); }

void SequentialLoader::read(int64_t index, int64_t begin, int64_t end, std::span<int32_t> tokens,
                            std::span<int32_t> targets) const {
  fill(data_, options_.seq_len, begin, end, tokens, targets,
       [&](int64_t r) { return (index * options_.batch_size + r) % windows_ * options_.seq_len; });
}
void SequentialLoader::read(int64_t index, int64_t begin, int64_t end, std::span<int64_t> tokens,
                            std::span<int64_t> targets) const {
  fill(data_, options_.seq_len, begin, end, tokens, targets,
       [&](int64_t r) { return (index * options_.batch_size + r) % windows_ * options_.seq_len; });
}

Batch SequentialLoader::batch(int64_t index) const {
  WEFT_CHECK_AS(kOutOfRange, index >= 0 && index < batches(), "data: got batch ", index, "; need 0 to ", batches() - 1);
  Batch b = empty_batch(options_.batch_size, options_.seq_len);
  read(index, 0, b.rows, b.tokens, b.targets);
  return b;
}

}  // namespace weft::data
