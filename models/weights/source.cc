#include "models/weights/source.h"

#include <cstring>

#include "framework/io/safetensors.h"

namespace weft::weights {
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
    return is_aligned(data, itemsize(model_.at(name).dtype)) ? data : nullptr;
  }
  const void* read(std::string_view name, int64_t begin, int64_t end, std::vector<std::byte>& room) const override {
    const int64_t size = itemsize(model_.at(name).dtype);
    const std::byte* const data = model_.bytes(name, begin * size, end * size).data();
    if (is_aligned(data, size)) return data;
    room.resize(static_cast<size_t>((end - begin) * size));
    std::memcpy(room.data(), data, room.size());
    return room.data();
  }
  void release(std::string_view name) const override { model_.release(name); }

 private:
  static bool is_aligned(const std::byte* data, int64_t size) {
    return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(size) == 0;
  }
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
