#include "tools/precision/format_table.h"

#include "framework/base/str_cat.h"
#include "ops/numerics/number_format.h"
#include "tools/profile/table.h"

namespace weft::precision {
namespace {

using namespace formats;
using profiler::number_text;

std::string top_text(const NumberFormat& f) {
  if (f.whole) return "saturates";
  return f.real->top == TopCodes::kIeee ? "inf, NaN" : f.real->top == TopCodes::kOneNan ? "NaN" : "numbers";
}

std::string scale_text(const NumberFormat& f) {
  if (f.whole) return f.whole->scale == 1 ? "scale, zero point" : str_cat("scale ", number_text(f.whole->scale, 6));
  if (!f.block) return "-";
  return str_cat(f.scale, " per ", f.block, f.tensor_scale ? ", FP32 per tensor" : "");
}

}  // namespace

std::vector<std::vector<std::string>> format_lines() {
  std::vector<std::vector<std::string>> lines{{"format", "bits", "sign", "exp", "mantissa", "max", "min normal",
                                               "min subnormal", "epsilon", "top codes", "scale"}};
  for (const NumberFormat& f : number_formats()) {
    if (f.real) {
      const FloatFormat& r = *f.real;
      lines.push_back({std::string(f.name), number_text(f.bits(), 6), "1", str_cat(r.exponent), str_cat(r.mantissa),
                       number_text(r.max(), 6), number_text(r.min_normal(), 6), number_text(r.min_subnormal(), 6),
                       number_text(r.epsilon(), 6), top_text(f), scale_text(f)});
    } else {
      const IntegerFormat& w = *f.whole;
      lines.push_back({std::string(f.name), number_text(f.bits(), 6), "1", "0", str_cat(w.bits - 1),
                       number_text(decode(w, w.greatest()), 6), "-", "-", number_text(w.scale, 6), top_text(f),
                       scale_text(f)});
    }
  }
  return lines;
}

io::OrderedJson format_json() {
  io::OrderedJson all = io::OrderedJson::array();
  for (const NumberFormat& f : number_formats()) {
    io::OrderedJson j;
    j["name"] = f.name;
    j["bits"] = f.bits();
    j["sign"] = 1;
    j["exponent"] = f.real ? f.real->exponent : 0;
    j["mantissa"] = f.real ? f.real->mantissa : f.whole->bits - 1;
    j["max"] = f.real ? f.real->max() : decode(*f.whole, f.whole->greatest());
    if (f.real) {
      j["bias"] = f.real->bias();
      j["min_normal"] = f.real->min_normal();
      j["min_subnormal"] = f.real->min_subnormal();
    } else {
      j["scale"] = f.whole->scale;
      j["zero_point"] = f.whole->zero_point;
    }
    j["epsilon"] = f.real ? f.real->epsilon() : f.whole->scale;
    j["top_codes"] = top_text(f);
    if (f.block) {
      j["block"] = f.block;
      j["block_scale"] = f.scale;
      j["tensor_scale"] = f.tensor_scale;
    }
    if (!f.note.empty()) j["note"] = f.note;
    all.push_back(std::move(j));
  }
  return all;
}

}  // namespace weft::precision
