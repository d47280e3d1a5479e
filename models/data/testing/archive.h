// Bytes of .npy and .npz files, for tests.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/io/inflate.h"
#include "framework/io/zlib.h"

namespace weft::data {

inline std::string npy_bytes(std::string_view descr, std::string_view fortran, std::string_view shape,
                             std::string_view data) {
  std::string header = "{'descr': '" + std::string(descr) + "', 'fortran_order': " + std::string(fortran) +
                       ", 'shape': " + std::string(shape) + ", }";
  header.resize(117, ' ');
  header += '\n';
  std::string s("\x93NUMPY\1\0", 8);
  s += static_cast<char>(header.size());
  s += '\0';
  return s + header + std::string(data);
}

/// A zip archive of these entries. A deflate stream is a gzip stream without its header and trailer.
inline std::string npz_bytes(const std::vector<std::pair<std::string, std::string>>& entries, bool deflated) {
  auto number = [](uint64_t v, int bytes) {
    std::string s;
    for (int i = 0; i < bytes; ++i) s += static_cast<char>(v >> 8 * i);
    return s;
  };
  std::string out, directory;
  for (const auto& [name, data] : entries) {
    std::string packed = data;
    if (deflated) {
      packed = io::gzip_compress(data);
      packed = packed.substr(10, packed.size() - 18);
    }
    const std::string about = number(20, 2) + number(0, 2) + number(deflated ? 8 : 0, 2) + number(0, 4) +
                              number(io::crc32_of(data), 4) + number(packed.size(), 4) + number(data.size(), 4) +
                              number(name.size(), 2) + number(0, 2);
    directory += "PK\1\2" + number(20, 2) + about + number(0, 2) + number(0, 2) + number(0, 2) + number(0, 4) +
                 number(out.size(), 4) + name;
    out += "PK\3\4" + about + name + packed;
  }
  return out + directory + "PK\5\6" + number(0, 4) + number(entries.size(), 2) + number(entries.size(), 2) +
         number(directory.size(), 4) + number(out.size(), 4) + number(0, 2);
}

}  // namespace weft::data
