// The texts of templates that programs know by name.
#include "models/text/template/template.h"

namespace weft::text::jinja {

const char* known_template(std::string_view name) {
  static constexpr std::pair<std::string_view, const char*> kTemplates[] = {
      {"chatml", R"({%- for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %})"},
      {"llama2", R"({%- set ns = namespace(system='') %}
{%- for message in messages %}
    {%- if message['role'] == 'system' %}
        {%- set ns.system = '<<SYS>>\n' + message['content'] + '\n<</SYS>>\n\n' %}
    {%- elif message['role'] == 'user' %}
        {{- bos_token + '[INST] ' + (ns.system + message['content']).strip() + ' [/INST]' }}
        {%- set ns.system = '' %}
    {%- else %}
        {{- ' ' + message['content'].strip() + ' ' + eos_token }}
    {%- endif %}
{%- endfor %})"},
      {"llama3", R"({{- bos_token }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %})"},
      {"mistral", R"({{- bos_token }}
{%- set ns = namespace(system='') %}
{%- for message in messages %}
    {%- if message['role'] == 'system' %}
        {%- set ns.system = message['content'] + '\n\n' %}
    {%- elif message['role'] == 'user' %}
        {{- '[INST] ' + ns.system + message['content'] + ' [/INST]' }}
        {%- set ns.system = '' %}
    {%- else %}
        {{- ' ' + message['content'].strip() + eos_token }}
    {%- endif %}
{%- endfor %})"},
      {"zephyr", R"({%- for message in messages %}
    {{- '<|' + message['role'] + '|>\n' + message['content'] + eos_token + '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|assistant|>\n' }}
{%- endif %})"},
  };
  for (const auto& [key, text] : kTemplates)
    if (key == name) return text;
  return nullptr;
}

}  // namespace weft::text::jinja
