#include "daemon/node/kept_images.h"

#include <algorithm>
#include <utility>

#include "daemon/node/limits.h"

namespace ckptd {

void KeptImages::Keep(KeptName name, ArenaLeasePtr image) {
  image->SetIdle();
  bool too_many = false;
  {
    absl::MutexLock lock(&mutex_);
    entries_.push_back({std::move(name), std::move(image)});
    too_many = entries_.size() > kMostKeptImages;
  }
  if (too_many) GiveUpOne();
}

ArenaLeasePtr KeptImages::Find(const KeptName& name) const {
  absl::MutexLock lock(&mutex_);
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.name == name; });
  return found == entries_.end() ? nullptr : found->image;
}

void KeptImages::Drop(const KeptName& name) {
  std::list<Entry> dropped;  // freed without the lock
  absl::MutexLock lock(&mutex_);
  for (auto it = entries_.begin(); it != entries_.end();) {
    const auto next = std::next(it);
    if (it->name == name) dropped.splice(dropped.end(), entries_, it);
    it = next;
  }
}

bool KeptImages::GiveUpOne() {
  std::list<Entry> dropped;
  absl::MutexLock lock(&mutex_);
  if (entries_.empty()) return false;
  auto chosen = std::find_if(entries_.begin(), entries_.end(),
                             [](const Entry& entry) { return entry.image.use_count() == 1; });
  if (chosen == entries_.end()) chosen = entries_.begin();
  dropped.splice(dropped.end(), entries_, chosen);
  return true;
}

}  // namespace ckptd
