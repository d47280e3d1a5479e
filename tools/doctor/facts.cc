#include "tools/doctor/facts.h"

#include <algorithm>
#include <cmath>

#include "framework/io/json.h"
#include "tools/profile/table.h"

namespace weft::tools {

void FactList::add(std::string section, std::string name, std::string text) {
  facts_.push_back({std::move(section), std::move(name), text, text});
}

void FactList::add(std::string section, std::string name, double value, std::string unit) {
  value = std::round(value * 100) / 100;
  const std::string number = profiler::fixed(value, value == std::floor(value) ? 0 : 2);
  facts_.push_back({std::move(section), std::move(name), number + (unit.empty() ? "" : " " + unit), value});
}

void FactList::add_flag(std::string section, std::string name, bool value) {
  facts_.push_back({std::move(section), std::move(name), value ? "yes" : "no", value});
}

void FactList::add_absent(std::string section, std::string name, std::string reason) {
  facts_.push_back({section, name, "absent: " + reason, nullptr});
  facts_.push_back({std::move(section), name + "_reason", "", reason});
}

std::string FactList::to_text() const {
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

std::string FactList::to_json(const std::string& machine) const {
  io::OrderedJson out = io::OrderedJson::object();
  for (const Fact& fact : facts_)
    std::visit([&](const auto& value) { out[fact.section][fact.name] = value; }, fact.value);
  if (!machine.empty()) out["machine"] = io::OrderedJson::parse(machine);
  return io::write_json(out, 1) + "\n";
}

}  // namespace weft::tools
