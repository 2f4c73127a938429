// Where NVIDIA's libraries are looked for, and in which order.
#include "cuda/library_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "cuda/api.h"
#include "support/gguf_writer.h"

namespace apr::cuda {
namespace {

namespace fs = std::filesystem;

// A machine of its own: every root of the search lies in one temporary folder.
class LibrarySearch : public testing::Test {
 protected:
  LibrarySearch() {
    roots_.program_dir = root() / "program";
    roots_.local = root() / "local";
    roots_.system_lib = root() / "lib";
    roots_.home = root() / "home";
  }

  fs::path root() const { return temp_.path(); }

  fs::path make(const fs::path& dir) {
    fs::create_directories(root() / dir);
    return root() / dir;
  }

  // The folders found, relative to the machine's root.
  std::vector<std::string> found() const {
    std::vector<std::string> dirs;
    for (const fs::path& dir : library_dirs(roots_)) {
      dirs.push_back(fs::relative(fs::canonical(dir), fs::canonical(root())).string());
    }
    return dirs;
  }

  test::TempFolder temp_;
  SearchRoots roots_;
};

TEST_F(LibrarySearch, FindsNothingOnABareMachine) {
  EXPECT_EQ(found(), std::vector<std::string>{});
}

TEST_F(LibrarySearch, TakesToolkitsThenWheels) {
  make("lib/python3/dist-packages/nvidia/cublas/lib");
  make("home/.local/lib/python3.11/site-packages/nvidia/cu13/lib");
  make("home/.pyenv/versions/3.12.1/lib/python3.12/site-packages/nvidia/cu13/lib");
  make("env/lib/python3.12/site-packages/nvidia/cuda_nvrtc/lib");
  make("env/lib/python3.12/site-packages/nvidia/cublas/lib");
  make("env/lib/python3.12/site-packages/nvidia/cublas/include");
  make("program/cuda-headers/nvidia/cu13/lib");
  make("local/cuda-9.2/lib64");
  make("local/cuda-13.0/lib64");
  make("local/cuda-12.4/targets/x86_64-linux/lib");
  make("opt/cuda/lib64");
  fs::create_directory_symlink(root() / "local/cuda-13.0", root() / "local/cuda");
  roots_.cuda_home = root() / "opt/cuda";
  roots_.virtual_env = root() / "env";
  EXPECT_EQ(found(), (std::vector<std::string>{
                         "opt/cuda/lib64",
                         "local/cuda-13.0/lib64",  // through local/cuda, and once only
                         "local/cuda-12.4/targets/x86_64-linux/lib",
                         "local/cuda-9.2/lib64",
                         "program/cuda-headers/nvidia/cu13/lib",
                         "env/lib/python3.12/site-packages/nvidia/cublas/lib",
                         "env/lib/python3.12/site-packages/nvidia/cuda_nvrtc/lib",
                         "home/.pyenv/versions/3.12.1/lib/python3.12/site-packages/nvidia/cu13/lib",
                         "home/.local/lib/python3.11/site-packages/nvidia/cu13/lib",
                         "lib/python3/dist-packages/nvidia/cublas/lib",
                     }));
}

TEST_F(LibrarySearch, FollowsEachPython3OnThePathToBothItsEnds) {
  make("base/lib/python3.12/site-packages/nvidia/cu13/lib");
  make("venv/lib/python3.12/site-packages/nvidia/cu13/lib");
  make("base/bin");
  make("venv/bin");
  std::ofstream(root() / "base/bin/python3") << "";
  fs::create_symlink(root() / "base/bin/python3", root() / "venv/bin/python3");
  roots_.program_path = (root() / "absent").string() + "::" + (root() / "venv/bin").string();
  EXPECT_EQ(found(), (std::vector<std::string>{
                         "venv/lib/python3.12/site-packages/nvidia/cu13/lib",
                         "base/lib/python3.12/site-packages/nvidia/cu13/lib",
                     }));
}

TEST_F(LibrarySearch, RecordsEachAttemptAndTakesTheFirstThatLoads) {
  const fs::path broken = make("broken");
  const fs::path good = make("good");
  std::ofstream(broken / "libapr-probe.so.13") << "no library";
  fs::copy_file(APR_TEST_PROBE_LIBRARY, good / "libapr-probe.so.13");
  const OpenedLibrary opened =
      open_library({"libapr-probe.so.13"}, {root() / "absent", broken, good});
  ASSERT_NE(opened.handle, nullptr);
  EXPECT_EQ(opened.path, (good / "libapr-probe.so.13").string());
  ASSERT_EQ(opened.attempts.size(), 3U);
  EXPECT_EQ(opened.attempts[0].path, "libapr-probe.so.13");
  EXPECT_NE(opened.attempts[0].error.find("cannot open shared object file"), std::string::npos);
  EXPECT_EQ(opened.attempts[1].path, (broken / "libapr-probe.so.13").string());
  EXPECT_NE(opened.attempts[1].error, "");
  EXPECT_EQ(opened.attempts[2].error, "");
}

TEST_F(LibrarySearch, PrefersTheFirstNameInAnyPlace) {
  const fs::path old_dir = make("old");
  const fs::path new_dir = make("new");
  fs::copy_file(APR_TEST_PROBE_LIBRARY, old_dir / "libapr-probe.so.12");
  fs::copy_file(APR_TEST_PROBE_LIBRARY, new_dir / "libapr-probe.so.13");
  const OpenedLibrary opened =
      open_library({"libapr-probe.so.13", "libapr-probe.so.12"}, {old_dir, new_dir});
  EXPECT_EQ(opened.path, (new_dir / "libapr-probe.so.13").string());
}

// NVRTC opens its built-ins by their bare name when it compiles.
TEST_F(LibrarySearch, ACompanionIsFoundByItsNameOnceOpened) {
  const fs::path dir = make("companions");
  fs::copy_file(APR_TEST_COMPANION_LIBRARY, dir / "libapr-companion.so.13.0");
  const char* const name = "libapr-companion.so.13.0";  // the name it carries inside
  EXPECT_EQ(open_library({name}, {}).handle, nullptr);
  open_companions((dir / "libapr-main.so").string(), "libapr-companion.so");
  const OpenedLibrary opened = open_library({name}, {});
  ASSERT_NE(opened.handle, nullptr);
  EXPECT_EQ(opened.path, (dir / name).string());
}

TEST_F(LibrarySearch, SaysWhatWasTriedWhereNothingLoads) {
  const OpenedLibrary opened = open_library({"libapr-absent.so.13", "libapr-absent.so.12"}, {});
  EXPECT_EQ(opened.handle, nullptr);
  EXPECT_EQ(opened.path, "");
  ASSERT_EQ(opened.attempts.size(), 2U);
  EXPECT_EQ(opened.attempts[1].path, "libapr-absent.so.12");
}

}  // namespace
}  // namespace apr::cuda
