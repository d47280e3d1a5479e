// All optimisers, gradient clipping and schedules.
#pragma once
#include "models/optim/adamw.h"
#include "models/optim/clip.h"
#include "models/optim/schedule.h"
#include "models/optim/sgd.h"
