// Over kernels/dynamic_shared.cuh.
#pragma once

#include "platform.cuh"

#define APR_DYNAMIC_SHARED(type, name) \
  type* name = reinterpret_cast<type*>(::apr::simt::machine().dynamic_shared)
