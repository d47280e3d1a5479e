#include "compiler/targets/cuda/nvrtc/ptxas_log.h"

#include <string>

#include "framework/base/str_cat.h"

namespace weft::cuda {

// The number directly before `after`, like 28 in "Used 28 registers"; none if `after` is missing.
static std::optional<int> number_before(std::string_view text, std::string_view after) {
  size_t end = text.find(after);
  if (end == std::string_view::npos) return {};
  size_t begin = end;
  while (begin > 0 && text[begin - 1] >= '0' && text[begin - 1] <= '9') --begin;
  if (begin == end || end - begin > 9) return {};
  return std::stoi(std::string(text.substr(begin, end - begin)));
}

static std::string_view line_at(std::string_view text, size_t at) {
  size_t begin = text.rfind('\n', at);
  begin = begin == std::string_view::npos ? 0 : begin + 1;
  return text.substr(begin, text.find('\n', at) - begin);
}

std::optional<Usage> parse_ptxas_log(std::string_view log, std::string_view symbol) {
  // The text from the line that starts the kernel to the next kernel's first line.
  constexpr std::string_view opens = "Compiling entry function '";
  size_t begin = log.find(str_cat(opens, symbol, "'"));
  if (begin == std::string_view::npos) return {};
  log.remove_prefix(begin + opens.size());
  log = log.substr(0, log.find(opens));
  // Functions that were not inlined have their own properties; the kernel's are under its name.
  const size_t own = log.find(str_cat("Function properties for ", symbol));
  const std::string_view properties = own == std::string_view::npos ? log : log.substr(own);
  Usage u;
  const auto registers = number_before(log, " registers");
  const auto stack = number_before(properties, " bytes stack frame");
  const auto stores = number_before(properties, " bytes spill stores"),
             loads = number_before(properties, " bytes spill loads");
  if (!registers || !stack || !stores || !loads) return {};
  u.registers = *registers;
  u.stack_bytes = *stack;
  u.spill_store_bytes = *stores;
  u.spill_load_bytes = *loads;
  u.shared_bytes = number_before(log, " bytes smem").value_or(0);
  u.barriers = number_before(log, " barriers").value_or(0);
  return u;
}

std::string_view first_error(std::string_view log) {
  size_t at = log.find("error:");
  if (at == std::string_view::npos) at = log.find("error   :");  // ptxas
  if (at == std::string_view::npos) at = log.find("fatal");
  if (at == std::string_view::npos) at = log.find_first_not_of(" \n");
  if (at == std::string_view::npos) return {};
  std::string_view line = line_at(log, at);
  // The source line and the caret below it.
  size_t end = line.data() - log.data() + line.size();
  for (int more = 0; more < 2 && end < log.size(); ++more) {
    std::string_view next = line_at(log, end + 1);
    if (next.empty() || (next[0] != ' ' && next[0] != '\t')) break;
    end = next.data() - log.data() + next.size();
  }
  return log.substr(line.data() - log.data(), end - (line.data() - log.data()));
}

}  // namespace weft::cuda
