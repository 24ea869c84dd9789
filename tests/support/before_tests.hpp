#pragma once

/// Called first in the test program's main. A test program that is started again as another process
/// defines it and never returns from it there; else nothing is done.
void before_tests(int& argc, char** argv);
