"""The packages in order of dependency: the one list of rooms.

A row is PACKAGE: room(packages that it may use). A package may also use everything that the named rows may use. A row
may name only rows above it, so there can be no cycles. NAME/* means a package and all packages below it that have no
row of their own; "." is the root package, the umbrella //:weft. tools/lint/deps_test.py executes this file and compares
the rows with the build, tools/lint/includes_test.py compares them with the includes of all files, tests as well,
tools/build_rules/cc.bzl reads `planning`, and docs/architecture.md describes each package.
"""

def room(uses = [], wing = False, wings = [], planning = False, tests = [], apart = False):
    """One row.

    Args:
      uses: the packages that this package may use.
      wing: this package is attached to the core, which never uses it; the other rows are the core.
      wings: wings that this package of the core may use all the same.
      tests: packages that the tests and `testing` folders of this package may use besides; their rows may be below.
      apart: packages of this row NAME/* do not use each other.
      planning: this package calls ops, plans, writes kernels as text or runs once per job. It has no loop over data, so
        a fast compilation (-O1) counts for more than fast code.
    """
    return struct(uses = uses, wing = wing, wings = wings, planning = planning, tests = tests, apart = apart)

# The package that the tests of all packages may use.
TEST_SUPPORT = "framework/testing"

LAYERS = {
    "third_party/*": room(),
    "framework/base": room(["third_party/*"]),
    "framework/tensor": room(["framework/base"]),
    "framework/ir": room(["framework/tensor"]),
    "framework/io": room(["framework/ir"]),
    "framework/dispatch": room(["framework/ir"]),
    "framework/cuda": room(["framework/dispatch"], wing = True, tests = ["framework/cuda/testing", "ops/core"]),
    "framework/cuda/testing": room(["framework/cuda"], wing = True),
    "framework/autodiff": room(["framework/dispatch"], tests = ["ops"]),
    "framework/cli": room(["framework/io"]),
    "framework/testing": room(["framework/autodiff", "framework/io"], tests = ["ops/core"]),
    # Meshes and plans as data, so that the options of compile can name them.
    "framework/mesh": room(["framework/base"]),

    "ops/numerics": room(["framework/tensor"]),
    "ops/kernels/*": room(["framework/tensor", "ops/numerics"]),
    "ops/core": room(["framework/autodiff", "ops/kernels/*", "ops/numerics"], tests = ["ops/linalg"]),
    "ops/attention": room(["ops/core", "framework/autodiff"]),
    "ops/composite": room(["ops/attention"], planning = True, tests = ["ops", "compiler/exec"]),
    "ops": room(["ops/composite"]),
    # Decompositions of matrices, by Eigen. A wing: it registers its records.
    "ops/linalg": room(["ops"], wing = True, tests = ["compiler/exec"]),

    "compiler": room(["framework/mesh", "framework/dispatch"]),
    "compiler/jit": room(["framework/io"], planning = True),
    "compiler/cost": room(
        ["compiler/jit", "ops/core", "ops/attention", "framework/io"],
        wings = ["framework/cuda"],
    ),
    "compiler/loop_ir": room(["ops/core"], tests = ["compiler/passes"]),
    "compiler/passes": room(
        ["compiler", "compiler/cost", "compiler/loop_ir", "ops", "ops/composite", "framework/autodiff"],
    ),
    "compiler/verify": room(["compiler/loop_ir"]),

    # Targets are siblings behind framework/dispatch/device/target.h. compiler/exec sees the cache of operations alone.
    "compiler/targets": room(["framework/dispatch"]),
    "compiler/targets/cpu/print": room(["compiler/cost", "compiler/loop_ir", "ops/composite"], planning = True),
    "compiler/targets/cpu/run": room(["compiler/loop_ir"]),
    "compiler/targets/cpu": room(["compiler/targets/cpu/print", "compiler/targets/cpu/run", "compiler/jit"]),
    "compiler/targets/cpu/mods": room(
        ["compiler/targets/cpu", "compiler/passes", "ops/attention"],
        tests = ["compiler/exec"],
    ),
    "compiler/targets/cuda/*": room(
        [
            "compiler/jit", "compiler/targets", "compiler/targets/cpu/print", "compiler/passes", "framework/cuda",
            "ops/attention",
        ],
        wing = True,
        planning = True,
        tests = ["framework/cuda/testing", "compiler/targets/cpu", "ops/linalg", "ops/testing"],
    ),
    "compiler/exec": room(
        ["compiler", "compiler/targets", "compiler/passes", "compiler/verify", "framework/io"],
        tests = ["."],
    ),
    "compiler/aot": room(["compiler/exec", "compiler/targets/cpu"], wing = True, tests = ["models/*"]),
    "compiler/onnx": room(["compiler/exec"], wing = True, planning = True),

    "distributed/comm": room(["framework/dispatch"], wing = True),
    "distributed/comm/testing": room(["distributed/comm"], wing = True),
    # Between processes of one host.
    "distributed/comm/shared": room(["distributed/comm"], wing = True, tests = ["distributed/comm/testing"]),
    # Between hosts, over Gloo. Not reachable from the umbrella.
    "distributed/comm/gloo": room(["distributed/comm"], wing = True, tests = ["distributed/comm/testing"]),
    # Coordination of processes by gRPC. Not reachable from the umbrella.
    "distributed/control": room(["framework/io"], wing = True, planning = True),
    # Schedules of pipelines as data.
    "distributed/pipeline": room(["framework/base"], wing = True, planning = True),

    # The op tests compare eager calls with compiled ones, and run collectives in a world of one.
    "ops/testing": room(
        ["compiler/exec", "ops/composite", "framework/testing"],
        wings = ["distributed/comm"],
        tests = ["compiler/targets/cuda/*"],
    ),

    "distributed/placement": room(["framework/mesh", "ops/attention"], wing = True, planning = True),
    "distributed/propagate": room(
        ["compiler/cost", "distributed/placement", "ops/composite"],
        wing = True,
        planning = True,
    ),
    "distributed/strategies": room(["distributed/propagate"], wing = True, planning = True),
    "distributed/overlap": room(["distributed/propagate", "compiler/passes"], wing = True, planning = True),
    # Pipeline stages: the graph of one microbatch, and how it is cut.
    "distributed/stages": room(
        ["distributed/pipeline", "compiler/passes"],
        wing = True,
        planning = True,
        tests = ["models/*"],
    ),
    "distributed/plan": room(
        [
            "compiler", "distributed/comm", "distributed/strategies", "distributed/overlap", "distributed/stages",
            "framework/io",
        ],
        wing = True,
        planning = True,
    ),
    # Flight records of the ranks of a job, held against their plans.
    "distributed/diagnose": room(
        ["framework/dispatch", "framework/io", "framework/mesh"],
        wing = True,
        planning = True,
    ),
    "distributed/launch": room(
        [
            "distributed/comm/shared", "distributed/comm/gloo", "distributed/control", "distributed/diagnose",
            "distributed/plan", "distributed/strategies", "distributed/overlap", "distributed/stages",
            "compiler/exec",
        ],
        wing = True,
        planning = True,
        tests = ["distributed", "models/*"],
    ),
    # Replicas that may die: a replica in its group, its state and its data.
    "distributed/replica": room(["distributed/launch"], wing = True, planning = True, tests = ["."]),
    # Replicas that train by themselves, and exchange outer gradients.
    "distributed/diloco": room(["distributed/replica"], wing = True, tests = ["."]),
    "distributed/testing/*": room(["distributed/launch", "ops/testing"], wing = True, tests = [".", "distributed"]),

    # Collectives for programs written by hand.
    "distributed": room(
        ["ops/core", "distributed/launch", "distributed/replica", "distributed/diloco", "framework/mesh"],
        wing = True,
        tests = ["models/*"],
    ),

    "models/nn": room(["ops/composite", "framework/autodiff", "framework/io"], planning = True),
    "models/optim": room(["models/nn"], planning = True),
    "models/data": room(["ops/composite", "framework/io"]),
    "models/save": room(["models/optim", "framework/io"]),
    ".": room(
        [
            "compiler/exec", "compiler/targets/cpu/mods", "models/nn", "models/optim", "models/save",
            "models/data",
        ],
        wings = ["compiler/targets/cuda/*", "ops/linalg"],
    ),
    # Chat templates; no tensors.
    "models/text/template": room(["framework/io"], wing = True),
    # Tokenizers of Hugging Face and GGUF. Links PCRE2 and utf8proc, which the umbrella does not.
    "models/text": room(["models/data", "framework/io", "framework/cli"], wing = True),
    # Weights of other programs, by tables.
    "models/weights": room(["models/nn", "framework/io", "ops/core"], wing = True, planning = True),
    # The loop knows families through nn::ModelFamily only; the programs of a family stand on it.
    "models/train": room(
        [
            ".", "framework/cli", "models/data", "models/text", "models/text/template", "models/weights",
            "distributed/launch", "distributed/replica", "distributed/diloco",
        ],
        wing = True,
        planning = True,
        tests = ["framework/cuda/testing", "models/*"],
    ),
    "docs": room([".", "compiler/onnx", "distributed", "models/train"], wing = True),
    # The families: models/gpt and the like.
    "models/*": room(["models/train", "distributed/placement"], wing = True, planning = True, apart = True),
    # Published models of all families, for programs of users.
    "models/hf": room(["models/*"], wing = True, planning = True),
    "models/examples": room([".", "distributed", "models/data", "models/hf"], wing = True),
    "models/testing/*": room([".", "models/*", "models/hf", "framework/io", "framework/testing"], wing = True),

    # Programs for people. Nothing above depends on them.
    "tools/*": room(
        [
            "distributed", "models/*", "models/hf", "models/weights", "distributed/launch", "distributed/comm/shared",
            "distributed/comm/gloo", "distributed/diagnose", "distributed/comm", "compiler/onnx",
        ],
        wing = True,
        tests = ["framework/cuda/testing", "ops/testing", "compiler/aot"],
    ),
    # Its programs are tests and benchmarks for a machine with a GPU.
    "tools/gpu": room(["tools/*", "framework/cuda/testing"], wing = True, tests = ["ops/testing", "models/testing/*"]),
}

def row_of(package, layers = LAYERS):
    """The name of a package's row; None if it has none."""
    if package in layers:
        return package
    parts = package.split("/")
    for n in range(len(parts), 0, -1):
        if "/".join(parts[:n]) + "/*" in layers:
            return "/".join(parts[:n]) + "/*"
    return None
