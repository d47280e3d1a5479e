"""Renders the templates of this folder with jinja2 as transformers configures it, and writes expected.json.

python models/text/template/testing/make_fixtures.py, in an environment with transformers 5.24.
"""

import datetime
import json
import pathlib

from transformers.utils import chat_template_utils

HERE = pathlib.Path(__file__).parent


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


def main():
    chat_template_utils.datetime = Fixed
    inputs = [{"messages": m, "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>"} for m in MESSAGES]
    inputs[1]["tools"] = [{"type": "function", "function": TOOL}]
    expected = {}
    for path in sorted(HERE.glob("*.jinja")):
        template = chat_template_utils._compile_jinja_template(path.read_text())
        expected[path.name] = [template.render(**i) for i in inputs]
    result = {"inputs": inputs, "expected": expected}
    (HERE / "expected.json").write_text(json.dumps(result, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
