// Reused working memory of the kernels.
#pragma once

#include <cstdint>

namespace apr::cpu::fast {

// Whose memory: of a call that spans threads (its caller's), or of one task.
enum class ScratchUse { kCall, kTask };

// At least n_bytes (64-byte aligned) of this thread for one use; the content is undefined, valid
// until the thread's next request for the same use. Grows, never shrinks.
void* scratch(ScratchUse use, int64_t n_bytes);

}  // namespace apr::cpu::fast
