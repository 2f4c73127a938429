#include "cli/devices.h"

#include <fmt/format.h>

#include "base/format.h"
#include "cli/output.h"

namespace apr::cli {

nlohmann::ordered_json devices_json(const std::vector<cuda::DeviceFacts>& devices) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const cuda::DeviceFacts& device : devices) {
    json.push_back({{"ordinal", device.ordinal},
                    {"name", device.name},
                    {"architecture", device.architecture},
                    {"multiprocessors", device.n_sm},
                    {"total_bytes", device.total_bytes}});
  }
  return json;
}

void print_devices(OutputFormat format) {
  const std::vector<cuda::DeviceFacts> devices = cuda::list_devices();
  if (format != OutputFormat::kText) {
    write_json({{"devices", devices_json(devices)}}, format == OutputFormat::kJson);
    return;
  }
  std::string text;
  for (const cuda::DeviceFacts& device : devices) {
    text += fmt::format("{:>3}  {}, {}, {} multiprocessors, {}\n", device.ordinal, device.name,
                        device.architecture, device.n_sm, format_bytes(device.total_bytes));
  }
  write_stdout(text);
}

}  // namespace apr::cli
