#include "client/ctl/commands.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/ctl/render.h"
#include "client/ctl/verify.h"
#include "storage/file_system/posix_file_system.h"
#include "storage/format/checkpoint_path.h"
#include "storage/format/manifest.h"

namespace ckptd {
namespace {

absl::StatusOr<ExitCode> List(const CommandLine& line, const CommandContext& context,
                              AdminConnection& daemon) {
  v1::ListCheckpointsRequest request;
  request.set_job(line.job);
  absl::StatusOr<v1::ListCheckpointsResponse> answer = daemon.List(request);
  if (!answer.ok()) return answer.status();
  context.print(line.json ? ListJson(*answer) : ListText(*answer, context.now));
  return ExitCode::kOk;
}

absl::StatusOr<v1::ShowCheckpointResponse> Find(const CommandLine& line, AdminConnection& daemon,
                                                bool with_manifest) {
  v1::ShowCheckpointRequest request;
  request.set_job(line.job);
  request.set_without_manifest(!with_manifest);
  if (line.step.has_value()) {
    request.mutable_selector()->set_step(*line.step);
  } else {
    request.mutable_selector()->set_latest(true);
  }
  return daemon.Show(request);
}

absl::StatusOr<ExitCode> Show(const CommandLine& line, const CommandContext& context,
                              AdminConnection& daemon) {
  absl::StatusOr<v1::ShowCheckpointResponse> answer = Find(line, daemon, /*with_manifest=*/true);
  if (!answer.ok()) return answer.status();
  v1::Manifest manifest;
  if (!manifest.ParseFromString(answer->manifest())) {
    return absl::InternalError("the daemon's answer holds no manifest");
  }
  context.print(line.json ? ShowJson(*answer, manifest) : ShowText(*answer, manifest, context.now));
  return ExitCode::kOk;
}

absl::StatusOr<ExitCode> Verify(const CommandLine& line, const CommandContext& context,
                                const std::string& folder, bool is_committed) {
  absl::StatusOr<VerifyReport> report = VerifyCheckpoint(
      context.file_system, folder, {.is_committed = is_committed, .progress = context.progress});
  if (!report.ok()) return report.status();
  context.print(line.json ? VerifyJson(*report) : VerifyText(*report));
  return report->ok() ? ExitCode::kOk : ExitCode::kDamaged;
}

absl::StatusOr<ExitCode> VerifyFolder(const CommandLine& line, const CommandContext& context) {
  absl::StatusOr<std::string> folder = CanonicalDirectory(line.folder);
  if (!folder.ok()) return folder.status();
  return Verify(line, context, *folder, /*is_committed=*/false);
}

absl::StatusOr<ExitCode> VerifyCommitted(const CommandLine& line, const CommandContext& context,
                                         AdminConnection& daemon) {
  // What is wrong with the manifest is for Verify to find.
  absl::StatusOr<v1::ShowCheckpointResponse> answer = Find(line, daemon, /*with_manifest=*/false);
  if (!answer.ok()) return answer.status();
  return Verify(line, context,
                absl::StrCat(answer->job_folder(), "/", StepFolder(answer->summary().step())),
                /*is_committed=*/true);
}

absl::StatusOr<ExitCode> Remove(const CommandLine& line, const CommandContext& context,
                                AdminConnection& daemon) {
  v1::RemoveCheckpointsRequest request;
  request.set_job(line.job);
  if (line.step.has_value()) request.set_step(*line.step);
  if (line.after_step.has_value()) request.set_after_step(*line.after_step);
  if (!line.yes) {
    request.set_dry_run(true);
    absl::StatusOr<v1::RemoveCheckpointsResponse> plan = daemon.Remove(request);
    if (!plan.ok()) return plan.status();
    if (!plan->removed().empty()) {
      absl::StatusOr<bool> confirmed =
          context.confirm(absl::StrCat(RemovedText(*plan, /*removed=*/false), "Remove? [y/N] "));
      if (!confirmed.ok()) return confirmed.status();
      if (!*confirmed) return ExitCode::kUsage;
    }
    request.set_dry_run(false);
  }
  absl::StatusOr<v1::RemoveCheckpointsResponse> answer = daemon.Remove(request);
  if (!answer.ok()) return answer.status();
  context.print(line.json ? RemovedJson(*answer) : RemovedText(*answer, /*removed=*/true));
  return ExitCode::kOk;
}

absl::StatusOr<ExitCode> Status(const CommandLine& line, const CommandContext& context,
                                AdminConnection& daemon) {
  absl::StatusOr<v1::GetNodeStatusResponse> answer = daemon.Status({});
  if (!answer.ok()) return answer.status();
  context.print(line.json ? StatusJson(*answer) : StatusText(*answer));
  return ExitCode::kOk;
}

absl::StatusOr<ExitCode> SetPaused(bool paused, const CommandLine& line,
                                   const CommandContext& context, AdminConnection& daemon) {
  v1::SetPersistPausedRequest request;
  request.set_paused(paused);
  absl::StatusOr<v1::SetPersistPausedResponse> answer = daemon.SetPersistPaused(request);
  if (!answer.ok()) return answer.status();
  if (line.json) {
    context.print(paused ? "{\"persist_paused\":true}\n" : "{\"persist_paused\":false}\n");
  } else {
    context.print(paused ? "persist paused: saves stay in the arena until ckptctl resume\n"
                         : "persist resumed\n");
  }
  return ExitCode::kOk;
}

}  // namespace

absl::StatusOr<ExitCode> RunCommand(const CommandLine& line, const CommandContext& context) {
  if (line.action == Action::kVerify && !line.folder.empty()) return VerifyFolder(line, context);
  absl::StatusOr<std::unique_ptr<AdminConnection>> daemon = context.connect();
  if (!daemon.ok()) return daemon.status();
  switch (line.action) {
    case Action::kList:
      return List(line, context, **daemon);
    case Action::kShow:
      return Show(line, context, **daemon);
    case Action::kVerify:
      return VerifyCommitted(line, context, **daemon);
    case Action::kRemove:
      return Remove(line, context, **daemon);
    case Action::kStatus:
      return Status(line, context, **daemon);
    case Action::kPause:
      return SetPaused(true, line, context, **daemon);
    case Action::kResume:
      return SetPaused(false, line, context, **daemon);
    case Action::kHelp:
    case Action::kVersion:
      break;
  }
  return absl::InternalError("this command is answered without a daemon");
}

}  // namespace ckptd
