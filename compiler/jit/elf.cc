#include "compiler/jit/elf.h"

#include <elf.h>

#include <cstring>
#include <span>

#include "framework/base/error.h"
#include "framework/io/file.h"

namespace weft::jit {

// Whether `count` records of `bytes` each from `begin` on are inside a file of `size` bytes.
static bool inside(uint64_t begin, uint64_t count, uint64_t bytes, uint64_t size) {
  return begin <= size && (bytes == 0 || count <= (size - begin) / bytes);
}

bool is_whole_object(const std::string& path) try {
  const io::MappedFile file(path);
  const std::span<const std::byte> bytes = file.bytes();
  Elf64_Ehdr head;
  if (bytes.size() < sizeof head) return false;
  std::memcpy(&head, bytes.data(), sizeof head);
  if (std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64) return false;
  if (head.e_phentsize != sizeof(Elf64_Phdr) || !inside(head.e_phoff, head.e_phnum, sizeof(Elf64_Phdr), bytes.size()) ||
      !inside(head.e_shoff, head.e_shnum, head.e_shentsize, bytes.size()))
    return false;
  for (size_t i = 0; i < head.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment, bytes.data() + head.e_phoff + i * sizeof segment, sizeof segment);
    if (!inside(segment.p_offset, segment.p_filesz, 1, bytes.size())) return false;
  }
  return true;
} catch (const Error&) {
  return false;
}

}  // namespace weft::jit
