// What the CPU's memory reaches: the bound that `apr bench` compares with.
#pragma once

namespace apr::cpu {

// Bytes a second that n_threads threads read together, out of memory and not a cache: best of three
// passes over 64 MiB a thread. n_threads: at least 1.
double measure_read_bytes_per_s(int n_threads);

}  // namespace apr::cpu
