// Receipts: that the GPU gave the CPU's answers for a model, with this program, on this card, by
// these kernels. What is on record is not validated again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace apr::cli {

// What a receipt holds for; all of it must be equal.
struct ReceiptKey {
  std::string model_sha256;  // of the whole file or files
  std::string apr_version;
  std::string build_id;  // "exe-sha256:<hex>"
  std::string device;    // "NVIDIA H200 (sm_90a)"
  std::string kernels;   // all that decides which kernels run: modes, path, toolchain
};

struct Receipt {
  int64_t validated_at = 0;  // seconds of Unix time
  int64_t positions_judged = 0;
  int64_t batch_rows = 0;   // of the largest batch that was judged
  double cosine = 0.0;      // of the load gate
  double min_cosine = 0.0;  // of the guard
};

struct ReceiptLookup {
  std::optional<Receipt> receipt;
  std::string reason;  // why there is none, for people
};

// APR_F2_RECEIPT_DIR, else f2-receipts/ in the cache folder; empty where there is none.
std::filesystem::path receipt_dir();

// The receipt for `key` in `dir`/<model_sha256>.json that covers batches of `batch_rows`. Never
// throws for what lies there.
ReceiptLookup find_receipt(const std::filesystem::path& dir, const ReceiptKey& key,
                           int64_t batch_rows);

// Writes it as a whole; receipts of the same model, program and card for other kernels stay.
// Answers why not; empty where it is done.
std::string write_receipt(const std::filesystem::path& dir, const ReceiptKey& key,
                          const Receipt& receipt);

}  // namespace apr::cli
