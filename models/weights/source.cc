#include "models/weights/source.h"

#include <algorithm>
#include <span>

#include "framework/io/safetensors.h"

namespace weft::weights {

void WeightSource::visit(std::string_view name, int64_t begin, int64_t end, int64_t unit, Visitor fn) const {
  constexpr int64_t kPart = 64 << 10;  // bytes
  const int64_t step = std::max(unit, kPart / itemsize(find(name)->dtype) / unit * unit);
  std::vector<std::byte> room;
  for (int64_t at = begin; at < end; at += step) {
    const int64_t count = std::min(step, end - at);
    fn(at, count, read(name, at, at + count, room));
  }
}

namespace {

class Safetensors final : public WeightSource {
 public:
  explicit Safetensors(io::SafetensorsModel model) : model_(std::move(model)) {}
  const std::string& path() const override { return model_.path(); }
  std::vector<std::string> names() const override { return model_.names(); }
  std::optional<WeightInfo> find(std::string_view name) const override {
    if (!model_.contains(name)) return {};
    const io::TensorInfo& info = model_.at(name);
    return WeightInfo{info.dtype, info.shape};
  }
  void check(std::string_view name) const override { model_.bytes(name); }
  const void* in_place(std::string_view name) const override {
    const std::byte* const data = model_.bytes(name).data();
    const auto size = static_cast<uintptr_t>(itemsize(model_.at(name).dtype));
    return reinterpret_cast<uintptr_t>(data) % size == 0 ? data : nullptr;
  }
  const void* read(std::string_view name, int64_t begin, int64_t end, std::vector<std::byte>& room) const override {
    const int64_t size = itemsize(model_.at(name).dtype);
    room.resize(static_cast<size_t>((end - begin) * size));
    model_.read(name, begin * size, end * size, room.data());
    return room.data();
  }
  void visit(std::string_view name, int64_t begin, int64_t end, int64_t unit, Visitor fn) const override {
    const int64_t size = itemsize(model_.at(name).dtype);
    model_.visit(name, begin * size, end * size, unit * size, [&](int64_t offset, std::span<const std::byte> part) {
      fn(offset / size, std::ssize(part) / size, part.data());
    });
  }
  void release(std::string_view name) const override { model_.release(name); }

 private:
  const io::SafetensorsModel model_;
};

}  // namespace

std::unique_ptr<WeightSource> open_safetensors(const std::string& path) {
  return source_of(io::SafetensorsModel(path));
}

std::unique_ptr<WeightSource> source_of(io::SafetensorsModel file) {
  return std::make_unique<Safetensors>(std::move(file));
}

}  // namespace weft::weights
