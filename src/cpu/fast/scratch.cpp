#include "cpu/fast/scratch.h"

#include <memory>
#include <new>

namespace apr::cpu::fast {
namespace {

constexpr std::align_val_t kAlignment{64};

struct Release {
  void operator()(std::byte* bytes) const { ::operator delete(bytes, kAlignment); }
};

struct Buffer {
  std::unique_ptr<std::byte, Release> bytes;
  int64_t n_bytes = 0;
};

}  // namespace

void* scratch(ScratchUse use, int64_t n_bytes) {
  thread_local Buffer buffers[2];
  Buffer& buffer = buffers[static_cast<int>(use)];
  if (buffer.n_bytes < n_bytes) {
    buffer.bytes.reset();
    buffer.n_bytes = 0;
    buffer.bytes.reset(
        static_cast<std::byte*>(::operator new(static_cast<size_t>(n_bytes), kAlignment)));
    buffer.n_bytes = n_bytes;
  }
  return buffer.bytes.get();
}

}  // namespace apr::cpu::fast
