#include "tools/facts.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace weft::tools {

std::string json_quote(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char buffer[8];
      std::snprintf(buffer, sizeof buffer, "\\u%04x", c);
      out += buffer;
    } else {
      out += c;
    }
  }
  return out + '"';
}

void Facts::add(std::string section, std::string name, std::string text) {
  std::string json = json_quote(text);
  facts_.push_back({std::move(section), std::move(name), std::move(text), std::move(json)});
}

void Facts::add(std::string section, std::string name, double value, std::string unit) {
  char number[32];
  std::snprintf(number, sizeof number, value == std::floor(value) && std::abs(value) < 1e15 ? "%.0f" : "%.2f", value);
  std::string text = number;
  if (!unit.empty()) text += " " + unit;
  facts_.push_back({std::move(section), std::move(name), std::move(text), number});
}

void Facts::add_flag(std::string section, std::string name, bool value) {
  facts_.push_back({std::move(section), std::move(name), value ? "yes" : "no", value ? "true" : "false"});
}

void Facts::add_absent(std::string section, std::string name, std::string reason) {
  facts_.push_back({section, name, "absent: " + reason, "null"});
  facts_.push_back({std::move(section), name + "_reason", "", json_quote(reason)});
}

std::string Facts::to_text() const {
  size_t width = 0;
  for (const Fact& fact : facts_) width = std::max(width, fact.name.size());
  std::string out, section;
  for (const Fact& fact : facts_) {
    if (fact.text.empty()) continue;
    if (fact.section != section) out += (section.empty() ? "" : "\n") + fact.section + "\n";
    section = fact.section;
    out += "  " + fact.name + std::string(width + 2 - fact.name.size(), ' ') + fact.text + "\n";
  }
  return out;
}

std::string Facts::to_json() const {
  std::string out = "{", section;
  for (const Fact& fact : facts_) {
    if (fact.section != section)
      out += (section.empty() ? "\n " : "\n },\n ") + json_quote(fact.section) + ": {\n  ";
    else
      out += ",\n  ";
    section = fact.section;
    out += json_quote(fact.name) + ": " + fact.json;
  }
  return out + (section.empty() ? "}\n" : "\n }\n}\n");
}

}  // namespace weft::tools
