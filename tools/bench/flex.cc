// flex: the time of flex_attention by mod and mask, B1 H8 S2048 D64, forward and backward, beside flex_attention
// without mods; the time of its first call and its block mask; and the time of decoding, one query of 8 heads of D128
// for each entry, beside the time to read its keys and values. pytorch/flex.py does the same work. --serve: each line
// of standard input names a case to time now (versus_pytorch.py).
#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "framework/cli/cli.h"
#include "framework/io/json.h"
#include "tools/bench/benchmark.h"
#include "weft.h"

ABSL_FLAG(std::string, only, "", "run only the cases whose name contains this");
ABSL_FLAG(int32_t, repetitions, 7, "repetitions of each case; the median is reported");
ABSL_FLAG(bool, serve, false, "time the cases read from standard input");

namespace weft::bench {
namespace {

constexpr int64_t kHeads = 8, kLength = 2048, kDim = 64;

/// A case of attention. goal: as a multiple of the case without mods of the same dtype (backward: of its forward).
struct FlexCase {
  const char* name;
  double goal;
  std::function<FlexAttentionOptions()> options;
};

BlockMask blocks(const MaskMod& mask) { return create_block_mask(mask, 1, 1, kLength, kLength); }

std::vector<FlexCase> cases() {
  return {
      {"none", kNone, [] { return FlexAttentionOptions{}; }},
      {"alibi", 1.15, [] { return FlexAttentionOptions{.score_mod = attention::alibi(kHeads)}; }},
      {"softcap", 1.4, [] { return FlexAttentionOptions{.score_mod = attention::softcap(20)}; }},
      {"causal", 0.6, [] { return FlexAttentionOptions{.block_mask = blocks(attention::causal())}; }},
      {"window_256", 0.22, [] { return FlexAttentionOptions{.block_mask = blocks(attention::sliding_window(256))}; }},
      {"documents_300", 0.22,
       [] {
         return FlexAttentionOptions{
             .block_mask = blocks(attention::causal() & attention::document(floor_divide(arange(kLength), 300)))};
       }},
      {"prefix_512", 0.65, [] { return FlexAttentionOptions{.block_mask = blocks(attention::prefix_lm(512))}; }},
  };
}

/// "decode b8 s4096 gqa4 paged": one query for each of b entries of s keys, 8 heads to 8, 2 (gqa4) or 1 (mqa) of keys.
struct DecodeCase {
  static constexpr int64_t kDim = 128, kPage = 256;
  int64_t batch = 0, length = 0, kv_heads = 0;
  bool paged = false;

  static std::vector<std::string> names() {
    std::vector<std::string> all;
    for (const char* b : {"b1", "b8"})
      for (const char* s : {"s4096", "s16384"})
        for (const char* g : {"gqa1", "gqa4", "mqa"})
          for (const char* layout : {"", " paged"}) all.push_back(str_cat("decode ", b, " ", s, " ", g, layout));
    return all;
  }
  explicit DecodeCase(const std::string& name) {
    auto has = [&](const char* word) { return (name + " ").find(str_cat(" ", word, " ")) != name.npos; };
    batch = has("b8") ? 8 : 1, length = has("s16384") ? 16384 : 4096;
    kv_heads = has("mqa") ? 1 : has("gqa4") ? 2 : 8;
    paged = has("paged");
  }
};

/// A case by its full name, e.g. "f32 causal" or "bf16 causal backward" (forward and backward).
class TimedFlex {
 public:
  explicit TimedFlex(const std::string& name) {
    const size_t space = name.find(' ');
    const DType t = name.substr(0, space) == "bf16" ? kBFloat16 : kFloat32;
    std::string rest = space == name.npos ? "" : name.substr(space + 1);
    if (const size_t end = rest.find(" backward"); end != rest.npos) {
      backward_ = true;
      rest.resize(end);
    }
    const std::vector<std::string> decodes = DecodeCase::names();
    if (std::find(decodes.begin(), decodes.end(), rest) != decodes.end() &&
        (name.starts_with("f32 ") || name.starts_with("bf16 "))) {
      make_decode(DecodeCase(rest), t);
      call();
      return;
    }
    bool known = false;
    const bool type_known = name.starts_with("f32 ") || name.starts_with("bf16 ");
    for (const FlexCase& c : cases())
      if (type_known && c.name == rest) {
        options_ = c.options();
        known = true;
      }
    if (!known)
      usage_error(
          "unknown case '" + name +
          "'; need f32 or bf16 and none, alibi, softcap, causal, window_256, documents_300 or "
          "prefix_512, and backward or not, as in 'bf16 causal backward', or 'bf16 decode b8 s4096 gqa4 paged'");
    manual_seed(0);
    for (Tensor* x : {&q_, &k_, &v_, &g_}) *x = randn({1, kHeads, kLength, kDim}).to(t);
    call();
  }
  double seconds() {
    return median_seconds([&] { call(); }, 1, 0.02);
  }
  struct Beside {
    double ms, bound;
  };
  /// Milliseconds of a call, and for decoding also of reading the bytes of keys and values, timed in turn.
  Beside beside_bound() {
    std::vector<double> times, reads;
    Tensor bytes;
    if (decode_) bytes = randn({(k_.numel() + v_.numel()) * itemsize(k_.dtype()) / 4});
    for (int r = 0; r < absl::GetFlag(FLAGS_repetitions); ++r) {
      times.push_back(seconds() * 1e3);
      if (decode_) reads.push_back(median_seconds([&] { sum(bytes); }, 1, 0.02) * 1e3);
    }
    return {median(times), decode_ ? median(reads) : kNone};
  }

 private:
  void make_decode(const DecodeCase& d, DType t) {
    decode_ = true;
    manual_seed(0);
    const int64_t entries = d.paged ? d.batch * d.length / DecodeCase::kPage : d.batch;
    const Shape shape{entries, d.kv_heads, d.paged ? DecodeCase::kPage : d.length, DecodeCase::kDim};
    q_ = randn({d.batch, kHeads, 1, DecodeCase::kDim}).to(t);
    k_ = randn(shape).to(t);
    v_ = randn(shape).to(t);
    cache_.cache_seqlens = full({d.batch}, d.length, {.dtype = kInt64});
    if (d.paged) cache_.block_table = reshape(argsort(rand({entries})), {d.batch, d.length / DecodeCase::kPage});
  }

  void call() {
    if (decode_) {
      NoGrad guard;
      result_ = attention_with_kv_cache(q_, k_, v_, cache_).out;
      return;
    }
    if (!backward_) {
      NoGrad guard;
      result_ = flex_attention(q_, k_, v_, options_);
      return;
    }
    const Tensor q = q_.requires_grad(), k = k_.requires_grad(), v = v_.requires_grad();
    const Tensor y = flex_attention(q, k, v, options_);
    result_ = grad(y, {q, k, v}, {.grad_output = g_})[0];
  }

  FlexAttentionOptions options_;
  KvCacheAttentionOptions cache_;
  bool backward_ = false, decode_ = false;
  Tensor q_, k_, v_, g_, result_;
};

void run(Report& report) {
  if (absl::GetFlag(FLAGS_serve)) {
    for (std::string name; std::getline(std::cin, name);) {
      TimedFlex timed(name);
      const auto [ms, bound] = timed.beside_bound();
      io::OrderedJson answer{{"name", name}, {"ms", ms}};
      if (!std::isnan(bound)) answer["bound_ms"] = bound;
      std::cout << io::write_json(answer) << std::endl;
    }
    return;
  }
  const std::string only = absl::GetFlag(FLAGS_only);
  report.fact("shape", str_cat("B1 H", kHeads, " S", kLength, " D", kDim));
  for (const char* t : {"f32", "bf16"}) {
    const std::string plain = str_cat(t, " none");
    if (only.find("decode") != std::string::npos) break;
    TimedFlex base(plain);
    const double base_ms = base.beside_bound().ms;
    for (const FlexCase& c : cases())
      for (const char* way : {"", " backward"}) {
        const std::string name = str_cat(t, " ", c.name, way);
        if (name.find(only) == std::string::npos) continue;
        const auto begin = Clock::now();
        TimedFlex timed(name);
        const double first = seconds_since(begin) * 1e3, ms = timed.beside_bound().ms;
        report.add({name, ms, "ms", kNone, *way ? kNone : c.goal * base_ms});
        report.add({str_cat(name, ", mask and first call"), first, "ms", kNone, 200 + ms});
      }
  }
  for (const char* t : {"f32", "bf16"})
    for (const std::string& d : DecodeCase::names()) {
      const std::string name = str_cat(t, " ", d);
      if (name.find(only) == std::string::npos) continue;
      TimedFlex timed(name);
      const auto [ms, bound] = timed.beside_bound();
      report.add({name, ms, "ms", bound, bound / 0.8});
    }
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::bench::run_benchmark(
      argc, argv, "flex", "Times flex_attention by score_mod and mask, forward and backward.", weft::bench::run);
}
