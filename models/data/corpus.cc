#include "models/data/corpus.h"

#include <string_view>

#include "framework/io/zlib.h"

extern "C" const char weft_shakespeare_gz[], weft_shakespeare_gz_end[];

namespace weft::data {

std::string embedded_corpus() {
  std::string_view gz(weft_shakespeare_gz, weft_shakespeare_gz_end - weft_shakespeare_gz);
  return io::gzip_decompress(gz, int64_t{16} << 20, "the embedded text");
}

}  // namespace weft::data
