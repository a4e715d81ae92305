// One attempt at saving one step, as this node sees it: its state, and what
// follows from it. No I/O, no threads; saves.cc stands around it.
//
//   PLAN ------> SNAPSHOT ------> PERSIST ------> COMMIT ------> DURABLE
//    |  plan known  |  all ranks     |  all files    |  manifest
//    |  and leased  |  finished      |  durable      |  written
//    +--------------+----------------+---------------+---------> FAILED
//
// Files of a rank are created, with their space set aside, as soon as their sizes are known,
// and written as soon as that rank has finished, so writing overlaps the other ranks'
// snapshots; the phase is that of the slowest.
#ifndef CKPTD_DAEMON_NODE_SAVE_ATTEMPT_H_
#define CKPTD_DAEMON_NODE_SAVE_ATTEMPT_H_

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "ckptd/v1/coordinator.pb.h"
#include "ckptd/v1/node.pb.h"
#include "daemon/node/arena.h"
#include "daemon/node/checked_layout.h"
#include "daemon/node/image_layout.h"
#include "daemon/node/persist.h"
#include "daemon/node/worlds.h"
#include "daemon/runtime/alarms.h"
#include "daemon/runtime/done.h"

namespace ckptd {

struct AttemptKey {
  std::string job;
  uint64_t epoch = 0;
  uint64_t save_number = 0;
  friend auto operator<=>(const AttemptKey&, const AttemptKey&) = default;
};

// This node's part of a plan. Immutable; valid for exactly these fingerprints.
struct NodePlan {
  std::string plan_id;
  std::map<uint32_t, std::string> fingerprints;
  std::map<uint32_t, TensorImagePtr> images;
};

using NodePlanPtr = std::shared_ptr<const NodePlan>;

// One rank's part.
struct RankPart {
  // Who it is.
  SessionId session = 0;
  uint32_t process_id = 0;
  bool alive = true;

  // From BeginSave; `answer` is empty once answered.
  bool begun = false;
  CheckedLayoutPtr layout;
  std::vector<v1::SmallContent> small;
  std::string known_plan_id;
  Done<v1::BeginSaveResponse> answer;

  // What it was given. The leases are kept, also when the attempt has failed, until the
  // rank says that it doesn't write any more, or is dead.
  ArenaLeasePtr tensors;
  bool small_decided = false;
  bool small_leased = false;
  SmallImage small_image;
  ArenaLeasePtr small_lease;
  bool answered = false;

  // Open from when its size is known; the leases are added to it once they are written.
  std::shared_ptr<OpenFile> tensor_file;
  std::shared_ptr<OpenFile> small_file;

  // Of an image that is longer than its window: `tensors` is the part that begins here.
  uint64_t window_offset = 0;
  Done<v1::ExtendSnapshotResponse> extend_done;  // waits for the next window

  bool finished = false;  // FinishSnapshot
  double blocked_seconds = 0;
};

// A small content, once per node: the first rank to name it holds it.
struct HeldContent {
  uint32_t holder = 0;
  uint32_t content = 0;  // index into the holder's small
  std::vector<uint32_t> ranks;
  // Small tensors that share its memory, by name: the ranks where they do.
  std::map<std::string, std::vector<uint32_t>> tied;
};

// What a content is told from others by: name, type and shape, hash, size.
using ContentKey = std::tuple<std::string, std::string, uint64_t>;

struct SaveWaiter {
  v1::SavePhase until = v1::SAVE_PHASE_UNSPECIFIED;
  Done<v1::SaveStatus> done;
  AlarmId alarm = 0;
  uint64_t id = 0;
};

// Guarded by the lock of whoever owns it.
struct SaveAttempt {
  AttemptKey key;
  uint64_t step = 0;
  WorldView world;
  bool overwrite = false;
  std::map<std::string, std::string> tags;
  absl::Time started;
  absl::Time deadline = absl::InfiniteFuture();
  AlarmId alarm = 0;

  v1::SavePhase phase = v1::SAVE_PHASE_PLAN;
  absl::Status error;                  // of a failed attempt
  std::map<uint32_t, RankPart> ranks;  // all of this node
  std::vector<SaveWaiter> waiters;

  NodePlanPtr earlier_plan;  // known when the attempt began
  NodePlanPtr plan;          // that of this attempt
  bool plan_from_cache = false;
  bool plan_requested = false;
  uint64_t window_bytes = 0;  // of each image, at a time; 0: whole images
  ArenaTicketPtr ticket;
  bool tensors_requested = false;
  bool tensors_leased = false;
  std::map<ContentKey, HeldContent> held;

  absl::Time snapshot_finished;
  std::shared_ptr<PersistProgress> progress = std::make_shared<PersistProgress>();
  int files_in_flight = 0;
  std::vector<v1::DataFile> files;
  std::vector<v1::WrittenPiece> pieces;
  std::vector<v1::WrittenSmall> small;
  std::vector<std::pair<uint32_t, uint32_t>> small_holders;  // of small[i]: rank, content
  absl::Time persist_finished;
  bool commit_sent = false;
  absl::Time ended;
  uint64_t ended_bytes = 0;  // what bytes() was

  bool in_flight() const {
    return phase != v1::SAVE_PHASE_DURABLE && phase != v1::SAVE_PHASE_FAILED;
  }
  bool all_begun() const;
  bool all_finished() const;
  bool holds_leases() const;
  bool any_alive() const;
  bool waits_for_arena() const;
  uint64_t bytes() const;

  // "saving step 40 of job gpt (e1s3) on node n0"
  std::string Describe(const std::string& node) const;
  // "rank 3 (process 4711)": who keeps memory of a failed attempt.
  std::string DescribeHolders() const;
  // Whom the attempt waits for in its present phase.
  std::string DescribeWait() const;
  v1::SaveStatus ToProto() const;
  v1::Attempt AttemptProto() const;

  // The changed ranks where some ranks of this node match the earlier plan and some
  // don't, else empty.
  std::vector<uint32_t> ChangedAlone() const;
  // Fingerprints by rank; with_layouts: and what they stand for.
  std::vector<v1::RankLayout> RankLayouts(bool with_layouts) const;
  // Decides which contents this rank holds: those that no rank before it has named.
  std::vector<uint32_t> HoldContents(uint32_t rank);
  v1::BeginSaveResponse Answer(uint32_t rank) const;
  // Up to where the rank's tensor image was leased.
  uint64_t LeasedEnd(uint32_t rank) const;
  FileToPersist TensorFile(uint32_t rank, const std::string& node,
                           const std::string& store_path) const;
  FileToPersist SmallFile(uint32_t rank, const std::string& node,
                          const std::string& store_path) const;
  // Books a file that is durable.
  void AddFile(uint32_t rank, bool is_small, PersistedFile file);
  // Of a failed attempt: its error instead of its files.
  v1::CommitSaveRequest CommitRequest(const std::string& node, bool with_layouts) const;
  FileToPersist MakeFile(int index, DataFileLayoutPtr layout, const std::string& node,
                         const std::string& store_path) const;
  // Gives up memory that nobody writes or reads any more.
  void ReleaseLeases();
  // Gives up all memory of a failed attempt; what a rank may still write to is taken out
  // of use first.
  void ReclaimLeases();
  // Of an ended attempt only what WaitSave and FinishSnapshot answer is kept.
  void DropWhatIsOver();
};

using SaveAttemptPtr = std::shared_ptr<SaveAttempt>;

}  // namespace ckptd

#endif  // CKPTD_DAEMON_NODE_SAVE_ATTEMPT_H_
