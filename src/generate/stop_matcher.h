// Finds stop strings in text that arrives in pieces.
#pragma once

#include <string>
#include <vector>

namespace apr {

class StopMatcher {
 public:
  // Throws kUsage for a stop string that is empty or not UTF-8: it could never be found in text.
  explicit StopMatcher(std::vector<std::string> stop_strings);

  // Adds text; returns what is certain to stand before every stop string. The rest, which may be
  // the start of one, is held back.
  std::string push(const std::string& text);

  // The text held back, when nothing more comes.
  std::string flush();

  // A stop string was found; text from it on is dropped.
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stop_strings_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace apr
