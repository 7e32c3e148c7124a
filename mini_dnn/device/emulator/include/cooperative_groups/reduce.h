#pragma once
#include "../cooperative_groups.h"
namespace emulator::cooperative_groups {
using namespace reductions;
}
