#include "cli/receipt.h"

#include <fmt/format.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/cache_file.h"
#include "cli/cached_json.h"
#include "generate/gate.h"

namespace apr::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int64_t kSchema = 2;

fs::path receipt_path(const fs::path& dir, const ReceiptKey& key) {
  return dir / (key.model_sha256 + ".json");
}

// The file's object, or why there is none.
Json read_receipts(const fs::path& path, std::string& reason) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    reason = "no receipt for this model";
    return {};
  }
  Json json = read_cached_json(path);
  if (!json.is_object()) {
    reason = fmt::format("the receipt {} cannot be read", path.string());
    return {};
  }
  return json;
}

// Which of what all kernels share is not `key`'s; empty: none.
std::string mismatch(const Json& json, const ReceiptKey& key) {
  const auto is = [&](const char* name, const Json& expected) {
    return json.contains(name) && json[name] == expected;
  };
  if (!is("schema", kSchema)) {
    return "the receipt has another schema";
  }
  if (!is("model_sha256", key.model_sha256)) {
    return "the receipt is of another model";
  }
  if (!is("apr_version", key.apr_version)) {
    return "the receipt is of another version of apr";
  }
  if (!is("build_id", key.build_id)) {
    return "the receipt is of another build of apr";
  }
  return is("device", key.device) ? "" : "the receipt is of another device";
}

// What receipt_of reads.
Json entry_of(const Receipt& receipt) {
  return {{"validated_at", receipt.validated_at},
          {"positions_judged", receipt.positions_judged},
          {"batch_rows", receipt.batch_rows},
          {"cosine", receipt.cosine},
          {"min_cosine", receipt.min_cosine}};
}

std::optional<Receipt> receipt_of(const Json& json, const std::string& kernels) {
  try {
    const Json& entry = json.at("kernels").at(kernels);
    for (const char* name : {"validated_at", "positions_judged", "batch_rows"}) {
      if (!entry.at(name).is_number_integer()) {
        return std::nullopt;
      }
    }
    return Receipt{entry.at("validated_at").get<int64_t>(),
                   entry.at("positions_judged").get<int64_t>(),
                   entry.at("batch_rows").get<int64_t>(), entry.at("cosine").get<double>(),
                   entry.at("min_cosine").get<double>()};
  } catch (const Json::exception&) {  // absent, or not what was written
    return std::nullopt;
  }
}

}  // namespace

fs::path receipt_dir() {
  if (const char* dir = std::getenv("APR_F2_RECEIPT_DIR"); dir != nullptr && *dir != '\0') {
    return dir;
  }
  const fs::path cache = cache_dir();
  return cache.empty() ? cache : cache / "f2-receipts";
}

ReceiptLookup find_receipt(const fs::path& dir, const ReceiptKey& key, int64_t batch_rows) {
  if (dir.empty()) {
    return {{}, "there is no folder for receipts: APR_F2_RECEIPT_DIR names one"};
  }
  ReceiptLookup lookup;
  const Json json = read_receipts(receipt_path(dir, key), lookup.reason);
  if (lookup.reason.empty()) {
    lookup.reason = mismatch(json, key);
  }
  if (lookup.reason.empty()) {
    lookup.receipt = receipt_of(json, key.kernels);
    lookup.reason = lookup.receipt ? "" : "the receipt is of other kernels";
  }
  if (lookup.receipt && !covers_rows(lookup.receipt->batch_rows, batch_rows)) {
    lookup.receipt.reset();
    lookup.reason = "the receipt is of shorter prompts, which other kernels take";
  }
  return lookup;
}

std::string write_receipt(const fs::path& dir, const ReceiptKey& key, const Receipt& receipt) {
  if (dir.empty()) {
    return "there is no folder for receipts: APR_F2_RECEIPT_DIR names one";
  }
  const fs::path path = receipt_path(dir, key);
  std::string reason;
  const Json before = read_receipts(path, reason);
  Json kernels = Json::object();
  if (reason.empty() && mismatch(before, key).empty() && before.contains("kernels") &&
      before["kernels"].is_object()) {
    for (const auto& [name, entry] : before["kernels"].items()) {
      if (const auto other = receipt_of(before, name)) {  // what is none may nest without end
        kernels[name] = entry_of(*other);
      }
    }
  }
  kernels[key.kernels] = entry_of(receipt);
  const Json json = {{"schema", kSchema},
                     {"model_sha256", key.model_sha256},
                     {"apr_version", key.apr_version},
                     {"build_id", key.build_id},
                     {"device", key.device},
                     {"validated_at", receipt.validated_at},
                     {"positions_judged", receipt.positions_judged},
                     {"kernels", kernels}};
  return write_whole_file(path, json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace apr::cli
