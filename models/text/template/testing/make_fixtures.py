"""Renders the templates of a folder with jinja2 as transformers configures it, and writes expected.json into it; null
for a conversation that the template refuses. The folder of this file, or another one for real_texts_test.

python models/text/template/testing/make_fixtures.py [FOLDER], in an environment with transformers 5.24.
"""

import datetime
import json
import pathlib
import sys

import jinja2.sandbox
from transformers.utils import chat_template_utils


class Fixed(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 11, 29, 12, 30, 0)


CALL = {"id": "call1", "type": "function",
        "function": {"name": "weather", "arguments": {"town": "Rome", "days": [3, 4]}}}
PROPERTIES = {
    "town": {"type": "string", "description": "<name>"},
    "days": {"items": {"type": "integer"}, "default": [1]},
    "unit": {"enum": ["c", "f"]},
}
TOOL = {"name": "weather", "description": "Weather of a town.",
        "parameters": {"type": "object", "properties": PROPERTIES, "required": ["town"]}}
MESSAGES = [
    [{"role": "user", "content": "Hello <|end|>\n \u00e9 \U0001f600"}],
    [
        {"role": "system", "content": "  Be brief. "},
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nSunny.", "tool_calls": [CALL]},
        {"role": "tool", "content": '{"t": 20}'},
        {"role": "user", "content": "Thanks, it's \"fine\""},
    ],
]


def rendered(template, variables, name):
    try:
        return template.render(**variables)
    except (jinja2.exceptions.TemplateError, TypeError) as error:
        print(f"{name}: {type(error).__name__}: {error}")
        return None


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
    folder = folder if folder.is_dir() else folder.parent
    chat_template_utils.datetime = Fixed
    # A few templates append to lists.
    chat_template_utils.ImmutableSandboxedEnvironment = jinja2.sandbox.SandboxedEnvironment
    inputs = [{"messages": m, "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>"} for m in MESSAGES]
    inputs[1]["tools"] = [{"type": "function", "function": TOOL}]
    expected = {}
    for path in sorted(folder.glob("*.jinja")):
        template = chat_template_utils._compile_jinja_template(path.read_text())
        expected[path.name] = [rendered(template, i, path.name) for i in inputs]
    result = {"inputs": inputs, "expected": expected}
    (folder / "expected.json").write_text(json.dumps(result, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
