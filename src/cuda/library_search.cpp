#include "cuda/library_search.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <system_error>

namespace apr::cuda {
namespace {

namespace fs = std::filesystem;

fs::path environment_path(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? fs::path() : fs::path(value);
}

// Entries of `dir` whose name starts with `prefix`, sorted.
std::vector<fs::path> entries(const fs::path& dir, const std::string& prefix) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    if (it->path().filename().string().starts_with(prefix)) {
      found.push_back(it->path());
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

class DirList {
 public:
  void add(const fs::path& dir) {
    std::error_code error;
    const fs::path real = fs::canonical(dir, error);
    if (!error && fs::is_directory(real, error) &&
        std::find(real_.begin(), real_.end(), real) == real_.end()) {
      real_.push_back(real);
      dirs_.push_back(dir);
    }
  }

  void add_toolkit(const fs::path& root) {
    add(root / "lib64");
    for (const fs::path& target : entries(root / "targets", "")) {
      add(target / "lib");
    }
  }

  // `packages` holds a folder "nvidia" where NVIDIA's wheels are installed.
  void add_wheels(const fs::path& packages) {
    for (const fs::path& wheel : entries(packages / "nvidia", "")) {
      add(wheel / "lib");
    }
  }

  // `lib` holds python3.N folders.
  void add_pythons(const fs::path& lib) {
    for (const fs::path& python : entries(lib, "python3")) {
      add_wheels(python / "site-packages");
      add_wheels(python / "dist-packages");
    }
  }

  std::vector<fs::path> take() { return std::move(dirs_); }

 private:
  std::vector<fs::path> dirs_, real_;
};

// "cuda-13.0" before "cuda-12.4" before "cuda-9.2": by number, not by letter.
bool newer_toolkit(const fs::path& a, const fs::path& b) {
  const auto number = [](const fs::path& path) {
    const std::string name = path.filename().string();
    return std::strtod(name.c_str() + name.find('-') + 1, nullptr);
  };
  return number(a) > number(b);
}

}  // namespace

SearchRoots SearchRoots::from_environment() {
  SearchRoots roots;
  std::error_code error;
  roots.program_dir = fs::read_symlink("/proc/self/exe", error).parent_path();
  roots.cuda_home = environment_path("CUDA_HOME");
  roots.local = "/usr/local";
  roots.system_lib = "/usr/lib";
  roots.home = environment_path("HOME");
  roots.virtual_env = environment_path("VIRTUAL_ENV");
  roots.conda_prefix = environment_path("CONDA_PREFIX");
  roots.program_path = environment_path("PATH").string();
  return roots;
}

std::vector<fs::path> library_dirs(const SearchRoots& roots) {
  DirList dirs;
  if (!roots.cuda_home.empty()) {
    dirs.add_toolkit(roots.cuda_home);
  }
  dirs.add_toolkit(roots.local / "cuda");
  std::vector<fs::path> toolkits = entries(roots.local, "cuda-");
  std::stable_sort(toolkits.begin(), toolkits.end(), newer_toolkit);
  for (const fs::path& toolkit : toolkits) {
    dirs.add_toolkit(toolkit);
  }
  dirs.add_wheels(roots.program_dir / "cuda-headers");
  for (const fs::path& prefix : {roots.virtual_env, roots.conda_prefix}) {
    if (!prefix.empty()) {
      dirs.add_pythons(prefix / "lib");
    }
  }
  size_t begin = 0;
  while (begin < roots.program_path.size()) {
    const size_t end = std::min(roots.program_path.find(':', begin), roots.program_path.size());
    const fs::path python = fs::path(roots.program_path.substr(begin, end - begin)) / "python3";
    std::error_code error;
    if (fs::exists(python, error)) {
      // A virtual environment's python3 is a link out of it: both ends have packages.
      dirs.add_pythons(python.parent_path().parent_path() / "lib");
      dirs.add_pythons(fs::canonical(python, error).parent_path().parent_path() / "lib");
    }
    begin = end + 1;
  }
  if (!roots.home.empty()) {
    for (const fs::path& version : entries(roots.home / ".pyenv" / "versions", "")) {
      dirs.add_pythons(version / "lib");
    }
    dirs.add_pythons(roots.home / ".local" / "lib");
  }
  dirs.add_pythons(roots.local / "lib");
  dirs.add_pythons(roots.system_lib);
  return dirs.take();
}

std::string library_path(void* handle) {
  const link_map* map = nullptr;
  return ::dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 ? map->l_name : "";
}

OpenedLibrary open_library(const std::vector<std::string>& names,
                           const std::vector<fs::path>& dirs) {
  OpenedLibrary opened;
  const auto try_open = [&opened](const std::string& path) {
    opened.handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (opened.handle == nullptr) {
      opened.attempts.push_back({path, ::dlerror()});
      return false;
    }
    opened.attempts.push_back({path, ""});
    opened.path = library_path(opened.handle);
    return true;
  };
  for (const std::string& name : names) {
    if (try_open(name)) {
      return opened;
    }
    for (const fs::path& dir : dirs) {
      std::error_code error;
      if (fs::exists(dir / name, error) && try_open((dir / name).string())) {
        return opened;
      }
    }
  }
  return opened;
}

void open_companions(const std::string& path, const std::string& prefix) {
  for (const fs::path& companion : entries(fs::path(path).parent_path(), prefix)) {
    // One that does not load is missed, and named, by the library that needs it.
    static_cast<void>(::dlopen(companion.c_str(), RTLD_NOW | RTLD_LOCAL));
  }
}

}  // namespace apr::cuda
