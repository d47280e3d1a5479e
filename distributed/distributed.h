// All of weft::dist: for programs that distribute steps over the ranks of a mesh or call collectives. Include it with
// weft.h.
#pragma once
#include "distributed/collectives.h"
#include "distributed/launch/compile.h"
#include "distributed/launch/world.h"
#include "framework/mesh/mesh.h"
