#include "models/nn/config_map.h"

#include <charconv>
#include <vector>

#include "framework/base/nearest.h"

namespace weft::nn::config_fields {
namespace {

template <class T>
std::string number_text(T v) {
  char text[40];
  auto end = std::to_chars(text, text + sizeof text, v).ptr;
  return {text, end};
}

template <class T>
void parse_number(const std::string& field, const std::string& text, const char* need, T& out) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  WEFT_CHECK(error == std::errc() && end == text.data() + text.size(), "config: field '", field, "' is '", text,
             "'; need ", need);
}

std::string range_text(const Allowed& a, const char* kind) {
  std::string s = kind;
  if (a.least > -1e300) s += str_cat(a.above ? " above " : a.most < 1e300 ? " from " : " of at least ", a.least);
  if (a.most < 1e300) s += str_cat(a.below ? " to less than " : " to ", a.most);
  return s;
}

template <class T>
void check_number(const char* field, T value, const Allowed& a, const char* kind) {
  const double v = static_cast<double>(value);
  WEFT_CHECK(v >= a.least && v <= a.most && !(a.above && v == a.least) && !(a.below && v == a.most), "config: field '",
             field, "' is '", text_of(value), "'; need ", range_text(a, kind));
}

}  // namespace

std::string text_of(int64_t v) { return number_text(v); }
std::string text_of(double v) { return number_text(v); }
std::string text_of(bool v) { return v ? "true" : "false"; }
void parse(const std::string& field, const std::string& text, int64_t& out) {
  parse_number(field, text, "a whole number", out);
}
void parse(const std::string& field, const std::string& text, double& out) {
  parse_number(field, text, "a number", out);
}
void parse(const std::string& field, const std::string& text, bool& out) {
  WEFT_CHECK(text == "true" || text == "false", "config: field '", field, "' is '", text, "'; need true or false");
  out = text == "true";
}

void check(const char* field, int64_t value, const Allowed& a) { check_number(field, value, a, "a whole number"); }
void check(const char* field, double value, const Allowed& a) { check_number(field, value, a, "a number"); }
void check(const char* field, const std::string& value, const Allowed& a) {
  WEFT_CHECK(!a.words || str_cat(",", a.words, ",").find(str_cat(",", value, ",")) != std::string::npos,
             "config: field '", field, "' is '", value, "'; need one of ", a.words ? a.words : "");
  WEFT_CHECK(!a.accepts || a.accepts(value), "config: field '", field, "' is '", value, "'; need ", a.need);
}

void fail_unknown(const ConfigMap& map, const ConfigMap& known) {
  std::string all;
  std::vector<std::string> names;
  for (const auto& [name, value] : known) {
    all += str_cat(all.empty() ? "" : ", ", name);
    names.push_back(name);
  }
  for (const auto& [name, value] : map) {
    if (known.count(name)) continue;
    const std::string near = nearest_name(name, names);
    WEFT_CHECK(false, "config: no field '", name, "'", near.empty() ? "" : str_cat(" (did you mean ", near, "?)"),
               "; need one of ", all);
  }
  WEFT_BUG_IF(true, "fail_unknown called for a known map");
}

}  // namespace weft::nn::config_fields
