"""Chat templates that ask for too much: too much time, memory, or C stack.

`python tests/support/hostile_templates.py` renders each in its own process, and prints the CPU
seconds and the memory that it took.
"""

from __future__ import annotations

import subprocess
import sys

_BIG = "{% set a = 'ab' * 10**6 %}"
_DOUBLED = "{% set n = namespace(a=['x']) %}{% for i in range(60) %}{% set n.a = A %}{% endfor %}"


def _doubled(value: str, use: str) -> str:
    return _DOUBLED.replace("A", value) + use


def _loop(body: str, times: int = 100_000) -> str:
    return f"{{% for i in range({times}) %}}{body}{{% endfor %}}"


def _grown(body: str, begin: str = "''") -> str:
    return f"{{% set n = namespace(a={begin}, b=[]) %}}" + _loop(_loop(body))


# Stopped by counting steps.
LONG: dict[str, str] = {
    "nested loops": _loop(_loop(_loop("", 100_000))),
    "loops that print": _loop(_loop("{{ i }}")),
    "a filtered loop": _loop("{% for j in range(100000) if false %}{% endfor %}"),
    "a recursive loop": "{% for i in [1, 2, 3] recursive %}{{ loop([1, 2, 3]) }}{% endfor %}",
    "macros that call twice": "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}"
    "{% endmacro %}{{ m(99) }}",
    "callers": "{% macro m(n) %}{% if n %}{% call m(n - 1) %}{% endcall %}"
    "{{ m(n - 1) }}{{ caller }}"
    "{% endif %}{% endmacro %}{% call m(99) %}{% endcall %}",
    "blocks that call twice": "{% set n = namespace(a=0) %}{% block b %}{% set n = 1 %}"
    "{% for i in range(9) %}{{ self.b() }}{% endfor %}{% endblock %}",
    "many statements in a loop": _loop("{% set x = 1 %}" * 5_000),
    "map in a loop": _loop("{% set x = range(100000)|map('string')|list %}"),
    "select in a loop": _loop("{% set x = range(100000)|select('none')|list %}"),
    "map over map": _loop("{% set x = range(100000)" + "|map('abs')" * 40 + "|list|length %}"),
    "attributes of attributes": "{% set x = 'a' * 10**5 %}{% set x = ['a'] * 10**5 %}"
    "{{ x|map(attribute='" + "0." * 20_000 + "0')|list|length }}",
    "sort in a loop": _loop("{% set x = range(100000)|sort|length %}"),
    "groups in a loop": _loop("{% set x = range(100000)|groupby('real')|length %}"),
    "search in a long text": _BIG + _loop("{% if 'ba' * 50 + 'c' in a %}{% endif %}"),
    "compare long texts": _BIG + "{% set b = 'ab' * 10**6 %}" + _loop("{{ a == b }}" * 100),
    "methods of a long text": _BIG + _loop("{% set x = a.find('c') %}" * 100),
    "tests of a long text": _BIG + _loop("{{ a is upper }}"),
    "search backward": "{% set a = 'a' * 10**6 %}{% set b = 'ab' + 'a' * 5 * 10**5 %}"
    "{{ a.rfind(b) }}",
    "split backward": "{% set a = 'a' * 10**6 %}{{ a.rsplit('ab' + 'a' * 5 * 10**5)|length }}",
    "search in a list": "{% set a = ['x'] * 10**6 %}" + _loop("{{ 'y' in a }}"),
    "list.index in a loop": "{% set a = ['x'] * 10**6 %}" + _loop("{{ a.count('y') }}"),
    "tags without an end": "{{ ('<!---->' * 10**5)|striptags|length }}",
    "one letter to a line": "{{ ('a' * 10**6)|wordwrap(1)|length }}",
    "doubled lists compared": _doubled("[n.a, n.a]", "{{ n.a == [n.a[0], n.a[1]] }}"),
    "doubled tuples as a key": _doubled("(n.a, n.a)", "{{ {n.a: 1} }}").replace("['x']", "()"),
    "doubled tuples looked up": _doubled("(n.a, n.a)", "{{ {}[n.a] }}").replace("['x']", "()"),
    "doubled tuples got": _doubled("(n.a, n.a)", "{{ {}.get(n.a) }}").replace("['x']", "()"),
    "doubled tuples in a dict": _doubled("(n.a, n.a)", "{{ n.a in {} }}").replace("['x']", "()"),
    "doubled arguments": "{% macro m(n) %}{% if n %}{{ m(n - 1, varargs, varargs) }}"
    "{% else %}{{ varargs }}{% endif %}{% endmacro %}{{ m(60, 1) }}",
    "doubled groups": "{% set n = namespace(a=[1]) %}"
    + "{% for i in range(60) %}{% set n.a = [n.a, n.a]|batch(2)|list %}{% endfor %}{{ n.a }}",
    "doubled lists printed": _doubled("[n.a, n.a]", "{{ n.a }}"),
    "doubled lists joined": _doubled("[n.a, n.a]", "{{ n.a ~ 'x' }}"),
    "doubled lists as JSON": _doubled("[n.a, n.a]", "{{ n.a|tojson }}"),
    "doubled lists pretty": _doubled("[n.a, n.a]", "{{ n.a|pprint }}"),
    "doubled lists formatted": _doubled("[n.a, n.a]", "{{ '%s' % [n.a] }}"),
    "doubled lists in format": _doubled("[n.a, n.a]", "{{ '{!r}'.format(n.a) }}"),
    "doubled lists refused": _doubled("[n.a, n.a]", "{{ raise_exception(n.a) }}"),
    "doubled lists in upper case": _doubled("[n.a, n.a]", "{{ n.a|upper }}"),
    "doubled lists sorted": _doubled("[n.a, n.a]", "{{ [n.a, n.a]|sort }}"),
    "doubled lists unique": _doubled("(n.a, n.a)", "{{ [n.a, n.a]|unique|list }}"),
    "doubled dicts printed": _doubled("{1: n.a, 2: n.a}", "{{ n.a.values() }}"),
}

# Stopped by counting bytes, or because one operation is too large.
LARGE: dict[str, str] = {
    "a width in %": "{{ '%999999999d' % 1 }}",
    "a precision in %": "{{ '%.0000000000000000999999999f' % 1 }}",
    "a width given to %": "{{ '%*d' % (999999999, 1) }}",
    "a named width in %": "{{ '%((a))999999999d' % {'(a)': 1} }}",
    "a long value many times": _BIG + "{{ ('%(a)s' * 10**4) % {'a': a} }}",
    "a width in the filter format": "{{ '%999999999d'|format(1) }}",
    "a width in a test": "{{ '%999999999d' is odd }}",
    "a width in format": "{{ '{:999999999}'.format(1) }}",
    "a width in format, nested": "{{ '{:{w}}'.format(1, w=999999999) }}",
    "a width in format_map": "{{ '{a:999999999}'.format_map({'a': 1}) }}",
    "a long field many times": _BIG + "{{ ('{0}' * 10**4).format(a) }}",
    "center": "{{ 'x'|center(10**9) }}",
    "center, the method": "{{ 'x'.center(10**9) }}",
    "ljust": "{{ 'x'.ljust(10**9) }}",
    "rjust": "{{ 'x'.rjust(10**9) }}",
    "zfill": "{{ 'x'.zfill(10**9) }}",
    "zfill of an escaped text": "{{ ('x'|e).zfill(10**9) }}",
    "expandtabs": "{{ '\\t'.expandtabs(10**9) }}",
    "translate": _BIG + "{{ a.translate({97: a}) }}",
    "indent": "{{ ('a\\n' * 10**4)|indent(10**7) }}",
    "indent by a text": _BIG + "{{ ('a\\n' * 10**4)|indent(a) }}",
    "batch": "{{ [1]|batch(10**9, 'x')|list }}",
    "replace by a longer text": _BIG + "{{ a|replace('a', a) }}",
    "replace nothing": _BIG + "{{ a|replace('', a) }}",
    "join by a long text": _BIG + "{{ range(10**5)|join(a) }}",
    "many times": "{{ ('x' * 10**7) * 10 }}",
    "many times many": "{{ ('x' * 6 * 10**7) ~ ('x' * 6 * 10**7) }}",
    "nothing many times": "{{ ('' * 10**15)|length }}{{ ('x' * 6 * 10**7) ~ ('y' * 6 * 10**7) }}",
    "doubled text": "{% set n = namespace(a='x') %}" + _loop("{% set n.a = n.a + n.a %}"),
    "doubled text, all of it kept": _grown(
        "{% set n.a = n.a ~ 'x' * 9999 %}{% set n.b = [n.b, n.a] %}"
    ),
    "doubled list": "{% set n = namespace(a=[1]) %}" + _loop("{% set n.a = n.a + n.a %}"),
    "many lists": _grown("{% set n.b = [n.b, [], [], {}, {}, {'a': 1}, {'a': [2]}] %}"),
    "many texts": _grown("{% set n.b = [n.b, i ~ 'a', i ~ 'b', i ~ 'c', i ~ 'd'] %}"),
    "many namespaces": _grown("{% set n.b = [n.b, namespace(a=1), namespace(b=1)] %}"),
    "many wide texts": _grown("{% set n.b = [n.b, i ~ '\U0001f642' * 1000] %}"),
    "lists, shorter and shorter": "{% set n = namespace(a=range(100000)|list, b=[]) %}"
    + _loop("{% set n.a = n.a[1:] %}{% set n.b = [n.b, n.a] %}"),
    "copies of a list": "{% set a = range(100000)|list %}{% set n = namespace(b=[]) %}"
    + _loop("{% set n.b = [n.b, a.copy(), a|list, a|reverse|reverse] %}"),
    "copies of a dict": "{% set a = dict(('ab' * 10**5)|batch(2)) %}"
    + "{% set n = namespace(b=[]) %}"
    + _loop("{% set n.b = [n.b, dict(a), a.copy()] %}"),
    "letters of a long text": "{{ ('x' * 6 * 10**7)|list|length }}",
    "backward": "{{ ('x' * 6 * 10**7)|reverse ~ 'y' * 6 * 10**7 }}",
    "lines of a long text": "{{ ('\\n' * 6 * 10**7).splitlines()|length }}",
    "words of a long text": "{{ ('a ' * 3 * 10**7).split()|length }}",
    "parts of a long text": "{{ ('a,' * 3 * 10**7).split(',')|length }}",
    "title": "{{ ('a ' * 3 * 10**7)|title|length }}",
    "wordcount": "{{ ('a ' * 3 * 10**7)|wordcount }}",
    "escape": "{{ ('<' * 6 * 10**7)|e|length }}",
    "urlencode": "{{ ('<' * 6 * 10**7)|urlencode|length }}",
    "ß in upper case": "{{ ('ß' * 3 * 10**7)|upper|length }}{{ 'x' * 6 * 10**7 }}",
    "JSON with a wide margin": "{{ (range(10**5)|list)|tojson(indent=10**6) }}",
    "JSON with long separators": _BIG + "{{ (range(10**5)|list)|tojson(separators=(a, a)) }}",
    "one text many times in a list": _BIG + "{{ ([a] * 10**5)|tojson|length }}",
    "a large power": "{{ 10 ** 999999999 }}",
    "a number squared": "{% set n = namespace(a=3) %}" + _loop("{% set n.a = n.a * n.a %}"),
    "a number rounded up": "{{ 1.5|round(10**9, 'floor') }}",
    "a number rounded": "{{ 5|round(-10**9) }}",
    "a number from text": "{{ ('f' * 10**6)|int(0, 16) }}",
    "a number to bytes": "{{ 5 .to_bytes(10**9, 'big') }}",
    "bytes": "{{ 'x'.encode().center(10**9) }}",
    "bytes formatted": "{{ '%999999999d'.encode() % 1 }}",
    "punycode": "{{ ('ßä' * 10**5).encode('punycode') }}",
    "dict.fromkeys": "{{ {}.fromkeys(range(10**5), 1) }}",
    "sum of lists": "{{ ([[1] * 10**3] * 10**5)|sum(start=[])|length }}",
    "a date": "{{ strftime_now('%Y' * 10**5) }}",
    "deep lists": "{% set n = namespace(a=()) %}"
    + _loop("{% set n.a = (n.a,) %}")
    + "{{ {n.a: 1} }}",
    "deep generators": "{% set n = namespace(a=[1]) %}" + _loop("{% set n.a = n.a|map('abs') %}"),
    "a long template": "{{ 1 }}" * 50_000,
}

_ALONE = """
import resource, sys, time
from bpe_tokenizer import BPETokenizer
tokenizer = BPETokenizer()
message = [{"role": "user", "content": "Hello!"}]
tokenizer.apply_chat_template(message, "{{ messages[0].content }}", tokenize=False)
before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
try:
    text = tokenizer.apply_chat_template(message, sys.stdin.read(), tokenize=False)
    said = f"{len(text):,} characters"
except ValueError as error:
    said = str(error)
spent = time.process_time() - begin
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(f"{spent:.2f} s  {memory / 1024:5.0f} MB  {said[:90]}")
"""


def main() -> None:
    for name, template in {**LONG, **LARGE}.items():
        if len(sys.argv) > 1 and sys.argv[1] not in name:
            continue
        command = [sys.executable, "-c", _ALONE]
        try:
            done = subprocess.run(
                command, input=template, capture_output=True, text=True, timeout=60, check=False
            )
        except subprocess.TimeoutExpired:
            print(f"{name:30} no answer in 60 s", flush=True)
            continue
        print(
            f"{name:30} {done.stdout.strip() or done.stderr[-200:] or done.returncode}", flush=True
        )


if __name__ == "__main__":
    main()
