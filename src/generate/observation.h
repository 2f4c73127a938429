// Ends the observation of a backend whatever happens.
#pragma once

#include "apr/backend.h"

namespace apr {

class Observation {
 public:
  // Both must outlive it.
  Observation(Backend& backend, StepObserver& observer) : backend_(backend) {
    backend_.observe(&observer);
  }
  ~Observation() { backend_.observe(nullptr); }
  Observation(const Observation&) = delete;
  Observation& operator=(const Observation&) = delete;

 private:
  Backend& backend_;
};

}  // namespace apr
