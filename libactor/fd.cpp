#include "libactor/fd.hpp"

#include <unistd.h>

namespace troupe {

void Fd::reset() {
  if (fd_ >= 0) ::close(fd_);  // never again on EINTR: on Linux it is closed by then
  fd_ = -1;
}

}  // namespace troupe
