#include "daemon/node/admission.h"

#include <algorithm>
#include <cassert>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace ckptd {

std::string BytesForPeople(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return absl::StrCat(bytes, " bytes");
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

TicketId Admission::Open(std::string job, std::string label) {
  const TicketId id = next_ticket_++;
  tickets_[id] = {.job = std::move(job), .label = std::move(label)};
  return id;
}

void Admission::Expect(TicketId ticket, uint64_t bytes) { tickets_.at(ticket).expected = bytes; }

void Admission::ExpectRevolving(TicketId ticket, uint64_t bytes) {
  tickets_.at(ticket).expected = bytes;
  tickets_.at(ticket).revolving = true;
}

void Admission::Complete(TicketId ticket) {
  auto it = tickets_.find(ticket);
  if (it == tickets_.end()) return;
  it->second.complete = true;
  ForgetIfDone(ticket);
}

absl::StatusOr<RequestId> Admission::Ask(TicketId ticket, std::vector<ExtentAsk> asks) {
  Ticket& asking = tickets_.at(ticket);
  assert(!asking.complete);
  uint64_t bytes = 0;
  for (const ExtentAsk& ask : asks) {
    bytes += std::min(RoundUp(ask.bytes, kExtentAlignmentBytes), uint64_t{1} << 50);
  }
  const uint64_t needed = bytes + (asking.revolving ? 0 : asking.held);
  if (needed > allocator_.total_bytes()) {
    return absl::ResourceExhaustedError(
        absl::StrCat(asking.label, " needs ", BytesForPeople(needed),
                     " of staging memory on this node, and the arena has ",
                     BytesForPeople(allocator_.total_bytes()),
                     " in all: start the daemon with --arena-bytes=", needed, " or more"));
  }
  const RequestId id = next_request_++;
  ++asking.waiting;
  auto place = std::upper_bound(
      requests_.begin(), requests_.end(), ticket,
      [](TicketId wanted, const Request& request) { return wanted < request.ticket; });
  requests_.insert(place, Request{.id = id, .ticket = ticket, .asks = std::move(asks)});
  return id;
}

bool Admission::Cancel(RequestId request) {
  auto it = std::find_if(requests_.begin(), requests_.end(),
                         [&](const Request& waiting) { return waiting.id == request; });
  if (it == requests_.end()) return false;
  const TicketId ticket = it->ticket;
  requests_.erase(it);
  --tickets_.at(ticket).waiting;
  ForgetIfDone(ticket);
  return true;
}

std::optional<Admission::Admitted> Admission::Next() {
  if (requests_.empty()) return std::nullopt;
  // Requests are ordered by ticket, so the first is the one that no earlier waits for.
  Request& first = requests_.front();
  Ticket& ticket = tickets_.at(first.ticket);
  ExtentAllocator trial = allocator_;
  std::optional<ExtentGrant> grant = trial.Allocate(ticket.job, first.asks);
  if (!grant.has_value() || !LeavesRoomForEarlier(first.ticket, trial)) return std::nullopt;
  const uint64_t bytes = trial.used_bytes() - allocator_.used_bytes();
  allocator_ = std::move(trial);
  ticket.granted += bytes;
  ticket.held += bytes;
  --ticket.waiting;
  Admitted admitted{first.id, first.ticket, *std::move(grant)};
  requests_.pop_front();
  return admitted;
}

bool Admission::LeavesRoomForEarlier(TicketId ticket, ExtentAllocator allocator) const {
  for (const auto& [id, earlier] : tickets_) {
    if (id >= ticket) break;
    const uint64_t had = earlier.revolving ? earlier.held : earlier.granted;
    if (earlier.complete || had >= earlier.expected) continue;
    const ExtentAsk rest = {.bytes = earlier.expected - had};
    if (!allocator.Allocate(earlier.job, {&rest, 1}).has_value()) return false;
  }
  return true;
}

void Admission::Release(TicketId ticket, std::span<const Extent> extents) {
  allocator_.Free(extents);
  for (const Extent& extent : extents) tickets_.at(ticket).held -= extent.length;
  ForgetIfDone(ticket);
}

void Admission::SetIdle(TicketId ticket, std::span<const Extent> extents) {
  for (const Extent& extent : extents) {
    tickets_.at(ticket).held -= extent.length;
    idle_bytes_ += extent.length;
  }
  ForgetIfDone(ticket);
}

void Admission::ReleaseIdle(std::span<const Extent> extents) {
  allocator_.Free(extents);
  for (const Extent& extent : extents) idle_bytes_ -= extent.length;
}

void Admission::Quarantine(std::span<const Extent> extents) {
  for (const Extent& extent : extents) allocator_.Quarantine(extent.slab);
}

void Admission::ForgetIfDone(TicketId ticket) {
  auto it = tickets_.find(ticket);
  if (it == tickets_.end()) return;
  if (it->second.complete && it->second.held == 0 && it->second.waiting == 0) tickets_.erase(it);
}

std::string Admission::Holders() const {
  std::vector<const Ticket*> holders;
  for (const auto& [id, ticket] : tickets_) {
    if (ticket.held > 0) holders.push_back(&ticket);
  }
  if (holders.empty()) return "nobody";
  std::stable_sort(holders.begin(), holders.end(),
                   [](const Ticket* a, const Ticket* b) { return a->held > b->held; });
  constexpr size_t kNamed = 4;
  const size_t left_out = holders.size() > kNamed ? holders.size() - kNamed : 0;
  holders.resize(holders.size() - left_out);
  std::string text = absl::StrJoin(holders, ", ", [](std::string* out, const Ticket* ticket) {
    absl::StrAppend(out, BytesForPeople(ticket->held), " for ", ticket->label);
  });
  if (left_out > 0) absl::StrAppend(&text, " and ", left_out, " more");
  return text;
}

}  // namespace ckptd
