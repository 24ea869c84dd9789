#include "libactor/clock.hpp"

namespace troupe {

Clock::Time SystemClock::now() const { return std::chrono::steady_clock::now(); }

Clock::WallTime SystemClock::wall() const { return std::chrono::system_clock::now(); }

}  // namespace troupe
