// All public functions of ops/core.
#pragma once
#include "ops/core/conv.h"
#include "ops/core/creation.h"
#include "ops/core/custom_op.h"
#include "ops/core/dot.h"
#include "ops/core/index.h"
#include "ops/core/loop.h"
#include "ops/core/misc.h"
#include "ops/core/pointwise.h"
#include "ops/core/reduce.h"
#include "ops/core/view.h"
#include "ops/core/vmap.h"
#include "ops/core/window.h"
