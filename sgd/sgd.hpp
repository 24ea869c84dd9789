#pragma once

/// Everything of sgd. Includes LibTorch.
#include "sgd/datasets.hpp"
#include "sgd/device.hpp"
#include "sgd/state.hpp"
