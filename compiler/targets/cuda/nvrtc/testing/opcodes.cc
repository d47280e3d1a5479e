#include "compiler/targets/cuda/nvrtc/testing/opcodes.h"

#include <elf.h>

#include <cstring>

#include "framework/base/error.h"

namespace weft::cuda {
namespace {

template <class T>
T read_at(std::string_view bytes, uint64_t at) {
  WEFT_CHECK(at <= bytes.size() && sizeof(T) <= bytes.size() - at, "cubin: ends at byte ", bytes.size());
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

// The first section of a cubin whose name begins with `prefix`.
std::string_view section_of(std::string_view cubin, std::string_view prefix) {
  const auto head = read_at<Elf64_Ehdr>(cubin, 0);
  const auto section = [&](int i) { return read_at<Elf64_Shdr>(cubin, head.e_shoff + uint64_t{head.e_shentsize} * i); };
  const Elf64_Shdr names = section(head.e_shstrndx);
  for (int i = 0; i < head.e_shnum; ++i) {
    const Elf64_Shdr s = section(i);
    const uint64_t name = names.sh_offset + s.sh_name;
    if (name < cubin.size() && cubin.substr(name).starts_with(prefix)) return cubin.substr(s.sh_offset, s.sh_size);
  }
  internal::fail(Code::kInvalidArgument, "cubin: there is no kernel");
}

}  // namespace

std::string overlap_opcodes(std::string_view cubin) {
  constexpr uint64_t kMufu = 0x308, kWarpgroup = 0x9c5, kLdl = 0x983, kStl = 0x387;
  constexpr uint64_t kHgmma = 0x9f0, kHgmmaOfRegisters = 0xdf0;  // where the first operand is
  const std::string_view text = section_of(cubin, ".text.");     // text of the first kernel
  std::string out;
  for (uint64_t at = 0; at < text.size(); at += 16) {
    const auto word = read_at<uint64_t>(text, at);
    const uint64_t op = word & 0xfff;
    if (op == kMufu) out += 'M';
    if (op == kHgmma || op == kHgmmaOfRegisters) out += 'H';
    if (op == kLdl || op == kStl) out += 'L';
    const bool waits = (word >> 47 & 1) != 0;  // else it is WARPGROUP.ARRIVE
    if (op == kWarpgroup && waits) out += static_cast<char>('0' + (read_at<uint64_t>(text, at + 8) >> 8 & 7));
  }
  return out;
}

size_t parameter_bytes(std::string_view cubin) {
  // Attributes have 4 bytes; kList is followed by a list of bytes. Each kParameter has the number of a parameter at
  // byte 4 of its list, and the size above bit 18 of the word at byte 8.
  constexpr uint8_t kList = 4, kParameter = 0x17;
  const std::string_view info = section_of(cubin, ".nv.info.");
  for (uint64_t at = 0; at < info.size();) {
    const bool list = read_at<uint8_t>(info, at) == kList, parameter = read_at<uint8_t>(info, at + 1) == kParameter;
    const uint64_t bytes = list ? read_at<uint16_t>(info, at + 2) : 0;
    at += 4;
    if (list && parameter && read_at<uint16_t>(info, at + 4) == 0) return read_at<uint32_t>(info, at + 8) >> 18;
    at += bytes;
  }
  return 0;
}

}  // namespace weft::cuda
