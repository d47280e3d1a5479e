// Weft's one header: tensors, ops, differentiation, capture and compile, modules and optimisers.
#pragma once

#include "compiler/exec/compile.h"
#include "framework/autodiff/grad.h"
#include "framework/base/error.h"
#include "framework/base/switches.h"
#include "framework/dispatch/arg.h"
#include "framework/dispatch/capture.h"
#include "framework/dispatch/commit_always.h"
#include "framework/dispatch/generator.h"
#include "framework/dispatch/parameter.h"
#include "framework/tensor/dlpack.h"
#include "framework/tensor/tensor.h"
#include "models/nn/nn.h"
#include "models/optim/optim.h"
#include "ops/attention/flex_attention.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"
