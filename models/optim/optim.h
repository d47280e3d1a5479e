// All optimisers, gradient clipping, loss scaling, means of parameters and schedules.
#pragma once
#include "models/optim/adafactor.h"
#include "models/optim/adamw.h"
#include "models/optim/clip.h"
#include "models/optim/ema.h"
#include "models/optim/grad_scaler.h"
#include "models/optim/lbfgs.h"
#include "models/optim/rmsprop.h"
#include "models/optim/schedule.h"
#include "models/optim/scheduler.h"
#include "models/optim/sgd.h"
