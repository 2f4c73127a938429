// Compiling kernels at run time and keeping them on disk, over a double of NVRTC.
#include "cuda/nvrtc.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <thread>

#include "base/log.h"
#include "cuda/content_hash.h"
#include "support/cuda_double.h"
#include "support/expect_error.h"
#include "support/gguf_writer.h"

namespace apr::cuda {
namespace {

namespace fs = std::filesystem;

const std::vector<KernelSource> kSources{
    {"a.cu", "#include \"shared.cuh\"\n__global__ void a() {}\n"},
    {"b.cu", "__global__ void b() {}\n"},
    {"deep/inner.cuh", "// the innermost\n"},
    {"shared.cuh", "#pragma once\n  #  include \"deep/inner.cuh\"  // twice\n"},
};

CompileRequest request_a() {
  return {"a.cu", {"a"}, {"--fmad=false"}, "sm_90a"};
}

class KernelCacheOnDisk : public testing::Test {
 protected:
  fs::path dir() const { return temp_.path() / "cache" / "apr"; }

  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(dir())) {
      found.push_back(entry.path());
    }
    return found;
  }

  // What a compiler that starts now compiles and takes from the cache.
  std::pair<int, int> compile(const CompileRequest& request,
                              std::span<const KernelSource> sources = kSources) {
    KernelCompiler compiler(dir(), sources);
    kernel_ = compiler.compile(request);
    return {compiler.n_compiled(), compiler.n_cached()};
  }

  void expect_whole_kernel() const {
    EXPECT_EQ(
        std::string(reinterpret_cast<const char*>(kernel_.cubin.data()), kernel_.cubin.size()),
        std::string("c\0ode", 5));
    EXPECT_EQ(kernel_.lowered_names, std::vector<std::string>{"_Zlowered"});
    EXPECT_EQ(kernel_.log, "a log");
  }

  static constexpr std::pair<int, int> kCompiled{1, 0}, kCached{0, 1};
  test::TempFolder temp_;
  test::CudaDouble cuda_;
  CompiledKernel kernel_;
};

TEST_F(KernelCacheOnDisk, ASecondStartCompilesNothing) {
  EXPECT_EQ(compile(request_a()), kCompiled);
  expect_whole_kernel();
  EXPECT_EQ(compile(request_a()), kCached);
  expect_whole_kernel();
  EXPECT_EQ(cuda_.count("nvrtcCompileProgram"), 1);
  EXPECT_EQ(files().size(), 1U);  // no temporary file stays
}

TEST_F(KernelCacheOnDisk, EveryDamagedByteAndEveryCutIsSeen) {
  compile(request_a());
  const fs::path entry = files().front();
  std::ifstream file(entry, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const auto expect_rebuilt = [&](const std::string& text) {
    std::ofstream(entry, std::ios::binary) << text;
    EXPECT_EQ(compile(request_a()), kCompiled);
    EXPECT_EQ(compile(request_a()), kCached);
  };
  for (size_t byte = 0; byte < whole.size(); ++byte) {
    std::string damaged = whole;
    damaged[byte] = static_cast<char>(damaged[byte] ^ 1);
    expect_rebuilt(damaged);
    expect_rebuilt(whole.substr(0, byte));
  }
  expect_rebuilt(whole + "x");
  expect_rebuilt("99999999999999999999:x");
  expect_rebuilt("18446744073709551615:x");
  fs::remove(entry);
  ASSERT_EQ(::mkfifo(entry.c_str(), 0600), 0);  // nobody writes to it
  EXPECT_EQ(compile(request_a()), kCompiled);
  EXPECT_EQ(compile(request_a()), kCached);
  fs::remove(entry);
  fs::create_directory(entry);
  EXPECT_EQ(compile(request_a()), kCompiled);
}

TEST_F(KernelCacheOnDisk, TheKeyCoversAllThatDecidesTheResult) {
  std::set<std::string> keys;
  const auto add = [&](const CompileRequest& request, const std::vector<KernelSource>& sources) {
    EXPECT_TRUE(keys.insert(KernelCompiler("", sources).cache_key(request)).second);
  };
  add(request_a(), kSources);
  for (const size_t file : {0U, 2U, 3U}) {  // itself, included deeply, included
    std::vector<KernelSource> sources = kSources;
    const std::string edited = std::string(sources[file].text) + "// edited\n";
    sources[file].text = edited;
    add(request_a(), sources);
  }
  CompileRequest request = request_a();
  request.arch = "sm_80";
  add(request, kSources);
  request = request_a();
  request.options = {};
  add(request, kSources);
  request.options = {"--fmad=false", "--maxrregcount=64"};
  add(request, kSources);
  request = request_a();
  request.names = {"a", "b"};
  add(request, kSources);
  request.names = {"ab"};
  add(request, kSources);
}

TEST_F(KernelCacheOnDisk, AnEditOfAnotherKernelChangesNoKey) {
  std::vector<KernelSource> sources = kSources;
  sources[1].text = "__global__ void b() { }\n";
  EXPECT_EQ(compile(request_a()), kCompiled);
  EXPECT_EQ(compile(request_a(), sources), kCached);
}

TEST_F(KernelCacheOnDisk, ANewerNvrtcChangesTheKey) {
  const std::string key = KernelCompiler("", kSources).cache_key(request_a());
  cuda_.nvrtc_minor = 1;
  EXPECT_NE(KernelCompiler("", kSources).cache_key(request_a()), key);
}

TEST_F(KernelCacheOnDisk, WritersAndReadersAtOnceSeeWholeEntries) {
  const std::vector<CompileRequest> requests(64, request_a());
  std::vector<std::jthread> starts;
  for (int start = 0; start < 4; ++start) {
    starts.emplace_back([&] {
      KernelCompiler compiler(dir(), kSources);
      for (const CompiledKernel& kernel : compiler.compile_all(requests, 4)) {
        EXPECT_EQ(kernel.cubin.size(), 5U);
        EXPECT_EQ(kernel.lowered_names.size(), 1U);
      }
      EXPECT_EQ(compiler.n_compiled() + compiler.n_cached(), 64);
    });
  }
  starts.clear();
  EXPECT_EQ(files().size(), 1U);
  EXPECT_EQ(compile(request_a()), kCached);
}

TEST_F(KernelCacheOnDisk, WithoutAWritableFolderKernelsAreCompiledEachTime) {
  fs::create_directories(dir().parent_path());
  std::ofstream(dir()) << "a file where the folder should be";
  set_log_level(LogLevel::kQuiet);
  EXPECT_EQ(compile(request_a()), kCompiled);
  EXPECT_EQ(compile(request_a()), kCompiled);
  set_log_level(LogLevel::kNormal);
  EXPECT_FALSE(kernel_cache_use(dir() / "below").writable);
}

TEST_F(KernelCacheOnDisk, ItsUseIsCounted) {
  EXPECT_EQ(kernel_cache_use(dir()).n_entries, 0);
  EXPECT_TRUE(kernel_cache_use(dir()).writable);
  compile(request_a());
  compile({"b.cu", {"b"}, {}, "sm_80"});
  const CacheUse use = kernel_cache_use(dir());
  EXPECT_EQ(use.n_entries, 2);
  EXPECT_GT(use.size_bytes, 100U);
  EXPECT_LT(use.size_bytes, 1000U);
}

TEST_F(KernelCacheOnDisk, ItsPlaceFollowsTheXdgRules) {
  ::setenv("HOME", "/home/mia", 1);
  ::setenv("XDG_CACHE_HOME", "/var/tmp/mia", 1);
  EXPECT_EQ(kernel_cache_dir(), "/var/tmp/mia/apr");
  ::setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_EQ(kernel_cache_dir(), "/home/mia/.cache/apr");
  ::unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(kernel_cache_dir(), "/home/mia/.cache/apr");
  ::unsetenv("HOME");
  EXPECT_EQ(kernel_cache_dir(), "");
}

TEST(KernelCompiler, ResultsKeepTheOrderOfTheRequestsAndTheFirstFailureIsThrown) {
  test::CudaDouble cuda;
  KernelCompiler compiler("", kSources);
  EXPECT_EQ(compiler.compile_all({}).size(), 0U);
  std::vector<CompileRequest> requests(8, request_a());
  EXPECT_EQ(compiler.compile_all(requests, 3).size(), 8U);
  requests[5].file = "absent.cu";
  test::expect_error(ErrorCode::kGeneric, "kernels/absent.cu is not in this program",
                     [&] { compiler.compile_all(requests, 3); });
  EXPECT_EQ(cuda.alive().size(), 0U);
}

TEST(KernelCompiler, TheCompilersWordsAreInTheError) {
  test::CudaDouble cuda;
  KernelCompiler compiler("", kSources);
  cuda.compile_status = NVRTC_ERROR_COMPILATION;
  cuda.compile_log = "a.cu(1): error: expected a ;";
  test::expect_error(ErrorCode::kBackendUnavailable, cuda.compile_log,
                     [&] { compiler.compile(request_a()); });
  cuda.compile_status = NVRTC_ERROR_INVALID_OPTION;
  cuda.compile_log = "nvrtc: error: invalid value for --gpu-architecture";
  test::expect_error(ErrorCode::kBackendUnavailable, "cannot compile kernels/a.cu for sm_90a",
                     [&] { compiler.compile(request_a()); });
}

TEST(KernelSources, IncludesAreFollowedOnce) {
  const std::vector<KernelSource> found = with_includes(kSources, "a.cu");
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].path, "a.cu");
  EXPECT_EQ(found[1].path, "deep/inner.cuh");
  EXPECT_EQ(found[2].path, "shared.cuh");
}

// Of no field: the published start value of FNV-1a with 128 bits.
TEST(ContentHash, FieldsDoNotRunIntoEachOther) {
  const auto hash = [](const std::vector<std::string>& fields) {
    ContentHash content;
    for (const std::string& field : fields) {
      content.add(field);
    }
    return content.hex();
  };
  EXPECT_EQ(hash({}), "6c62272e07bb014262b821756295c58d");
  EXPECT_EQ(hash({"ab"}).size(), 32U);
  EXPECT_NE(hash({"ab"}), hash({"a", "b"}));
  EXPECT_NE(hash({"", "ab"}), hash({"ab", ""}));
}

}  // namespace
}  // namespace apr::cuda
