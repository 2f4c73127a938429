// Where NVIDIA's libraries may lie, and opening the first that works. No CUDA header needed.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace apr::cuda {

struct LibraryAttempt {
  std::string path;   // what was opened: a bare name (the loader's path) or a file
  std::string error;  // why not, the loader's words; empty: this one was taken
};

struct OpenedLibrary {
  void* handle = nullptr;  // never closed: its functions stay in use to the end of the process
  std::string path;        // of the file that was loaded; empty where none was
  std::vector<LibraryAttempt> attempts;
};

// What the folders are derived from; tests give their own.
struct SearchRoots {
  std::filesystem::path program_dir;   // of the running program
  std::filesystem::path cuda_home;     // $CUDA_HOME
  std::filesystem::path local;         // "/usr/local"
  std::filesystem::path system_lib;    // "/usr/lib"
  std::filesystem::path home;          // $HOME
  std::filesystem::path virtual_env;   // $VIRTUAL_ENV
  std::filesystem::path conda_prefix;  // $CONDA_PREFIX
  std::string program_path;            // $PATH: where python3 is looked for
  static SearchRoots from_environment();
};

// Existing folders, each once, in the order of the search: toolkits ($CUDA_HOME, cuda, then cuda-*
// of `local`, newest first), the wheels that tools/quickstart.sh fetched beside the program, then
// nvidia/*/lib of every Python's packages (virtual environment, conda, each python3 on PATH, pyenv,
// the user's, the system's).
std::vector<std::filesystem::path> library_dirs(const SearchRoots& roots);

// Opens the first of `names` ("libcublas.so.13" before "libcublas.so.12") that loads: each name in
// the loader's path, then in `dirs`, before the next name. Files that are absent are no attempt.
OpenedLibrary open_library(const std::vector<std::string>& names,
                           const std::vector<std::filesystem::path>& dirs);

// Opens what lies beside the library at `path` and starts with `prefix`: libraries that it opens by
// name itself, which the loader would not find in a folder outside of its path.
void open_companions(const std::string& path, const std::string& prefix);

// The file behind a handle of dlopen.
std::string library_path(void* handle);

}  // namespace apr::cuda
