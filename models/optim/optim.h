// All optimisers, gradient clipping, loss scaling and schedules.
#pragma once
#include "models/optim/adamw.h"
#include "models/optim/clip.h"
#include "models/optim/grad_scaler.h"
#include "models/optim/schedule.h"
#include "models/optim/sgd.h"
