// One line on a terminal's stderr that says what takes time; nothing anywhere else.
#pragma once

#include <cstdint>
#include <string>

namespace apr::cli {

class Progress {
 public:
  explicit Progress(bool is_quiet);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(const std::string& text);  // replaces the line
  void show_prefill(int64_t done_tokens, int64_t total_tokens);
  void clear();  // removes the line, before anything else is printed

 private:
  bool is_enabled_;
  bool is_shown_ = false;
};

}  // namespace apr::cli
