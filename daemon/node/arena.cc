#include "daemon/node/arena.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ckptd {

ArenaLease::~ArenaLease() {
  if (!extents_.empty()) arena_.Release(*this);
}

uint64_t ArenaLease::size_bytes() const {
  return parts_.empty() ? 0 : parts_.back().image_offset + parts_.back().bytes.size();
}

void ArenaLease::ForEachRun(uint64_t offset, uint64_t length,
                            absl::FunctionRef<void(std::span<std::byte>)> run) const {
  auto part = std::upper_bound(
      parts_.begin(), parts_.end(), offset,
      [](uint64_t wanted, const ArenaPart& candidate) { return wanted < candidate.image_offset; });
  if (part != parts_.begin()) --part;
  for (; length > 0 && part != parts_.end(); ++part) {
    const uint64_t within = offset - part->image_offset;
    const uint64_t taken = std::min<uint64_t>(length, part->bytes.size() - within);
    run(part->bytes.subspan(within, taken));
    offset += taken;
    length -= taken;
  }
}

void ArenaLease::Write(uint64_t offset, absl::string_view content) const {
  ForEachRun(offset, content.size(), [&](std::span<std::byte> run) {
    memcpy(run.data(), content.data(), run.size());
    content.remove_prefix(run.size());
  });
}

std::vector<ArenaPart> ArenaLease::Cut(uint64_t offset, uint64_t length) const {
  std::vector<ArenaPart> cut;
  for (const ArenaPart& part : parts_) {
    const uint64_t begin = std::max(offset, part.image_offset);
    const uint64_t end = std::min(offset + length, part.image_offset + part.bytes.size());
    if (begin >= end) continue;
    const uint64_t within = begin - part.image_offset;
    cut.push_back({.slab_id = part.slab_id,
                   .slab_offset = part.slab_offset + within,
                   .image_offset = begin,
                   .bytes = part.bytes.subspan(within, end - begin)});
  }
  return cut;
}

v1::Lease ArenaLease::ToProto(uint64_t image_bytes, uint64_t image_offset) const {
  v1::Lease lease;
  lease.set_image_bytes(image_bytes);
  for (const ArenaPart& part : parts_) {
    v1::Segment* segment = lease.add_segments();
    segment->set_slab_id(part.slab_id);
    segment->set_slab_offset(part.slab_offset);
    segment->set_image_offset(image_offset + part.image_offset);
    segment->set_length_bytes(part.bytes.size());
  }
  return lease;
}

void ArenaLease::Quarantine() const { arena_.Quarantine(extents_); }

void ArenaLease::SetIdle() const { arena_.SetIdle(*this); }

ArenaTicket::~ArenaTicket() { arena_.Complete(id_); }

void ArenaTicket::Expect(uint64_t bytes) {
  absl::MutexLock lock(&arena_.mutex_);
  arena_.admission_.Expect(id_, bytes);
}

void ArenaTicket::ExpectRevolving(uint64_t bytes) {
  absl::MutexLock lock(&arena_.mutex_);
  arena_.admission_.ExpectRevolving(id_, bytes);
}

absl::StatusOr<std::unique_ptr<Arena>> Arena::Create(const ArenaOptions& options,
                                                     FileSystem& file_system, const Clock& clock,
                                                     Alarms& alarms, NodeProbe& probe) {
  const uint64_t slab_bytes = RoundDown(options.slab_bytes, kExtentAlignmentBytes);
  if (slab_bytes == 0 || options.arena_bytes < slab_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("an arena of ", options.arena_bytes,
                                                   " bytes with slabs of ", options.slab_bytes));
  }
  std::vector<uint64_t> sizes;
  std::vector<uint32_t> all;
  for (uint64_t left = RoundDown(options.arena_bytes, kExtentAlignmentBytes); left > 0;) {
    all.push_back(static_cast<uint32_t>(sizes.size()));
    sizes.push_back(std::min(left, slab_bytes));
    left -= sizes.back();
  }
  std::unique_ptr<Arena> arena(
      new Arena(options, std::move(sizes), file_system, clock, alarms, probe));
  if (absl::Status status = arena->MakeSlabs(all); !status.ok()) {
    return absl::Status(
        status.code(),
        absl::StrCat("taking an arena of ", BytesForPeople(arena->total_bytes_), ": ",
                     status.message(), "; start the daemon with a smaller --arena-bytes"));
  }
  return arena;
}

Arena::Arena(const ArenaOptions& options, std::vector<uint64_t> slab_bytes, FileSystem& file_system,
             const Clock& clock, Alarms& alarms, NodeProbe& probe)
    : slab_bytes_(slab_bytes),
      total_bytes_([&] {
        uint64_t total = 0;
        for (uint64_t bytes : slab_bytes) total += bytes;
        return total;
      }()),
      touch_threads_(options.touch_threads),
      file_system_(file_system),
      clock_(clock),
      alarms_(alarms),
      probe_(probe),
      admission_(slab_bytes),
      slabs_(slab_bytes.size()) {
  {
    absl::MutexLock lock(&mutex_);
    ReportUse();
  }
  thread_ = std::thread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), "ckptd-arena");
}

Arena::~Arena() { Stop(); }

void Arena::SetReclaimer(std::function<bool()> give_up_one) {
  absl::MutexLock lock(&mutex_);
  give_up_one_ = std::move(give_up_one);
}

void Arena::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
  std::vector<Waiter> left;
  {
    absl::MutexLock lock(&mutex_);
    for (auto& [id, waiter] : waiters_) {
      admission_.Cancel(id);
      left.push_back(std::move(waiter));
    }
    waiters_.clear();
  }
  for (Waiter& waiter : left) {
    alarms_.Cancel(waiter.alarm);
    std::move(waiter.done)(absl::UnavailableError("the node daemon is shutting down"));
  }
}

ArenaTicketPtr Arena::Open(std::string job, std::string label) {
  absl::MutexLock lock(&mutex_);
  return ArenaTicketPtr(new ArenaTicket(*this, admission_.Open(std::move(job), std::move(label))));
}

void Arena::Acquire(ArenaTicketPtr ticket, std::vector<ExtentAsk> asks, absl::Time deadline,
                    Done<std::vector<ArenaLeasePtr>> done) {
  Waiter waiter = {.ticket = std::move(ticket), .done = std::move(done), .started = clock_.Now()};
  for (const ExtentAsk& ask : asks) waiter.bytes += ask.bytes;
  absl::Status refused;
  {
    absl::MutexLock lock(&mutex_);
    absl::StatusOr<RequestId> request = admission_.Ask(waiter.ticket->id_, std::move(asks));
    if (request.ok() && !stopping_) {
      waiter.alarm = alarms_.At(deadline, [this, id = *request] { Expire(id); });
      waiters_.emplace(*request, std::move(waiter));
      changed_ = true;
      return;
    }
    if (request.ok()) admission_.Cancel(*request);
    refused =
        stopping_ ? absl::UnavailableError("the node daemon is shutting down") : request.status();
  }
  std::move(waiter.done)(refused);
}

absl::StatusOr<Arena::SharedSlab> Arena::Share(
    uint64_t slab_id, absl::FunctionRef<bool(const std::string& job)> may_use) {
  absl::MutexLock lock(&mutex_);
  for (uint32_t i = 0; i < slabs_.size(); ++i) {
    if (slabs_[i] == nullptr || slabs_[i]->id() != slab_id) continue;
    const std::string& job = admission_.allocator().owner(i);
    if (job.empty() || !may_use(job)) {
      return absl::PermissionDeniedError(
          absl::StrCat("slab ", slab_id, " belongs to no job that this session has joined"));
    }
    SharedSlab shared{UniqueFd(fcntl(slabs_[i]->descriptor(), F_DUPFD_CLOEXEC, 0)),
                      slabs_[i]->size_bytes()};
    if (!shared.descriptor.valid()) {
      return absl::ResourceExhaustedError("the node daemon has too many open files");
    }
    return shared;
  }
  return absl::NotFoundError(absl::StrCat("there is no slab ", slab_id));
}

uint64_t Arena::used_bytes() const {
  absl::MutexLock lock(&mutex_);
  return admission_.used_bytes();
}

uint64_t Arena::idle_bytes() const {
  absl::MutexLock lock(&mutex_);
  return admission_.idle_bytes();
}

void Arena::Release(const ArenaLease& lease) {
  absl::MutexLock lock(&mutex_);
  if (lease.is_idle_) {
    admission_.ReleaseIdle(lease.extents_);
  } else {
    admission_.Release(lease.ticket_, lease.extents_);
  }
  changed_ = true;
  ReportUse();
}

void Arena::SetIdle(const ArenaLease& lease) {
  absl::MutexLock lock(&mutex_);
  lease.is_idle_ = true;
  admission_.SetIdle(lease.ticket_, lease.extents_);
  changed_ = true;  // who waits may have it
  ReportUse();
}

void Arena::Quarantine(std::span<const Extent> extents) {
  absl::MutexLock lock(&mutex_);
  admission_.Quarantine(extents);
}

void Arena::Complete(TicketId ticket) {
  absl::MutexLock lock(&mutex_);
  admission_.Complete(ticket);
  changed_ = true;
}

void Arena::Expire(RequestId request) {
  absl::MutexLock lock(&mutex_);
  auto it = waiters_.find(request);
  if (it == waiters_.end()) return;
  it->second.expired = true;
  changed_ = true;
}

void Arena::Run() {
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      auto ready = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return changed_ || stopping_; };
      mutex_.Await(absl::Condition(&ready));
      if (stopping_) return;
      changed_ = false;
    }
    while (AnswerExpired() || GrantNext() || ReclaimOne()) {
    }
  }
}

bool Arena::AnswerExpired() {
  Waiter waiter;
  std::string message;
  {
    absl::MutexLock lock(&mutex_);
    auto it = std::find_if(waiters_.begin(), waiters_.end(),
                           [](const auto& entry) { return entry.second.expired; });
    if (it == waiters_.end()) return false;
    admission_.Cancel(it->first);
    waiter = std::move(it->second);
    waiters_.erase(it);
    message = absl::StrCat(
        "waited ",
        absl::FormatDuration(absl::Trunc(clock_.Now() - waiter.started, absl::Milliseconds(1))),
        " for ", BytesForPeople(waiter.bytes), " of the arena of ", BytesForPeople(total_bytes_),
        "; it is held by: ", admission_.Holders());
    ReportUse();
  }
  std::move(waiter.done)(absl::DeadlineExceededError(message));
  return true;
}

bool Arena::GrantNext() {
  Admission::Admitted admitted;
  Waiter waiter;
  std::vector<std::unique_ptr<Slab>> destroyed;
  std::vector<uint32_t> missing;
  {
    absl::MutexLock lock(&mutex_);
    std::optional<Admission::Admitted> next = admission_.Next();
    if (!next.has_value()) return false;
    admitted = *std::move(next);
    auto it = waiters_.find(admitted.request);
    waiter = std::move(it->second);
    waiters_.erase(it);
    // At once: nobody may be sent the old slab as the new job's.
    for (uint32_t index : admitted.grant.renewed_slabs) {
      destroyed.push_back(std::move(slabs_[index]));
    }
    for (const std::vector<Extent>& block : admitted.grant.blocks) {
      for (const Extent& extent : block) {
        if (slabs_[extent.slab] == nullptr) missing.push_back(extent.slab);
      }
    }
    ReportUse();
  }
  alarms_.Cancel(waiter.alarm);
  destroyed.clear();
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  const absl::Status made = MakeSlabs(missing);
  std::vector<ArenaLeasePtr> leases = MakeLeases(admitted);
  if (made.ok()) {
    std::move(waiter.done)(std::move(leases));
  } else {
    leases.clear();
    std::move(waiter.done)(made);
  }
  return true;
}

// Also where it doesn't help, because earlier ones wait for memory in use: they come first,
// and what is kept is worth less than what waits.
bool Arena::ReclaimOne() {
  std::function<bool()> give_up_one;
  {
    absl::MutexLock lock(&mutex_);
    if (admission_.waiting() == 0) return false;
    give_up_one = give_up_one_;
  }
  return give_up_one != nullptr && give_up_one();
}

absl::Status Arena::MakeSlabs(std::span<const uint32_t> indices) {
  for (uint32_t index : indices) {
    uint64_t id;
    {
      absl::MutexLock lock(&mutex_);
      id = next_slab_id_++;
    }
    absl::StatusOr<std::unique_ptr<Slab>> slab =
        Slab::Create(id, slab_bytes_[index], touch_threads_, file_system_);
    if (!slab.ok()) return slab.status();
    if (!(*slab)->is_known_to_storage()) probe_.FallbackInUse("registered_memory");
    absl::MutexLock lock(&mutex_);
    slabs_[index] = *std::move(slab);
  }
  return absl::OkStatus();
}

std::vector<ArenaLeasePtr> Arena::MakeLeases(const Admission::Admitted& admitted) {
  std::vector<ArenaLeasePtr> leases;
  absl::MutexLock lock(&mutex_);
  for (const std::vector<Extent>& block : admitted.grant.blocks) {
    std::unique_ptr<ArenaLease> lease(new ArenaLease(*this, admitted.ticket));
    lease->extents_ = block;
    uint64_t image_offset = 0;
    for (const Extent& extent : block) {
      Slab* slab = slabs_[extent.slab].get();
      if (slab == nullptr) continue;  // making it has failed; the lease is given back unused
      lease->parts_.push_back({.slab_id = slab->id(),
                               .slab_offset = extent.offset,
                               .image_offset = image_offset,
                               .bytes = {slab->data() + extent.offset, extent.length}});
      image_offset += extent.length;
    }
    leases.push_back(std::move(lease));
  }
  return leases;
}

void Arena::ReportUse() {
  probe_.ArenaUsed(admission_.used_bytes(), admission_.idle_bytes(), total_bytes_);
  probe_.ArenaWaiting(static_cast<int>(waiters_.size()));
}

}  // namespace ckptd
