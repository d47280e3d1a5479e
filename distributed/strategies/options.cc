#include "distributed/strategies/options.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "framework/base/error.h"
#include "framework/base/parse_number.h"

namespace weft::dist {

std::string text_of(const OptionRow& row, const Plan& plan) {
  if (const auto* field = std::get_if<int Plan::*>(&row.field)) return str_cat(plan.**field);
  if (const auto* field = std::get_if<bool Plan::*>(&row.field)) return plan.**field ? "on" : "off";
  if (const auto* field = std::get_if<double Plan::*>(&row.field)) return str_cat(plan.**field);
  if (const auto* field = std::get_if<std::string Plan::*>(&row.field)) return plan.**field;
  for (const auto& [name, value] : plan.more)
    if (name == row.name) return value;
  return std::string(row.fallback);
}

bool is_allowed(const OptionRow& row, std::string_view text) {
  if (std::holds_alternative<bool Plan::*>(row.field)) return text == "on" || text == "off";
  if (std::holds_alternative<int Plan::*>(row.field)) {
    const auto n = parse_number<int>(text);
    return n && *n >= row.least && *n <= row.most;
  }
  if (std::holds_alternative<double Plan::*>(row.field)) {
    const auto x = parse_number<double>(text);
    return x && *x >= 0 && std::isfinite(*x);
  }
  return row.allowed.empty() || std::ranges::count(row.allowed, text) > 0;
}

bool is_same(const OptionRow& row, const Plan& a, const Plan& b) {
  return std::visit(
      [&]<class Field>(const Field& field) {
        if constexpr (std::is_same_v<Field, std::monostate>)
          return text_of(row, a) == text_of(row, b);
        else
          return a.*field == b.*field;
      },
      row.field);
}

bool is_valid(const OptionRow& row, const Plan& plan) {
  return is_same(row, plan, {}) || is_allowed(row, text_of(row, plan));
}

std::string need_of(const OptionRow& row) {
  if (!row.need.empty()) return std::string(row.need);
  return std::holds_alternative<bool Plan::*>(row.field) ? "on or off" : one_of(row.allowed);
}

void set_option(const OptionRow& row, std::string_view text, Plan& plan) {
  WEFT_BUG_IF(!is_allowed(row, text), "set_option: ", row.name, " ", text);
  if (const auto* field = std::get_if<int Plan::*>(&row.field)) {
    plan.** field = *parse_number<int>(text);
  } else if (const auto* field = std::get_if<bool Plan::*>(&row.field)) {
    plan.** field = text == "on";
  } else if (const auto* field = std::get_if<double Plan::*>(&row.field)) {
    plan.** field = *parse_number<double>(text);
  } else if (const auto* field = std::get_if<std::string Plan::*>(&row.field)) {
    plan.** field = text;
  } else {
    std::erase_if(plan.more, [&](const auto& own) { return own.first == row.name; });
    plan.more.emplace_back(row.name, text);
  }
}

std::string one_of(std::span<const std::string_view> words) {
  std::string s;
  for (size_t i = 0; i < words.size(); ++i) s += str_cat(i == 0 ? "" : i + 1 < words.size() ? ", " : " or ", words[i]);
  return s;
}

}  // namespace weft::dist
