// Shared memory whose size a launch sets.
#pragma once

#include "platform.cuh"

// Declares `name`, an array of `type`, aligned to 128 bytes: all that the launch asked for.
#define APR_DYNAMIC_SHARED(type, name) extern __shared__ __align__(128) type name[]
