// A template can take no more steps, depth and memory than it is given, whatever it does.
#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "support/render.h"

namespace apr {
namespace {

using Json = nlohmann::ordered_json;

std::string repeat(std::string_view text, int n_times) {
  std::string result;
  for (int i = 0; i < n_times; ++i) result += text;
  return result;
}

void expect_bound(const std::string& fragment, const std::string& source,
                  const Json& input = Json::object()) {
  SCOPED_TRACE(source.substr(0, 100));
  test::expect_error(ErrorCode::kInvalidFormat, fragment,
                     [&] { test::render_text(source, input); });
}

constexpr const char* kSteps = "more steps than its bound of 5000000";
constexpr const char* kBytes = "more memory than its bound of 268435456 bytes";

TEST(TemplateLimits, StopWork) {
  expect_bound("Range too big", "{% for i in range(10**9) %}{% endfor %}");
  expect_bound("than its bound of",
               "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}");
  expect_bound(
      "than its bound of",
      "{% set l = range(9999) | list %}{% for i in range(99999) %}{{ l + l == l }}{% endfor %}");
  expect_bound(kSteps, "{% for i in range(100000) %}{{ s[50000] }}{% endfor %}",
               Json{{"s", std::string(1'000'000, 'x')}});
  expect_bound(kSteps, "{% for i in range(100000) %}{{ 'y' in s }}{% endfor %}",
               Json{{"s", std::string(1'000'000, 'x')}});
}

TEST(TemplateLimits, StopMemory) {
  expect_bound(kBytes,
               "{% set ns = namespace(s='ab') %}{% for i in range(60) %}"
               "{% set ns.s = ns.s + ns.s %}{% endfor %}");
  expect_bound(kBytes, "{{ 'a' * 10**15 }}");
  expect_bound(kBytes, "{{ ('a' * 1000) * 9223372036854775807 }}");
  expect_bound(kBytes, "{{ [1] * 10**12 }}");
  expect_bound(kBytes, "{{ 'a'.center(10**14) }}");
  expect_bound(kBytes, "{{ 'a'.zfill(10**14) }}");
  expect_bound(kBytes, "{{ 'a' | indent(10**14) }}");
  expect_bound(kBytes,
               "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}"
               "{% set ns.l = ns.l + ns.l %}{% endfor %}");
  // A small value that prints large: each level holds the one below twice.
  expect_bound("more",
               "{% set ns = namespace(l=['a']) %}{% for i in range(60) %}"
               "{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l | tojson }}");
  expect_bound("above 10000", "{{ '%99999d' % 1 }}");
  expect_bound("above 10000", "{{ '{:99999999999999999999}'.format(1) }}");
}

TEST(TemplateLimits, StopNesting) {
  const char* parsed = "nest";
  expect_bound(parsed, "{{ " + repeat("(", 10'000) + "1" + repeat(")", 10'000) + " }}");
  expect_bound(parsed, "{{ " + repeat("[", 100'000));
  expect_bound(parsed, "{{ " + repeat("not ", 10'000) + "1 }}");
  expect_bound(parsed, "{{ " + repeat("-", 10'000) + "1 }}");
  expect_bound(parsed, "{{ 1" + repeat(" + 1", 10'000) + " }}");
  expect_bound(parsed, "{{ a" + repeat(".b", 10'000) + " }}");
  expect_bound(parsed, "{{ a" + repeat("|trim", 10'000) + " }}");
  expect_bound(parsed, "{{ 1" + repeat(" if 1 else 1", 10'000) + " }}");
  expect_bound(parsed, repeat("{% if 1 %}", 10'000));
  expect_bound(parsed, repeat("{% for i in [1] %}", 10'000));
  const std::string ran = "nests deeper than its bound of 200";
  expect_bound(ran, "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}");
  expect_bound(
      ran, "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}");
  expect_bound(ran, "{% set l = [] %}{% do l.append(l) %}{{ l }}");
  expect_bound(ran, "{% set l = [] %}{% do l.append(l) %}{{ l | tojson }}");
  expect_bound(
      ran, "{% set l = [] %}{% set k = [] %}{% do l.append(k) %}{% do k.append(l) %}{{ l == k }}");
}

TEST(TemplateLimits, AreTheCallersToSet) {
  const std::string source = "{% for i in range(100) %}{{ 'abcdefgh' }}{% endfor %}";
  EXPECT_EQ(test::render_text(source).size(), 800u);
  const auto with = [&](TemplateLimits limits) {
    return [&source, limits] { test::render_text(source, Json::object(), limits); };
  };
  test::expect_error(ErrorCode::kInvalidFormat, "bound of 50", with({.max_steps = 50}));
  test::expect_error(ErrorCode::kInvalidFormat, "bound of 2", with({.max_depth = 2}));
  test::expect_error(ErrorCode::kInvalidFormat, "bound of 12000", with({.max_bytes = 12'000}));
  test::expect_error(ErrorCode::kInvalidFormat, "are above the bound of 2",
                     with({.max_bytes = 32}));
}

TEST(TemplateLimits, LeaveRoomForALongConversation) {
  Json messages = Json::array();
  for (int i = 0; i < 2000; ++i) {
    messages.push_back({{"role", i % 2 == 0 ? "user" : "assistant"},
                        {"content", std::string(2000, 'x') + "</think>" + std::to_string(i)}});
  }
  const std::string text = test::render_text(
      "{% for m in messages %}{% set c = m.content | trim %}{% if '</think>' in c %}"
      "{% set c = c.split('</think>')[-1] %}{% endif %}{{ '<|im_start|>' + m.role + '\\n' + c }}"
      "{% endfor %}{% for m in messages[::-1] %}{{ m.content }}{% endfor %}",
      Json{{"messages", std::move(messages)}});
  EXPECT_GT(text.size(), 4'000'000u);
}

}  // namespace
}  // namespace apr
