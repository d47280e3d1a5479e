#include "models/train/event_file.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <utility>

#include "framework/base/error.h"
#include "framework/io/file.h"
#include "models/train/metrics.h"

namespace weft::train {
namespace {

static_assert(std::endian::native == std::endian::little);

template <class T>
std::string raw(T v) {
  std::string bytes(sizeof v, '\0');
  std::memcpy(bytes.data(), &v, sizeof v);
  return bytes;
}

// Fields of protobuf messages: a key with the field's number and kind, then the value.
enum WireKind : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
std::string key(int number, WireKind kind) { return std::string(1, static_cast<char>(number << 3 | kind)); }
std::string varint(uint64_t v) {
  std::string bytes;
  for (; v >= 128; v >>= 7) bytes.push_back(static_cast<char>((v & 127) | 128));
  return bytes + static_cast<char>(v);
}
std::string text(int number, std::string_view bytes) {
  return (key(number, kBytes) + varint(bytes.size())).append(bytes);
}

// An Event with the time, the step and more fields.
std::string event(int64_t step, const std::string& fields) {
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return key(1, kFixed64) + raw(now) + key(2, kVarint) + varint(static_cast<uint64_t>(step)) + fields;
}

}  // namespace

uint32_t masked_crc32c(std::string_view bytes) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> t{};
    for (uint32_t i = 0; i < 256; ++i) {
      t[i] = i;
      for (int k = 0; k < 8; ++k) t[i] = t[i] >> 1 ^ (t[i] & 1 ? 0x82f63b78u : 0);
    }
    return t;
  }();
  uint32_t crc = ~0u;
  for (char c : bytes) crc = table[(crc ^ static_cast<uint8_t>(c)) & 255] ^ crc >> 8;
  return std::rotr(~crc, 15) + 0xa282ead8u;
}

EventFile::EventFile(const std::string& folder, int64_t first) {
  io::make_folders(folder);
  char host[256] = "host";
  ::gethostname(host, sizeof host - 1);
  const auto seconds = std::chrono::system_clock::now().time_since_epoch() / std::chrono::seconds(1);
  // TensorBoard reads files with this name, in the order of their names.
  for (int n = 0; !file_ && n < 1000; ++n) {
    path_ = str_cat(folder, "/events.out.tfevents.", seconds, ".", host, ".", ::getpid(), ".", n);
    file_ = std::fopen(path_.c_str(), "wbx");
    if (!file_ && errno != EEXIST) break;
  }
  WEFT_CHECK_AS(kResourceExhausted, file_, path_, ": cannot be written: ", io::errno_text(errno));
  record(event(0, text(3, "brain.Event:2")));
  if (first > 0) record(event(first, text(7, key(1, kVarint) + varint(1))));  // session_log: START
}

EventFile::~EventFile() {
  if (file_) std::fclose(file_);
}

void EventFile::record(const std::string& bytes) {
  const std::string length = raw<uint64_t>(bytes.size());
  const std::string all = length + raw(masked_crc32c(length)) + bytes + raw(masked_crc32c(bytes));
  if (!file_ || (std::fwrite(all.data(), 1, all.size(), file_) == all.size() && !std::fflush(file_))) return;
  internal::warn(
      str_cat("--log_dir: ", path_, " cannot be written: ", io::errno_text(errno), "; training goes on without it"));
  std::fclose(std::exchange(file_, nullptr));
}

void EventFile::scalar(std::string_view tag, double value, int64_t step) {
  if (!file_) return;
  const std::string entry = text(1, tag) + key(2, kFixed32) + raw(static_cast<float>(value));
  record(event(step, text(5, text(1, entry))));
}

void EventFile::write(const StepMetrics& m) {
  if (!file_ || m.step <= newest_) return;
  newest_ = m.step;
  for (const auto& [tag, value] : {std::pair("train/loss", m.loss),
                                   {"train/grad_norm", m.grad_norm},
                                   {"train/lr", m.lr},
                                   {"train/tokens_per_s", m.tokens_per_s}})
    if (!std::isnan(value)) scalar(tag, value, m.step);
  if (m.moe) scalar("train/aux_loss", m.aux_loss, m.step);
}

}  // namespace weft::train
