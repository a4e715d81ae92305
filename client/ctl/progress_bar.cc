#include "client/ctl/progress_bar.h"

#include <unistd.h>

#include <cstdio>

#include "absl/strings/str_format.h"
#include "daemon/runtime/quantity.h"

namespace ckptd {
namespace {

constexpr size_t kCells = 30;

}  // namespace

std::string ProgressLine(uint64_t done, uint64_t total) {
  const double share = total == 0 ? 1.0 : static_cast<double>(done) / static_cast<double>(total);
  const size_t full = static_cast<size_t>(share * kCells);
  return absl::StrFormat("[%s%s] %3d%%  %s of %s", std::string(full, '#'),
                         std::string(kCells - full, '.'), static_cast<int>(share * 100),
                         HumanByteSize(done), HumanByteSize(total));
}

ProgressBar::ProgressBar() : on_terminal_(::isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
  if (!shown_.empty()) std::fputs("\r\033[K", stderr);
}

void ProgressBar::Show(uint64_t done, uint64_t total) {
  if (!on_terminal_) return;
  std::string line = ProgressLine(done, total);
  if (line == shown_) return;
  shown_ = std::move(line);
  std::fprintf(stderr, "\r%s\033[K", shown_.c_str());
}

}  // namespace ckptd
