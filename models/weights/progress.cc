#include "models/weights/progress.h"

#include "framework/base/str_cat.h"
#include "framework/base/units.h"

namespace weft::weights {

std::string Progress::line(int64_t done, int64_t now) {
  const int64_t elapsed = now - begin_;
  if (done >= bytes_ || !times_.due(now)) return "";
  return str_cat(what_, ": loaded ", bytes_text(static_cast<double>(done)), " of ",
                 bytes_text(static_cast<double>(bytes_)), " after ", seconds_text(1e-9 * static_cast<double>(elapsed)));
}

}  // namespace weft::weights
