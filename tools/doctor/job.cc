#include "tools/doctor/job.h"

#include "distributed/control/address.h"
#include "framework/base/error.h"
#include "framework/base/one_line.h"

namespace weft::tools {

void add_job(FactList& facts, const control::Environment& variables) {
  const auto value = [&](const char* name) {
    const auto it = variables.find(name);
    return it == variables.end() ? std::string() : one_line(it->second, 200);
  };
  const auto add = [&](const char* name, const std::string& text) { facts.add("job", name, text); };
  control::Identity id;
  try {
    id = control::identity_of(variables);
  } catch (const Error& e) {
    add("started_by", str_cat("error: ", e.what()));
    return;
  }
  const bool one_host = id.one_host();
  if (id.source == "none") {
    add("started_by", "nothing: a mesh has a process for each rank on this host");
  } else {
    add("started_by", id.source);
    facts.add("job", "rank", static_cast<double>(id.rank));
    facts.add("job", "processes", static_cast<double>(id.world));
    if (id.local_world > 0) facts.add("job", "processes_of_this_host", static_cast<double>(id.local_world));
    add("service", id.store.empty() ? control::with_port(id.service_host(), id.port)
                                    : str_cat("any free port of this host, written to ", one_line(id.store, 200)));
  }
  const std::string file = value("JOB_TOKEN_FILE");
  add("token", !value("JOB_TOKEN").empty() ? "in JOB_TOKEN"
               : !file.empty()             ? str_cat("in the file ", file, " (JOB_TOKEN_FILE)")
               : one_host                  ? "none; needed between hosts only"
                                           : "none: need JOB_TOKEN or JOB_TOKEN_FILE between hosts");
  const std::string address = value("JOB_ADDRESS"), interface = value("JOB_INTERFACE");
  const std::string towards = control::address_towards(id.service_host());
  add("network", !address.empty()     ? str_cat(address, " (JOB_ADDRESS)")
                 : !interface.empty() ? str_cat("interface ", interface, " (JOB_INTERFACE)")
                 : one_host           ? "shared memory; with --transport gloo 127.0.0.1"
                 : !towards.empty()   ? str_cat(towards, ", from which ", id.host, " is reached")
                                      : str_cat("the first interface but loopback: no address from which ", id.host,
                                                " is reached; JOB_ADDRESS or JOB_INTERFACE chooses one"));
  if (const std::string flight = value("JOB_FLIGHT"); !flight.empty()) add("flight_records", flight);
}

}  // namespace weft::tools
