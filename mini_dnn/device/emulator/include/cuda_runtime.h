// Nothing to add: emulator.h, which the build puts before every file, has it all.
#pragma once
