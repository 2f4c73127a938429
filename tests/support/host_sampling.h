// A backend that leaves sampling to the host, whatever the one behind it can.
#pragma once

#include "support/wrapped_backend.h"

namespace apr::test {

class HostSampling final : public WrappedBackend {
 public:
  using WrappedBackend::WrappedBackend;
};

}  // namespace apr::test
