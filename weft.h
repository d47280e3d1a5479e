// Weft's one header: tensors, ops, differentiation, capture and compile, modules and optimisers.
#pragma once

#include "compiler/exec/compile.h"
#include "compiler/exec/record/profile.h"
#include "framework/autodiff/grad.h"
#include "framework/base/error.h"
#include "framework/base/switches.h"
#include "framework/base/thread_pool.h"
#include "framework/dispatch/absent.h"
#include "framework/dispatch/arg.h"
#include "framework/dispatch/capture.h"
#include "framework/dispatch/commit_always.h"
#include "framework/dispatch/device/host_read.h"
#include "framework/dispatch/parameter.h"
#include "framework/dispatch/state/generator.h"
#include "framework/dispatch/tf32.h"
#include "framework/tensor/dlpack.h"
#include "framework/tensor/tensor.h"
#include "models/data/data_loader.h"
#include "models/data/readers/csv.h"
#include "models/data/readers/idx.h"
#include "models/data/readers/npy.h"
#include "models/data/split.h"
#include "models/data/stream_loader.h"
#include "models/data/transforms.h"
#include "models/nn/nn.h"
#include "models/optim/optim.h"
#include "models/save/save.h"
#include "ops/attention/flex_attention.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"
#include "ops/core/round_to.h"
#include "ops/linalg/linalg.h"
#include "ops/linalg/multivariate_normal.h"

namespace weft::cuda {
/// Whether this machine has a GPU and a driver for Weft, and the number of its GPUs. //tools:doctor prints the reason
/// if it has none.
bool is_available();
int device_count();
}  // namespace weft::cuda
