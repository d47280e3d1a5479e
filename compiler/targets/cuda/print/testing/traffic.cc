#include "compiler/targets/cuda/print/testing/traffic.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string_view>

#include "compiler/targets/cpu/print/choices.h"
#include "framework/base/str_cat.h"

namespace weft::cuda {
namespace {

using loop_ir::StrideKind;

constexpr double kSmall = 2e6;           // bytes of arguments; below this, the launch itself dominates the cost
constexpr double kUnderWay = 22 * 1024;  // bytes in flight per multiprocessor: 4.3 TB/s x 0.65 us / 132
constexpr int kSharedOfMultiprocessor = 228 * 1024, kThreadsOfMultiprocessor = 2048;

// How often `word` occurs in the text without a letter before it.
int count(std::string_view text, const std::string& word) {
  int n = 0;
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1))
    n += at == 0 || (!std::isalnum(static_cast<unsigned char>(text[at - 1])) && text[at - 1] != '_');
  return n;
}

// Counts NAME[...] with the position l in the brackets.
int count_one_by_one(std::string_view text, const std::string& name) {
  int n = 0;
  const std::string word = name + "[";
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    const char before = at == 0 ? ' ' : text[at - 1];
    if (std::isalnum(static_cast<unsigned char>(before)) || before == '_') continue;
    n += text[at + word.size()] == 'l' || text.compare(at + word.size(), 2, "(l") == 0;
  }
  return n;
}

// Bytes of the vectors that a thread reads before it uses any: "Pack<bf16, 8> v4[16]", "const Pack<f32, 4> v2 = load".
double vectors(std::string_view text) {
  double bytes = 0;
  for (size_t at = text.find("Pack<"); at != text.npos; at = text.find("Pack<", at + 1)) {
    const std::string_view rest = text.substr(at, text.find('\n', at) - at);
    const size_t comma = rest.find(", "), end = rest.find("> ");
    if (comma == rest.npos || end == rest.npos || rest[end + 2] != 'v' || rest.find("load_tile") != rest.npos) continue;
    const std::string_view type = rest.substr(5, comma - 5);
    const double size = type == "f64" || type == "i64"                    ? 8
                        : type == "f32" || type == "i32"                  ? 4
                        : type == "bool8" || type == "u8" || type == "i8" ? 1
                                                                          : 2;
    double times = 1;
    if (const size_t open = rest.find('['); open != rest.npos && rest.find('=') == rest.npos)
      times = std::atoi(rest.data() + open + 1);
    bytes += size * std::atoi(rest.data() + comma + 2) * times;
  }
  return bytes;
}

}  // namespace

Traffic traffic_of(const loop_ir::Lowered& low, const CudaLaunch& launch, const DeviceLimits& device) {
  const std::string& all = launch.kernel.text;
  const size_t head = all.find("// ", loop_intrinsics().size());
  const std::string_view body = std::string_view(all).substr(all.find("__global__"));
  Traffic t;
  t.how = all.substr(head, all.find('\n', head) - head);
  t.blocks = int64_t{launch.grid.x} * launch.grid.y;
  t.threads = launch.kernel.threads;
  bool stages = false;
  for (size_t s = 0; s < low.kernel.operands.size(); ++s) {
    const loop_ir::Operand& o = low.kernel.operands[s];
    const loop_ir::BoundOperand& b = low.bound[s];
    const double size = static_cast<double>(itemsize(o.dtype));
    double elements = 1;
    bool moves = false, even = b.offset * itemsize(o.dtype) % 16 == 0 && low.lanes() * itemsize(o.dtype) % 16 == 0;
    for (int a = 0; a < low.kernel.axes; ++a) {
      if (o.strides[a] == StrideKind::kZero) continue;
      elements *= static_cast<double>(low.extents[a]);
      if (a + 1 < low.kernel.axes) {
        moves |= low.extents[a] > 1;
        even &= low.extents[a] <= 1 || b.strides[a] * itemsize(o.dtype) % 16 == 0;
      }
    }
    const std::string name = str_cat(o.output ? "y" : "x", s);
    const int single = count_one_by_one(body, name);
    int wide = count(body, name + " + l");
    if (codegen::is_transposed(low.kernel, s)) wide += count(body, str_cat(name, " + i", low.kernel.axes - 2, " +"));
    for (size_t at = body.find("stage<"); at != body.npos; at = body.find("stage<", at + 1)) {
      const std::string_view call = body.substr(at, body.find('\n', at) - at);
      stages = true;
      wide += count(call, name + ",") + count(call, name + " +");
    }
    const int times = single + wide;
    t.arguments += elements * size;
    t.moved += elements * size * (moves || low.outer_points() == 1 ? times : std::min(times, 1));
    const bool unit = o.strides.back() == StrideKind::kUnit && !codegen::is_transposed(low.kernel, s) && !o.indexed;
    if (unit && even && single > 0 && low.lanes() >= 64 && (moves || low.outer_points() == 1) &&
        elements * size >= kSmall / 8)
      t.one_by_one.push_back(name);
  }
  t.resident = std::max(1, std::min(kThreadsOfMultiprocessor / t.threads,
                                    kSharedOfMultiprocessor / std::max(1, launch.kernel.shared_bytes + 1024)));
  const double at_once = static_cast<double>(std::min<int64_t>(t.blocks, int64_t{t.resident} * device.multiprocessors));
  t.under_way = at_once * (stages ? launch.kernel.shared_bytes : t.threads * vectors(body));
  return t;
}

std::string fault_of(const Traffic& t, const DeviceLimits& device) {
  if (t.arguments < kSmall) return "";
  std::string s;
  if (t.moved > 1.1 * t.arguments) s += str_cat("; moves ", t.moved, " bytes, arguments have ", t.arguments);
  for (const std::string& name : t.one_by_one) s += str_cat("; ", name, " one by one");
  if (t.under_way < std::min(t.arguments / 4, kUnderWay * device.multiprocessors))
    s += str_cat("; ", t.under_way, " bytes under way at once of ", t.arguments);
  return s.empty() ? "" : str_cat(t.how, s);
}

}  // namespace weft::cuda
