// Errors of templates: what is wrong, by name and line.
#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "support/render.h"

namespace apr {
namespace {

using Json = nlohmann::ordered_json;

struct ErrorCase {
  const char* source;
  const char* fragment;
};

TEST(TemplateErrors, NameTheConstructAndItsLineBeforeAnythingIsRendered) {
  for (const ErrorCase& row : {
           ErrorCase{"a\nb\n{{ x | foo }}", "line 3: unknown filter 'foo'"},
           ErrorCase{"{% if false %}{{ x is\nbar }}{% endif %}", "line 1: unknown test 'bar'"},
           ErrorCase{"{{ x | map('foo') }}", "line 1: unknown filter 'foo'"},
           ErrorCase{"{{ x | selectattr('a', 'foo') }}", "line 1: unknown test 'foo'"},
           ErrorCase{"\n{% frob %}", "line 2: unknown tag 'frob'"},
           ErrorCase{"\n\n{% include 'a' %}", "line 3: the tag 'include' is not supported"},
           ErrorCase{"{% import 'a' as b %}", "line 1: the tag 'import' is not supported"},
           ErrorCase{"{% extends 'a' %}", "line 1: the tag 'extends' is not supported"},
           ErrorCase{"{% call m() %}{% endcall %}", "line 1: the tag 'call' is not supported"},
           ErrorCase{"{% for a in b recursive %}{% endfor %}", "'recursive' loop is not supported"},
           ErrorCase{"{% if x %}\n\n", "line 2: expected '{% endif %}', found the end"},
           ErrorCase{"{% endif %}", "unknown tag 'endif'"},
           ErrorCase{"{{ a b }}", "line 1: expected '}}', found 'b'"},
           ErrorCase{"{{ 'a", "a string without its closing quote"},
           ErrorCase{"{# a", "a comment without its '#}'"},
           ErrorCase{"{% raw %}", "a raw block without its endraw"},
           ErrorCase{"{{ (1] }}", "unexpected ']'"},
           ErrorCase{"{{ ? }}", "unexpected character '?'"},
           ErrorCase{"{{ 99999999999999999999 }}", "an integer that does not fit 64 bits"},
           ErrorCase{"{% break %}", "'break' outside of a loop"},
           ErrorCase{"{% set 1 = 2 %}", "cannot assign to this expression"},
           ErrorCase{"{{ '\\ud800' }}", "which is no character"},
       }) {
    SCOPED_TRACE(row.source);
    test::expect_error(ErrorCode::kInvalidFormat, row.fragment,
                       [&] { ChatTemplate chat_template(row.source); });
  }
}

TEST(TemplateErrors, OfEvaluationCarryTheLine) {
  for (const ErrorCase& row : {
           ErrorCase{"\n{{ x.y }}", "line 2: 'x' is undefined"},
           ErrorCase{"{{ d.a.b }}", "line 1: 'dict object' has no attribute 'a'"},
           ErrorCase{"{{ [][0].b }}", "line 1: list object has no element 0"},
           ErrorCase{"\n\n{{ 1 / 0 }}", "line 3: division by zero"},
           ErrorCase{"{{ 1 % 0 }}", "integer modulo by zero"},
           ErrorCase{"{{ 9223372036854775807 + 1 }}", "integer overflow in '+'"},
           ErrorCase{"{{ 4611686018427387904 * 2 }}", "integer overflow in '*'"},
           ErrorCase{"{{ 10 ** 19 }}", "integer overflow in '**'"},
           ErrorCase{"{{ (-9223372036854775807 - 1) // -1 }}", "integer overflow in '-'"},
           ErrorCase{"{{ -(-9223372036854775807 - 1) }}", "integer overflow in '-'"},
           ErrorCase{"{{ (-9223372036854775807 - 1) | abs }}", "integer overflow"},
           ErrorCase{"{{ 1e300 | int }}", "does not fit 64 bits"},
           ErrorCase{"{{ 'a' + 1 }}", "can only concatenate str (not \"int\") to str"},
           ErrorCase{"{{ d | tojson(5, 6, 7, 8, 9) }}", "takes at most 4 argument(s)"},
           ErrorCase{"{{ 'a'.encode() }}", "the method encode() of 'str' is not supported"},
           ErrorCase{"{{ lipsum() }}", "lipsum() is not supported"},
           ErrorCase{"{{ d | map('trim') }}{{ d.a() }}", "a generator is printed"},
       }) {
    SCOPED_TRACE(row.source);
    test::expect_error(ErrorCode::kInvalidFormat, row.fragment, [&] {
      test::render_text(row.source, Json{{"d", {{"k", 1}}}});
    });
  }
}

TEST(TemplateErrors, OfRaiseExceptionAreItsMessageAlone) {
  const std::string message = test::expect_error(ErrorCode::kInvalidFormat, "", [] {
    test::render_text("\n{{ raise_exception('no ' ~ 'way') }}");
  });
  EXPECT_EQ(message, "no way");
}

TEST(TemplateErrors, OfTheInputSaySo) {
  test::expect_error(ErrorCode::kInvalidFormat, "chat template input: not an object",
                     [] { test::render_text("a", Json::array()); });
  test::expect_error(ErrorCode::kInvalidFormat, "18446744073709551615 of the input", [] {
    test::render_text("a", Json{{"n", UINT64_MAX}});
  });
  Json deep = 1;
  for (int i = 0; i < 100'000; ++i) deep = Json::array({std::move(deep)});
  test::expect_error(ErrorCode::kInvalidFormat, "nests deeper than its bound of 200", [&] {
    test::render_text("a", Json{{"deep", std::move(deep)}});
  });
}

TEST(TemplateErrors, DoNotComeFromBytesThatAreNoText) {
  EXPECT_EQ(test::render_text("\xFF\xFE{{ '\xC3' }}\x80"), "\xFF\xFE\xC3\x80");
  EXPECT_EQ(test::render_text("{{ s | upper }}{{ s | length }}{{ s[::-1] }}{{ s | tojson }}",
                              Json{{"s", "a\xFF\xE4\xB8"}}),
            "A\xFF\xE4\xB8"
            "4\xB8\xE4\xFF"
            "a\"a\xFF\xE4\xB8\"");
  test::expect_error(ErrorCode::kInvalidFormat, "unexpected character",
                     [] { ChatTemplate chat_template("{{ \xFF }}"); });
}

}  // namespace
}  // namespace apr
