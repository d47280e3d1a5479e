// Tables of text: comma-separated values (RFC 4180), one tensor for each column.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "framework/tensor/tensor.h"

namespace weft::data {

struct CsvOptions {
  char delimiter = ',';
  bool header = true;      // the first line contains the names; otherwise they are "0", "1", ...
  DType dtype = kFloat32;  // f32 or f64, for columns with fractions or empty fields
};

struct Csv {
  std::vector<std::string> names;
  std::vector<Tensor> columns;  // [rows] each
  /// The distinct texts of each column of texts, in order of first appearance. The column contains their positions.
  std::map<std::string, std::vector<std::string>> categories;
  int64_t rows = 0;
  /// The column of this name; throws NotFound, listing the names.
  const Tensor& operator[](std::string_view name) const;
  /// The columns with these names, or all if there are none, as a matrix [rows, columns] in options.dtype.
  Tensor matrix(const std::vector<std::string>& names = {}) const;
  DType dtype = kFloat32;
};

/// Whole numbers give i64 columns, other numbers options.dtype, with NaN for empty fields, and texts i64 categories.
/// Fields may be quoted ("a,b", "say ""hi"""). Lines end with \n, \r\n or \r. Throws an error with path and line if a
/// line has more or fewer fields than the first.
Csv read_csv(const std::string& path, const CsvOptions& options = {},
             std::source_location loc = std::source_location::current());

}  // namespace weft::data
