// What a machine offers, as a list of facts that prints as text for people and as JSON for programs.
#pragma once
#include <cstddef>
#include <string>
#include <variant>
#include <vector>

namespace weft::tools {

/// Facts in the order they were added; those of a section follow each other.
class Facts {
 public:
  /// Text for both forms.
  void add(std::string section, std::string name, std::string text);
  /// A number, followed in the text by `unit` ("GB/s").
  void add(std::string section, std::string name, double value, std::string unit = "");
  void add_flag(std::string section, std::string name, bool value);
  /// Something that is missing: null in JSON, with the reason in NAME_reason.
  void add_absent(std::string section, std::string name, std::string reason);

  std::string to_text() const;
  std::string to_json() const;

 private:
  struct Fact {
    std::string section, name, text;
    std::variant<std::nullptr_t, bool, double, std::string> value;
  };
  std::vector<Fact> facts_;
};

}  // namespace weft::tools
