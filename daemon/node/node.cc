#include "daemon/node/node.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/node/arena.h"
#include "daemon/node/call_scope.h"
#include "daemon/node/handle_server.h"
#include "daemon/node/kept_images.h"
#include "daemon/node/loads.h"
#include "daemon/node/persist.h"
#include "daemon/node/saves.h"
#include "daemon/node/sessions.h"
#include "daemon/node/worlds.h"
#include "proto/rpc/wire.h"
#include "storage/format/checkpoint_path.h"

namespace ckptd {
namespace {

constexpr int kInstanceIdBytes = 16;
constexpr uint64_t kLargestSlabBytes = uint64_t{1} << 30;  // io_uring's limit for a buffer
constexpr uint64_t kSmallestSlabBytes = uint64_t{4} << 20;
// Smaller windows could not hold a chunk and its alignment.
constexpr uint64_t kSmallestWindowBytes = uint64_t{2} << 20;

absl::Status Complete(NodeOptions& options) {
  if (absl::Status status = ValidateNodeName(options.node_name); !status.ok()) return status;
  options.arena_bytes = RoundDown(options.arena_bytes, kExtentAlignmentBytes);
  if (options.arena_bytes < 2 * kSmallestSlabBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "an arena of ", options.arena_bytes, " bytes; the least is ", 2 * kSmallestSlabBytes));
  }
  if (options.slab_bytes == 0) {
    options.slab_bytes = std::clamp(options.arena_bytes / 8, kSmallestSlabBytes, kLargestSlabBytes);
  }
  options.slab_bytes = RoundDown(options.slab_bytes, kExtentAlignmentBytes);
  if (options.slab_bytes < kSmallestSlabBytes || options.slab_bytes > kLargestSlabBytes ||
      options.slab_bytes > options.arena_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("slabs of ", options.slab_bytes,
                                                   " bytes; they must have ", kSmallestSlabBytes,
                                                   " to ", kLargestSlabBytes));
  }
  // A window lies in one slab.
  options.load_window_bytes =
      RoundDown(std::clamp(options.load_window_bytes, kSmallestWindowBytes, options.slab_bytes),
                kExtentAlignmentBytes);
  options.load_windows = std::max(options.load_windows, 1);
  options.persist_threads = std::max(options.persist_threads, 1);
  options.read_threads = std::max(options.read_threads, 1);
  return absl::OkStatus();
}

}  // namespace

// Built from top to bottom, destroyed from bottom to top.
struct Node::Parts : public HandleServerDelegate {
  Parts(NodeOptions given, NodeEnvironment env)
      : options(std::move(given)),
        environment(env),
        alarms(env.alarms, scope),
        sessions(options.session_limit, options.session_limit_per_user) {}

  absl::StatusOr<SessionPtr> OpenSession(uint32_t process_id, uint32_t user_id,
                                         uint32_t group_id) override {
    absl::StatusOr<SessionPtr> session = sessions.Open(process_id, user_id, group_id);
    if (session.ok()) environment.probe.SessionOpened();
    return session;
  }

  void EndSession(const SessionPtr& session) override {
    sessions.End(*session);
    // The world first: nobody may begin anything with the dead any more.
    worlds->SessionEnded(*session);
    saves->SessionEnded(*session);
    loads->SessionEnded(*session);
    environment.probe.SessionClosed();
  }

  absl::StatusOr<Arena::SharedSlab> ShareSlab(const SessionPtr& session,
                                              uint64_t slab_id) override {
    return arena->Share(
        slab_id, [&](const std::string& job) { return worlds->HasJoined(session->id, job); });
  }

  NodeOptions options;
  const NodeEnvironment environment;
  CallScope scope;
  ScopedAlarms alarms;
  Sessions sessions;
  std::unique_ptr<Arena> arena;
  KeptImages kept;
  std::unique_ptr<Persister> persister;
  std::unique_ptr<Worlds> worlds;
  std::unique_ptr<Saves> saves;
  std::unique_ptr<Loads> loads;
  std::unique_ptr<HandleServer> handles;
  bool stopped = false;
};

absl::StatusOr<std::unique_ptr<Node>> Node::Create(NodeOptions options,
                                                   NodeEnvironment environment) {
  if (absl::Status status = Complete(options); !status.ok()) return status;
  auto parts = std::make_unique<Parts>(std::move(options), environment);
  const NodeOptions& final_options = parts->options;
  for (const Fallback& fallback : environment.file_system.fallbacks()) {
    environment.probe.FallbackInUse(fallback.what);
    environment.probe.Warning(
        absl::StrCat("storage goes without ", fallback.what, ", more slowly: ", fallback.why));
  }
  absl::StatusOr<std::unique_ptr<Arena>> arena =
      Arena::Create({.arena_bytes = final_options.arena_bytes,
                     .slab_bytes = final_options.slab_bytes,
                     .touch_threads = final_options.touch_threads},
                    environment.file_system, environment.clock, parts->alarms, environment.probe);
  if (!arena.ok()) return arena.status();
  parts->arena = *std::move(arena);
  parts->arena->SetReclaimer([&kept = parts->kept] { return kept.GiveUpOne(); });
  parts->persister =
      std::make_unique<Persister>(environment.file_system, environment.probe,
                                  final_options.persist_threads, final_options.direct_io);
  parts->worlds = std::make_unique<Worlds>(
      final_options, environment.clock, parts->alarms, environment.coordinator, parts->scope,
      parts->sessions,
      [raw = parts.get()](const std::string& job) { return raw->saves->Unfinished(job); });
  parts->saves =
      std::make_unique<Saves>(final_options, environment, parts->alarms, parts->scope,
                              *parts->worlds, *parts->arena, *parts->persister, parts->kept);
  parts->loads = std::make_unique<Loads>(final_options, environment, parts->alarms, parts->scope,
                                         *parts->worlds, *parts->arena, parts->kept);
  Parts& built = *parts;
  std::unique_ptr<Node> node(new Node(std::move(parts)));
  absl::StatusOr<std::unique_ptr<HandleServer>> handles = HandleServer::Start(
      {.path = absl::StrCat(final_options.socket_directory, "/", kHandleSocketName),
       .instance_id = RandomBytes(kInstanceIdBytes),
       .node_name = final_options.node_name,
       .version = final_options.version,
       .connection_limit = final_options.session_limit,
       .connection_limit_per_user = final_options.session_limit_per_user},
      built, environment.probe);
  if (!handles.ok()) return handles.status();
  built.handles = *std::move(handles);
  return node;
}

Node::Node(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Node::~Node() { Stop(); }

absl::Status Node::Drain(absl::Time deadline) {
  // A pause can't outlast the daemon: what is staged would be lost.
  if (parts_->persister->paused()) {
    parts_->persister->SetPaused(false);
    parts_->environment.probe.PersistPaused(false);
  }
  parts_->worlds->Drain();
  parts_->loads->Drain();
  return parts_->saves->Drain(deadline);
}

void Node::Stop() {
  Parts& parts = *parts_;
  if (std::exchange(parts.stopped, true)) return;
  // Who waits is answered first, then sources of new work end, then workers.
  parts.worlds->Stop();
  parts.saves->Stop();
  if (parts.handles != nullptr) parts.handles->Stop();
  parts.loads->Stop();
  parts.persister->Stop();
  parts.arena->Stop();
  parts.scope.Close();
}

absl::StatusOr<SessionPtr> Node::Authenticate(absl::string_view token) const {
  return parts_->sessions.Find(token);
}

void Node::Join(SessionPtr session, v1::JoinRequest request, Done<v1::JoinResponse> done) {
  parts_->worlds->Join(std::move(session), std::move(request), std::move(done));
}

void Node::BeginSave(SessionPtr session, v1::BeginSaveRequest request,
                     Done<v1::BeginSaveResponse> done) {
  parts_->saves->BeginSave(session, std::move(request), std::move(done));
}

void Node::ExtendSnapshot(SessionPtr session, v1::ExtendSnapshotRequest request,
                          Done<v1::ExtendSnapshotResponse> done) {
  parts_->saves->ExtendSnapshot(session, request, std::move(done));
}

void Node::FinishSnapshot(SessionPtr session, v1::FinishSnapshotRequest request,
                          Done<v1::FinishSnapshotResponse> done) {
  parts_->saves->FinishSnapshot(session, request, std::move(done));
}

void Node::WaitSave(SessionPtr session, v1::WaitSaveRequest request, Done<v1::SaveStatus> done) {
  parts_->saves->WaitSave(session, request, std::move(done));
}

void Node::BeginLoad(SessionPtr session, v1::BeginLoadRequest request,
                     Done<v1::BeginLoadResponse> done) {
  parts_->loads->BeginLoad(session, std::move(request), std::move(done));
}

void Node::NextWindows(SessionPtr session, v1::NextWindowsRequest request,
                       Done<v1::NextWindowsResponse> done) {
  parts_->loads->NextWindows(session, request, std::move(done));
}

void Node::EndLoad(SessionPtr session, v1::EndLoadRequest request, Done<v1::EndLoadResponse> done) {
  parts_->loads->EndLoad(session, request, std::move(done));
}

void Node::ListCheckpoints(SessionPtr session, v1::ListCheckpointsRequest request,
                           Done<v1::ListCheckpointsResponse> done) {
  v1::AuthorizedListCheckpoints authorized;
  authorized.set_user_id(session->user_id);
  *authorized.mutable_request() = std::move(request);
  parts_->environment.coordinator.ListCheckpoints(std::move(authorized), std::move(done));
}

void Node::ShowCheckpoint(SessionPtr session, v1::ShowCheckpointRequest request,
                          Done<v1::ShowCheckpointResponse> done) {
  v1::AuthorizedShowCheckpoint authorized;
  authorized.set_user_id(session->user_id);
  *authorized.mutable_request() = std::move(request);
  parts_->environment.coordinator.ShowCheckpoint(std::move(authorized), std::move(done));
}

void Node::RemoveCheckpoints(SessionPtr session, v1::RemoveCheckpointsRequest request,
                             Done<v1::RemoveCheckpointsResponse> done) {
  v1::AuthorizedRemoveCheckpoints authorized;
  authorized.set_user_id(session->user_id);
  *authorized.mutable_request() = std::move(request);
  parts_->environment.coordinator.RemoveCheckpoints(std::move(authorized), std::move(done));
}

void Node::SetPersistPaused(SessionPtr session, v1::SetPersistPausedRequest request,
                            Done<v1::SetPersistPausedResponse> done) {
  if (session->user_id != 0 && session->user_id != parts_->options.own_user_id) {
    return std::move(done)(absl::PermissionDeniedError(
        absl::StrCat("user ", session->user_id, " may not pause persisting on node ",
                     parts_->options.node_name, ": root and the daemon's own user may")));
  }
  parts_->persister->SetPaused(request.paused());
  parts_->environment.probe.PersistPaused(request.paused());
  std::move(done)(v1::SetPersistPausedResponse());
}

void Node::GetNodeStatus(SessionPtr session, v1::GetNodeStatusRequest,
                         Done<v1::GetNodeStatusResponse> done) {
  v1::GetNodeStatusResponse status = Status();
  // Others' jobs are others' business.
  if (session->user_id != 0 && session->user_id != parts_->options.own_user_id) {
    auto* sessions = status.mutable_sessions();
    sessions->erase(std::remove_if(sessions->begin(), sessions->end(),
                                   [&](const v1::SessionStatus& other) {
                                     return other.user_id() != session->user_id;
                                   }),
                    sessions->end());
    auto* saves = status.mutable_saves();
    saves->erase(std::remove_if(saves->begin(), saves->end(),
                                [&](const v1::SaveInFlight& save) {
                                  return !parts_->worlds->HasJoined(session->id, save.job());
                                }),
                 saves->end());
  }
  std::move(done)(std::move(status));
}

v1::GetNodeStatusResponse Node::Status() const {
  v1::GetNodeStatusResponse status;
  status.set_node(parts_->options.node_name);
  status.set_version(parts_->options.version);
  status.set_arena_bytes(parts_->arena->total_bytes());
  status.set_arena_used_bytes(parts_->arena->used_bytes());
  status.set_arena_kept_bytes(parts_->arena->idle_bytes());
  status.set_persist_paused(parts_->persister->paused());
  for (const SessionPtr& session : parts_->sessions.All()) {
    v1::SessionStatus* entry = status.add_sessions();
    entry->set_process_id(session->process_id);
    entry->set_user_id(session->user_id);
    parts_->worlds->Describe(session->id, *entry);
  }
  for (v1::SaveInFlight& save : parts_->saves->InFlight()) *status.add_saves() = std::move(save);
  return status;
}

}  // namespace ckptd
