// All optimisers, gradient clipping, loss scaling, means of parameters and schedules.
#pragma once
#include "models/optim/clip.h"
#include "models/optim/ema.h"
#include "models/optim/grad_scaler.h"
#include "models/optim/optimizers/adafactor.h"
#include "models/optim/optimizers/adamw.h"
#include "models/optim/optimizers/lbfgs.h"
#include "models/optim/optimizers/rmsprop.h"
#include "models/optim/optimizers/sgd.h"
#include "models/optim/schedule.h"
#include "models/optim/scheduler.h"
