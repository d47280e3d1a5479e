// A machine as a JSON file: what `//tools:doctor -- --measure --out FILE` writes, and what people write for machines
// that they do not have.
#pragma once
#include <string>
#include <string_view>

#include "compiler/cost/machine.h"

namespace weft {

/// The units of the members of such a file, for help and errors.
inline constexpr const char* kMachineUnits =
    "bytes per second (bytes, buses, bandwidths, memory_rates), operations per second (flops, products), seconds "
    "(launch, hops, latencies), bytes (memory, l2), W (watts)";

/// {"name", "bytes", "flops", "products", ..., "memory_rates": [{"bytes", "read", "write", "copy"}, ...]}: the rates
/// of Machine and its memory, without its links. Rates that are 0, for which others stand, are left out.
std::string machine_to_json(const Machine& machine);

/// Reads such an object, or an object that has it as its member "machine". It may also have "links" and "theoretical",
/// with the members of Links and Theoretical (presets/h100_sxm.json has all of them), and a text "about". "like" names
/// the preset whose numbers the machine takes where the object has none, those of its links too. Without it, an object
/// with "links" has its own numbers alone, and one with "memory_rates", which are measured on CPUs, is like "cpu".
/// Throws InvalidArgument, which names `what`, the member, the value and the valid values.
Machine machine_from_json(std::string_view text, std::string_view what);

/// Reads a file of at most 1 MiB, once in the process. Throws as machine_from_json() does, with the path.
const Machine& read_machine(const std::string& path);

/// The machine of a preset's name, or of a file that ends in .json. Throws InvalidArgument naming the presets.
const Machine& machine_named(const std::string& name);

}  // namespace weft
