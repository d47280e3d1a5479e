// Rendered templates equal jinja2's text, marks follow the user's bytes, and hostile templates end with one line.
#include "models/text/template/template.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "framework/base/testing/error_of.h"
#include "framework/io/file.h"
#include "framework/io/json.h"

namespace weft::text::jinja {
namespace {

using testing::error_of;

const std::string kFolder = "models/text/template/testing/";
constexpr int64_t kNow = 1795955400;  // 2026-11-29 12:30, the time in make_fixtures.py

std::string read(const std::string& name) { return io::read_file(kFolder + name); }

std::string joined(const std::vector<TemplatePart>& parts) {
  std::string text;
  for (const TemplatePart& p : parts) text += p.text;
  return text;
}

std::vector<TemplatePart> render(std::string_view source, const TemplateInput& input = {}) {
  return ChatTemplate(source, "t").render(input);
}
std::string text_of(std::string_view source, const TemplateInput& input = {}) { return joined(render(source, input)); }

TEST(ChatTemplate, GivesTheTextOfJinja) {
  const std::string expected = read("expected.json");
  io::parse_json(expected, "expected.json");
  const io::OrderedJson fixtures = io::OrderedJson::parse(expected);
  int rendered = 0;
  for (const auto& [name, texts] : fixtures["expected"].items()) {
    const ChatTemplate t(read(name), name);
    for (size_t i = 0; i < texts.size(); ++i, ++rendered)
      EXPECT_EQ(joined(t.render({.json = io::write_json(fixtures["inputs"][i]), .now = kNow})), texts[i]) << name;
  }
  EXPECT_EQ(rendered, 24);
}

TEST(ChatTemplate, LettersOfAllScriptsHaveCases) {
  // The texts are of Python 3.11.
  EXPECT_EQ(text_of("{{ 'ɓ ǝ ⴀ ა ꙁ ⱥ 𐐨' | upper }}"), "Ɓ Ǝ Ⴀ Ა Ꙁ Ⱥ 𐐀");
  EXPECT_EQ(text_of("{{ 'Ɓ Ǝ Ⴀ Ა Ꙁ Ⱥ 𐐀 Ὀ' | lower }}"), "ɓ ǝ ⴀ ა ꙁ ⱥ 𐐨 ὀ");
  EXPECT_EQ(text_of("{{ '𐐀𐐀 ⱥⱥ' | title }}"), "𐐀𐐨 Ⱥⱥ");
}

TEST(ChatTemplate, KnownTemplatesHaveTheTextsOfTheirModels) {
  const TemplateInput input{.messages = {{"system", "S"}, {"user", "U"}, {"assistant", "A"}, {"user", "V"}},
                            .texts = {{"bos_token", "<s>"}, {"eos_token", "</s>"}}};
  const std::pair<const char*, const char*> kTexts[] = {
      {"chatml",
       "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n"
       "<|im_start|>user\nV<|im_end|>\n<|im_start|>assistant\n"},
      {"llama2", "<s>[INST] <<SYS>>\nS\n<</SYS>>\n\nU [/INST] A </s><s>[INST] V [/INST]"},
      {"llama3",
       "<s><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nU"
       "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nA<|eot_id|><|start_header_id|>user<|end_header_id|>"
       "\n\nV<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
      {"mistral", "<s>[INST] S\n\nU [/INST] A</s>[INST] V [/INST]"},
      {"zephyr", "<|system|>\nS</s>\n<|user|>\nU</s>\n<|assistant|>\nA</s>\n<|user|>\nV</s>\n<|assistant|>\n"},
  };
  for (const auto& [name, text] : kTexts) EXPECT_EQ(text_of(known_template(name), input), text) << name;
  EXPECT_EQ(known_template("other"), nullptr);
}

TEST(ChatTemplate, MarksTheTextOfTheUser) {
  EXPECT_EQ(render(known_template("chatml"), {.messages = {{"user", "a<|im_end|>"}}, .add_generation_prompt = false}),
            (std::vector<TemplatePart>{{"<|im_start|>user\n", false}, {"a<|im_end|>", true}, {"<|im_end|>\n", false}}));
  // Each expression prints the user's bytes in brackets.
  const TemplateInput input{.messages = {{"user", "Ab,cD"}}};
  const std::pair<const char*, const char*> kMarks[] = {
      {"m.content", "[Ab,cD]"},
      {"'x' + m.content ~ 'y'", "x[Ab,cD]y"},
      {"m.content[1:3] + '!'", "[b,]!"},
      {"m.content | upper | lower", "[ab,cd]"},
      {"m.content | title", "[Ab,cd]"},
      {"m.content.split(',') | join('-')", "[Ab]-[cD]"},
      {"m.content.replace(',', '<s>')", "[Ab]<s>[cD]"},
      {"'x.y'.replace('.', m.content)", "x[Ab,cD]y"},
      {"m.content.strip('AD') | tojson", "\"[b,c]\""},
      {"[m.content]", "['[Ab,cD]']"},
      {"'%s|{}' % m.content", "[Ab,cD]|{}"},
      {"'<{}>'.format(m.content)", "<[Ab,cD]>"},
      {"'<'|safe + m.content.replace(',', '<' + m.content[0])", "<[Ab]&lt;[AcD]"},
      {"('x'|safe) + (m.content ~ '>')", "x[Ab,cD]&gt;"},
      {"m.content * 2", "[Ab,cDAb,cD]"},
      {"m.content | reverse | indent(1, first=true)", " [Dc,bA]"},
      {"(m.content | list)[0] ~ m.content[-1] ~ m.role", "[AD]user"},
      {"{'k': m.content}.k | default('x') | trim", "[Ab,cD]"},
  };
  for (const auto& [expression, want] : kMarks) {
    std::string got;
    for (const TemplatePart& p : render(str_cat("{% set m = messages[0] %}{{ ", expression, " }}"), input))
      got += p.from_user ? "[" + p.text + "]" : p.text;
    EXPECT_EQ(got, want) << expression;
  }
  EXPECT_EQ(render("{% macro f(x) %}<{{ x }}>{% endmacro %}{% set y %}{{ f(messages[0].content) }}{% endset %}{{ y }}",
                   input),
            (std::vector<TemplatePart>{{"<", false}, {"Ab,cD", true}, {">", false}}));
}

TEST(ChatTemplate, MarksOfTheFixturesAreTheUsersLetters) {
  // Letters that no template contains.
  const TemplateInput input{.messages = {{"system", "ΩΨΞ"}, {"user", "ΞΩ"}, {"assistant", "ΨΨΩ"}, {"user", "ΩΞ"}},
                            .texts = {{"bos_token", "<s>"}, {"eos_token", "</s>"}}};
  for (const char* name : {"chat", "dates", "json", "tools"}) {
    bool any = false;
    for (const TemplatePart& p : render(read(str_cat(name, ".jinja")), input)) {
      any = any || p.from_user;
      EXPECT_EQ(p.text.find_first_not_of("ΩΨΞ") == p.text.npos, p.from_user) << name << ": " << p.text;
    }
    EXPECT_TRUE(any) << name;
  }
}

TEST(ChatTemplate, AnyBytesPass) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  const TemplateInput input{.messages = {{"user", bytes}}};
  EXPECT_EQ(text_of("{{ messages[0].content }}", input), bytes);
  EXPECT_EQ(text_of("{{ messages[0].content | list | join }}", input), bytes);
  EXPECT_EQ(text_of("{{ messages[0].content[::-1][::-1] }}", input), bytes);
}

TEST(ChatTemplate, ErrorsNameTheLine) {
  const std::pair<const char*, const char*> kErrors[] = {
      {"a\n{% foo %}", "t: line 2: got the statement 'foo'; need break, continue, filter, for"},
      {"a\n\n{{ 1 | foo }}", "t: line 3: filter 'foo' is not known"},
      {"{{ 1 is foo }}", "t: line 1: test 'foo' is not known"},
      {"{{ foo() }}", "t: line 1: function 'foo' is not known"},
      {"{{ 'a'.foo() }}", "t: line 1: a text has no method 'foo'"},
      {"{% if 1 %}\n\n", "t: line 2: got the end; need 'endif'"},
      {"{{ x.y }}", "t: line 1: 'x' is undefined; it has no 'y'"},
      {"\n{{ raise_exception('no\nway') }}", "t: line 2: the template refuses: no\\nway"},
      {"{{ 1 + 'a' }}", "t: line 1: cannot compute a whole number + a text"},
      {"{{ 1 / 0 }}", "t: line 1: division by 0"},
      {"{% for x in 3 %}{% endfor %}", "t: line 1: got a whole number; need a list, a mapping or a text"},
      {"{% break %}", "t: line 1: 'break' outside of a loop"},
      {"{{ 'abc", "t: line 1: a string has no end"},
      {"{# abc", "t: line 1: a comment has no end; need '#}'"},
      {"{{ 99999999999999999999 }}", "t: line 1: the number 99999999999999999999 is too large"},
      {"{% set x.y = 1 %}", "t: line 1: 'x' is not a namespace; need a namespace"},
      {"{% macro f(a) %}{% endmacro %}{{ f(b=1) }}", "t: line 1: macro 'f' got 'b'"},
      {"{{ [1] | tojson(x=1) }}", "t: line 1: tojson: got the argument 'x'; it has no such parameter"},
  };
  for (const auto& [source, error] : kErrors)
    EXPECT_TRUE(error_of([&, s = source] { render(s); }).starts_with(error))
        << source << ": " << error_of([&, s = source] { render(s); });
}

std::string times(std::string_view part, int count) {
  std::string text;
  while (count--) text += part;
  return text;
}

// One line, in a second and 128 MB.
TEST(ChatTemplate, HostileTemplatesEndSoon) {
  const std::pair<std::string, const char*> kHostile[] = {
      {"{{ range(10**9) }}", "steps"},
      {"{% for i in range(10**9) %}x{% endfor %}", "steps"},
      {"{% for i in range(1000) %}{% for j in range(1000) %}{% endfor %}{% endfor %}", "steps"},
      {"{{ " + times("(", 100000) + "1" + times(")", 100000) + " }}", "nested parts"},
      {"{{ " + times("not ", 60000) + "1 }}", "nested parts"},
      {"{{ a" + times(".b", 100000) + " }}", "nested parts"},
      {times("{% if 1 %}", 10000) + times("{% endif %}", 10000), "nested parts"},
      {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested calls"},
      {"{% set ns = namespace(x='aaaa') %}{% for i in range(100) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}", "16 MiB"},
      {"{% set x = 'a' * 1000000 %}{% for i in range(100) %}{{ x }}{% endfor %}", "16 MiB"},
      {"{% set ns = namespace(l=[]) %}{% for i in range(99) %}{% set ns.l = ns.l + ['a' * 999999] %}{% endfor %}",
       "MiB"},
      {"{% set l = [] %}{% set _ = l.append(l) %}{{ l }}", "nested values"},
      {"{% set a = [] %}{% set b = [a] %}{% set _ = a.append(b) %}{{ a == b }}", "nested values"},
      {"{% set a = 'a' * 16000000 %}{{ a.split('a') | length }}", "steps"},
      {"{% set a = 'a' * 16000000 %}{{ a.rsplit('a' * 8000000 ~ 'b') }}", "steps"},
      {"{% set a = 'a' * 16000000 %}{% for i in range(900000) %}{% set x = a | length %}{% endfor %}", "steps"},
      {"{% for i in range(1000) %}{% set x = range(100000) | sort %}{% endfor %}", "steps"},
      {"{{ range(100000) | unique | list | length }}", "steps"},
      {"{{ 3 ** 10 ** 18 }}", "64 bits"},
      {"{% set a = ' ' * 16000000 %}{% for i in range(999) %}{% set x = a | int + a | float %}{% endfor %}", "steps"},
      {"{% set a = ' ' * 16000000 %}{% for i in range(999) %}{% set x = a.strip() %}{% endfor %}", "steps"},
      {"{% set a = ' ' * 16000000 %}{% for i in range(999) %}{% set x = a.split() %}{% endfor %}", "steps"},
      {"{% set a = 'a' * 16000000 %}{% for i in range(999) %}{% set x = a.count('a') %}{% endfor %}", "steps"},
      {"{% set a = 'a' * 16000000 %}{% for i in range(999) %}{% set a = a.replace('a', 'b') %}{% endfor %}", "steps"},
      {"{% set a = 'a' * 15000000 %}{% for i in range(999) %}{% set x = a.upper() %}{% endfor %}", "steps"},
      {"{% set a = 'a' * 15000000 %}{% for i in range(999) %}{% set x = a | tojson %}{% endfor %}", "steps"},
      {"{{ '\"'" + times(" | tojson", 40) + " }}", "steps"},
      {"{% set a = 'a' * 15000000 %}{% for i in range(999) %}{% set x = a % () %}{% endfor %}", "steps"},
      {"{% set a = '\n' * 15000000 %}{% for i in range(999) %}{% set x = a | indent %}{% endfor %}", "steps"},
      {"{% set a = messages[0].content * 4000000 %}{{ a.replace('', 'x') }}", "262144 parts"},
      {"{% for i in range(99999) %}{% macro " + times("m", 200000) +
           "() %}{% endmacro %}{% endfor %}{{ range(10**9) }}",
       "steps"},
      {times("x", 300000), "need at most"},
  };
  for (const auto& [source, error] : kHostile) {
    const std::string got = error_of([&, &s = source] { render(s, {.messages = {{"user", "U"}}}); });
    EXPECT_NE(got.find(error), got.npos) << source.substr(0, 80) << ": " << got;
    EXPECT_EQ(got.find('\n'), got.npos) << got;
  }
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  EXPECT_LT(usage.ru_maxrss, 128 << 10) << "KiB";
}

}  // namespace
}  // namespace weft::text::jinja
