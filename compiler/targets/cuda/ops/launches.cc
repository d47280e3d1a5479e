#include "compiler/targets/cuda/ops/launches.h"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "framework/base/error.h"

namespace weft::cuda {
namespace {

constexpr size_t kMostParameters = 4096;  // bytes of a launch's parameters

}  // namespace

void KernelStep::write_parameters(const Addresses& at, std::byte* to) const {
  std::memcpy(to, parameters.data(), parameters.size());
  for (const auto& [offset, place] : addresses) {
    char* p = nullptr;
    switch (place.kind) {
      case MemoryAddress::kIn:
        p = static_cast<char*>(at.in[place.index]);
        break;
      case MemoryAddress::kOut:
        p = static_cast<char*>(at.out[place.index]);
        break;
      case MemoryAddress::kWorkspace:
        p = static_cast<char*>(at.workspace);
        break;
      case MemoryAddress::kBad:
        p = reinterpret_cast<char*>(at.bad);
        break;
    }
    p += place.bytes;
    std::memcpy(to + offset, &p, sizeof p);
  }
}

bool KernelStep::left_out(const Addresses& at) const { return same_in >= 0 && at.in[same_in] == at.out[same_out]; }

void Launches::add(KernelStep step) {
  kernels_.push_back(step.kernel);
  steps_.push_back(std::move(step));
}

int64_t Launches::scratch(int64_t bytes) {
  const int64_t at = workspace_;
  workspace_ += (bytes + 255) / 256 * 256;
  return at;
}

void Launches::bind(std::span<const Function> functions) { functions_.assign(functions.begin(), functions.end()); }

void Launches::enqueue(const Addresses& at, Stream& stream, SourceLine line) const {
  WEFT_BUG_IF(functions_.size() != steps_.size(), op_, ": its kernels are not loaded");
  for (size_t i = 0; i < steps_.size(); ++i) {
    const KernelStep& s = steps_[i];
    if (s.left_out(at)) continue;
    alignas(16) std::byte bytes[kMostParameters];
    s.write_parameters(at, bytes);
    functions_[i].launch(stream, {.grid_x = s.grid.x,
                                  .grid_y = s.grid.y,
                                  .grid_z = s.grid.z,
                                  .threads = s.kernel.threads,
                                  .shared_bytes = s.kernel.shared_bytes,
                                  .parameters = bytes,
                                  .parameter_bytes = s.parameters.size(),
                                  .op = op_,
                                  .line = line});
  }
}

std::string_view element_type(DType t) {
  constexpr std::string_view kNames[] = {"f32", "f64", "bf16", "f16",   "i64",    "i32",
                                         "i16", "i8",  "u8",   "bool8", "f8e4m3", "f8e5m2"};
  return kNames[static_cast<int>(t)];
}

Text::Text(std::string_view name, bool wide) : name_(str_cat("w_", name, wide ? "_wide" : "")), wide_(wide) {
  head_ = wide ? "typedef int64 I;\n" : "typedef int I;\n";
}

Text& Text::type(std::string_view name, std::string_view text) {
  head_ += str_cat("typedef ", text, " ", name, ";\n");
  name_ += "_";
  for (char c : text) name_ += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return *this;
}
Text& Text::type(std::string_view name, DType dtype) { return type(name, element_type(dtype)); }

Text& Text::constant(std::string_view name, int64_t value) {
  head_ += str_cat("constexpr int ", name, " = ", value, ";\n");
  name_ += str_cat("_", value < 0 ? "m" : "", value < 0 ? -value : value);
  return *this;
}

Text& Text::types(std::string_view text) {
  head_ += text;
  return *this;
}

Text& Text::functions(std::string_view text, std::string_view key) {
  functions_ += text;
  if (!key.empty()) name_ += str_cat("_", key);
  return *this;
}

void Text::put(const void* data, int bytes, int alignment) {
  auto& p = step_.parameters;
  p.resize((p.size() + static_cast<size_t>(alignment) - 1) / static_cast<size_t>(alignment) *
           static_cast<size_t>(alignment));
  const auto* from = static_cast<const std::byte*>(data);
  p.insert(p.end(), from, from + bytes);
  alignment_ = std::max(alignment_, alignment);
}

Text& Text::address(std::string_view declaration, const MemoryAddress& place) {
  const void* none = nullptr;
  put(&none, 8, 8);
  step_.addresses.emplace_back(static_cast<int>(step_.parameters.size()) - 8, place);
  if (!declaration.empty()) fields_ += str_cat("  ", declaration, ";\n");
  return *this;
}

Text& Text::index(std::string_view name, int64_t value) {
  const int64_t one[] = {value};
  return indices(name, one);
}

Text& Text::indices(std::string_view name, std::span<const int64_t> values) {
  fields_ += str_cat("  I ", name, ";\n");
  for (int64_t v : values) {
    const auto narrow = static_cast<int32_t>(v);
    WEFT_BUG_IF(!wide_ && narrow != v, "cuda: ", name, " of ", name_, " is ", v, ", beyond 32 bits");
    wide_ ? put(&v, 8, 8) : put(&narrow, 4, 4);
  }
  return *this;
}

Text& Text::whole(std::string_view name, int64_t value) {
  if (!name.empty()) fields_ += str_cat("  int64 ", name, ";\n");
  put(&value, 8, 8);
  return *this;
}

Text& Text::real(std::string_view name, double value) {
  fields_ += str_cat("  f64 ", name, ";\n");
  put(&value, 8, 8);
  return *this;
}

KernelStep Text::step(std::string_view body, int64_t blocks, int threads, int shared) {
  WEFT_BUG_IF(blocks < 1 || blocks > INT32_MAX, "cuda: ", name_, " needs ", blocks, " blocks");
  if (alignment_ > 1) put(nullptr, 0, alignment_);
  WEFT_BUG_IF(step_.parameters.size() > kMostParameters, "cuda: ", name_, " has ", step_.parameters.size(),
              " bytes of parameters");
  step_.grid.x = static_cast<uint32_t>(blocks);
  Kernel& k = step_.kernel;
  k.threads = threads;
  k.shared_bytes = shared;
  k.symbol = threads == 256 ? name_ : str_cat(name_, "_by", threads);
  constexpr std::string_view kKernel = "W_KERNEL";
  const size_t at = body.find(kKernel);
  WEFT_BUG_IF(at == body.npos, "cuda: ", name_, " defines no kernel");
  k.text = str_cat(head_, "constexpr int kThreads = ", threads, ";\n", functions_, "struct P {\n", fields_, "};\n",
                   body.substr(0, at), "extern \"C\" __global__ void __launch_bounds__(kThreads) ", k.symbol,
                   "(const __grid_constant__ P p)", body.substr(at + kKernel.size()));
  return std::move(step_);
}

}  // namespace weft::cuda
