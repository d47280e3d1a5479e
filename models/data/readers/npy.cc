#include "models/data/readers/npy.h"

#include <algorithm>
#include <charconv>

#include "framework/dispatch/state/state.h"
#include "framework/io/file.h"
#include "framework/io/inflate.h"
#include "models/data/readers/open.h"
#include "ops/core/indexing/view.h"

namespace weft::data {

using weft::internal::LineScope;

namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);

uint64_t little(std::string_view s, size_t at, size_t bytes) {
  uint64_t v = 0;
  for (size_t i = bytes; i-- > 0;) v = v << 8 | static_cast<uint8_t>(s[at + i]);
  return v;
}

// The header is a Python dict such as {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }, with its keys in any
// order.
struct NpyHeader {
  std::string descr;
  int fortran = -1;
  bool has_shape = false;
  Shape shape;
};

class HeaderReader {
 public:
  HeaderReader(std::string_view text, const std::string& path) : text_(text), path_(path) {}
  NpyHeader read() {
    NpyHeader h;
    need('{');
    while (!take('}')) {
      const std::string key = quoted();
      need(':');
      if (key == "descr") {
        if (take('[')) refuse("records, whose elements have named fields");
        h.descr = quoted();
      } else if (key == "fortran_order") {
        h.fortran = word("True") ? 1 : word("False") ? 0 : -1;
        if (h.fortran < 0) fail();
      } else if (key == "shape") {
        h.shape = Shape();
        h.has_shape = true;
        need('(');
        while (!take(')')) {
          h.shape.push_back(number());
          if (!take(',')) {
            need(')');
            break;
          }
        }
      } else {
        fail();
      }
      if (!take(',')) {
        need('}');
        break;
      }
    }
    skip();
    if (at_ != text_.size() || h.descr.empty() || h.fortran < 0 || !h.has_shape) fail();
    return h;
  }

 private:
  [[noreturn]] void fail() const {
    weft::internal::fail(Code::kDataLoss,
                         str_cat(path_, ": the header '", internal::shown(text_),
                                 "' is damaged; need 'descr', 'fortran_order' and 'shape' of an array"));
  }
  [[noreturn]] void refuse(const char* kind) const {
    weft::internal::fail(Code::kUnimplemented, str_cat(path_, ": is an array of ", kind, "; need numbers or bools"));
  }
  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool take(char c) {
    skip();
    const bool is = at_ < text_.size() && text_[at_] == c;
    at_ += is;
    return is;
  }
  void need(char c) {
    if (!take(c)) fail();
  }
  bool word(std::string_view w) {
    skip();
    const bool is = text_.substr(at_).starts_with(w);
    at_ += is ? w.size() : 0;
    return is;
  }
  std::string quoted() {
    const char quote = take('"') ? '"' : '\'';
    if (quote == '\'') need('\'');
    const size_t end = text_.find(quote, at_);
    if (end == text_.npos) fail();
    std::string s(text_.substr(at_, end - at_));
    at_ = end + 1;
    return s;
  }
  int64_t number() {
    skip();
    int64_t n = -1;
    const auto r = std::from_chars(text_.data() + at_, text_.data() + text_.size(), n);
    if (r.ec != std::errc() || n < 0) fail();
    at_ = static_cast<size_t>(r.ptr - text_.data());
    at_ += at_ < text_.size() && text_[at_] == 'L';  // as Python 2 wrote long integers
    return n;
  }

  std::string_view text_;
  const std::string& path_;
  size_t at_ = 0;
};

// The kind of elements with this letter of their dtype; null for numbers and bools.
const char* other_kind(char letter) {
  switch (letter) {
    case 'U':
    case 'S':
    case 'a':
      return "texts";
    case 'O':
      return "Python objects";
    case 'V':
      return "records";
    case 'M':
    case 'm':
      return "dates or times";
    case 'c':
      return "complex numbers";
    default:
      return nullptr;
  }
}

Tensor array_of(std::string_view s, const std::string& path) {
  WEFT_CHECK_AS(kDataLoss, s.starts_with(kMagic) && s.size() >= 10, path, ": is not a .npy file");
  const int version = static_cast<uint8_t>(s[6]);
  WEFT_CHECK_AS(kDataLoss, version >= 1 && version <= 3 && (version == 1 || s.size() >= 12), path,
                ": is of .npy version ", version, "; need 1 to 3");
  const size_t begin = version == 1 ? 10 : 12, length = little(s, 8, version == 1 ? 2 : 4);
  WEFT_CHECK_AS(kDataLoss, length <= s.size() - begin, path, ": ends inside its header");
  NpyHeader h;
  try {
    h = HeaderReader(s.substr(begin, length), path).read();
  } catch (const Error& e) {  // too many dims
    if (std::string_view(e.what()).starts_with(path)) throw;
    weft::internal::fail(Code::kDataLoss, str_cat(path, ": ", e.what()));
  }
  const std::string& d = h.descr;
  const char* const other = d.size() < 2 ? nullptr : other_kind(d[1]);
  WEFT_CHECK_AS(kUnimplemented, !other, path, ": is an array of ", other, " ('", internal::shown(d),
                "'); need numbers or bools");
  int64_t size = 0;
  const auto r = d.size() < 3 ? std::from_chars_result{nullptr, std::errc::invalid_argument}
                              : std::from_chars(d.data() + 2, d.data() + d.size(), size);
  WEFT_CHECK_AS(kUnimplemented,
                r.ec == std::errc() && r.ptr == d.data() + d.size() && size > 0 && size < 1 << 20 &&
                    std::string_view("<>|=").find(d[0]) != std::string_view::npos,
                path, ": elements are '", internal::shown(d), "'; need numbers or bools");
  Shape stored = h.shape;
  if (h.fortran) std::reverse(stored.begin(), stored.end());
  const Tensor t = internal::tensor_of(s.substr(begin + length), d[1], size, d[0] == '>', stored, path);
  if (!h.fortran) return t;
  Shape order;
  for (int i = t.dim() - 1; i >= 0; --i) order.push_back(i);
  return permute(t, order).contiguous();
}

}  // namespace

Tensor load_npy(const std::string& path, std::source_location loc) {
  LineScope line(loc);
  NoGrad guard;
  return array_of(io::read_file(path, int64_t{64} << 30), path);
}

// A zip archive: the directory at its end has the position, the sizes and the checksum of each entry.
std::map<std::string, Tensor> load_npz(const std::string& path, std::source_location loc) {
  LineScope line(loc);
  NoGrad guard;
  const std::string file = io::read_file(path, internal::kMostFileBytes);
  const std::string_view s = file;
  constexpr size_t kEnd = 22, kEntry = 46, kLocal = 30;
  size_t end = s.size() < kEnd ? s.npos : s.rfind(std::string_view("PK\5\6", 4), s.size() - kEnd);
  WEFT_CHECK_AS(kDataLoss, end != s.npos && s.size() - end >= kEnd, path,
                ": is not a .npz archive: it has no directory at its end");
  const uint64_t entries = little(s, end + 10, 2);
  uint64_t at = little(s, end + 16, 4);
  WEFT_CHECK_AS(kUnimplemented, entries != 0xffff && at != 0xffffffff, path,
                ": is a zip64 archive of too many or too large entries; need one below 4 GiB");
  auto need = [&](bool fits) { WEFT_CHECK_AS(kDataLoss, fits, path, ": the archive's directory is damaged"); };
  std::map<std::string, Tensor> out;
  uint64_t total = 0;
  for (uint64_t e = 0; e < entries; ++e) {
    need(at <= s.size() && s.size() - at >= kEntry && s.substr(at, 4) == std::string_view("PK\1\2", 4));
    const uint64_t flags = little(s, at + 8, 2), method = little(s, at + 10, 2), crc = little(s, at + 16, 4);
    uint64_t packed = little(s, at + 20, 4), size = little(s, at + 24, 4), local = little(s, at + 42, 4);
    const uint64_t name_length = little(s, at + 28, 2), extra = little(s, at + 30, 2), comment = little(s, at + 32, 2);
    need(s.size() - at - kEntry >= name_length + extra + comment);
    std::string name(s.substr(at + kEntry, name_length));
    at += kEntry + name_length + extra + comment;
    const std::string what = str_cat(path, ": entry '", internal::shown(name), "'");
    WEFT_CHECK_AS(kUnimplemented, (flags & 1) == 0 && (method == 0 || method == 8), what,
                  " is encrypted or packed by method ", method, "; need stored or deflated entries");
    WEFT_CHECK_AS(kUnimplemented, packed != 0xffffffff && size != 0xffffffff && local != 0xffffffff, what,
                  " is larger than 4 GiB; need a smaller one");
    need(local <= s.size() && s.size() - local >= kLocal && s.substr(local, 4) == std::string_view("PK\3\4", 4));
    const uint64_t data = local + kLocal + little(s, local + 26, 2) + little(s, local + 28, 2);
    need(data <= s.size() && s.size() - data >= packed);
    // Entries do not overlap in honest archives, so their sizes have a sum below the file's.
    need((total += packed) <= s.size());
    const std::string_view raw = s.substr(data, packed);
    std::string inflated;
    if (method == 8) inflated = io::inflate_raw(raw, static_cast<int64_t>(size), what);
    const std::string_view bytes = method == 8 ? std::string_view(inflated) : raw;
    WEFT_CHECK_AS(kDataLoss, bytes.size() == size && io::crc32_of(bytes) == crc, what,
                  " is damaged: its checksum differs");
    WEFT_CHECK_AS(kUnimplemented, name.ends_with(".npy"), what,
                  " has no name NAME.npy, so it is no array; need an archive of arrays, as numpy.savez writes");
    name.resize(name.size() - 4);
    WEFT_CHECK_AS(kDataLoss, out.emplace(name, array_of(bytes, what)).second, what,
                  " is there twice; need different names");
  }
  return out;
}

void save_npy(const Tensor& x, const std::string& path, std::source_location loc) {
  LineScope line(loc);
  require_concrete(x, "save_npy", loc);
  const char* descr = nullptr;
  switch (x.dtype()) {
    case kFloat64:
      descr = "<f8";
      break;
    case kFloat32:
      descr = "<f4";
      break;
    case kFloat16:
      descr = "<f2";
      break;
    case kInt64:
      descr = "<i8";
      break;
    case kInt32:
      descr = "<i4";
      break;
    case kInt16:
      descr = "<i2";
      break;
    case kInt8:
      descr = "|i1";
      break;
    case kUInt8:
      descr = "|u1";
      break;
    case kBool:
      descr = "|b1";
      break;
    default:
      break;
  }
  WEFT_CHECK(descr, "save_npy: got ", x.type(), ", which is no dtype of NumPy; convert with to(f32)");
  NoGrad guard;
  const Tensor t = x.to(Device::cpu()).contiguous();
  std::string shape;
  for (int64_t n : t.shape()) shape += str_cat(n, ", ");
  if (t.dim() > 1) shape.resize(shape.size() - 2);
  std::string header = str_cat("{'descr': '", descr, "', 'fortran_order': False, 'shape': (", shape, "), }");
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');
  header += '\n';
  std::string bytes = str_cat(kMagic, std::string_view("\1\0", 2), static_cast<char>(header.size() & 255),
                              static_cast<char>(header.size() >> 8), header);
  if (t.numel() > 0) bytes.append(t.view_for_kernel().as<char>(), static_cast<size_t>(t.type().nbytes()));
  io::write_file_atomic(path, bytes);
}

}  // namespace weft::data
