// Writes the seed inputs of gguf_fuzz: usage make_gguf_corpus FOLDER.
#include <cstdio>
#include <exception>
#include <filesystem>

#include "apr/quant.h"
#include "support/gguf_images.h"
#include "support/gguf_writer.h"

namespace apr::test {
namespace {

GgufWriter every_value_type() {
  GgufWriter writer;
  writer.set<uint8_t>("u8", 255);
  writer.set<int8_t>("i8", -1);
  writer.set<uint16_t>("u16", 65535);
  writer.set<int16_t>("i16", -2);
  writer.set<uint32_t>("u32", 1u << 31);
  writer.set<int32_t>("i32", -3);
  writer.set<float>("f32", 1.5f);
  writer.set<bool>("bool", true);
  writer.set_string("string", "text");
  writer.set<uint64_t>("u64", ~0ull);
  writer.set<int64_t>("i64", -4);
  writer.set<double>("f64", -1e300);
  writer.set_array<uint8_t>("u8s", {1, 2, 3});
  writer.set_array<int8_t>("i8s", {-1});
  writer.set_array<uint16_t>("u16s", {1, 2});
  writer.set_array<int16_t>("i16s", {-1, 2});
  writer.set_array<uint32_t>("u32s", {1});
  writer.set_array<int32_t>("i32s", {-1, 1});
  writer.set_array<float>("f32s", {0.5f});
  writer.set_array<bool>("bools", {true, false});
  writer.set_array<uint64_t>("u64s", {~0ull});
  writer.set_array<int64_t>("i64s", {-1});
  writer.set_array<double>("f64s", {0.25});
  writer.set_string_array("strings", {"", "a", "bc"});
  writer.set_string_array("none", {});
  return writer;
}

GgufWriter every_tensor_type() {
  GgufWriter writer;
  writer.set_string("general.architecture", "none");
  for (const QuantType& type : quant_types()) {
    const auto n_bytes = static_cast<size_t>(type.row_bytes(256));
    writer.add_tensor({std::string(type.name), {1, 256}, type.id, std::vector<std::byte>(n_bytes)});
  }
  return writer;
}

GgufWriter small_model() {
  GgufWriter writer;
  writer.set_alignment(64);
  writer.set_string_array("tokenizer.ggml.tokens", {"a", "b", "\xC3\xA9"});
  writer.set_array<int32_t>("tokenizer.ggml.token_type", {1, 1, 3});
  writer.add_tensor({"token_embd.weight", {3, 32}, kQ8_0, std::vector<std::byte>(3 * 34)});
  writer.add_tensor({"four_axes", {2, 1, 3, 5}, kF32, std::vector<std::byte>(120)});
  writer.add_tensor({"output_norm.weight", {32}, kF32, std::vector<std::byte>(128)});
  return writer;
}

void write_corpus(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  GgufWriter().write(folder / "empty");
  every_value_type().write(folder / "values");
  every_tensor_type().write(folder / "types");
  small_model().write(folder / "model");
  GgufWriter version_2 = small_model();
  version_2.set_version(2);
  version_2.write(folder / "version_2");
  small_model().split(3)[1].write(folder / "split_part");
  ByteBuilder reversed = header(2, 0);
  put_tensor(reversed, "a", {16}, kF32, 64);
  put_tensor(reversed, "b", {16}, kF32, 0);
  write_file(folder / "reversed",
             reversed.pad_to(32).put_bytes(std::vector<std::byte>(128)).bytes());
  write_file(folder / "claims", header(65536, 65536).bytes());
}

}  // namespace
}  // namespace apr::test

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_gguf_corpus FOLDER\n");
    return 2;
  }
  try {
    apr::test::write_corpus(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
