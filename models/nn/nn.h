// All layers.
#pragma once
#include "models/nn/attention.h"
#include "models/nn/dropout.h"
#include "models/nn/embedding.h"
#include "models/nn/linear.h"
#include "models/nn/mlp.h"
#include "models/nn/module.h"
#include "models/nn/moe.h"
#include "models/nn/norm.h"
#include "models/nn/transformer_block.h"
