// Everything of meshes: weft::dist. Beside weft.h, for programs that lay steps over ranks or write collectives by hand.
#pragma once
#include "distributed/collectives.h"
#include "distributed/launch/compile.h"
#include "distributed/launch/world.h"
#include "framework/mesh/mesh.h"
