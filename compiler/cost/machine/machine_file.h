// A machine as a JSON file. `//tools:doctor -- --measure --out FILE` writes one for this machine; users write files for
// machines that they do not have.
#pragma once
#include <string>
#include <string_view>

#include "compiler/cost/machine/machine.h"

namespace weft {

/// The units of the members of such a file, for help and errors.
inline constexpr const char* kMachineUnits =
    "bytes per second (bytes, buses, bandwidths, memory_rates), operations per second (flops, products), seconds "
    "(launch, hops, latencies), bytes (memory, l2), W (watts)";

/// {"name", "bytes", "flops", "products", ..., "memory_rates": [{"bytes", "read", "write", "copy"}, ...]}: the rates of
/// Machine and its memory, without its links. It leaves out rates of 0, which other rates replace.
std::string machine_to_json(const Machine& machine);

/// Reads such an object, or an object that has it as its member "machine". It may also have "links" and "theoretical",
/// with the members of Links and Theoretical (presets/h100_sxm.json has all of them), and a text "about". "like" names
/// a preset that fills in each number missing in the object and in its links. Without "like", an object with "links"
/// has its own numbers alone, and an object with "memory_rates", which are measured on CPUs, is like "cpu". Throws
/// InvalidArgument, which names `what`, the member, the value and the valid values.
Machine machine_from_json(std::string_view text, std::string_view what);

/// Reads a file of at most 1 MiB, once in the process. Throws as machine_from_json() does, with the path.
const Machine& read_machine(const std::string& path);

/// The machine of a preset's name, or of a file that ends in .json. Throws InvalidArgument naming the presets.
const Machine& machine_named(const std::string& name);

}  // namespace weft
