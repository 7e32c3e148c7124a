// Empty: emulator.h, which the build includes before every file, has everything.
#pragma once
