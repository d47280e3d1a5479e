#include "framework/io/gguf.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>

#include "framework/base/error.h"
#include "framework/base/one_line.h"
#include "framework/io/fields/fields.h"
#include "framework/io/file.h"

namespace weft::io {
namespace {

enum ValueType : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kText, kList, kU64, kI64, kF64, kTypes };
constexpr const char* kTypeNames[] = {"u8",   "i8",   "u16",  "i16", "u32", "i32", "f32",
                                      "bool", "text", "list", "u64", "i64", "f64"};
constexpr int64_t kTypeBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
constexpr int64_t kDefaultAlignment = 32, kMostAlignment = 1 << 20;
constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint64_t kMostParts = 99999;   // five digits

// A value of the metadata: its type, and the bytes of its elements in the file.
struct Value {
  uint32_t type = 0;  // type of a list's elements
  int64_t count = 1;  // elements of a list
  bool list = false;
  const std::byte* at = nullptr;
  std::span<const std::byte> whole;  // as the file stores it, with the types of its elements

  std::string type_name() const { return str_cat(list ? "a list of " : "", kTypeNames[type]); }
};

std::string_view text_at(const std::byte* p) {
  return {reinterpret_cast<const char*>(p + 8), static_cast<size_t>(value_at<uint64_t>(p))};
}

// A whole number as two's complement, and whether it is below 0.
std::pair<uint64_t, bool> whole_at(uint32_t type, const std::byte* p) {
  const auto of = [](auto v) { return std::pair(static_cast<uint64_t>(v), v < 0); };
  switch (type) {
    case kU8:
      return of(value_at<uint8_t>(p));
    case kI8:
      return of(value_at<int8_t>(p));
    case kU16:
      return of(value_at<uint16_t>(p));
    case kI16:
      return of(value_at<int16_t>(p));
    case kU32:
      return of(value_at<uint32_t>(p));
    case kI32:
      return of(value_at<int32_t>(p));
    case kU64:
      return of(value_at<uint64_t>(p));
    default:
      return of(value_at<int64_t>(p));
  }
}

bool is_whole(uint32_t type) { return type <= kI32 || type == kU64 || type == kI64; }

// Reads the head of a file: each step checks that its bytes are there.
class Cursor {
 public:
  Cursor(const std::string& path, std::span<const std::byte> all) : path_(path), all_(all) {}
  int64_t at() const { return at_; }
  int64_t left() const { return static_cast<int64_t>(all_.size()) - at_; }
  const std::byte* take(int64_t bytes, const char* what) {
    WEFT_CHECK_AS(kDataLoss, bytes <= left(), path_, ": ", what, " at byte ", at_, " needs ", bytes,
                  " bytes; the file has ", left(), " left: it is cut short or damaged");
    const std::byte* p = all_.data() + at_;
    at_ += bytes;
    return p;
  }
  template <class T>
  T number(const char* what) {
    return value_at<T>(take(sizeof(T), what));
  }
  // A count of things of at least `bytes` bytes each.
  int64_t count(int64_t bytes, const char* what) {
    const int64_t where = at_;
    const auto n = number<uint64_t>(what);
    WEFT_CHECK_AS(kDataLoss, n <= static_cast<uint64_t>(left() / bytes), path_, ": ", what, " at byte ", where, " is ",
                  n, "; the file has ", left(), " bytes left: it is cut short or damaged");
    return static_cast<int64_t>(n);
  }
  std::string_view text(const char* what) {
    const int64_t n = count(1, what);
    return {reinterpret_cast<const char*>(take(n, what)), static_cast<size_t>(n)};
  }
  Value value(std::string_view key) {
    Value v;
    const auto begin = static_cast<size_t>(at_);
    v.type = type(key);
    if (v.type == kList) {
      v.list = true;
      v.type = type(key);
      WEFT_CHECK(v.type != kList, path_, ": value of '", one_line(key, 80), "' is a list of lists; need one list");
      v.count = count(v.type == kText ? 8 : kTypeBytes[v.type], "the length of a list");
    }
    v.at = all_.data() + at_;
    if (v.type == kText) {
      for (int64_t i = 0; i < v.count; ++i) text("the length of a text");
    } else {
      take(v.count * kTypeBytes[v.type], "a value");
      for (int64_t i = 0; v.type == kBool && i < v.count; ++i)
        WEFT_CHECK(value_at<uint8_t>(v.at + i) <= 1, path_, ": value of '", one_line(key, 80), "' is the bool ",
                   int{value_at<uint8_t>(v.at + i)}, "; need 0 or 1");
    }
    v.whole = all_.subspan(begin, static_cast<size_t>(at_) - begin);
    return v;
  }

 private:
  uint32_t type(std::string_view key) {
    const auto type = number<uint32_t>("the type of a value");
    WEFT_CHECK(type < kTypes, path_, ": value of '", one_line(key, 80), "' has type ", type, "; need 0 to ",
               kTypes - 1);
    return type;
  }

  const std::string& path_;
  const std::span<const std::byte> all_;
  int64_t at_ = 0;
};

using Values = std::map<std::string_view, Value, std::less<>>;

struct Part {
  MappedFile file;
  Values values;
  int64_t alignment = kDefaultAlignment;
};

const Value* find_value(const Values& values, std::string_view key) {
  const auto it = values.find(key);
  return it == values.end() ? nullptr : &it->second;
}

[[noreturn]] void fail_type(const std::string& path, std::string_view key, const Value& v, const char* need) {
  weft::internal::fail(Code::kInvalidArgument,
                       str_cat(path, ": '", one_line(key, 80), "' is ", v.type_name(), "; need ", need));
}

int64_t whole(const std::string& path, std::string_view key, const Value& v, const std::byte* at) {
  const auto [bits, negative] = whole_at(v.type, at);
  WEFT_CHECK(negative || bits <= uint64_t{INT64_MAX}, path, ": '", one_line(key, 80), "' is ", bits,
             "; need at most 2^63-1");
  return static_cast<int64_t>(bits);
}

std::optional<int64_t> integer_of(const std::string& path, const Values& values, std::string_view key) {
  const Value* v = find_value(values, key);
  if (!v) return {};
  if (v->list || !is_whole(v->type)) fail_type(path, key, *v, "a whole number");
  return whole(path, key, *v, v->at);
}

// A number of any type.
double number_at(const std::string& path, std::string_view key, const Value& v, const std::byte* at) {
  if (v.type == kF32) return value_at<float>(at);
  if (v.type == kF64) return value_at<double>(at);
  if (!is_whole(v.type)) fail_type(path, key, v, "a number");
  return static_cast<double>(whole(path, key, v, at));
}

// Calls add(element) for the elements of a list; `fits` says whether elements may have a type.
template <class Fits, class Add>
void each_of(const std::string& path, const Values& values, std::string_view key, const char* need, const Fits& fits,
             const Add& add) {
  const Value* v = find_value(values, key);
  if (!v) return;
  if (!v->list || !fits(v->type)) fail_type(path, key, *v, need);
  const std::byte* at = v->at;
  for (int64_t i = 0; i < v->count; ++i) {
    add(*v, at);
    at += v->type == kText ? 8 + std::ssize(text_at(at)) : kTypeBytes[v->type];
  }
}

// Reads one tensor's entry; its offset is still relative to the data.
GgufTensor read_entry(Cursor& in, const std::string& path) {
  GgufTensor t;
  t.name = in.text("the name of a tensor");
  const std::string what = str_cat(path, ": tensor '", one_line(t.name, 80), "'");
  const auto dims = in.number<uint32_t>("a number of dims");
  WEFT_CHECK(dims >= 1 && dims <= 4, what, " has ", dims, " dims; need 1 to 4");
  int64_t extents[4];
  for (uint32_t d = 0; d < dims; ++d) {
    const auto extent = in.number<uint64_t>("an extent");
    WEFT_CHECK(extent >= 1 && extent <= uint64_t{INT64_MAX}, what, " has the extent ", extent, "; need 1 to 2^63-1");
    extents[d] = static_cast<int64_t>(extent);
  }
  const auto format = in.number<uint32_t>("a format");
  t.format = gguf_format(format);
  WEFT_CHECK_AS(kUnimplemented, t.format, what, " has format ", format, " of ggml, which Weft does not know");
  int64_t elements = 1;
  bool fits = true;
  for (uint32_t d = 0; d < dims; ++d) fits = fits && !__builtin_mul_overflow(elements, extents[d], &elements);
  int64_t bytes = 0;
  fits = fits && !__builtin_mul_overflow(elements, t.format->block_bytes, &bytes);
  WEFT_CHECK(fits, what, " has more bytes than 2^63-1");
  WEFT_CHECK(extents[0] % t.format->block == 0, what, " has rows of ", extents[0], "; need a multiple of ",
             t.format->block, ", the block of ", t.format->name);
  for (uint32_t d = dims; d-- > 0;) t.shape.push_back(extents[d]);
  const auto offset = in.number<uint64_t>("an offset");
  WEFT_CHECK_AS(kDataLoss, offset <= uint64_t{INT64_MAX} / 2, what, " begins at ", offset,
                " in the data; the file is damaged");
  t.begin = static_cast<int64_t>(offset);
  t.end = elements / t.format->block * t.format->block_bytes;  // a length, until the data's begin is known
  return t;
}

void read_tensors(Cursor& in, Part& part, size_t number, int64_t count, std::vector<GgufTensor>& tensors) {
  const std::string& path = part.file.path();
  const size_t first = tensors.size();
  for (int64_t i = 0; i < count; ++i) tensors.push_back(read_entry(in, path));
  const int64_t data = (in.at() + part.alignment - 1) / part.alignment * part.alignment, size = part.file.size();
  std::vector<const GgufTensor*> order;
  for (size_t i = first; i < tensors.size(); ++i) {
    GgufTensor& t = tensors[i];
    const std::string what = str_cat(path, ": tensor '", one_line(t.name, 80), "'");
    WEFT_CHECK(t.begin % part.alignment == 0, what, " begins at ", t.begin, " in the data; need a multiple of ",
               part.alignment);
    const int64_t length = t.end;
    WEFT_CHECK_AS(kDataLoss, data <= size && t.begin <= size - data && length <= size - data - t.begin, what, " needs ",
                  length, " bytes from byte ", t.begin, " of the data; the file has ",
                  std::max<int64_t>(0, size - data), " of data: it is cut short or damaged");
    t.part = number;
    t.begin += data;
    t.end = t.begin + length;
    order.push_back(&t);
  }
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->begin < b->begin; });
  for (size_t i = 1; i < order.size(); ++i)
    WEFT_CHECK_AS(kDataLoss, order[i]->begin >= order[i - 1]->end, path, ": tensors '",
                  one_line(order[i - 1]->name, 80), "' and '", one_line(order[i]->name, 80), "' overlap");
}

// Reads one file and adds its tensors to `tensors`.
Part read_part(const std::string& path, size_t number, std::vector<GgufTensor>& tensors) {
  Part part;
  part.file = MappedFile(path, /*reads=*/true);
  Cursor in(part.file.path(), part.file.bytes());
  WEFT_CHECK_AS(kDataLoss, in.left() >= 24, path, ": not a GGUF file: ", in.left(), " bytes are too few");
  WEFT_CHECK(in.number<uint32_t>("the magic") == kMagic, path, ": not a GGUF file: it does not begin with GGUF");
  const auto version = in.number<uint32_t>("the version");
  WEFT_CHECK_AS(kUnimplemented, version == 2 || version == 3, path, ": is GGUF of version ", version,
                version == 1 || (version & 0xffff) ? "; need 2 or 3" : "; need 2 or 3 with the lowest byte first");
  const int64_t count = in.count(32, "the number of tensors"), keys = in.count(13, "the number of keys");
  for (int64_t i = 0; i < keys; ++i) {
    const std::string_view key = in.text("the length of a key");
    WEFT_CHECK(!key.empty() && key.size() <= 65535, path, ": a key has ", key.size(), " bytes; need 1 to 65535");
    const Value value = in.value(key);
    WEFT_CHECK(part.values.emplace(key, value).second, path, ": key '", one_line(key, 80), "' occurs twice");
  }
  if (const Value* v = find_value(part.values, "general.alignment")) {
    WEFT_CHECK(!v->list && v->type == kU32, path, ": 'general.alignment' is ", v->type_name(), "; need u32");
    part.alignment = value_at<uint32_t>(v->at);
    WEFT_CHECK(part.alignment >= 8 && part.alignment <= kMostAlignment && !(part.alignment & (part.alignment - 1)),
               path, ": 'general.alignment' is ", part.alignment, "; need a power of two from 8 to ", kMostAlignment);
  }
  read_tensors(in, part, number, count, tensors);
  return part;
}

std::string part_suffix(int64_t number, int64_t parts) {
  char text[40];
  std::snprintf(text, sizeof text, "-%05lld-of-%05lld.gguf", static_cast<long long>(number),
                static_cast<long long>(parts));
  return text;
}

}  // namespace

struct GgufFile::State {
  std::vector<Part> parts;
  std::vector<GgufTensor> tensors;

  const Values& values() const { return parts.front().values; }
  const std::string& path() const { return parts.front().file.path(); }
};

bool is_gguf(const std::string& path) { return path.ends_with(".gguf") && !is_folder(path); }

GgufFile::GgufFile(const std::string& path) {
  auto state = std::make_shared<State>();
  state->parts.push_back(read_part(path, 0, state->tensors));
  const int64_t parts = integer_of(path, state->values(), "split.count").value_or(1);
  WEFT_CHECK(parts >= 0 && parts <= int64_t{kMostParts}, path, ": 'split.count' is ", parts, "; need 0 to ",
             kMostParts);
  if (parts > 1) {
    const std::string suffix = part_suffix(1, parts);
    const int64_t number = integer_of(path, state->values(), "split.no").value_or(0);
    WEFT_CHECK(number == 0, path, ": is part ", number + 1, " of ", parts, "; need the first, NAME", suffix);
    WEFT_CHECK(path.ends_with(suffix), path, ": is the first of ", parts, " files; need the name NAME", suffix);
    const std::string stem = path.substr(0, path.size() - suffix.size());
    for (int64_t i = 1; i < parts; ++i) {
      const std::string name = stem + part_suffix(i + 1, parts);
      state->parts.push_back(read_part(name, static_cast<size_t>(i), state->tensors));
      const Values& values = state->parts.back().values;
      const int64_t no = integer_of(name, values, "split.no").value_or(0),
                    of = integer_of(name, values, "split.count").value_or(1);
      WEFT_CHECK(no == i && of == parts, name, ": is part ", no + 1, " of ", of, "; need part ", i + 1, " of ", parts);
    }
    const int64_t count = std::ssize(state->tensors),
                  said = integer_of(path, state->values(), "split.tensors.count").value_or(count);
    WEFT_CHECK_AS(kDataLoss, said == count, path, ": 'split.tensors.count' is ", said, "; its ", parts, " files have ",
                  count);
  }
  std::vector<GgufTensor>& tensors = state->tensors;
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  for (size_t i = 1; i < tensors.size(); ++i)
    WEFT_CHECK(tensors[i].name != tensors[i - 1].name, path, ": tensor '", one_line(tensors[i].name, 80),
               "' occurs twice");
  state_ = std::move(state);
}

const std::string& GgufFile::path() const { return state_->path(); }

std::vector<std::string_view> GgufFile::keys() const {
  std::vector<std::string_view> keys;
  for (const auto& [key, value] : state_->values()) keys.push_back(key);
  return keys;
}

bool GgufFile::contains(std::string_view key) const { return find_value(state_->values(), key); }

std::optional<bool> GgufFile::boolean(std::string_view key) const {
  const Value* v = find_value(state_->values(), key);
  if (!v) return {};
  if (v->list || v->type != kBool) fail_type(path(), key, *v, "a bool");
  return value_at<uint8_t>(v->at) != 0;
}

std::optional<int64_t> GgufFile::integer(std::string_view key) const {
  return integer_of(path(), state_->values(), key);
}

std::optional<std::string_view> GgufFile::text(std::string_view key) const {
  const Value* v = find_value(state_->values(), key);
  if (!v) return {};
  if (v->list || v->type != kText) fail_type(path(), key, *v, "a text");
  return text_at(v->at);
}

std::optional<std::string> GgufFile::shown(std::string_view key) const {
  const Value* v = find_value(state_->values(), key);
  if (!v) return {};
  if (v->list) fail_type(path(), key, *v, "one value");
  if (v->type == kText) return std::string(text_at(v->at));
  if (v->type == kBool) return text_of(value_at<uint8_t>(v->at) != 0);
  if (v->type == kF64) return text_of(value_at<double>(v->at));
  if (v->type != kF32) return text_of(whole(path(), key, *v, v->at));
  char text[40];
  return std::string(text, std::to_chars(text, std::end(text), value_at<float>(v->at)).ptr);
}

std::vector<std::string_view> GgufFile::texts(std::string_view key) const {
  std::vector<std::string_view> texts;
  each_of(
      path(), state_->values(), key, "a list of texts", [](uint32_t t) { return t == kText; },
      [&](const Value&, const std::byte* at) { texts.push_back(text_at(at)); });
  return texts;
}

std::vector<int64_t> GgufFile::integers(std::string_view key) const {
  std::vector<int64_t> numbers;
  each_of(path(), state_->values(), key, "a list of whole numbers", is_whole,
          [&](const Value& v, const std::byte* at) { numbers.push_back(whole(path(), key, v, at)); });
  return numbers;
}

std::vector<double> GgufFile::numbers(std::string_view key) const {
  std::vector<double> numbers;
  each_of(
      path(), state_->values(), key, "a list of numbers",
      [](uint32_t t) { return is_whole(t) || t == kF32 || t == kF64; },
      [&](const Value& v, const std::byte* at) { numbers.push_back(number_at(path(), key, v, at)); });
  return numbers;
}

GgufMetadata GgufFile::metadata(std::string_view prefix) const {
  GgufMetadata m;
  for (const auto& [key, v] : state_->values())
    if (key.starts_with(prefix))
      m.emplace_back(key, GgufBytes{{reinterpret_cast<const char*>(v.whole.data()), v.whole.size()}});
  return m;
}

const std::vector<GgufTensor>& GgufFile::tensors() const { return state_->tensors; }

const GgufTensor* GgufFile::find(std::string_view name) const {
  const auto& all = state_->tensors;
  const auto it = std::lower_bound(all.begin(), all.end(), name,
                                   [](const GgufTensor& t, std::string_view n) { return t.name < n; });
  return it != all.end() && it->name == name ? &*it : nullptr;
}

std::span<const std::byte> GgufFile::bytes(const GgufTensor& t) const {
  return state_->parts[t.part].file.bytes().subspan(static_cast<size_t>(t.begin), static_cast<size_t>(t.end - t.begin));
}

void GgufFile::read(const GgufTensor& t, int64_t begin, std::span<std::byte> to) const {
  WEFT_BUG_IF(begin < 0 || begin > t.end - t.begin - std::ssize(to), path(), ": read of ", to.size(), " bytes from ",
              begin, " of tensor '", t.name, "' of ", t.end - t.begin);
  state_->parts[t.part].file.read(t.begin + begin, to);
}

void GgufFile::release(const GgufTensor& t) const { state_->parts[t.part].file.release(t.begin, t.end); }

// ---- writing ----

namespace {

template <class T>
void put(std::string& out, T v) {
  out.append(reinterpret_cast<const char*>(&v), sizeof v);
}

void put_text(std::string& out, std::string_view text) {
  put(out, static_cast<uint64_t>(text.size()));
  out += text;
}

uint32_t type_of(bool) { return kBool; }
uint32_t type_of(uint32_t) { return kU32; }
uint32_t type_of(int32_t) { return kI32; }
uint32_t type_of(float) { return kF32; }
uint32_t type_of(const std::string&) { return kText; }

template <class T>
void put_element(std::string& out, const T& v) {
  if constexpr (std::is_same_v<T, std::string>)
    put_text(out, v);
  else
    put(out, v);
}

template <class T>
void put_value(std::string& out, const T& v) {
  put(out, type_of(v));
  put_element(out, v);
}
template <class T>
void put_value(std::string& out, const std::vector<T>& list) {
  put(out, uint32_t{kList});
  put(out, type_of(T{}));
  put(out, static_cast<uint64_t>(list.size()));
  for (const T& v : list) put_element(out, v);
}
void put_value(std::string& out, const GgufBytes& v) { out += v.bytes; }

int64_t aligned(int64_t n) { return (n + kDefaultAlignment - 1) / kDefaultAlignment * kDefaultAlignment; }

// All before the list of tensors.
std::string head_of(const GgufMetadata& metadata, size_t tensors) {
  std::string head;
  put(head, kMagic);
  put(head, uint32_t{3});
  put(head, static_cast<uint64_t>(tensors));
  put(head, static_cast<uint64_t>(metadata.size()));
  for (const auto& [key, value] : metadata) {
    put_text(head, key);
    std::visit([&head](const auto& v) { put_value(head, v); }, value);
  }
  return head;
}

}  // namespace

std::string gguf_of(const GgufMetadata& metadata) {
  std::string text = head_of(metadata, 0);
  text.resize(static_cast<size_t>(aligned(std::ssize(text))));
  return text;
}

void write_gguf(const std::string& path, const GgufMetadata& metadata, std::span<const GgufData> tensors,
                Existing existing) {
  std::string head = head_of(metadata, tensors.size());
  int64_t at = 0;
  for (const GgufData& t : tensors) {
    const GgufFormat* format = gguf_format(t.format);
    WEFT_CHECK(format && t.shape.size() >= 1 && t.shape.size() <= 4, "write_gguf: tensor '", t.name, "' has format ",
               t.format, " and shape ", t.shape, "; need 1 to 4 dims and a format of ggml");
    WEFT_CHECK(t.shape[t.shape.size() - 1] % format->block == 0 &&
                   t.shape.numel() / format->block * format->block_bytes == std::ssize(t.data),
               "write_gguf: tensor '", t.name, "' ", t.shape, " of ", format->name, " has ", t.data.size(), " bytes");
    put_text(head, t.name);
    put(head, static_cast<uint32_t>(t.shape.size()));
    for (size_t d = t.shape.size(); d-- > 0;) put(head, static_cast<uint64_t>(t.shape[d]));
    put(head, t.format);
    put(head, static_cast<uint64_t>(at));
    at = aligned(at + std::ssize(t.data));
  }
  AtomicFile file(path);
  file.write(head);
  const std::string zeros(static_cast<size_t>(kDefaultAlignment), '\0');
  const auto pad = [&] { file.write(std::string_view(zeros).substr(0, aligned(file.size()) - file.size())); };
  for (const GgufData& t : tensors) pad(), file.write(t.data);
  pad();
  file.commit(existing);
}

}  // namespace weft::io
