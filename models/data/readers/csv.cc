#include "models/data/readers/csv.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <set>
#include <unordered_map>

#include "framework/dispatch/state/state.h"
#include "framework/io/file.h"
#include "models/data/readers/open.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"

namespace weft::data {

using internal::shown;

namespace {

struct CsvField {
  std::string text;
  bool quoted = false;
};

// Splits text into lines of fields.
class CsvLines {
 public:
  CsvLines(std::string_view text, char delimiter, const std::string& path)
      : text_(text), delimiter_(delimiter), path_(path) {}
  /// The next line that is not empty; false at the end.
  bool next(std::vector<CsvField>& fields) {
    for (;;) {
      fields.clear();
      if (at_ >= text_.size()) return false;
      line_ = ++count_;
      read(fields);
      if (fields.size() > 1 || !fields[0].text.empty() || fields[0].quoted) return true;
    }
  }
  int64_t line() const { return line_; }

 private:
  bool at_end_of_field() const {
    return at_ >= text_.size() || text_[at_] == delimiter_ || text_[at_] == '\n' || text_[at_] == '\r';
  }
  void read(std::vector<CsvField>& fields) {
    for (;;) {
      CsvField& f = fields.emplace_back();
      if (at_ < text_.size() && text_[at_] == '"') {
        f.quoted = true;
        ++at_;
        for (;; ++at_) {
          WEFT_CHECK_AS(kDataLoss, at_ < text_.size(), path_, ":", line_, ": a quoted field does not end");
          if (text_[at_] == '"' && text_.substr(at_, 2) != "\"\"") break;
          if (text_[at_] == '"') ++at_;
          if (text_[at_] == '\n' || (text_[at_] == '\r' && text_.substr(at_, 2) != "\r\n")) ++count_;
          f.text += text_[at_];
        }
        ++at_;
        WEFT_CHECK_AS(kDataLoss, at_end_of_field(), path_, ":", line_, ": there is text after the quoted field '",
                      shown(f.text), "'");
      } else {
        const size_t begin = at_;
        while (!at_end_of_field()) ++at_;
        std::string_view t = text_.substr(begin, at_ - begin);
        const auto blank = [](char c) { return c == ' ' || c == '\t'; };
        while (!t.empty() && blank(t.front())) t.remove_prefix(1);
        while (!t.empty() && blank(t.back())) t.remove_suffix(1);
        f.text = t;
      }
      if (at_ >= text_.size()) return;
      if (text_[at_] == delimiter_) {
        ++at_;
        if (at_ < text_.size()) continue;
        fields.emplace_back();  // the last field of the file is empty
        return;
      }
      at_ += text_.substr(at_, 2) == "\r\n" ? 2 : 1;
      return;
    }
  }

  std::string_view text_;
  char delimiter_;
  const std::string& path_;
  size_t at_ = 0;
  int64_t line_ = 0, count_ = 0;
};

template <class T>
bool parse(std::string_view s, T& v) {
  if (s.size() > 1 && s[0] == '+' && s[1] != '-') s.remove_prefix(1);
  const auto r = std::from_chars(s.data(), s.data() + s.size(), v);
  return r.ec == std::errc() && r.ptr == s.data() + s.size();
}
bool parse_number(std::string_view s, double& v) {
  if (parse(s, v)) return true;
  // from_chars has no result beyond the range, but the text is a number.
  if (s.empty() || s.find_first_not_of("+-.0123456789eE") != s.npos) return false;
  char* end = nullptr;
  const std::string text(s);
  v = std::strtod(text.c_str(), &end);
  return end == text.c_str() + text.size();
}

// The texts for a missing value: pandas' (io/parsers, STR_NA_VALUES), and '?'.
bool is_missing(std::string_view s) {
  static const std::set<std::string_view> texts{"",     "#N/A",   "#N/A N/A", "#NA",  "-1.#IND", "-1.#QNAN", "-NaN",
                                                "-nan", "1.#IND", "1.#QNAN",  "<NA>", "N/A",     "NA",       "NULL",
                                                "NaN",  "None",   "n/a",      "nan",  "null",    "?"};
  return texts.contains(s);
}

struct CsvColumn {
  std::vector<std::string> texts;
  std::vector<int64_t> lines;
};

// The positions of the distinct texts in `categories`.
Tensor categories_of(const CsvColumn& c, std::vector<std::string>* categories) {
  std::unordered_map<std::string, int64_t> known;
  std::vector<int64_t> positions;
  for (const std::string& text : c.texts) {
    if (is_missing(text)) {
      positions.push_back(-1);
      continue;
    }
    const auto [it, fresh] = known.emplace(text, static_cast<int64_t>(known.size()));
    if (fresh) categories->push_back(text);
    positions.push_back(it->second);
  }
  return Tensor::from_vector<int64_t>(positions, {static_cast<int64_t>(positions.size())});
}

Tensor column_of(const CsvColumn& c, const std::string& name, const std::string& path, DType dtype,
                 std::vector<std::string>* categories) {
  const int64_t n = static_cast<int64_t>(c.texts.size());
  std::vector<int64_t> whole(c.texts.size());
  std::vector<double> numbers(c.texts.size(), std::numeric_limits<double>::quiet_NaN());
  bool all_whole = true;
  size_t number = c.texts.size(), text = number;  // the first of each
  for (size_t i = 0; i < c.texts.size(); ++i) {
    const std::string& s = c.texts[i];
    all_whole = all_whole && parse(s, whole[i]);
    if (is_missing(s)) continue;
    size_t& first = parse_number(s, numbers[i]) ? number : text;
    first = std::min(first, i);
  }
  if (text == c.texts.size())
    return all_whole ? Tensor::from_vector<int64_t>(whole, {n}) : Tensor::from_vector<double>(numbers, {n}).to(dtype);
  WEFT_CHECK_AS(kDataLoss, number == c.texts.size(), path, ":", c.lines[text], ": column '", shown(name), "' has '",
                shown(c.texts[text]), "' here and the number ", c.texts[number], " in line ", c.lines[number],
                "; need numbers, or categories: {.categories = {\"", shown(name), "\"}}");
  return categories_of(c, categories);
}

}  // namespace

const Tensor& Csv::operator[](std::string_view name) const {
  std::string all;
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return columns[i];
    all += str_cat(i ? ", " : "", shown(names[i]));
  }
  WEFT_CHECK_AS(kNotFound, false, "Csv: there is no column '", shown(name), "'; need one of ", all);
}

Tensor Csv::matrix(const std::vector<std::string>& wanted) const {
  std::vector<Tensor> parts;
  for (const std::string& name : wanted.empty() ? names : wanted) parts.push_back((*this)[name].to(dtype));
  WEFT_CHECK(!parts.empty(), "Csv: the table has no columns; need one or more");
  return stack(parts, 1);
}

Csv read_csv(const std::string& path, const CsvOptions& o, std::source_location loc) {
  weft::internal::LineScope line(loc);
  WEFT_CHECK(o.dtype == kFloat32 || o.dtype == kFloat64, "read_csv: dtype is ", o.dtype, "; need f32 or f64");
  WEFT_CHECK(o.delimiter != '"' && o.delimiter != '\n' && o.delimiter != '\r', "read_csv: need another delimiter");
  NoGrad guard;
  const std::string file = io::read_file(path, internal::kMostFileBytes);
  std::string_view text = file;
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // a byte order mark
  CsvLines lines(text, o.delimiter, path);
  Csv out;
  out.dtype = o.dtype;
  std::vector<CsvColumn> columns;
  std::vector<CsvField> fields;
  for (bool first = true; lines.next(fields); first = false) {
    if (first) {
      columns.resize(fields.size());
      std::set<std::string> seen;
      for (size_t i = 0; i < fields.size(); ++i) {
        out.names.push_back(o.header ? fields[i].text : str_cat(i));
        WEFT_CHECK_AS(kDataLoss, seen.insert(out.names.back()).second, path, ":", lines.line(),
                      ": two columns are named '", shown(out.names.back()),
                      "'; need different names, or .header = false");
      }
      if (o.header) continue;
    }
    WEFT_CHECK_AS(kDataLoss, fields.size() == columns.size(), path, ":", lines.line(), ": got ", fields.size(),
                  " fields; need ", columns.size(), " as in the first line");
    for (size_t i = 0; i < fields.size(); ++i) {
      columns[i].texts.push_back(std::move(fields[i].text));
      columns[i].lines.push_back(lines.line());
    }
    ++out.rows;
  }
  WEFT_CHECK_AS(kDataLoss, !o.header || !columns.empty(), path,
                ": is empty; need a line with the names of the columns, or .header = false");
  for (const std::string& name : o.categories)
    WEFT_CHECK_AS(kNotFound, std::find(out.names.begin(), out.names.end(), name) != out.names.end(), path,
                  ": there is no column '", shown(name), "' for .categories; need names of columns");
  for (size_t i = 0; i < columns.size(); ++i) {
    const std::string& name = out.names[i];
    const bool as_texts = std::find(o.categories.begin(), o.categories.end(), name) != o.categories.end();
    std::vector<std::string> categories;
    out.columns.push_back(as_texts ? categories_of(columns[i], &categories)
                                   : column_of(columns[i], name, path, o.dtype, &categories));
    if (as_texts || !categories.empty()) out.categories[name] = std::move(categories);
  }
  return out;
}

}  // namespace weft::data
