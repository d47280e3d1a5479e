// Network addresses of this host and of the coordination service.
#pragma once
#include <string>
#include <string_view>

namespace weft::control {

struct HostPort {
  std::string host;  // a name or an address, without brackets
  int port = 0;
};
/// Reads "10.0.0.1:29500" and "[fd00::1]:29500". `listens`: also port 0, and no host. Throws InvalidArgument, which
/// begins with `what`.
HostPort parse_address(std::string_view address, std::string_view what, bool listens = false);
/// "10.0.0.1:29500", "[fd00::1]:29500".
std::string with_port(const std::string& host, int port);
/// Why a host name or address is not known here; empty: it is known. While no name server answers, retries for 3 s.
std::string unknown_host(const std::string& host);
/// Whether other hosts can reach a name or address of this host: it must be known here and be outside the loopback
/// interface, to which a host's own name often resolves.
bool is_reachable(const std::string& host);
/// The numeric source address of packets from this host to `host` (possibly this host itself); empty if the name is not
/// known, no route exists, or the address is on the loopback interface. Sends nothing.
std::string address_towards(const std::string& host);

}  // namespace weft::control
