// Logits and parameters on which a sampler can go wrong, for the kernels on the host and on the
// card.
#pragma once

#include <cfloat>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "apr/sampling.h"
#include "apr/tokenizer.h"

namespace apr::test {

struct SamplerCase {
  std::string name;
  SamplingParams params;
  std::vector<float> logits;
  std::vector<TokenId> history;
};

// Vocabularies and parameters at random, among them every special value; at most `most_tokens` ids.
inline SamplerCase random_sampler_case(uint64_t seed, size_t most_tokens, size_t least_tokens = 1) {
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t n) { return random() % n; };
  const auto unit = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  SamplerCase c;
  c.name = "random " + std::to_string(seed);
  const size_t n = least_tokens + below(most_tokens - least_tokens + 1);
  const double spread = std::vector<double>{0.01, 1.0, 4.0, 20.0}[below(4)];
  const bool rounded = below(3) == 0;  // many ties
  std::normal_distribution<double> normal(0.0, spread);
  for (size_t id = 0; id < n; ++id) {
    const double value = normal(random);
    c.logits.push_back(static_cast<float>(rounded ? std::round(value * 2.0) / 2.0 : value));
  }
  if (below(4) == 0) {
    for (size_t id = 1; id < n; id += 1 + below(5)) {
      c.logits[id] = -std::numeric_limits<float>::infinity();
    }
  }
  SamplingParams& params = c.params;
  params.temperature = std::vector<double>{0.0, 0.1, 0.8, 1.0, 1.7, 1000.0, 5e-324}[below(7)];
  params.top_k = std::vector<int64_t>{0,
                                      1,
                                      2,
                                      40,
                                      static_cast<int64_t>(1 + below(n)),
                                      static_cast<int64_t>(n) - 1,
                                      static_cast<int64_t>(n),
                                      2147483647}[below(8)];
  params.top_p = std::vector<double>{0.0, 1e-9, 0.5, 0.95, 1.0 - 0x1p-53, 1.0, unit()}[below(7)];
  params.min_p = std::vector<double>{0.0, 0.0, 0.05, 1.0, unit()}[below(5)];
  if (below(2) == 0) {
    params.repeat_penalty = std::vector<double>{1.0, 1.1, 0.5, 100.0, 0.01}[below(5)];
    params.presence_penalty = std::vector<double>{0.0, 0.7, -100.0}[below(3)];
    params.frequency_penalty = std::vector<double>{0.0, 0.3, -0.2}[below(3)];
    params.repeat_last_n = std::vector<int64_t>{-1, 0, 1, 5, 64}[below(5)];
  }
  params.seed = random();
  for (uint64_t left = below(150); left > 0; --left) {
    // A few ids again and again, some of them outside of the vocabulary.
    c.history.push_back(static_cast<TokenId>(below(below(2) == 0 ? n + 3 : 1 + n / 20)));
  }
  return c;
}

// Each shape of logits with each way to choose.
inline std::vector<SamplerCase> adversarial_sampler_cases() {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  struct Shape {
    std::string name;
    std::vector<float> logits;
  };
  std::vector<Shape> shapes{
      {"one token", {-3.0F}},
      {"two equal", {1.0F, 1.0F}},
      {"all equal", std::vector<float>(2500, 0.25F)},
      {"all zero, of both signs", std::vector<float>(1200, 0.0F)},
      {"one finite", std::vector<float>(1500, -kInf)},
      {"extremes", {-FLT_MAX, FLT_MAX, 1.0F, 2.9e38F, -kInf, -1e-45F, 0.0F}},
      {"denormals", std::vector<float>(1100)},
      {"two values", std::vector<float>(2100)},
      {"a staircase", std::vector<float>(1300)},
      {"neighbours in f32", std::vector<float>(900)},
      {"the best behind many ties", std::vector<float>(2500, 0.0F)},
  };
  for (size_t id = 0; id < 1200; id += 3) {
    shapes[3].logits[id] = -0.0F;
  }
  shapes[4].logits[1234] = 5.0F;
  for (size_t id = 0; id < 1100; ++id) {
    shapes[6].logits[id] = static_cast<float>(static_cast<int>(id * 7 % 1100) - 550) * 1e-45F;
  }
  for (size_t id = 0; id < 2100; ++id) {
    shapes[7].logits[id] = id % 17 == 4 ? 8.0F : -2.0F;
  }
  for (size_t id = 0; id < 1300; ++id) {
    shapes[8].logits[id] = -static_cast<float>(id / 100);
  }
  shapes[10].logits[1450] = 4.9F;  // at temperature 0.7 as likely as 1050 ties
  float value = 1.0F;
  for (float& logit : shapes[9].logits) {
    logit = value;
    value = std::nextafter(value, 2.0F);
  }
  std::vector<SamplerCase> cases;
  for (const Shape& shape : shapes) {
    for (const double temperature : {0.0, 0.7, 1000.0}) {
      for (const int64_t top_k :
           {int64_t{0}, int64_t{1}, int64_t{3}, int64_t{40}, int64_t{1050}, int64_t{2147483647}}) {
        for (const double top_p : {0.0, 0.3, 0.9999, 1.0}) {
          for (const double min_p : {0.0, 0.1, 1.0}) {
            SamplerCase c{shape.name, {}, shape.logits, {}};
            c.params.temperature = temperature;
            c.params.top_k = top_k;
            c.params.top_p = top_p;
            c.params.min_p = min_p;
            c.params.seed = 77 + cases.size();
            if (cases.size() % 3 == 0) {
              c.params.repeat_penalty = 1.3;
              c.params.frequency_penalty = 0.4;
              c.params.repeat_last_n = 4;
              c.history = {0, 1, 0, 0, 1, 0, 5, 1, 0};
            }
            c.name += " t=" + std::to_string(temperature) + " k=" + std::to_string(top_k) +
                      " p=" + std::to_string(top_p) + " min=" + std::to_string(min_p);
            cases.push_back(std::move(c));
          }
        }
      }
    }
  }
  return cases;
}

}  // namespace apr::test
