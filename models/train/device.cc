#include "models/train/device.h"

#include <optional>

#include "framework/base/error.h"
#include "framework/cli/cli.h"
#include "framework/cuda/libraries/driver_api.h"

namespace weft::train {

Device parse_device(const std::string& name) {
  if (name == "cpu") return kCPU;
  const std::optional<Device> d = Device::parse(name);
  if (!d || d->type != kCUDA) usage_error(str_cat("--device: got '", name, "'; need cpu, cuda or cuda:N"));
  const cuda::Availability& cuda = cuda::availability();
  if (!cuda.ok) usage_error(str_cat("--device ", name, ": ", cuda.why));
  if (d->index >= cuda.devices)
    usage_error(str_cat("--device ", name, ": this machine has ", cuda.devices,
                        cuda.devices == 1 ? " GPU; need cuda" : " GPUs; need an index below that"));
  return *d;
}

}  // namespace weft::train
