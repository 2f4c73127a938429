#include "tokenizer/jinja/arena.h"

#include <fmt/format.h>

#include <algorithm>

namespace apr::jinja {

namespace {
constexpr size_t kAlignBytes = 16;
constexpr size_t kLargestBlockBytes = size_t{1} << 20;
}  // namespace

void Arena::charge(size_t size_bytes) {
  if (used_bytes_ > max_bytes_ || size_bytes > static_cast<uint64_t>(max_bytes_ - used_bytes_)) {
    throw Fault(
        fmt::format("the template needs more memory than its bound of {} bytes", max_bytes_));
  }
  used_bytes_ += static_cast<int64_t>(size_bytes);
}

void* Arena::allocate(size_t size_bytes) {
  if (size_bytes >= kMaxArrayBytes) charge(kMaxArrayBytes);
  size_bytes = (size_bytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes;
  if (size_bytes > left_bytes_) {
    // A large request gets a block of its own size, so the rest of the current one stays in use.
    const bool own_block = size_bytes > block_bytes_ / 4;
    const size_t new_bytes = own_block ? size_bytes : block_bytes_;
    charge(new_bytes);
    blocks_.push_back(std::make_unique_for_overwrite<std::byte[]>(new_bytes));
    if (own_block) return blocks_.back().get();
    next_ = blocks_.back().get();
    left_bytes_ = new_bytes;
    block_bytes_ = std::min(block_bytes_ * 2, kLargestBlockBytes);
  }
  void* result = next_;
  next_ += size_bytes;
  left_bytes_ -= size_bytes;
  return result;
}

}  // namespace apr::jinja
