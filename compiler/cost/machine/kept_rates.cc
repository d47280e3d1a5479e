#include "compiler/cost/machine/kept_rates.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "compiler/cost/machine/machine_fields.h"
#include "compiler/cost/machine/machine_file.h"
#include "compiler/cost/machine/memory_rates.h"
#include "compiler/cost/machine/rates.h"
#include "compiler/jit/cache.h"
#include "compiler/jit/jit.h"
#include "framework/base/clock.h"
#include "framework/base/cpu.h"
#include "framework/base/error.h"
#include "framework/base/one_line.h"
#include "framework/io/checksum.h"
#include "framework/io/fields/json_fields.h"
#include "framework/io/file.h"

namespace weft::internal {
namespace {

constexpr int kVersion = 1;  // increase it with any change of measured_cpu()
constexpr const char* kDisturbed = ", while other processes ran";
constexpr int64_t kMostBytes = 64 << 10;

// The folder of the kernel cache; empty if it is off, unsafe or cannot be made.
std::string folder() try {
  const std::string path = jit::default_cache();
  return path == "off" ? "" : jit::Cache(io::resolve_path(path), /*asked=*/false).folder();
} catch (const Error&) {
  return "";
}

// Kernels of such builds are slower.
std::string build() {
  std::string text;
#ifndef NDEBUG
  text += " debug";
#endif
#ifdef __SANITIZE_ADDRESS__
  text += " asan";
#endif
#ifdef __SANITIZE_THREAD__
  text += " tsan";
#endif
  return text;
}

// Whether a machine can have these rates. The limits are far from any processor's.
bool is_plausible(const Machine& m, int threads) {
  for (const double rate : {m.bytes, m.flops, m.products, m.products16})
    if (!(rate >= 1e7 && rate <= 1e13 * threads)) return false;
  const std::vector<int64_t> sets = working_sets(threads);
  return m.launch > 0 && m.launch < 1 && m.bytes == m.memory_rates.back().copy &&
         std::ranges::equal(m.memory_rates, sets,
                            [](const MemoryRate& r, int64_t bytes) { return r.bytes == static_cast<double>(bytes); });
}

}  // namespace

bool keeps_rates() { return !folder().empty(); }

std::string rates_key(int threads) {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  std::getline(file, quota);
  char host[256] = {};  // a home folder may serve several hosts
  gethostname(host, sizeof host - 1);
  return one_line(str_cat("version ", kVersion, ", ", host, ", ", cpu_features().brand, ", ",
                          cpu_features().to_string(), ", ", to_string_view(selected_isa()), ", ", threads,
                          " threads, quota ", quota.empty() ? "unknown" : quota, build()),
                  1000);
}

std::string rates_path(int threads) {
  const std::string in = folder();
  return in.empty() ? "" : str_cat(in, "/rates-", io::hex64(io::checksum(rates_key(threads))), ".json");
}

std::optional<KeptRates> kept_rates(int threads) try {
  const std::string path = rates_path(threads);
  if (path.empty() || !io::exists(path)) return {};
  const std::string text = io::read_file(path, kMostBytes);
  const io::Json json = io::parse_json(text, path);
  if (!json.is_object() || !json.contains("memory_rates")) return {};
  const std::string about = io::json_get<std::string>(json, "about", path), key = rates_key(threads);
  if (about != key && about != key + kDisturbed) return {};
  const Machine file = machine_from_json(text, path);
  Machine m{.bytes = file.bytes,
            .flops = file.flops,
            .products = file.products,
            .products16 = file.products16,
            .launch = file.launch};
  m.memory_rates = file.memory_rates;
  if (m.memory_rates.empty() || !is_plausible(m, threads)) return {};
  return KeptRates{m, about != key};
} catch (const Error&) {
  return {};
}

void keep_rates(const KeptRates& measured, int threads) try {
  const std::string path = rates_path(threads);
  if (path.empty() || !is_plausible(measured.rates, threads)) return;
  io::OrderedJson json = io::json_of(measured.rates);
  json["about"] = rates_key(threads) + (measured.disturbed ? kDisturbed : "");
  io::write_file_atomic(path, io::write_json(json, 2) + "\n");
} catch (const Error&) {  // such as a full disk
}

Machine kept_or_measured(int threads, const std::function<KeptRates()>& measure) {
  const std::optional<KeptRates> kept = kept_rates(threads);
  if (kept && !kept->disturbed) return kept->rates;
  KeptRates now = measure();
  if (kept) now.rates = faster_of(now.rates, kept->rates);
  keep_rates(now, threads);
  return now.rates;
}

// A thread that yields or is preempted while another one waits is switched involuntarily.
static int64_t involuntary_switches() {
  rusage r{};
  return getrusage(RUSAGE_SELF, &r) == 0 ? r.ru_nivcsw : 0;
}

Disturbance::Disturbance() : begin_us_(now_us()), switches_(involuntary_switches()) {}

bool Disturbance::seen(int threads) const {
  // Two processes that share one processor switch at least 80 times in a second; the kernel's own work, about once.
  const double seconds = 1e-6 * (now_us() - begin_us_);
  return static_cast<double>(involuntary_switches() - switches_) > seconds * (50 + threads);
}

}  // namespace weft::internal
