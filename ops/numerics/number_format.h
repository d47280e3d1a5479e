// Number formats as data: the meaning of the bits of a number, and conversion from and to f64 (round to nearest, ties
// to even). Sources: IEEE 754-2019; OCP 8-bit Floating Point Specification 1.0 (E4M3, E5M2); OCP Microscaling Formats
// 1.0 (E2M1, E8M0, MXFP4, MXFP8); NVIDIA's cuBLAS documentation (TF32, NVFP4). tools/precision/ml_dtypes_check.py
// compares them with ml_dtypes.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace weft::formats {

/// The meaning of the codes at the top of a float format.
enum class TopCodes : uint8_t {
  kIeee,     // the greatest exponent is kept for infinity and NaN
  kOneNan,   // the code of all ones is NaN; there is no infinity
  kNumbers,  // all codes are numbers
};

/// A float with a sign bit, `exponent` and `mantissa` bits, subnormal numbers, and the bias 2^(exponent - 1) - 1.
struct FloatFormat {
  int exponent = 8, mantissa = 23;
  TopCodes top = TopCodes::kIeee;

  int bits() const { return 1 + exponent + mantissa; }
  int bias() const { return (1 << (exponent - 1)) - 1; }
  int least_exponent() const { return 1 - bias(); }  // exponent of the least normal number
  double max() const;
  double min_normal() const;
  double min_subnormal() const;
  double epsilon() const;  // the distance from 1 to the next number
};

/// The format of these sizes as IEEE and OCP define it: IEEE top codes from 5 exponent bits up, one NaN with 4 (E4M3),
/// only numbers below (E2M1, E2M3, E3M2).
FloatFormat float_format(int exponent_bits, int mantissa_bits);

/// The result for values beyond the greatest number; kByFormat: an infinity if the format has one, else that number.
enum class Overflow : uint8_t { kByFormat, kSaturate, kNan };

/// The nearest value of the format. Keeps the sign of zero, and NaN. An infinity counts as a value beyond the greatest
/// number.
double rounded(const FloatFormat& format, double x, Overflow overflow = Overflow::kByFormat);
/// The code of rounded(x), in the low bits. NaN: the format's quiet NaN with its sign; 0 if it has none.
uint32_t encode(const FloatFormat& format, double x, Overflow overflow = Overflow::kByFormat);
double decode(const FloatFormat& format, uint32_t code);

/// The exponent of the power of two by which OCP MX divides a block: the exponent of the block's greatest finite
/// magnitude, less the exponent of the format's greatest number; in [-127, 127], the range of E8M0. 0 for a block of
/// zeros.
int block_exponent(const FloatFormat& format, std::span<const double> block);

/// Signed integers of `bits` bits; the value of a code is (code - zero_point) * scale.
struct IntegerFormat {
  int bits = 8;
  double scale = 1;
  int64_t zero_point = 0;

  int64_t least() const { return -(int64_t{1} << (bits - 1)); }
  int64_t greatest() const { return (int64_t{1} << (bits - 1)) - 1; }
};
/// Q m.n: a sign, m whole bits and n fractional bits; scale 2^-n.
IntegerFormat fixed_point(int whole_bits, int fraction_bits);
/// Rounds x / scale to nearest even, adds the zero point and saturates. NaN: the zero point.
int64_t encode(const IntegerFormat& format, double x);
double decode(const IntegerFormat& format, int64_t code);

/// A row of the table of formats.
struct NumberFormat {
  std::string_view name;
  std::optional<FloatFormat> real = {};     // format of the elements
  std::optional<IntegerFormat> whole = {};  // otherwise
  int block = 0;                            // elements that share a scale; 0: none
  std::string_view scale = {};              // its format: E8M0 or E4M3
  bool tensor_scale = false;                // and an f32 scale of the whole tensor
  std::string_view note = {};

  /// Bits of an element with its part of the block's scale.
  double bits() const;
};
std::span<const NumberFormat> number_formats();
/// The row of this name; "Q3.4" and the like are formats of fixed point. Throws, listing the names, if there is none.
NumberFormat number_format(std::string_view name);

/// The f32 scale of a tensor in NVFP4: its greatest magnitude becomes the greatest element times the greatest scale.
/// 1 for other formats and for zeros.
double tensor_scale(const NumberFormat& format, std::span<const double> tensor);
/// Values of the format for one block of a tensor, or for any values of a format without blocks. Returns the scale by
/// which codes are multiplied, including the tensor's scale. `codes` (null: not wanted) gets the codes of the elements.
double round_block(const NumberFormat& format, double tensor_scale, std::span<double> block,
                   std::vector<uint32_t>* codes = nullptr);
/// A whole tensor, whose blocks follow each other.
void round_values(const NumberFormat& format, std::span<double> values);

}  // namespace weft::formats
