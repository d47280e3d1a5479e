// convert: values in a number format, as files, for tools/precision/ml_dtypes_check.py.
#include <cstring>
#include <vector>

#include "framework/base/error.h"
#include "framework/cli/cli.h"
#include "framework/io/file.h"
#include "ops/numerics/number_format.h"

namespace weft {
namespace {

using namespace formats;

struct Options {
  std::string format, how = "codes";
  File values, out{File::Use::kWrite};
};

template <class T>
std::vector<T> elements(const std::string& path) {
  const std::string bytes = io::read_file(path);
  WEFT_CHECK(bytes.size() % sizeof(T) == 0, path, ": has ", bytes.size(), " bytes; need a multiple of ", sizeof(T));
  std::vector<T> v(bytes.size() / sizeof(T));
  std::memcpy(v.data(), bytes.data(), v.size() * sizeof(T));
  return v;
}
template <class T>
std::string bytes_of(const std::vector<T>& v) {
  return {reinterpret_cast<const char*>(v.data()), v.size() * sizeof(T)};
}

int convert(const Options& o) {
  if (!o.values || !o.out) usage_error("need --values FILE and --out FILE");
  const NumberFormat f = number_format(o.format);
  std::string out;
  if (o.how == "codes") {
    std::vector<uint32_t> codes;
    for (float x : elements<float>(o.values.path))
      codes.push_back(f.real
                          ? encode(*f.real, x, f.real->top == TopCodes::kOneNan ? Overflow::kNan : Overflow::kByFormat)
                          : static_cast<uint32_t>(encode(*f.whole, x)));
    out = bytes_of(codes);
  } else if (o.how == "decode" && f.real) {
    std::vector<double> values;
    for (uint32_t code : elements<uint32_t>(o.values.path)) values.push_back(decode(*f.real, code));
    out = bytes_of(values);
  } else if (o.how == "round") {
    std::vector<double> values;
    for (float x : elements<float>(o.values.path)) values.push_back(x);
    round_values(f, values);
    out = bytes_of(values);
  } else if (o.how == "limits" && f.real) {
    const FloatFormat& r = *f.real;
    out = bytes_of(std::vector<double>{static_cast<double>(r.bits()), static_cast<double>(r.exponent),
                                       static_cast<double>(r.mantissa), r.max(), r.min_normal(), r.min_subnormal(),
                                       r.epsilon()});
  } else {
    usage_error(str_cat("--how is '", o.how, "'; need codes or round, and for floats decode or limits"));
  }
  io::write_file_atomic(o.out.path, out);
  return 0;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  weft::Options o;
  const weft::Flags flags{{"format", &o.format, "a number format, such as BF16 or MXFP4"},
                          {"how", &o.how,
                           "codes: f32 values to u32 codes, NaN beyond the greatest number of E4M3, as ml_dtypes; "
                           "decode: u32 codes to f64; "
                           "round: f32 values to f64; limits: the format's limits as f64"},
                          {"values", &o.values, "a file of f32 values or u32 codes"},
                          {"out", &o.out, "the file of results"}};
  return weft::run_program(argc, argv, "Converts a file of values to a number format.", flags,
                           [&] { return weft::convert(o); });
}
