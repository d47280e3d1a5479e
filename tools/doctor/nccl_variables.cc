#include "tools/doctor/nccl_variables.h"

#include <algorithm>

#include "framework/base/error.h"

namespace weft::tools {
namespace {

// https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html and PyTorch's page of ProcessGroupNCCL.
constexpr NcclVariable kVariables[] = {
    {"NCCL_DEBUG", "messages that NCCL prints: VERSION, WARN, INFO or TRACE",
     "INFO to see the chosen network, topology and algorithms; unset it again, as it is verbose"},
    {"NCCL_DEBUG_SUBSYS",
     "which parts print with NCCL_DEBUG=INFO: INIT, COLL, P2P, SHM, NET, GRAPH, TUNING, ENV, ALLOC or ALL",
     "to shorten the output of NCCL_DEBUG"},
    {"NCCL_DEBUG_FILE", "the file that NCCL_DEBUG prints to; %h is the host and %p the process",
     "to keep the output of ranks apart"},
    {"NCCL_SOCKET_IFNAME",
     "network interfaces for TCP and for the first contact, by prefix; = before a name asks for exactly it, ^ excludes",
     "if a host has several networks and NCCL takes one that does not reach the others"},
    {"NCCL_SOCKET_FAMILY", "AF_INET or AF_INET6: uses IPv4 or IPv6 only",
     "if an interface has addresses of both and one does not work"},
    {"NCCL_SOCKET_NTHREADS", "processor threads for each connection over TCP",
     "on fast networks without InfiniBand, if one thread is at its limit"},
    {"NCCL_NSOCKS_PERTHREAD", "sockets of each of these threads; the product of both is 64 at most",
     "with networks that limit the rate of one socket"},
    {"NCCL_NET", "the network to use, by name: IB, Socket or a plugin's name",
     "to make a job fail at once if its network is missing"},
    {"NCCL_NET_PLUGIN", "the library libnccl-net-SUFFIX.so, by suffix or name",
     "to choose among plugins for networks; none switches them off"},
    {"NCCL_NET_GDR_LEVEL",
     "how far a GPU may be from a network card that reads its memory directly: LOC, PIX, PXB, PHB, SYS",
     "if direct access fails or is slow on this topology"},
    {"NCCL_NET_GDR_READ", "1: direct reads of GPU memory for sends too",
     "to measure; the default depends on the platform"},
    {"NCCL_CROSS_NIC",
     "0: a ring uses the same network card on all hosts; 1: it may use others; 2: tries the same first",
     "0 if each card has a network of its own, 1 if all cards share one switch"},
    {"NCCL_IB_DISABLE", "1: no InfiniBand or RoCE; TCP instead",
     "to find out whether InfiniBand is the cause of a failure; slow"},
    {"NCCL_IB_HCA", "InfiniBand cards to use, by prefix and port; = asks for exactly these, ^ excludes",
     "if a host has cards that do not reach the others, such as those for storage"},
    {"NCCL_IB_TIMEOUT", "how long InfiniBand waits for an answer: 4.096 us x 2^value",
     "in large networks that report error 12, IBV_WC_RETRY_EXC_ERR"},
    {"NCCL_IB_RETRY_CNT", "how often InfiniBand sends again before it fails; 7 is the most",
     "with NCCL_IB_TIMEOUT, in networks that lose packets"},
    {"NCCL_IB_GID_INDEX", "the entry of the table of addresses that RoCE uses",
     "if RoCE cannot connect; show_gids lists the entries"},
    {"NCCL_IB_SL", "the service level of InfiniBand", "if the network gives classes of traffic"},
    {"NCCL_IB_TC", "the traffic class of RoCE", "if switches treat RoCE by its class"},
    {"NCCL_IB_QPS_PER_CONNECTION", "queue pairs for each connection",
     "on networks with several paths between switches"},
    {"NCCL_IB_ADAPTIVE_ROUTING", "1: data may take several paths", "by the advice of the network's administrator"},
    {"NCCL_IB_PCI_RELAXED_ORDERING", "whether the card may reorder accesses over PCI: 0, 1 or 2 (if it can)",
     "in virtual machines whose bandwidth is low"},
    {"NCCL_P2P_DISABLE", "1: GPUs of a host do not read each other's memory",
     "to find out whether direct access hangs, as with some settings of the IOMMU; slow"},
    {"NCCL_P2P_LEVEL", "how far apart GPUs may be that read each other's memory: LOC, NVL, PIX, PXB, PHB, SYS",
     "if direct access is slow or fails between some GPUs"},
    {"NCCL_SHM_DISABLE", "1: no shared memory between GPUs without direct access; the network instead",
     "if /dev/shm is too small in a container and cannot be enlarged"},
    {"NCCL_ALGO", "permitted algorithms: Ring, Tree, CollnetChain, CollnetDirect, NVLS, NVLSTree, PAT",
     "to measure or to avoid a faulty one; else unset it, because NCCL chooses by size and topology"},
    {"NCCL_PROTO", "permitted protocols: LL, LL128, Simple",
     "to measure; LL128 gives wrong results on hardware where NCCL does not choose it"},
    {"NCCL_BUFFSIZE", "bytes of the buffer between two GPUs; 4 MiB",
     "smaller to save GPU memory, larger if a network has a long delay"},
    {"NCCL_NTHREADS", "threads of a block on the GPU: 64, 128, 256 or 512",
     "to leave more of the GPU to computation; slow if small"},
    {"NCCL_MAX_NCHANNELS", "most channels, that is blocks on the GPU", "to leave more of the GPU to computation"},
    {"NCCL_MIN_NCHANNELS", "least channels", "if a topology that is not known to NCCL gives low bandwidth"},
    {"NCCL_MAX_CTAS", "most blocks on the GPU", "as NCCL_MAX_NCHANNELS, of which it is the newer name"},
    {"NCCL_MIN_CTAS", "least blocks on the GPU", "as NCCL_MIN_NCHANNELS, of which it is the newer name"},
    {"NCCL_TOPO_FILE", "an XML file with the topology, read before NCCL detects it",
     "in virtual machines that hide it; clouds supply the file"},
    {"NCCL_TOPO_DUMP_FILE", "the file to write the detected topology to", "to see the topology that NCCL has found"},
    {"NCCL_GRAPH_FILE", "an XML file with the paths to use", "for experiments of experts; unset it else"},
    {"NCCL_GRAPH_DUMP_FILE", "the file to write the chosen paths to", "to see which paths NCCL has chosen"},
    {"NCCL_NVLS_ENABLE", "0: no reductions in NVLink switches; 1: yes, or fail; 2: if possible",
     "0 if they fail at the start, or need too much memory"},
    {"NCCL_COLLNET_ENABLE", "1: reductions in network switches, by a plugin (SHARP)", "on networks with SHARP"},
    {"NCCL_CUMEM_ENABLE", "0: memory by cudaMalloc; 1: by cuMem, which NVLink SHARP and registered buffers need",
     "0 if the driver or a container refuses cuMem"},
    {"NCCL_PXN_DISABLE", "1: no sends through another GPU that is nearer to the network card",
     "to measure, or if GPUs of a host have different work"},
    {"NCCL_DMABUF_ENABLE", "0: no direct access of network cards through DMA-BUF", "0 if the kernel's DMA-BUF fails"},
    {"NCCL_LAUNCH_MODE", "PARALLEL or GROUP: how several GPUs of one process start",
     "seldom; with one GPU for each process it has no effect"},
    {"NCCL_IGNORE_CPU_AFFINITY", "1: NCCL places its threads by the topology, not by the cores of the process",
     "if a launcher pins processes to cores that are far from their GPUs"},
    {"NCCL_CHECK_POINTERS", "1: checks the pointers of each call", "while you debug calls of NCCL"},
    {"NCCL_COMM_BLOCKING", "0: calls return before they are done", "seldom; the program must be written for it"},
    {"NCCL_COMM_ID", "HOST:PORT of the first contact, instead of an exchanged number",
     "seldom; only if all processes are started without a store"},
    {"NCCL_HOSTID", "the identity of a host",
     "if containers of several hosts have one host name, or containers of one host have several"},
    {"NCCL_CONF_FILE", "a file with these variables, one a line",
     "for settings of a whole machine; /etc/nccl.conf is the usual place"},
    {"NCCL_SET_STACK_SIZE", "1: gives the GPU's stack the size that NCCL needs at the start",
     "if the first collective allocates memory and fails"},
    {"NCCL_IB_CUDA_SUPPORT", "whether network cards read GPU memory directly", "never",
     "NCCL_NET_GDR_LEVEL, since NCCL 2.4"},
    {"NCCL_MAX_NRINGS", "most rings", "never", "NCCL_MAX_NCHANNELS, since NCCL 2.5"},
    {"NCCL_MIN_NRINGS", "least rings", "never", "NCCL_MIN_NCHANNELS, since NCCL 2.5"},
    {"NCCL_CHECKS_DISABLE", "no checks of arguments", "never", "NCCL_CHECK_POINTERS, since NCCL 2.2"},
    {"NCCL_ASYNC_ERROR_HANDLING", "of PyTorch: whether a failed collective ends the process", "never",
     "TORCH_NCCL_ASYNC_ERROR_HANDLING, since PyTorch 2.2"},
    {"NCCL_BLOCKING_WAIT", "of PyTorch: whether wait() blocks and throws after the timeout", "never",
     "TORCH_NCCL_BLOCKING_WAIT, since PyTorch 2.2"},
    {"NCCL_DESYNC_DEBUG", "of PyTorch: a report of ranks that differ", "never",
     "TORCH_NCCL_DESYNC_DEBUG, since PyTorch 2.2"},
    {"NCCL_TIMEOUT", "nothing: neither NCCL nor PyTorch reads it", "never",
     "the timeout that init_process_group() is given; here --timeout"},
};

}  // namespace

const NcclVariable* nccl_variable(std::string_view name) {
  const auto* const it = std::ranges::find(kVariables, name, &NcclVariable::name);
  return it == std::end(kVariables) ? nullptr : it;
}

void add_nccl_variables(FactList& facts, const std::map<std::string, std::string>& environment) {
  for (const auto& [name, value] : environment) {
    if (!name.starts_with("NCCL_")) continue;
    const NcclVariable* const v = nccl_variable(name);
    facts.add("nccl_variables", name,
              !v               ? str_cat(value, " (not known: a newer variable, or a wrong name)")
              : v->now.empty() ? str_cat(value, " (", v->does, "; change it: ", v->when, ")")
                               : str_cat(value, " (deprecated: ", v->does, "; instead: ", v->now, ")"));
  }
}

}  // namespace weft::tools
