#include "client/ctl/render.h"

#include "client/ctl/progress_bar.h"
#include "client/ctl/table.h"
#include "tests/catch.h"
#include "tests/ctl/checkpoint_on_disk.h"

namespace ckptd {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000) + absl::Minutes(5);

v1::CheckpointSummary Summary(uint64_t step, bool latest) {
  v1::CheckpointSummary summary;
  summary.set_job("gpt");
  summary.set_step(step);
  summary.mutable_attempt()->set_epoch(1);
  summary.mutable_attempt()->set_save_number(3);
  summary.set_committed_unix_microseconds(1'800'000'000'000'000);
  summary.set_world_size(2);
  summary.set_size_bytes(3 << 20);
  summary.set_tensors(2);
  summary.set_files(2);
  summary.set_store("default");
  summary.mutable_owner()->set_user_id(1000);
  summary.set_latest(latest);
  return summary;
}

TEST_CASE("list for people is an aligned table with relative times") {
  v1::ListCheckpointsResponse answer;
  *answer.add_checkpoints() = Summary(40, false);
  *answer.add_checkpoints() = Summary(1000, true);
  CHECK(ListText(answer, kNow) ==
        "JOB  STEP          COMMITTED         SIZE  RANKS  STORE\n"
        "gpt    40          5 minutes ago  3.0 MiB      2  default\n"
        "gpt  1000  latest  5 minutes ago  3.0 MiB      2  default\n");
  CHECK(ListText({}, kNow) == "no checkpoints\n");
}

TEST_CASE("list for programs keeps its keys") {
  v1::ListCheckpointsResponse answer;
  *answer.add_checkpoints() = Summary(40, true);
  answer.mutable_checkpoints(0)->set_parent_step(20);
  CHECK(ListJson(answer) ==
        "{\"checkpoints\":[{\"job\":\"gpt\",\"step\":40,\"latest\":true,"
        "\"committed\":\"2027-01-15T08:00:00.000000Z\",\"attempt\":\"e1s3\",\"world_size\":2,"
        "\"size_bytes\":3145728,\"tensors\":2,\"files\":2,"
        "\"store\":\"default\",\"user_id\":1000,\"parent_step\":20}]}\n");
}

TEST_CASE("show lists tensors, values and files of a real manifest") {
  CheckpointOnDisk checkpoint;
  v1::ShowCheckpointResponse answer;
  *answer.mutable_summary() = Summary(40, true);
  answer.set_job_folder("/store/gpt");
  CHECK(ShowText(answer, checkpoint.manifest(), kNow) ==
        "job gpt, step 40 (latest)\n"
        "  committed  2027-01-15T08:00:00.000000Z, 5 minutes ago\n"
        "  folder     /store/gpt/step-40\n"
        "  saved by   2 ranks of uid 1000, attempt e1s3, ckptd 0.1.0\n"
        "  tag        branch = main\n"
        "\n"
        "TENSOR  TYPE  SHAPE         PIECES     SIZE\n"
        "moment  C128  [3]                1     48 B\n"
        "weight  F32   [600, 1000]        2  2.3 MiB\n"
        "rng     U8    [4] per rank       2      8 B\n"
        "\n"
        "VALUE  COPIES  SIZE\n"
        "epoch       1   5 B\n"
        "\n"
        "FILE                                   SIZE\n"
        "step-40/data-e1s3-n0-0.safetensors  1.1 MiB\n"
        "step-40/data-e1s3-n1-0.safetensors  1.1 MiB\n");
  CHECK_THAT(
      ShowJson(answer, checkpoint.manifest()),
      Catch::Matchers::Contains(
          "\"tensors\":[{\"name\":\"moment\",\"data_type\":\"C128\",\"shape\":[3],"
          "\"pieces\":1,\"size_bytes\":48,\"alias_of\":\"\"}") &&
          Catch::Matchers::Contains("\"per_rank\":[{\"name\":\"rng\",\"ranks\":[[0],[1]]}]") &&
          Catch::Matchers::Contains("\"tags\":{\"branch\":\"main\"}"));
}

TEST_CASE("a name that would steer a terminal is escaped for people") {
  v1::Manifest manifest;
  manifest.add_tensors()->set_name("\x1b[2Jevil");
  v1::ShowCheckpointResponse answer;
  *answer.mutable_summary() = Summary(40, true);
  CHECK(ShowText(answer, manifest, kNow).find('\x1b') == std::string::npos);
}

TEST_CASE("status shows arena, sessions and saves in flight") {
  v1::GetNodeStatusResponse status;
  status.set_node("n0");
  status.set_version("0.1.0");
  status.set_arena_bytes(uint64_t{4} << 30);
  status.set_arena_used_bytes(uint64_t{1} << 30);
  status.set_arena_kept_bytes(uint64_t{2} << 30);
  v1::SessionStatus* trainer = status.add_sessions();
  trainer->set_process_id(12);
  trainer->set_user_id(1000);
  trainer->set_job("gpt");
  trainer->set_rank(1);
  trainer->set_epoch(3);
  trainer->set_copy_path("host lease");
  status.add_sessions()->set_process_id(1234);
  v1::SaveInFlight* save = status.add_saves();
  save->set_job("gpt");
  save->set_step(40);
  save->mutable_attempt()->set_epoch(3);
  save->mutable_attempt()->set_save_number(1);
  save->set_phase(v1::SAVE_PHASE_PERSIST);
  save->set_bytes(2048);
  save->set_persisted_bytes(1024);
  CHECK(StatusText(status) ==
        "node n0, ckptd 0.1.0\n"
        "  arena    1.0 GiB of 4.0 GiB in use, 2.0 GiB kept for loads\n"
        "  persist  running\n"
        "\n"
        " PID   UID  JOB  RANK  EPOCH  COPY PATH\n"
        "  12  1000  gpt     1      3  host lease\n"
        "1234     0  -       -      -  -\n"
        "\n"
        "SAVE OF  STEP  ATTEMPT  PHASE       SIZE  PERSISTED\n"
        "gpt        40  e3s1     persist  2.0 KiB    1.0 KiB\n");
  CHECK_THAT(StatusJson(status), Catch::Matchers::Contains(
                                     "\"saves\":[{\"job\":\"gpt\",\"step\":40,\"attempt\":\"e3s1\","
                                     "\"phase\":\"persist\",\"size_bytes\":2048,"
                                     "\"persisted_bytes\":1024}]"));
}

TEST_CASE("a verify report names each problem and then sums up") {
  VerifyReport report{
      .folder = "/s/gpt/step-40", .files = 2, .tensors = 3, .chunks = 9, .bytes = 2048};
  CHECK(VerifyText(report) ==
        "/s/gpt/step-40: ok; 2 files, 3 tensors and values, 9 chunks, 2.0 KiB checked\n");
  report.problems.push_back({.kind = ProblemKind::kChunkChecksum,
                             .file = "f",
                             .tensor = "w",
                             .chunk = 4,
                             .message = "f: chunk 4 of \"w\": its checksum is wrong"});
  CHECK(VerifyText(report) ==
        "f: chunk 4 of \"w\": its checksum is wrong\n"
        "/s/gpt/step-40: 1 problem; 2 files, 3 tensors and values, 9 chunks, 2.0 KiB checked\n");
  CHECK(VerifyJson(report) ==
        "{\"folder\":\"/s/gpt/step-40\",\"ok\":false,\"files\":2,\"tensors\":3,\"chunks\":9,"
        "\"bytes\":2048,\"problems\":[{\"kind\":\"chunk_checksum\",\"file\":\"f\",\"tensor\":\"w\","
        "\"chunk\":4,\"message\":\"f: chunk 4 of \\\"w\\\": its checksum is wrong\"}]}\n");
}

TEST_CASE("a progress line fits its share") {
  CHECK(ProgressLine(512, 1024) == "[###############...............]  50%  512 B of 1.0 KiB");
  CHECK(ProgressLine(0, 0) == "[##############################] 100%  0 B of 0 B");
}

}  // namespace
}  // namespace ckptd
