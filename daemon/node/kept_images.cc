#include "daemon/node/kept_images.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "daemon/node/limits.h"

namespace ckptd {

void KeptImages::Keep(KeptName name, ArenaLeasePtr image) {
  bool too_many = false;
  {
    absl::MutexLock lock(&mutex_);
    entries_.push_back({name, image});
    by_name_.insert_or_assign(std::move(name), std::prev(entries_.end()));
    too_many = entries_.size() > kMostKeptImages;
  }
  // Not earlier: the arena, which this wakes for those who wait, looks once whether there is
  // something to give up.
  image->SetIdle();
  if (too_many) GiveUpOne();
}

ArenaLeasePtr KeptImages::Find(const KeptName& name) const {
  absl::MutexLock lock(&mutex_);
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second->image;
}

void KeptImages::Drop(const KeptName& name) {
  std::list<Entry> dropped;
  absl::MutexLock lock(&mutex_);
  const auto found = by_name_.find(name);
  if (found != by_name_.end()) Remove(found->second, dropped);
}

bool KeptImages::GiveUpOne() {
  std::list<Entry> dropped;
  absl::MutexLock lock(&mutex_);
  if (entries_.empty()) return false;
  auto chosen = std::find_if(entries_.begin(), entries_.end(),
                             [](const Entry& entry) { return entry.image.use_count() == 1; });
  if (chosen == entries_.end()) chosen = entries_.begin();
  Remove(chosen, dropped);
  return true;
}

void KeptImages::Remove(std::list<Entry>::iterator entry, std::list<Entry>& removed) {
  by_name_.erase(entry->name);
  removed.splice(removed.end(), entries_, entry);
}

}  // namespace ckptd
