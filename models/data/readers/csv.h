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
  bool header = true;                        // the first line contains the names; otherwise they are "0", "1", ...
  DType dtype = kFloat32;                    // f32 or f64, for columns with fractions or missing values
  std::vector<std::string> categories = {};  // columns to read as texts, though they contain numbers
};

struct Csv {
  std::vector<std::string> names;
  std::vector<Tensor> columns;  // [rows] each
  /// The distinct texts of each column of texts, in order of first appearance. The column contains their positions, and
  /// -1 for missing values.
  std::map<std::string, std::vector<std::string>> categories;
  int64_t rows = 0;
  /// The column of this name; throws NotFound, listing the names.
  const Tensor& operator[](std::string_view name) const;
  /// The columns with these names, or all if there are none, as a matrix [rows, columns] in options.dtype.
  Tensor matrix(const std::vector<std::string>& names = {}) const;
  DType dtype = kFloat32;
};

/// Whole numbers give i64 columns, other numbers options.dtype, and texts i64 categories. Missing values (empty fields,
/// the texts that pandas.read_csv takes for them, such as NA and null, and ?) are NaN in columns of numbers. Fields may
/// be quoted ("a,b", "say ""hi"""). Lines end with \n, \r\n or \r. Throws an error with path and line if a line has
/// more or fewer fields than the first, or if a column has numbers and texts and is not in options.categories.
Csv read_csv(const std::string& path, const CsvOptions& options = {},
             std::source_location loc = std::source_location::current());

}  // namespace weft::data
