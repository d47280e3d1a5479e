#include "framework/io/safetensors.h"

#include <algorithm>
#include <atomic>
#include <charconv>

#include "framework/base/error.h"
#include "framework/base/one_line.h"
#include "framework/base/thread_pool.h"
#include "framework/io/checksum.h"
#include "framework/io/crc32c.h"
#include "framework/io/file.h"
#include "framework/io/json.h"
#include "framework/io/safetensors_format.h"

namespace weft::io {

namespace {

/// Reads one header entry; `data` is the offset of the data section.
TensorInfo parse_entry(const std::string& name, const Json& entry, int64_t data, int64_t file_size,
                       const std::string& path) {
  std::string what = str_cat(path, ": tensor '", name, "'");
  TensorInfo info;
  info.name = name;
  std::string dtype = json_get<std::string>(entry, "dtype", what);
  WEFT_CHECK(!dtype.empty(), what, ": \"dtype\" is empty; need the name of a dtype");
  auto it = std::find(std::begin(kNames), std::end(kNames), dtype);
  if (it != std::end(kNames))
    info.dtype = static_cast<DType>(it - std::begin(kNames));
  else
    info.unknown = dtype;

  auto whole = [&](const Json& v, const char* of) {
    WEFT_CHECK(v.is_number_unsigned() && v.get<uint64_t>() <= uint64_t{INT64_MAX}, what, ": ", of, " ", v.dump(),
               " is not a whole number from 0 to 2^63-1");
    return v.get<int64_t>();
  };
  const Json& shape = json_member(entry, "shape", what);
  WEFT_CHECK(shape.is_array() && shape.size() <= kMaxDims, what, ": shape is not a list of at most ", kMaxDims,
             " extents");
  for (const Json& extent : shape) info.shape.push_back(whole(extent, "extent"));
  const Json& offsets = json_member(entry, "data_offsets", what);
  WEFT_CHECK(offsets.is_array() && offsets.size() == 2, what, ": data_offsets is not a pair");
  int64_t begin = whole(offsets[0], "offset"), end = whole(offsets[1], "offset");
  WEFT_CHECK_AS(kDataLoss, begin <= end && end <= file_size - data, what, " claims data bytes ", begin, " to ", end,
                ", but the file has ", file_size - data, "; it is cut short or damaged");
  int64_t bytes;
  const int64_t elements = checked_numel(info.shape, what.c_str());
  WEFT_CHECK(!info.unknown.empty() ||
                 (!__builtin_mul_overflow(elements, itemsize(info.dtype), &bytes) && bytes == end - begin),
             what, " of ", dtype, " ", info.shape, " does not fit its ", end - begin, " bytes of data");
  info.begin = data + begin;
  info.end = data + end;
  return info;
}

// The checksums of a tensor: `count` from number `first` of the file's, one for each `block` bytes and the rest.
struct Blocks {
  bool xxh3 = false;  // one for the whole tensor
  int64_t block = kBlock;
  size_t first = 0, count = 0;
};

constexpr int64_t kVisited = 48 << 10;  // bytes of a part that is read: crc32c() is fast for multiples of 24 KiB

std::unique_ptr<std::byte[]> room_for(int64_t bytes) {
  return std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(bytes));
}

enum class Verified : uint8_t { kNo, kBusy, kYes };

}  // namespace

struct SafetensorsFile::State {
  MappedFile file;
  std::vector<TensorInfo> tensors;
  Metadata metadata;
  uint64_t header_checksum = 0;
  std::vector<Blocks> blocks;                           // one per tensor
  std::vector<uint64_t> checksums;                      // one per block
  mutable std::vector<std::atomic<Verified>> verified;  // one per block

  void add_checksums(const TensorInfo& t, const Metadata& crc, const Metadata& xxh);
  void verify(const TensorInfo& t, int64_t begin, int64_t end) const;
  void verify_block(const TensorInfo& t, int64_t block) const;
  uint64_t checksum_of(const TensorInfo& t, int64_t begin, int64_t end, bool xxh3) const;
  bool is_verified(const Blocks& own, int64_t first, int64_t last) const;
  void read_parts(const TensorInfo& t, int64_t begin, int64_t end, int64_t step, std::byte* room, bool keeps,
                  Visitor fn) const;
  [[noreturn]] void fail(const TensorInfo& t, int64_t begin, int64_t end) const;
};

// Adds the checksums of the next tensor.
void SafetensorsFile::State::add_checksums(const TensorInfo& t, const Metadata& crc, const Metadata& xxh) {
  Blocks own{.first = checksums.size()};
  auto it = crc.find(t.name);
  if (it == crc.end()) {
    it = xxh.find(t.name);
    own.xxh3 = true, own.block = std::max<int64_t>(1, t.nbytes());
    if (it == xxh.end()) return blocks.push_back(own);
  }
  const std::string& digits = it->second;
  const size_t each = own.xxh3 ? 16 : 8;
  own.count = own.xxh3 ? 1 : static_cast<size_t>(blocks_of(t.nbytes()));
  WEFT_CHECK_AS(kDataLoss,
                digits.size() == each * own.count && digits.find_first_not_of("0123456789abcdef") == digits.npos,
                file.path(), ": tensor '", t.name, "' of ", t.nbytes(), " bytes has the checksums '",
                one_line(digits, 40), "'; need ", each * own.count, " hexadecimal digits: the file is damaged");
  for (size_t i = 0; i < own.count; ++i) {
    uint64_t word = 0;
    std::from_chars(digits.data() + i * each, digits.data() + (i + 1) * each, word, 16);
    checksums.push_back(word);
  }
  blocks.push_back(own);
}

// Whether blocks `first` to `last` of a tensor are verified.
bool SafetensorsFile::State::is_verified(const Blocks& own, int64_t first, int64_t last) const {
  const auto at = verified.begin() + static_cast<ptrdiff_t>(own.first);
  return std::all_of(at + first, at + last + 1,
                     [](const auto& v) { return v.load(std::memory_order_acquire) == Verified::kYes; });
}

void SafetensorsFile::State::fail(const TensorInfo& t, int64_t begin, int64_t end) const {
  internal::fail(Code::kDataLoss, str_cat(file.path(), ": tensor '", t.name, "', bytes ", begin, " to ", end,
                                          ": the checksum differs: the file is damaged"));
}

void SafetensorsFile::State::verify(const TensorInfo& t, int64_t begin, int64_t end) const {
  const Blocks& own = blocks[static_cast<size_t>(&t - tensors.data())];
  if (own.count == 0 || begin == end) return;
  const int64_t first = begin / own.block, last = (end - 1) / own.block;
  if (is_verified(own, first, last)) return;
  parallel_chunks(last + 1 - first, 1, [&](int64_t b, int64_t stop) {
    for (; b < stop; ++b) verify_block(t, first + b);
  });
}

void SafetensorsFile::State::verify_block(const TensorInfo& t, int64_t block) const {
  const Blocks& own = blocks[static_cast<size_t>(&t - tensors.data())];
  const size_t i = own.first + static_cast<size_t>(block);
  std::atomic<Verified>& state = verified[i];
  // Threads that copy neighbouring ranges of a tensor meet here: one of them reads the block, the others wait.
  Verified now = Verified::kNo;
  while (!state.compare_exchange_weak(now, Verified::kBusy, std::memory_order_acquire)) {
    if (now == Verified::kYes) return;
    state.wait(Verified::kBusy);
    now = Verified::kNo;
  }
  const int64_t begin = block * own.block, end = std::min(begin + own.block, t.nbytes());
  const auto set = [&](Verified v) {
    state.store(v, std::memory_order_release);
    state.notify_all();
  };
  try {
    if (checksum_of(t, begin, end, own.xxh3) != checksums[i]) fail(t, begin, end);
  } catch (...) {
    set(Verified::kNo);
    throw;
  }
  set(Verified::kYes);
}

uint64_t SafetensorsFile::State::checksum_of(const TensorInfo& t, int64_t begin, int64_t end, bool xxh3) const {
  const auto room = room_for(std::min(kVisited, end - begin));
  Checksum all;
  uint32_t word = 0;
  for (int64_t at = begin; at < end; at += kVisited) {
    const std::span<std::byte> part(room.get(), static_cast<size_t>(std::min(kVisited, end - at)));
    file.read(t.begin + at, part);
    if (xxh3)
      all.update(part);
    else
      word = crc32c_combine(word, crc32c(part), std::ssize(part));
  }
  return xxh3 ? all.value() : word;
}

SafetensorsFile::SafetensorsFile(const std::string& path) {
  auto state = std::make_shared<State>();
  state->file = MappedFile(path, /*reads=*/true);
  int64_t size = state->file.size();
  WEFT_CHECK_AS(kDataLoss, size >= 10, path, ": not a safetensors file: ", size, " bytes are too few");
  uint64_t length;
  state->file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  // A zip file begins with PK\3\4; a pickle with 0x80 and its protocol.
  WEFT_CHECK(length <= uint64_t{kMaxHeader} ||
                 ((length & 0xffffffff) != 0x04034b50 && ((length & 0xff) != 0x80 || (length >> 8 & 0xff) > 5)),
             path,
             ": is a zip file or a pickle, as torch.save writes; need safetensors: in Python, "
             "safetensors.torch.save_file(torch.load(\"model.pt\"), \"model.safetensors\")");
  WEFT_CHECK_AS(kDataLoss, length <= uint64_t{kMaxHeader} && static_cast<int64_t>(length) <= size - 8, path,
                ": not a safetensors file, or cut short: the header claims ", length, " bytes; the file has ", size);
  std::string header(length, '\0');
  state->file.read(8, std::as_writable_bytes(std::span(header)));
  state->header_checksum = checksum(header);
  WEFT_CHECK(!header.empty() && header[0] == '{', path, ": not a safetensors file: its header is not a JSON object");
  Json json = parse_json(header, path + ": header", 4);

  int64_t data = 8 + static_cast<int64_t>(length);
  Metadata crc, xxh;
  for (const auto& [name, entry] : json.items()) {
    if (name != "__metadata__") {
      state->tensors.push_back(parse_entry(name, entry, data, size, path));
      continue;
    }
    WEFT_CHECK(entry.is_object(), path, ": __metadata__ is not an object");
    for (const auto& [key, value] : entry.items()) {
      WEFT_CHECK(value.is_string(), path, ": __metadata__ \"", key, "\" is not a string");
      if (key.starts_with(kCrcKey)) {
        crc[key.substr(kCrcKey.size())] = value.get<std::string>();
      } else if (key.starts_with(kXxhKey)) {
        xxh[key.substr(kXxhKey.size())] = value.get<std::string>();
      } else {
        state->metadata[key] = value.get<std::string>();
      }
    }
  }

  std::vector<const TensorInfo*> order;
  for (const TensorInfo& t : state->tensors) order.push_back(&t);
  std::sort(order.begin(), order.end(), [](const TensorInfo* a, const TensorInfo* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  int64_t at = data;
  for (const TensorInfo* t : order) {
    WEFT_CHECK_AS(kDataLoss, t->begin == at, path, ": tensor '", t->name, "' begins at byte ", t->begin, " where ", at,
                  " is next: tensors overlap or leave a gap");
    at = t->end;
  }
  WEFT_CHECK_AS(kDataLoss, at == size, path, ": ", size - at, " bytes follow the last tensor; need none");

  for (const TensorInfo& t : state->tensors) state->add_checksums(t, crc, xxh);
  state->verified = std::vector<std::atomic<Verified>>(state->checksums.size());
  state_ = std::move(state);
}

const std::string& SafetensorsFile::path() const { return state_->file.path(); }
const std::vector<TensorInfo>& SafetensorsFile::tensors() const { return state_->tensors; }
const Metadata& SafetensorsFile::metadata() const { return state_->metadata; }
uint64_t SafetensorsFile::header_checksum() const { return state_->header_checksum; }

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  const auto& list = state_->tensors;
  auto it = std::lower_bound(list.begin(), list.end(), name,
                             [](const TensorInfo& t, std::string_view n) { return t.name < n; });
  return it != list.end() && it->name == name ? &*it : nullptr;
}

const TensorInfo& SafetensorsFile::at(std::string_view name) const {
  const TensorInfo* info = find(name);
  WEFT_CHECK_AS(kNotFound, info, path(), ": no tensor '", name, "' among its ", tensors().size());
  WEFT_CHECK_AS(kUnimplemented, info->unknown.empty(), path(), ": tensor '", name, "' has dtype ",
                one_line(info->unknown, 40),
                "; need one of F32 F64 BF16 F16 I64 I32 I16 I8 U8 BOOL F8_E4M3 F8_E5M2; convert the tensor before you "
                "save it (unsigned integers to I64)");
  return *info;
}

std::span<const std::byte> SafetensorsFile::bytes(std::string_view name) const {
  return bytes(name, 0, at(name).nbytes());
}

std::span<const std::byte> SafetensorsFile::bytes(std::string_view name, int64_t begin, int64_t end) const {
  const TensorInfo& info = at(name);
  WEFT_BUG_IF(begin < 0 || begin > end || end > info.nbytes(), path(), ": bytes ", begin, " to ", end, " of tensor '",
              name, "' of ", info.nbytes());
  state_->verify(info, begin, end);
  return state_->file.bytes().subspan(static_cast<size_t>(info.begin + begin), static_cast<size_t>(end - begin));
}

// Reads and verifies bytes [begin, end) in parts of `step` bytes, and calls fn with each. `room` receives all parts one
// after another with `keeps`, else each part replaces the part before.
void SafetensorsFile::State::read_parts(const TensorInfo& t, int64_t begin, int64_t end, int64_t step, std::byte* room,
                                        bool keeps, Visitor fn) const {
  if (begin == end) return;
  const Blocks& own = blocks[static_cast<size_t>(&t - tensors.data())];
  const auto ends_block = [&](int64_t byte) { return byte % own.block == 0 || byte == t.nbytes(); };
  const bool whole = own.count > 0 && !own.xxh3 && begin % own.block == 0 && ends_block(end) &&
                     !is_verified(own, begin / own.block, (end - 1) / own.block);
  if (!whole) verify(t, begin, end);
  uint32_t word = 0;  // the checksum of the bytes of the block before `read`
  for (int64_t at = begin; at < end; at += step) {
    const int64_t stop = std::min(at + step, end);
    const std::span<std::byte> part(room + (keeps ? at - begin : 0), static_cast<size_t>(stop - at));
    file.read(t.begin + at, part);
    for (int64_t read = at; whole && read < stop;) {
      const int64_t block = read / own.block, to = std::min({read + kVisited, (block + 1) * own.block, stop});
      word = crc32c_combine(word, crc32c(part.subspan(static_cast<size_t>(read - at), static_cast<size_t>(to - read))),
                            to - read);
      read = to;
      if (!ends_block(to)) continue;
      const size_t i = own.first + static_cast<size_t>(block);
      if (word != checksums[i]) fail(t, block * own.block, to);
      verified[i].store(Verified::kYes, std::memory_order_release);
      word = 0;
    }
    fn(at, part);
  }
}

void SafetensorsFile::visit(std::string_view name, int64_t begin, int64_t end, int64_t unit, Visitor fn) const {
  const TensorInfo& t = at(name);
  WEFT_BUG_IF(begin < 0 || begin > end || end > t.nbytes() || unit < 1, path(), ": bytes ", begin, " to ", end, " by ",
              unit, " of tensor '", name, "' of ", t.nbytes());
  const int64_t step = std::max(unit, kVisited / unit * unit);
  state_->read_parts(t, begin, end, step, room_for(std::min(step, end - begin)).get(), /*keeps=*/false, fn);
}

void SafetensorsFile::read(std::string_view name, int64_t begin, int64_t end, void* to) const {
  const TensorInfo& t = at(name);
  WEFT_BUG_IF(begin < 0 || begin > end || end > t.nbytes(), path(), ": bytes ", begin, " to ", end, " of tensor '",
              name, "' of ", t.nbytes());
  const int64_t first = begin / kBlock, last = (end + kBlock - 1) / kBlock;
  parallel_chunks(last - first, 1, [&](int64_t b, int64_t stop) {
    const int64_t from = std::max(begin, (first + b) * kBlock), until = std::min(end, (first + stop) * kBlock);
    state_->read_parts(t, from, until, kVisited, static_cast<std::byte*>(to) + (from - begin), /*keeps=*/true,
                       [](int64_t, std::span<const std::byte>) {});
  });
}

void SafetensorsFile::release(std::string_view name) const {
  const TensorInfo& info = at(name);
  state_->file.release(info.begin, info.end);
}

}  // namespace weft::io
