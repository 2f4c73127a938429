// Which bytes of a rendering the template wrote; marked_text puts those in brackets.
#include <gtest/gtest.h>

#include "support/render.h"

namespace apr {
namespace {

using Json = nlohmann::ordered_json;

const Json kInput = Json::parse(R"({
  "s": " <|x|> ", "a": "ab", "n": 5, "empty": "",
  "l": ["p", "q"], "d": {"k": "v"},
  "messages": [{"role": "user", "content": "<|im_end|>"}]})");

struct ProvenanceCase {
  const char* source;
  const char* marked;
};

TEST(TemplateProvenance, FollowsBytesThroughOperations) {
  for (const ProvenanceCase& row : {
           ProvenanceCase{"<a>{{ a }}<b>", "[<a>]ab[<b>]"},
           {"{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m['content'] + "
            "'<|im_end|>' }}"
            "{% endfor %}",
            "[<|im_start|>]user[\n]<|im_end|>[<|im_end|>]"},
           {"{{ '<' ~ a ~ '>' ~ n ~ none }}", "[<]ab[>5None]"},
           {"{{ s | trim }}", "<|x|>"},
           {"{{ ('<' + s + '>') | replace(' ', '-') }}", "[<-]<|x|>[->]"},
           {"{{ ('<' + a + '>')[1:3] }}{{ ('<' + a + '>')[::-1] }}", "ab[>]ba[<]"},
           {"{{ ('<' + a + '>')[2] }}{{ ('<' + a)[0] }}", "b[<]"},
           {"{{ ('x' + a + 'x').split('a') | join('-') }}", "[x-]b[x]"},
           {"{{ a | upper }}{{ 'x' | upper }}{{ ('x' + a) | title }}", "AB[XX]ab"},
           {"{{ l | join(', ') }}", "p[, ]q"},
           {"{{ '%s=%d' % (a, n) }}{{ '{}!'.format(a) }}", "ab[=5]ab[!]"},
           {"{{ messages | tojson }}", R"([{"role": "user", "content": "<|im_end|>"}])"},
           {"{{ d | tojson }}{{ a | tojson }}", "{\"k\": \"v\"}\"ab\""},
           {"{{ {'t': a, 'u': d} | tojson }}", "[{\"t\": ]\"ab\"[, \"u\": ]{\"k\": \"v\"}[}]"},
           {"{{ l }}{{ ['t', a] }}", "['p', 'q'][['t', ]'ab'[]]"},
           {"{% for k, v in d.items() %}{{ k }}{{ v }}{% endfor %}", "kv"},
           {"{% set x %}<{{ a }}>{% endset %}{{ x }}{{ x | length }}", "[<]ab[>4]"},
           {"{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(a) | trim }}", "[<]ab[>]"},
           {"{% filter upper %}<{{ a }}>{% endfilter %}", "[<]AB[>]"},
           {"{{ a if a == 'ab' else 'c' }}{{ 'ab' if a == 'ab' }}", "ab[ab]"},
           {"{{ missing | default(a) }}{{ missing | default('t') }}", "ab[t]"},
           {"{{ a * 2 }}{{ 't' * 2 }}{{ a | string }}{{ n | string }}", "abab[tt]ab[5]"},
           {"{{ l[0] }}{{ l | first }}{{ l[::-1] | last }}{{ (l + ['t'])[2] }}", "ppp[t]"},
           {"{{ ('<\n' + a + '\n>') | indent(2) }}", "[<\n  ]ab[\n  >]"},
           {"{{ 'x'.join(l) }}{{ '<ab>'.replace('ab', a) }}", "p[x]q[<]ab[>]"},
           {"{{ a | escape }}{{ '<' | escape }}", "ab[&lt;]"},
           {"{{ empty }}<>{{ empty }}", "[<>]"},
       }) {
    SCOPED_TRACE(row.source);
    EXPECT_EQ(test::marked_text(row.source, kInput), row.marked);
  }
}

TEST(TemplateProvenance, OfTheModelsTokensIsTheTemplate) {
  const Json input = {{"bos_token", "<s>"},
                      {"eos_token", nullptr},
                      {"user_token", "<u>"},
                      {"messages", {{{"bos_token", "<m>"}}}}};
  EXPECT_EQ(test::marked_text(
                "{{ bos_token }}{{ user_token }}{{ messages[0].bos_token }}{{ eos_token }}", input),
            "[<s>]<u><m>[None]");
}

TEST(TemplateProvenance, JoinsNeighboursOfOneKind) {
  const auto pieces = ChatTemplate("a{{ 'b' }}{{ s }}{{ a }}{{ 'c' }}").render(kInput);
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(pieces[0].text, "ab");
  EXPECT_EQ(pieces[1].text, " <|x|> ab");
  EXPECT_EQ(pieces[2].text, "c");
  EXPECT_TRUE(pieces[0].parse_special);
  EXPECT_FALSE(pieces[1].parse_special);
  EXPECT_TRUE(ChatTemplate("").render(kInput).empty());
}

}  // namespace
}  // namespace apr
