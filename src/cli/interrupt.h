// Ctrl-C: the first asks the work to stop, the second ends the process.
#pragma once

#include <atomic>

namespace apr::cli {

// From now on SIGINT sets the flag returned; a second one exits with 130 at once.
const std::atomic<bool>* catch_interrupts();

// Throws kInterrupted where the flag is set.
void check_interrupted();

}  // namespace apr::cli
