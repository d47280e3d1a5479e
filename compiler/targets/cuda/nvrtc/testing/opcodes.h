// For tests of ptxas's code for a kernel: the order of its tensor-core instructions, waits and exponentials.
#pragma once
#include <string>
#include <string_view>

namespace weft::cuda {

/// The instructions of the first kernel of a cubin for sm_90a that matter for overlap, in the order of the code: 'H' a
/// product of a warpgroup (HGMMA), '0' to '7' a wait until at most this number of groups of products run
/// (WARPGROUP.DEPBAR), 'M' a special function (MUFU), 'L' an access to local memory (LDL, STL). Opcodes are the low 12
/// bits of each word of 16 bytes. Throws InvalidArgument if the bytes are not a cubin with a kernel.
std::string overlap_opcodes(std::string_view cubin);

/// The bytes of the first parameter of a cubin's first kernel; 0 if it has none.
size_t parameter_bytes(std::string_view cubin);

}  // namespace weft::cuda
