// All public functions of ops/core.
#pragma once
#include "ops/core/creation.h"
#include "ops/core/functions/custom_op.h"
#include "ops/core/functions/loop.h"
#include "ops/core/functions/vmap.h"
#include "ops/core/indexing/index.h"
#include "ops/core/indexing/view.h"
#include "ops/core/misc.h"
#include "ops/core/pointwise.h"
#include "ops/core/products/conv.h"
#include "ops/core/products/dot.h"
#include "ops/core/products/window.h"
#include "ops/core/reductions/reduce.h"
