// All composites.
#pragma once
#include "ops/composite/activation.h"
#include "ops/composite/attention.h"
#include "ops/composite/attention_with_kv_cache.h"
#include "ops/composite/dropout.h"
#include "ops/composite/loss.h"
#include "ops/composite/moe.h"
#include "ops/composite/norm.h"
#include "ops/composite/rope.h"
#include "ops/composite/softmax.h"
