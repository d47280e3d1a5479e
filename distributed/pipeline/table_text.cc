#include "distributed/pipeline/table_text.h"

#include <algorithm>
#include <cstdint>
#include <system_error>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/one_line.h"
#include "framework/base/parse_number.h"

namespace weft::dist::pipeline {
namespace {

constexpr std::string_view kColumns = "rank,action,stage,microbatch";

std::string_view trim(std::string_view s) {
  constexpr std::string_view kSpace = " \t\r";
  const size_t begin = s.find_first_not_of(kSpace);
  return begin == s.npos ? std::string_view() : s.substr(begin, s.find_last_not_of(kSpace) - begin + 1);
}

/// Removes the text up to the first `end` from `rest`, and returns it.
std::string_view take(std::string_view& rest, char end) {
  const size_t length = std::min(rest.find(end), rest.size());
  const std::string_view head = rest.substr(0, length);
  rest.remove_prefix(std::min(length + 1, rest.size()));
  return head;
}

/// A line of the file, for messages.
struct FileLine {
  std::string_view file;
  int64_t number = 0;
  std::string to_string() const { return str_cat(one_line(file, 200), ": line ", number); }
};

/// `limit`: numbers without gaps are below the number of lines.
int number_of(const FileLine& line, const char* column, std::string_view text, int64_t limit) {
  const std::optional<int64_t> n = parse_number<int64_t>(text, 0, limit - 1);
  WEFT_CHECK(n, line, ": got ", column, " \"", one_line(text, 40), "\"; need a number from 0 to ", limit - 1,
             " (they go without gaps, and the file has ", limit, " lines)");
  return static_cast<int>(*n);
}

ActionKind kind_of(const FileLine& line, std::string_view text) {
  for (int k = 0; k < kKinds; ++k)
    if (to_string_view(static_cast<ActionKind>(k)) == text) return static_cast<ActionKind>(k);
  std::string known;
  for (int k = 0; k < kKinds; ++k) known += str_cat(k ? ", " : "", static_cast<ActionKind>(k));
  WEFT_CHECK(false, line, ": got action \"", one_line(text, 40), "\"; need one of ", known);
  return ActionKind::kForward;
}

struct ActionRow {
  int rank = 0;
  Action action;
};

ActionRow parse_row(const FileLine& line, std::string_view text, int64_t limit) {
  std::vector<std::string_view> fields;
  for (std::string_view rest = text; !rest.empty() && fields.size() < 7;) fields.push_back(trim(take(rest, ',')));
  while (fields.size() > 1 && fields.back().empty()) fields.pop_back();
  WEFT_CHECK(fields.size() >= 2, line, ": got \"", one_line(text, 80), "\"; need ", kColumns);
  ActionRow row{number_of(line, "rank", fields[0], limit), {}};
  std::string_view word = fields[1];
  row.action.with_next = word.ends_with('&');
  if (row.action.with_next) word = trim(word.substr(0, word.size() - 1));
  const ActionKind kind = row.action.kind = kind_of(line, word);
  const size_t need = transfers(kind) ? 5 : computes(kind) ? 4 : 3;
  WEFT_CHECK(fields.size() == need, line, ": got ", fields.size(), " fields of ", kind, "; need ",
             need == 3 ? "rank,action,stage" : kColumns, need == 5 ? ",other stage" : "");
  row.action.stage = number_of(line, "stage", fields[2], limit);
  if (need >= 4) row.action.microbatch = number_of(line, "microbatch", fields[3], limit);
  if (need == 5) row.action.peer = number_of(line, "other stage", fields[4], limit);
  return row;
}

}  // namespace

std::string table_text(const Table& table) {
  std::string text = str_cat("# ", kColumns, "\n");
  for (size_t r = 0; r < table.ranks.size(); ++r)
    for (const Action& a : table.ranks[r]) {
      text += str_cat(r, ",", a.kind, a.with_next ? "&" : "", ",", a.stage);
      if (a.microbatch >= 0) text += str_cat(",", a.microbatch);
      if (transfers(a.kind)) text += str_cat(",", a.peer);
      text += '\n';
    }
  return text;
}

Table parse_table(std::string_view text, std::string_view name) {
  const int64_t lines = std::count(text.begin(), text.end(), '\n') + 1;
  WEFT_CHECK(lines <= kMostActions, one_line(name, 200), ": got ", lines, " lines; need at most ", kMostActions);
  Table table;
  FileLine line{name};
  while (!text.empty()) {
    ++line.number;
    std::string_view rest = take(text, '\n');
    const std::string_view content = trim(take(rest, '#'));
    if (content.empty() || content == kColumns) continue;
    const ActionRow row = parse_row(line, content, lines);
    const Action& a = row.action;
    const size_t stage = static_cast<size_t>(a.stage);
    if (static_cast<size_t>(row.rank) >= table.ranks.size()) table.ranks.resize(static_cast<size_t>(row.rank) + 1);
    if (stage >= table.rank_of_stage.size()) table.rank_of_stage.resize(stage + 1, -1);
    if (table.rank_of_stage[stage] < 0) table.rank_of_stage[stage] = row.rank;
    table.microbatches = std::max(table.microbatches, a.microbatch + 1);
    table.ranks[row.rank].push_back(a);
  }
  WEFT_CHECK(!table.ranks.empty(), one_line(name, 200), ": got no actions; need lines ", kColumns);
  for (size_t r = 0; r < table.ranks.size(); ++r)
    WEFT_CHECK(!table.ranks[r].empty(), one_line(name, 200), ": rank ", r, " has no line; need the ranks 0 to ",
               table.ranks.size() - 1, " without gaps");
  for (size_t s = 0; s < table.rank_of_stage.size(); ++s)
    WEFT_CHECK(table.rank_of_stage[s] >= 0, one_line(name, 200), ": stage ", s, " has no line; need the stages 0 to ",
               table.rank_of_stage.size() - 1, " without gaps");
  return table;
}

}  // namespace weft::dist::pipeline
