#pragma once

/// Everything of sgd. Includes LibTorch.
#include "sgd/amp.hpp"
#include "sgd/components.hpp"
#include "sgd/data_loader.hpp"
#include "sgd/datasets.hpp"
#include "sgd/ddp_options.hpp"
#include "sgd/device.hpp"
#include "sgd/lr_scheduler.hpp"
#include "sgd/state.hpp"
#include "sgd/torch_trainer.hpp"
#include "sgd/training_operator.hpp"
