#include "framework/cuda/libraries/driver_api.h"

#include <atomic>
#include <cstdlib>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/mutex.h"
#include "framework/cuda/libraries/dynamic_library.h"

namespace weft::cuda {
namespace {

struct LoadedDriver {
  DriverApi table;
  Availability availability;
};

std::string quoted_error(const DriverApi& table, CUresult r) {
  const char *name = nullptr, *text = nullptr;
  if (table.cuGetErrorName) table.cuGetErrorName(r, &name);
  if (table.cuGetErrorString) table.cuGetErrorString(r, &text);
  return str_cat(name ? name : "error ", name ? "" : std::to_string(static_cast<unsigned>(r)),
                 text ? str_cat(" (", text, ")") : "");
}

std::string no_gpu() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return str_cat("the NVIDIA driver finds no GPU",
                 visible ? str_cat(" (CUDA_VISIBLE_DEVICES is '", visible, "')") : "");
}

LoadedDriver load() {
  LoadedDriver d;
  DynamicLibrary library = {"libcuda.so.1"};
  const WantedSymbol wanted[] = {
#define WEFT_CUDA_WANTED(name, parameters) {#name, reinterpret_cast<void**>(&d.table.name)},
      WEFT_CUDA_DRIVER_FUNCTIONS(WEFT_CUDA_WANTED)
#undef WEFT_CUDA_WANTED
  };
  std::string missing = library.fill(wanted);
  if (!library.open()) {
    d.availability.why = str_cat("no NVIDIA driver: ", missing);
    return d;
  }
  d.availability = internal::probe(d.table, library.path(), missing);
  return d;
}

// The real driver, loaded once; replaced during the lifetime of a ScopedDriver.
std::atomic<const LoadedDriver*> replacement{nullptr};
const LoadedDriver& current() {
  if (const LoadedDriver* r = replacement.load(std::memory_order_acquire)) return *r;
  static const LoadedDriver* real = new LoadedDriver(load());
  return *real;
}

struct Forgetters {
  Mutex mutex;
  std::vector<void (*)()> all WEFT_GUARDED_BY(mutex);
};
Forgetters& forgetters() {
  static auto* f = new Forgetters;
  return *f;
}

void forget_everything() {
  std::vector<void (*)()> all;
  {
    MutexLock lock(forgetters().mutex);
    all = forgetters().all;
  }
  for (auto f = all.rbegin(); f != all.rend(); ++f) (*f)();
}

}  // namespace

namespace internal {

Availability probe(const DriverApi& table, const std::string& library, const std::string& missing) {
  Availability a;
  a.library = library;
  const std::string need = str_cat("; need a driver for CUDA ", version_text(kLeastDriverVersion), " or later");
  if (table.cuDriverGetVersion && table.cuDriverGetVersion(&a.version) == CUDA_SUCCESS && a.version > 0 &&
      a.version < kLeastDriverVersion) {
    a.why = str_cat("the NVIDIA driver is too old: it is for CUDA ", version_text(a.version), need);
    return a;
  }
  if (!missing.empty()) {
    a.why = str_cat("the NVIDIA driver is too old: ", missing, need);
    return a;
  }
  if (CUresult r = table.cuInit(0); r != CUDA_SUCCESS) {
    if (r == CUDA_ERROR_NO_DEVICE) {
      a.why = no_gpu();
    } else if (r == CUDA_ERROR_STUB_LIBRARY) {
      a.why = str_cat("no NVIDIA driver: ", library, " is the toolkit's stub");
    } else {
      a.why = str_cat("the NVIDIA driver does not start: cuInit gives ", quoted_error(table, r));
    }
    return a;
  }
  if (CUresult r = table.cuDeviceGetCount(&a.devices); r != CUDA_SUCCESS) {
    a.why = str_cat("the NVIDIA driver does not list its GPUs: ", quoted_error(table, r));
  } else if (a.devices == 0) {
    a.why = no_gpu();
  } else {
    a.ok = true;
  }
  return a;
}

void at_driver_change(void (*forget)()) {
  MutexLock lock(forgetters().mutex);
  forgetters().all.push_back(forget);
}

}  // namespace internal

const Availability& availability() { return current().availability; }

const DriverApi& driver() {
  const LoadedDriver& d = current();
  WEFT_CHECK_AS(kUnavailable, d.availability.ok, "cuda: ", d.availability.why);
  return d.table;
}

std::string version_text(int version) { return str_cat(version / 1000, ".", version % 1000 / 10); }

ScopedDriver::ScopedDriver(const DriverApi& table) {
  forget_everything();
  std::string missing;
#define WEFT_CUDA_MISSING(name, parameters) \
  if (!table.name && missing.empty()) missing = "the table lacks " #name;
  WEFT_CUDA_DRIVER_FUNCTIONS(WEFT_CUDA_MISSING)
#undef WEFT_CUDA_MISSING
  auto* d = new LoadedDriver{table, internal::probe(table, "a table of the test", missing)};
  previous_ = const_cast<LoadedDriver*>(replacement.exchange(d, std::memory_order_acq_rel));
}

ScopedDriver::~ScopedDriver() {
  forget_everything();
  delete replacement.exchange(static_cast<const LoadedDriver*>(previous_), std::memory_order_acq_rel);
}

}  // namespace weft::cuda
