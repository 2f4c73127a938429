// Threads of the kernels with a block a row, which their launcher needs, too.
#pragma once

namespace apr {

// Of a block at most, where a thread has `vector` neighbours at a time.
constexpr int most_row_threads(int vector) {
  return vector == 4 ? 1024 : 512;
}

}  // namespace apr
