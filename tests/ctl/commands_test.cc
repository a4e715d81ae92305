#include "client/ctl/commands.h"

#include "storage/file_system/posix_file_system.h"
#include "storage/format/manifest.h"
#include "tests/catch.h"
#include "tests/ctl/checkpoint_on_disk.h"

namespace ckptd {
namespace {

// Answers for a daemon that holds the checkpoint on disk; records what was removed.
class FakeDaemon : public AdminConnection {
 public:
  struct Record {
    std::vector<bool> removals;  // dry_run of each call
    std::optional<bool> paused;
  };
  FakeDaemon(const CheckpointOnDisk& checkpoint, Record& record)
      : checkpoint_(checkpoint), record_(record) {}

  absl::StatusOr<v1::ListCheckpointsResponse> List(const v1::ListCheckpointsRequest&) override {
    v1::ListCheckpointsResponse answer;
    *answer.add_checkpoints() = Summary();
    return answer;
  }
  absl::StatusOr<v1::ShowCheckpointResponse> Show(
      const v1::ShowCheckpointRequest& request) override {
    if (request.selector().step() == 41) return absl::NotFoundError("gpt has no step 41, but 40");
    v1::ShowCheckpointResponse answer;
    *answer.mutable_summary() = Summary();
    answer.set_job_folder(checkpoint_.job_folder());
    answer.set_manifest(checkpoint_.manifest().SerializeAsString());
    return answer;
  }
  absl::StatusOr<v1::RemoveCheckpointsResponse> Remove(
      const v1::RemoveCheckpointsRequest& request) override {
    record_.removals.push_back(request.dry_run());
    v1::RemoveCheckpointsResponse answer;
    *answer.add_removed() = Summary();
    return answer;
  }
  absl::StatusOr<v1::SetPersistPausedResponse> SetPersistPaused(
      const v1::SetPersistPausedRequest& request) override {
    record_.paused = request.paused();
    return v1::SetPersistPausedResponse();
  }
  absl::StatusOr<v1::GetNodeStatusResponse> Status(const v1::GetNodeStatusRequest&) override {
    return v1::GetNodeStatusResponse();
  }

 private:
  static v1::CheckpointSummary Summary() {
    v1::CheckpointSummary summary;
    summary.set_job("gpt");
    summary.set_step(40);
    summary.set_size_bytes(1024);
    return summary;
  }

  const CheckpointOnDisk& checkpoint_;
  Record& record_;
};

struct Terminal {
  CheckpointOnDisk checkpoint;
  FakeDaemon::Record record;
  std::string output;
  std::string question;
  bool says_yes = true;

  absl::StatusOr<ExitCode> Run(const std::vector<std::string>& arguments) {
    auto line = ParseCommandLine(arguments, "/run/ckptd");
    REQUIRE(line.ok());
    auto file_system = MakePosixFileSystem();
    CommandContext context{.connect = [&]() -> absl::StatusOr<std::unique_ptr<AdminConnection>> {
                             return std::make_unique<FakeDaemon>(checkpoint, record);
                           },
                           .file_system = *file_system,
                           .print = [&](const std::string& text) { output += text; },
                           .confirm = [&](const std::string& asked) -> absl::StatusOr<bool> {
                             question = asked;
                             return says_yes;
                           },
                           .progress = nullptr,
                           .now = absl::FromUnixSeconds(1'800'000'000)};
    return RunCommand(*line, context);
  }
};

TEST_CASE("verify reads the folder that the daemon names and exits 1 on damage") {
  Terminal terminal;
  CHECK(*terminal.Run({"verify", "gpt", "latest"}) == ExitCode::kOk);
  CheckpointOnDisk::Flip(terminal.checkpoint.data_file(0), 5000);
  CHECK(*terminal.Run({"verify", "gpt", "40", "--json"}) == ExitCode::kDamaged);
  CHECK_THAT(terminal.output, Catch::Matchers::Contains("\"kind\":\"chunk_checksum\""));
}

TEST_CASE("a folder is verified without a daemon") {
  Terminal terminal;
  CHECK(*terminal.Run({"verify", "--folder", terminal.checkpoint.folder()}) == ExitCode::kOk);
  CHECK(ExitCodeOf(terminal.Run({"verify", "--folder", "/nowhere"}).status()) ==
        ExitCode::kNotFound);
}

TEST_CASE("an unknown checkpoint exits 3") {
  Terminal terminal;
  CHECK(ExitCodeOf(terminal.Run({"show", "gpt", "41"}).status()) == ExitCode::kNotFound);
}

TEST_CASE("rm asks with what it would remove, and removes only after yes") {
  Terminal terminal;
  terminal.says_yes = false;
  CHECK(*terminal.Run({"rm", "gpt", "40"}) == ExitCode::kUsage);
  CHECK(terminal.question == "would remove gpt step 40 (1.0 KiB)\nRemove? [y/N] ");
  CHECK(terminal.record.removals == std::vector<bool>{true});

  terminal.says_yes = true;
  CHECK(*terminal.Run({"rm", "gpt", "40"}) == ExitCode::kOk);
  CHECK(terminal.record.removals == std::vector<bool>{true, true, false});
  CHECK(terminal.output == "removed gpt step 40 (1.0 KiB)\n");
}

TEST_CASE("rm with --yes does not ask") {
  Terminal terminal;
  CHECK(*terminal.Run({"rm", "gpt", "--after", "10", "--yes"}) == ExitCode::kOk);
  CHECK(terminal.question.empty());
  CHECK(terminal.record.removals == std::vector<bool>{false});
}

TEST_CASE("pause and resume say what they did") {
  Terminal terminal;
  CHECK(*terminal.Run({"pause"}) == ExitCode::kOk);
  CHECK(terminal.record.paused == true);
  CHECK(*terminal.Run({"resume", "--json"}) == ExitCode::kOk);
  CHECK(terminal.record.paused == false);
  CHECK_THAT(terminal.output, Catch::Matchers::EndsWith("{\"persist_paused\":false}\n"));
}

}  // namespace
}  // namespace ckptd
