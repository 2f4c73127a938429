// Over kernels/platform.cuh: device code for simt.h.
#pragma once

#include "support/simt/simt.h"

#define APR_DEVICE_CODE 1
#define APR_DEVICE inline
#define APR_TABLE inline
