#include "models/train/device.h"

#include <charconv>

#include "framework/base/error.h"
#include "framework/cli/cli.h"
#include "framework/cuda/libraries/driver_api.h"

namespace weft::train {

Device parse_device(const std::string& name) {
  if (name == "cpu") return Device::cpu();
  int index = 0;
  bool known = name == "cuda";
  if (name.rfind("cuda:", 0) == 0) {
    const char *begin = name.data() + 5, *end = name.data() + name.size();
    auto r = std::from_chars(begin, end, index);
    known = r.ec == std::errc() && r.ptr == end && index >= 0;
  }
  if (!known) usage_error(str_cat("--device: got '", name, "'; need cpu, cuda or cuda:N"));
  const cuda::Availability& cuda = cuda::availability();
  if (!cuda.ok) usage_error(str_cat("--device ", name, ": ", cuda.why));
  if (index >= cuda.devices)
    usage_error(str_cat("--device ", name, ": this machine has ", cuda.devices,
                        cuda.devices == 1 ? " GPU; need cuda" : " GPUs; need an index below that"));
  return Device::cuda(index);
}

}  // namespace weft::train
