#!/usr/bin/env python3
# Long: one list of cases, in the order of the features that templates use.
"""Writes tests/data/jinja_cases.json: small templates of our own with what Jinja2 3.1, set up as
transformers does, makes of them.

    make_jinja_cases.py            writes the file
    make_jinja_cases.py --check    exit 1 when the file is not what would be written

Each case: name, template, input, and `text` or `error`; `message` is there when the error's words
are part of the contract (undefined values, raise_exception)."""
import datetime
import json
import pathlib
import sys

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

OUT = pathlib.Path(__file__).parent.parent / "tests/data/jinja_cases.json"


class Generation(jinja2.ext.Extension):
    """`{% generation %}`: marks what the assistant wrote; the text is unchanged."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("_render")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


class RaisedError(jinja2.TemplateError):
    pass


def raise_exception(message):
    raise RaisedError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return env


def render(env, template, variables):
    """{"text": ...} or {"error": ..., "message": ...}."""
    try:
        return {"text": env.from_string(template).render(**variables)}
    except RaisedError as error:
        return {"error": "raised", "message": str(error)}
    except jinja2.UndefinedError as error:
        return {"error": "undefined", "message": str(error)}
    except jinja2.TemplateSyntaxError:
        return {"error": "syntax"}
    except Exception as error:
        return {"error": type(error).__name__}


MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "  Grüße, 世界! <|im_end|> \n"},
    {"role": "assistant", "content": "ok", "tool_calls": [
        {"type": "function", "function": {"name": "f", "arguments": {"x": 1, "y": [1.5, None]}}}]},
    {"role": "tool", "content": "{\"a\": \"b\"}"},
]
VARS = {
    "messages": MESSAGES, "n": 7, "neg": -3, "x": 2.5, "big": 1e20, "s": "Hello World",
    "u": "Straße ΣΊΣΥΦΟΣ ŉ ﬁn 世界 😀 é", "t": True, "f": False, "none_value": None,
    "list": [3, 1, 2], "words": ["b", "A", "c", "a"], "empty": [], "d": {"b": 1, "a": 2, "C": 3},
    "rows": [{"k": "x", "v": 1}, {"k": "y", "v": None}, {"k": "x", "v": 3}, {"v": 4}],
    "nested": {"a": {"b": [{"c": 5}]}}, "lines": "one\ntwo\n\n  three\r\nfour",
    "quotes": "it's \"q\" \\ \t\u0001\u200b", "html": "<a href=\"x\">&'</a>", "num": "42", "fnum": " 4.5e1 ",
}

CASES = """
## whitespace
a
{% if t %}
  b
{% endif %}
c
=
  {% if t %}x{% endif %}  {% if t %}
 y
   {% endif %}
z
=
a {%- if t -%}  b  {%- endif -%} c
=
  {%+ if t %}x{% endif +%}
y
=
  {# comment #}
a{# b #}c {#- d -#} e {#-#} f
=
{{ 1 }}
{{- 2 -}}
  {{ 3 }}
=
a{{+1}}{{-1}}|{{ -1 }}
=
{% raw %} {{ x }} {% if %} {%- endraw %} z
=
  {% raw -%}
  {{ a }}
  {%- endraw %}
b
=
{% for i in [1,2] %}
{{ i }}
{% endfor %}
=
\n\n{{ n }}\n\n
## literals
{{ 'a\\n\\t\\x41\\u00e9\\101\\q' }}|{{ "it's" }}|{{ 'a' 'b' "c" }}
=
{{ 1_000 }} {{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 1.5e3 }} {{ 1e-7 }} {{ 1e16 }} {{ 1e15 }} {{ 0.1 + 0.2 }}
=
{{ true }} {{ True }} {{ false }} {{ none }} {{ None }}
=
{{ [1, 'a', none, true, 1.5, (1,), {'k': "v'"}] }} {{ () }} {{ [] }} {{ {} }} {{ (1, 2) }}
=
{{ quotes }} {{ [quotes, "it's", 'q"'] }}
=
{{ {'a': {}} }} {{ {1: 2, none: 3, 1.5: 4, true: 5} }}
=
{{ big }} {{ 123456789012345680.0 }} {{ -0.0 }} {{ 5 / 2 }} {{ 4 / 2 }} {{ 100000.0 }} {{ 0.0001 }} {{ 0.00001 }}
## operators
{{ 1 + 2 * 3 - 4 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % -3 }} {{ -7 % 3 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }}
=
{{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 2.0 ** 3 }} {{ 0 ** 0 }}
=
{{ 'a' + 'b' }} {{ 'ab' * 3 }} {{ 2 * 'x' }} {{ 'a' * -1 }}| {{ [1] + [2] }} {{ [0] * 3 }} {{ (1,) + (2,) }}
=
{{ 'a' ~ 1 ~ none ~ true ~ 1.0 ~ missing ~ [1] }}
=
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ 1 == true }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 2 >= 2 }} {{ 'a' != 'b' }}
=
{{ 1 in [1] }} {{ 'ell' in s }} {{ 'a' in d }} {{ 5 not in list }} {{ not 1 in [2] }} {{ 'x' in missing }}
=
{{ t and f }} {{ f or 'x' }} {{ not t }} {{ 0 or '' or none }} {{ 1 and [] }} {{ not not 1 }}
=
{{ 'a' if t else 'b' }} {{ 'a' if f else 'b' }} {{ 'a' if f }} {{ 'a' if f else 'b' if f else 'c' }}
=
{{ -n }} {{ +n }} {{ -x }} {{ - -n }} {{ n - -1 }} {{ -true }}
=
{{ 1 + none }}
=
{{ 'a' + 1 }}
=
{{ 1 / 0 }}
=
{{ 1 // 0 }}
=
{{ 1 % 0 }}
=
{{ 1.5 / 0 }}
=
{{ 'a' < 1 }}
=
{{ 1 in 5 }}
=
{{ '%s is %d, %5.2f|%-5s|%05d|%x|%%' % (s, n, x, 'ab', n, 255) }} {{ '%s' % 'a' }} {{ '%(a)s' % d }} {{ '%r' % 'a' }} {{ '%+d' % 5 }} {{ '%g' % 1e10 }} {{ '%e' % x }}
=
{{ '%s %s' % (1,) }}
=
{{ '%s' % (1, 2) }}
=
{{ '%d' % 'a' }}
## access
{{ nested.a.b[0].c }} {{ nested['a']['b'][0]['c'] }} {{ nested.a.b.0.c }} {{ list[-1] }} {{ s[0] }}{{ s[-1] }} {{ u[1] }}
=
{{ s[1:4] }} {{ s[::-1] }} {{ s[-3:] }} {{ s[:-3] }} {{ s[::2] }} {{ s[10:2:-3] }} {{ u[-7:] }} {{ u[::-1] }}
=
{{ list[1:] }} {{ list[::-1] }} {{ list[:2] }} {{ list[5:] }} {{ (1, 2, 3)[1:] }} {{ list[-100:100] }} {{ list[100::-2] }}
=
{{ missing }}|{{ d.missing }}|{{ list[9] }}|{{ s.foo }}|{{ none.foo }}|{{ (5)['a'] }}|{{ 'abc'['x'] }}
=
{{ missing.a }}
=
{{ d.missing.a }}
=
{{ list[9].a }}
=
{{ none.foo.bar }}
=
{{ missing() }}
=
{{ missing + 1 }}
=
{{ missing['k'] }}
=
{{ d['k']['l'] }}
=
{{ s.foo.bar }}
=
{{ namespace().b.c }}
=
{{ missing[1:] }}
=
{{ -missing }}
=
{{ missing < 1 }}
=
{{ missing == missing2 }} {{ missing != 1 }} {{ missing | length }} {{ missing | list }} {{ [missing] }}
=
{% for i in missing %}x{% else %}none{% endfor %}
=
{{ d['items'] is callable }} {{ {'items': 1}['items'] }} {{ {'items': 1}.items is callable }}
=
{{ 5() }}
## statements
{% if n > 10 %}a{% elif n > 5 %}b{% elif n > 3 %}c{% else %}d{% endif %}
=
{% for i in list %}{{ loop.index }}/{{ loop.index0 }}/{{ loop.revindex }}/{{ loop.revindex0 }}/{{ loop.first }}/{{ loop.last }}/{{ loop.length }}/{{ loop.previtem }}/{{ loop.nextitem }}/{{ loop.depth }};{% endfor %}
=
{% for i in list if i > 1 %}{{ loop.index }}:{{ i }}:{{ loop.last }}:{{ loop.length }};{% else %}none{% endfor %}
=
{% for i in list if i > 10 %}{{ i }}{% else %}none{% endfor %}
=
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}
=
{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}{% for c in 'añ😀' %}[{{ c }}]{% endfor %}
=
{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}
=
{% for i in [1, 2] %}{% for j in [1, 2] %}{{ i }}{{ j }}{{ loop.index }} {% endfor %}{{ loop.index }}{% endfor %}
=
{% for i in list %}{{ loop.cycle('a', 'b') }}{{ loop.changed(i > 1) }}{% endfor %}
=
{% set ns = namespace(last=0) %}{% for i in [1, 2, 3, 4] if i > ns.last %}{% set ns.last = i + 1 %}{{ i }}{% endfor %}
=
{% set a = 1 %}{% for i in [1, 2] %}{{ a }}{% set a = a + i %}{{ a }} {% endfor %}{{ a }}
=
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, d) = [3, 4] %}{{ c }}{{ d }}{% set e = 1, %}{{ e }}
=
{% set x %}a {{ n }} b{% endset %}[{{ x }}]{% set y | upper | replace('A', 'z') %}abc{% endset %}{{ y }}
=
{% set ns = namespace(a=1, b='x') %}{% for i in list %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }}{% set ns.c = 5 %}{{ ns.c }}{{ ns.missing }}
=
{% set q = {} %}{% set q.a = 1 %}
=
{% with a = 1, b = n %}{{ a }}{{ b }}{% set c = 3 %}{% endwith %}{{ c }}{{ b }}
=
{% filter upper | trim %} abc {{ s }} {% endfilter %}
=
{% generation %}{{ s }}{% set z = 1 %}{% endgeneration %}{{ z }}
=
{% if t %}{% set inside = 1 %}{% endif %}{{ inside }}
=
{% for a, b in [1] %}{% endfor %}
=
{% for a, b in [(1, 2, 3)] %}{% endfor %}
=
{% for a, b in ['x'] %}{% endfor %}
=
{% for i in 5 %}{% endfor %}
=
{% for m in messages if m.role == 'user' or m.role == 'tool' %}{{ loop.index0 }}{{ m.role }}{% endfor %}
=
{{ raise_exception('no: ' ~ n) }}
=
{% if f %}{{ raise_exception('no') }}{% endif %}fine
=
{{ loop }}
## macros
{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 5) }} {{ m(1, c='y') }} {{ m(b=1, a=3) }} {{ m() }}
=
{% macro m(a) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, z=4) }}
=
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
=
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}
=
{% macro m(a) %}{{ a.b }}{% endmacro %}{{ m() }}
=
{% macro fact(k) %}{% if k > 1 %}{{ k * fact(k - 1) | int }}{% else %}1{% endif %}{% endmacro %}{{ fact(5) }}
=
{% set v = 1 %}{% macro m() %}{{ v }}{% endmacro %}{% set v = 2 %}{{ m() }}{% for i in [7] %}{{ m() }}{% endfor %}
=
{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(*[3, 4]) }}{{ m(**{'a': 5}) }}
=
{% macro m(x) %}
  {{ x }}
{% endmacro %}
[{{ m(1) }}] [{{ m(2) | trim }}] {{ m is callable }}
## filters
{{ '  a b ' | trim }}|{{ 'xxaxx' | trim('x') }}|{{ 5 | trim }}|{{ s | upper }} {{ s | lower }} {{ 'hELLO wORLD' | capitalize }} {{ "it's a-b (c) foo" | title }}
=
{{ u | upper }} {{ u | lower }} {{ u | capitalize }} {{ u | title }} {{ u.title() }} {{ u | length }}
=
{{ list | length }} {{ s | count }} {{ d | length }} {{ list | first }} {{ list | last }} {{ s | first }} {{ u | last }} [{{ empty | first }}]
=
{{ 5 | length }}
=
{{ list | join }} {{ list | join(', ') }} {{ rows | join('-', attribute='k') }} {{ 'abc' | join('.') }} {{ d | join('+') }}
=
{{ missing | default('x') }} {{ '' | default('x') }}| {{ '' | default('x', true) }} {{ none | d('x') }} {{ none | d('x', boolean=true) }} {{ missing.a | default(1) }}
=
{{ missing | d }}|{{ 0 | default(5, true) }}
=
{{ 'aXbXc' | replace('X', '-') }} {{ 'aaa' | replace('a', 'b', 2) }} {{ 'abc' | replace('', '-') }} {{ 'é' | replace('', '.') }} {{ 5 | replace(5, 6) }}
=
{{ d | items | list }} {{ missing | items | list }} {{ 'ab' | list }} {{ d | list }} {{ (1, 2) | list }}
=
{{ 5 | items | list }}
=
{{ num | int + 1 }} {{ 'x' | int }} {{ 'x' | int(9) }} {{ '0x1f' | int(base=16) }} {{ fnum | int }} {{ x | int }} {{ -2.7 | int }} {{ none | int }} {{ true | int }} {{ '1_000' | int }} {{ ' 7 ' | int }}
=
{{ fnum | float }} {{ 'x' | float }} {{ 'x' | float(1.5) }} {{ n | float }} {{ 'inf' | float }} {{ '1_0.5' | float }}
=
{{ neg | abs }} {{ -2.5 | abs }} {{ 2.5 | round }} {{ 3.5 | round }} {{ 2.675 | round(2) }} {{ 42 | round }} {{ 1234.5 | round(-2) }} {{ 42.55 | round(1, 'floor') }} {{ 42.51 | round(1, 'ceil') }} {{ 1250 | round(-2) }}
=
{{ html | escape }} {{ html | safe }} {{ 5 | string + 'a' }} {{ [1, 'a'] | string }} {{ none | string }}
=
{{ [3, 1, 2] | sort }} {{ words | sort }} {{ words | sort(case_sensitive=true) }} {{ list | sort(reverse=true) }} {{ rows | selectattr('k', 'defined') | sort(attribute='k') | map(attribute='v') | list }}
=
{{ ['b', 1] | sort }}
=
{{ ['a', 'A', 'b', 'a'] | unique | list }} {{ ['a', 'A'] | unique(true) | list }} {{ rows | unique(attribute='k') | map(attribute='v') | list }}
=
{{ list | reverse | list }} {{ s | reverse }} {{ u | reverse }} {{ d | dictsort }} {{ d | dictsort(true) }} {{ d | dictsort(false, 'value') }} {{ d | dictsort(reverse=true) }}
=
{{ rows | map(attribute='v') | list }} {{ rows | map(attribute='k', default='?') | list }} {{ words | map('upper') | join }} {{ ['a-b', 'c'] | map('replace', '-', '+') | list }} {{ [nested] | map(attribute='a.b.0.c') | list }}
=
{{ list | select('odd') | list }} {{ list | reject('odd') | list }} {{ [0, 1, '', 'a'] | select | list }} {{ list | select('>', 1) | list }} {{ words | select('in', ['a', 'b']) | list }}
=
{{ rows | selectattr('v') | map(attribute='v') | list }} {{ rows | selectattr('k', 'equalto', 'x') | list | length }} {{ rows | rejectattr('v', 'none') | map(attribute='v') | list }} {{ rows | selectattr('k', '==', 'y') | first }}
=
{% if rows | selectattr('k', 'equalto', 'zzz') %}generators are true{% endif %}{{ rows | selectattr('k', 'equalto', 'zzz') | list | length }}
=
{% set g = list | map('abs') %}{{ g | list }}{{ g | list }}
=
{{ lines | indent }}|{{ lines | indent(2, true) }}|{{ lines | indent(width=1, blank=true) }}|{{ 'a\\n' | indent }}|{{ 'a\\nb' | indent('> ') }}
=
{{ [1, 2, 3, 4, 5] | batch(2) | list }} {{ [1, 2, 3] | batch(2, 0) | list }} {{ [1, 2, 3, 4, 5] | slice(3) | list }} {{ [1, 2] | slice(3, 'x') | list }}
=
{{ list | min }} {{ list | max }} {{ words | max }} {{ list | sum }} {{ rows | sum(attribute='v', start=1) }}
=
{{ [1, 2] | sum }} {{ ['ab', 'c'] | map('length') | sum }} {{ 'a b-c d_e' | wordcount }} {{ 'foo bar baz qux' | truncate(9) }} {{ 'foo bar baz qux' | truncate(9, true) }} {{ 'ab' | center(6) }}| {{ 'abc' | center(6) }}| {{ 'ab' | center(5) }}|
=
{{ '%s-%s' | format(1, 'a') }} {{ '%(a)s' | format(a=2) }}
=
{{ d | attr('items') is callable }} {{ d | attr('a') is defined }}
=
{{ (list | sort)[0] }} {{ -1 | abs }} {{ 'a' | upper ~ 'b' }} {{ 'a' ~ 'b' | upper }} {{ 1 + 2 | string | length }}
=
{{ x | nosuchfilter }}
=
{{ list | map('nosuchfilter') | list }}
=
{{ 'a' | upper('b') }}
=
{{ 'a' | replace('b') }}
## tojson
{{ messages | tojson }} {{ d | tojson }} {{ u | tojson }} {{ quotes | tojson }} {{ [1.0, 1e20, true, none, (1, 2)] | tojson }} {{ {1: 2, none: 3, true: 4} | tojson }}
=
{{ nested | tojson(indent=2) }} {{ {} | tojson(indent=2) }} {{ [[], [1]] | tojson(indent=1) }} {{ d | tojson(indent='--') }}
=
{{ d | tojson(sort_keys=true) }} {{ d | tojson(separators=(',', ':')) }} {{ u | tojson(ensure_ascii=true) }}
=
{{ missing | tojson }}
=
{{ [missing] | tojson }}
=
{{ d.items() | tojson }}
=
{{ 'a' | tojson ~ '</b>' | tojson }} {{ s | tojson | length }}
## tests
{{ missing is defined }} {{ s is defined }} {{ missing is undefined }} {{ none is none }} {{ s is string }} {{ n is number }} {{ n is integer }} {{ x is float }} {{ t is boolean }} {{ t is number }} {{ t is integer }} {{ t is true }} {{ f is false }} {{ 1 is true }}
=
{{ d is mapping }} {{ list is mapping }} {{ list is iterable }} {{ s is iterable }} {{ n is iterable }} {{ list is sequence }} {{ d is sequence }} {{ d.items() is sequence }} {{ n is sequence }} {{ range is callable }} {{ missing is iterable }} {{ missing is sequence }} {{ missing is callable }}
=
{{ 3 is odd }} {{ 3 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ 1 is eq 1 }} {{ 1 is equalto 2 }} {{ 1 is ne 2 }} {{ 1 is lt 2 }} {{ 2 is le 2 }} {{ 3 is gt 2 }} {{ 3 is ge 4 }} {{ 1 is sameas 1 }} {{ 'a' is in 'abc' }} {{ 1 is in [1] }}
=
{{ n is not none }} {{ not n is none }} {{ s is not string }} {{ 'abc' is lower }} {{ 'ABC' is upper }} {{ 'Abc' is upper }} {{ 'upper' is filter }} {{ 'odd' is test }} {{ 3.0 is odd }}
=
{{ n is nosuchtest }}
=
{{ 1 is defined is defined }}
=
{{ 'x' if missing is defined else 'y' }} {{ s is defined and n is number }}
## strings
{{ 'a b  c'.split() }} {{ 'a,b,,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ ' a  b c '.split(none, 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ' a b  c '.rsplit(maxsplit=1) }} {{ ''.split() }} {{ ''.split(',') }}
=
{{ '  a '.strip() }}|{{ '  a '.lstrip() }}|{{ '  a '.rstrip() }}|{{ 'xyaxy'.strip('xy') }}|{{ 'éaé'.strip('é') }}|{{ '\\n\\ta\\n'.rstrip('\\n') }}|{{ 'a'.strip('') }}
=
{{ s.startswith('Hell') }} {{ s.endswith(('x', 'ld')) }} {{ s.startswith('World', 6) }} {{ s.startswith('') }} {{ s.endswith('zzz') }} {{ s.startswith(()) }}
=
{{ s.replace('l', 'L') }} {{ s.replace('l', 'L', 1) }} {{ s.upper() }} {{ s.lower() }} {{ "they're bill's".title() }} {{ 'hELLO'.capitalize() }}
=
{{ s.find('o') }} {{ s.find('o', 5) }} {{ s.rfind('o') }} {{ s.find('zz') }} {{ u.find('世') }} {{ s.count('l') }} {{ s.index('W') }} {{ 'aaa'.count('aa') }} {{ 'abc'.count('') }} {{ 'abc'.find('', 9) }}
=
{{ s.index('zz') }}
=
{{ ', '.join(['a', 'b']) }} {{ '-'.join('abc') }} {{ ''.join([]) }}
=
{{ ', '.join([1]) }}
=
{{ lines.splitlines() }} {{ lines.splitlines(true) }} {{ 'a\\n'.splitlines() }} {{ ''.splitlines() }} {{ 'a\\u2028b\\x0bc'.splitlines() }}
=
{{ '12'.isdigit() }} {{ ''.isdigit() }} {{ 'a1'.isalnum() }} {{ 'ab'.isalpha() }} {{ 'é世'.isalpha() }} {{ ' \\n'.isspace() }} {{ 'AB1'.isupper() }} {{ 'ab'.islower() }} {{ 'Ab Cd'.istitle() }} {{ '²'.isdigit() }} {{ '²'.isdecimal() }} {{ '½'.isnumeric() }} {{ 'a'.isascii() }}
=
{{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'abc'.partition('x') }} {{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('c') }} {{ '7'.zfill(3) }} {{ '-7'.zfill(4) }} {{ 'a'.ljust(3) }}| {{ 'a'.rjust(3, '.') }} {{ 'a'.center(4, '*') }}
=
{{ '{} {}'.format(1, 'a') }} {{ '{1} {0}'.format(1, 2) }} {{ '{a:>5}|{b:<5}|{c:^5}'.format(a=1, b='x', c='y') }} {{ '{:.2f} {:05d} {:x} {:,}'.format(2.345, 42, 255, 1234567) }} {{ '{{}}'.format() }} {{ '{!r}'.format('a') }}
=
{{ '{}'.format() }}
=
{{ 'a'.split('') }}
=
{{ u.split(' ') }} {{ u.upper() }} {{ u.lower() }} {{ u.capitalize() }} {{ 'ΑΣ'.lower() }} {{ 'ǆ'.title() }}
=
{{ 'a\\u00a0b\\u3000c'.split() }} {{ '\\u00a0a\\u2003'.strip() }}|
## containers
{{ d.keys() | list }} {{ d.values() | list }} {{ d.items() | list }} {{ d.get('a') }} {{ d.get('zz') }} {{ d.get('zz', 5) }} {{ d.keys() }} {{ d.copy() }} {{ 'a' in d.keys() }} {{ d.items() | length }}
=
{{ dict(a=1, b=2) }} {{ dict([('a', 1)]) }} {{ dict(d, z=9) }} {{ dict() }}
=
{{ list.index(1) }} {{ list.count(3) }} {{ (1, 2, 1).count(1) }}
=
{{ range(3) | list }} {{ range(1, 4) | list }} {{ range(5, 0, -2) | list }} {{ range(3)[1] }} {{ range(0) | list }} {{ range(2) }} {{ 1 in range(3) }}
=
{{ range(200000) }}
=
{{ range(1, 5, 0) }}
=
{{ messages[-1].content }} {{ messages[1:] | length }} {{ messages[::-1][0].role }} {{ messages | map(attribute='role') | join(',') }}
=
{{ {'a': 1, 'a': 2} }} {{ {'x': [1, {'y': 2}]}.x[1].y }}
=
{{ {[1]: 2} }}
=
{{ d == {'a': 2, 'b': 1, 'C': 3} }} {{ [1, [2]] == [1, [2]] }} {{ (1,) == [1] }} {{ {'a': 1} != {'a': 2} }}
## syntax
{% if t %}a
=
{% endif %}
=
{% for i in list %}a{% endif %}
=
{{ 1 + }}
=
{{ 'a }}
=
{{ (1 }}
=
{{ [1, 2 }}
=
{{ a b }}
=
{% nosuchtag %}
=
{% break %}
=
{# open
=
{% raw %} open
=
{{ 1 }
=
{% set 1 = 2 %}
=
{% macro m(a=1, b) %}{% endmacro %}
=
{{ m(a=1, 2) }}
=
{{ }}
=
{{ a. }}
=
{{ $ }}
=
{% if %}{% endif %}
=
{{ 5abc }}
=
{{ '\\x4' }}
"""


def cases():
    section = ""
    pending = []
    for line in CASES.strip("\n").split("\n"):
        if line.startswith("## ") or line == "=":
            if pending:
                yield section, "\n".join(pending)
            pending = []
            section = line[3:] if line.startswith("## ") else section
        else:
            pending.append(line)
    yield section, "\n".join(pending)


def main():
    env = environment()
    rows = []
    counts = {}
    for section, template in cases():
        if section == "whitespace":
            template = template.replace("\\n", "\n")
        counts[section] = counts.get(section, 0) + 1
        rows.append({"name": f"{section} {counts[section]}", "template": template,
                     **render(env, template, VARS)})
    text = json.dumps({"input": VARS, "cases": rows}, ensure_ascii=False, indent=1) + "\n"
    if "--check" in sys.argv[1:]:
        sys.exit(0 if OUT.read_text() == text else "tests/data/jinja_cases.json is out of date")
    OUT.write_text(text)
    print(len(rows), "cases in", OUT, file=sys.stderr)


if __name__ == "__main__":
    main()
