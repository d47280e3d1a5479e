// A list of facts about a machine, printed as text or as JSON.
#pragma once
#include <cstddef>
#include <string>
#include <variant>
#include <vector>

namespace weft::tools {

/// Facts in the order in which they were added. Add the facts of a section one after another.
class FactList {
 public:
  /// Adds a text.
  void add(std::string section, std::string name, std::string text);
  /// Adds a number; the text form appends `unit` ("GB/s").
  void add(std::string section, std::string name, double value, std::string unit = "");
  void add_flag(std::string section, std::string name, bool value);
  /// Adds a missing item: null in JSON, with the entry NAME_reason.
  void add_absent(std::string section, std::string name, std::string reason);

  std::string to_text() const;
  /// The facts as JSON. A nonempty `machine`, the text of an object, becomes the last member "machine".
  std::string to_json(const std::string& machine = "") const;

 private:
  struct Fact {
    std::string section, name, text;
    std::variant<std::nullptr_t, bool, double, std::string> value;
  };
  std::vector<Fact> facts_;
};

}  // namespace weft::tools
