#include "framework/io/fields/fields.h"

#include <charconv>

#include "framework/base/parse_number.h"

namespace weft::io {
namespace {

template <class T>
std::string number_text(T v) {
  char text[40];
  return {text, std::to_chars(text, text + sizeof text, v).ptr};
}

template <class T>
std::string set_number(std::string_view text, T& v, const char* need) {
  const std::optional<T> n = parse_number<T>(text);
  if (n) v = *n;
  return n ? "" : need;
}

std::string unfit_number(double v, const Field& f, std::string need) {
  if (v >= f.least && v <= f.most && !(f.above && v == f.least) && !(f.below && v == f.most)) return "";
  const bool bounded = f.most < 1e300;
  if (f.least == 0 && !f.above && !bounded) return need + ", 0 or more";
  if (f.least > -1e300) need += str_cat(f.above ? " above " : bounded ? " from " : " of at least ", f.least);
  if (bounded) need += str_cat(f.below ? " to less than " : " to ", f.most);
  return need;
}

}  // namespace

std::string text_of(int64_t v) { return number_text(v); }
std::string text_of(uint64_t v) { return number_text(v); }
std::string text_of(double v) { return number_text(v); }
std::string text_of(bool v) { return v ? "true" : "false"; }

std::string set_text(std::string_view text, int64_t& v) { return set_number(text, v, "a whole number"); }
std::string set_text(std::string_view text, uint64_t& v) { return set_number(text, v, "a whole number, 0 or more"); }
std::string set_text(std::string_view text, double& v) { return set_number(text, v, "a number"); }
std::string set_text(std::string_view text, bool& v) {
  v = text == "true";
  return v || text == "false" ? "" : "true or false";
}
std::string set_text(std::string_view text, std::string& v) {
  v = text;
  return "";
}

std::string unfit(int64_t v, const Field& f) { return unfit_number(static_cast<double>(v), f, "a whole number"); }
std::string unfit(double v, const Field& f) { return unfit_number(v, f, "a number"); }
std::string unfit(const std::string& v, const Field& f) {
  if (f.accepts && !f.accepts(v)) return f.need;
  if (!f.words || str_cat(",", f.words, ",").find(str_cat(",", v, ",")) != std::string::npos) return "";
  return str_cat("one of ", f.words);
}

}  // namespace weft::io
