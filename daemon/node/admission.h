// Who gets arena memory, and when: the order, without memory, threads or clock.
//
// Whoever needs arena memory (one attempt, one load) opens a ticket; its requests
// are all-or-nothing each. Tickets are served in the order in which they were
// opened: a request is admitted only when
//   1. no earlier ticket waits, and
//   2. after it, every earlier ticket that is not complete could still get the rest
//      of what it said it would need.
// So two half-admitted saves can't wait for each other as long as both stay within
// what they said; one that needs more than it said waits its turn, and a
// deadline ends that.
#ifndef CKPTD_DAEMON_NODE_ADMISSION_H_
#define CKPTD_DAEMON_NODE_ADMISSION_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/node/extent_allocator.h"

namespace ckptd {

using TicketId = uint64_t;
using RequestId = uint64_t;

// Not thread-safe.
class Admission {
 public:
  explicit Admission(std::vector<uint64_t> slab_bytes) : allocator_(std::move(slab_bytes)) {}

  // `label` is for messages: "saving step 40 of job gpt (e1s3)".
  TicketId Open(std::string job, std::string label);
  // What the ticket will need in all. A promise; more may be asked for.
  void Expect(TicketId ticket, uint64_t bytes);
  // What it will need at a time: it gives memory back and asks for more until it is complete,
  // and must be able to have that much again and again.
  void ExpectRevolving(TicketId ticket, uint64_t bytes);
  // There will be no more requests. What it holds stays its own.
  void Complete(TicketId ticket);

  // RESOURCE_EXHAUSTED at once for what can never fit.
  absl::StatusOr<RequestId> Ask(TicketId ticket, std::vector<ExtentAsk> asks);
  // False if it was admitted or cancelled before.
  bool Cancel(RequestId request);

  struct Admitted {
    RequestId request = 0;
    TicketId ticket = 0;
    ExtentGrant grant;
  };
  // The next request that can be served now.
  std::optional<Admitted> Next();
  void Release(TicketId ticket, std::span<const Extent> extents);
  // The ticket doesn't need these any more, but what they hold is kept until somebody needs
  // the room: they are nobody's, and are given back with ReleaseIdle.
  void SetIdle(TicketId ticket, std::span<const Extent> extents);
  void ReleaseIdle(std::span<const Extent> extents);
  // See ExtentAllocator::Quarantine.
  void Quarantine(std::span<const Extent> extents);

  // "3.0 GiB for saving step 40 of job gpt (e1s3), ..."; the largest first.
  std::string Holders() const;
  const ExtentAllocator& allocator() const { return allocator_; }
  // The tickets'.
  uint64_t used_bytes() const { return allocator_.used_bytes() - idle_bytes_; }
  uint64_t idle_bytes() const { return idle_bytes_; }
  size_t waiting() const { return requests_.size(); }

 private:
  struct Ticket {
    std::string job;
    std::string label;
    uint64_t expected = 0;
    bool revolving = false;
    uint64_t granted = 0;  // in all
    uint64_t held = 0;     // now
    size_t waiting = 0;
    bool complete = false;
  };
  struct Request {
    RequestId id = 0;
    TicketId ticket = 0;
    std::vector<ExtentAsk> asks;
  };

  bool LeavesRoomForEarlier(TicketId ticket, ExtentAllocator allocator) const;
  void ForgetIfDone(TicketId ticket);

  ExtentAllocator allocator_;
  uint64_t idle_bytes_ = 0;
  std::map<TicketId, Ticket> tickets_;  // in the order in which they were opened
  std::deque<Request> requests_;        // in order of ticket, then of asking
  TicketId next_ticket_ = 1;
  RequestId next_request_ = 1;
};

// "1.5 GiB".
std::string BytesForPeople(uint64_t bytes);

}  // namespace ckptd

#endif  // CKPTD_DAEMON_NODE_ADMISSION_H_
