#include "client/ctl/render.h"

#include <map>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/ctl/table.h"
#include "daemon/runtime/json_writer.h"
#include "daemon/runtime/quantity.h"
#include "proto/rpc/save_phase.h"
#include "storage/format/checkpoint_path.h"
#include "storage/format/text.h"
#include "storage/layout/data_type.h"

namespace ckptd {
namespace {

absl::Time Committed(const v1::CheckpointSummary& checkpoint) {
  return absl::FromUnixMicros(checkpoint.committed_unix_microseconds());
}

std::string Timestamp(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", time, absl::UTCTimeZone());
}

std::string Ago(absl::Time then, absl::Time now) {
  return now < then ? "just now" : absl::StrCat(HumanDuration(now - then), " ago");
}

std::string AttemptOf(const v1::Attempt& attempt) {
  return AttemptName(attempt.epoch(), attempt.save_number());
}

std::string TypeName(v1::DataType type) {
  return std::string(DataTypeName(static_cast<DataType>(type)));
}

// A name as it is where that is harmless on a terminal, else quoted and escaped.
std::string TerminalName(const std::string& name) {
  const std::string quoted = Printable(name);
  return quoted == absl::StrCat("\"", name, "\"") ? name : quoted;
}

template <typename Pieces>
uint64_t TotalBytes(const Pieces& pieces) {
  uint64_t bytes = 0;
  for (const v1::Piece& piece : pieces) bytes += piece.size_bytes();
  return bytes;
}

template <typename Copies>
uint64_t CopyBytes(const Copies& copies) {
  uint64_t bytes = 0;
  for (const v1::PerRankCopy& copy : copies) bytes += copy.piece().size_bytes();
  return bytes;
}

template <typename Checkpoints>
std::string CheckpointTable(const Checkpoints& checkpoints, absl::Time now) {
  // What fits a terminal of 80 columns; `show` and --json have the rest.
  Table table({"JOB", ">STEP", "", "COMMITTED", ">SIZE", ">RANKS", "STORE"});
  for (const v1::CheckpointSummary& checkpoint : checkpoints) {
    table.AddRow({checkpoint.job(), absl::StrCat(checkpoint.step()),
                  checkpoint.latest() ? "latest" : "", Ago(Committed(checkpoint), now),
                  HumanByteSize(checkpoint.size_bytes()), absl::StrCat(checkpoint.world_size()),
                  checkpoint.store()});
  }
  return table.ToString();
}

void WriteCheckpoint(const v1::CheckpointSummary& checkpoint, JsonWriter& json) {
  json.BeginObject();
  json.Key("job").Text(checkpoint.job());
  json.Key("step").Unsigned(checkpoint.step());
  json.Key("latest").Bool(checkpoint.latest());
  json.Key("committed").Text(Timestamp(Committed(checkpoint)));
  json.Key("attempt").Text(AttemptOf(checkpoint.attempt()));
  json.Key("world_size").Unsigned(checkpoint.world_size());
  json.Key("size_bytes").Unsigned(checkpoint.size_bytes());
  json.Key("tensors").Unsigned(checkpoint.tensors());
  json.Key("files").Unsigned(checkpoint.files());
  json.Key("store").Text(checkpoint.store());
  json.Key("user_id").Unsigned(checkpoint.owner().user_id());
  json.Key("parent_step");
  if (checkpoint.has_parent_step()) {
    json.Unsigned(checkpoint.parent_step());
  } else {
    json.Null();
  }
  json.EndObject();
}

template <typename Checkpoints>
void WriteCheckpoints(const Checkpoints& checkpoints, JsonWriter& json) {
  json.BeginArray();
  for (const v1::CheckpointSummary& checkpoint : checkpoints) WriteCheckpoint(checkpoint, json);
  json.EndArray();
}

std::string Line(const JsonWriter& json) { return json.text() + "\n"; }

std::string TensorTable(const v1::Manifest& manifest) {
  Table table({"TENSOR", "TYPE", "SHAPE", ">PIECES", ">SIZE"});
  for (const v1::TensorEntry& tensor : manifest.tensors()) {
    table.AddRow({TerminalName(tensor.name()), TypeName(tensor.data_type()),
                  absl::StrCat("[", absl::StrJoin(tensor.shape(), ", "), "]"),
                  absl::StrCat(tensor.pieces_size()),
                  tensor.alias_of().empty()
                      ? HumanByteSize(TotalBytes(tensor.pieces()))
                      : absl::StrCat("shares ", TerminalName(tensor.alias_of()))});
  }
  for (const v1::PerRankEntry& tensor : manifest.per_rank()) {
    table.AddRow({TerminalName(tensor.name()), TypeName(tensor.data_type()),
                  absl::StrCat("[", absl::StrJoin(tensor.shape(), ", "), "] per rank"),
                  absl::StrCat(tensor.copies_size()), HumanByteSize(CopyBytes(tensor.copies()))});
  }
  return table.ToString();
}

std::string ValueTable(const v1::Manifest& manifest) {
  Table table({"VALUE", ">COPIES", ">SIZE"});
  for (const v1::ValueEntry& value : manifest.values()) {
    table.AddRow({TerminalName(value.name()), absl::StrCat(value.copies_size()),
                  HumanByteSize(CopyBytes(value.copies()))});
  }
  return table.ToString();
}

std::string FileTable(const v1::Manifest& manifest) {
  Table table({"FILE", ">SIZE"});
  for (const v1::DataFile& file : manifest.files()) {
    table.AddRow({TerminalName(file.path()), HumanByteSize(file.size_bytes())});
  }
  return table.ToString();
}

void WriteTensors(const v1::Manifest& manifest, JsonWriter& json) {
  json.Key("tensors").BeginArray();
  for (const v1::TensorEntry& tensor : manifest.tensors()) {
    json.BeginObject().Key("name").Text(tensor.name());
    json.Key("data_type").Text(TypeName(tensor.data_type())).Key("shape").BeginArray();
    for (const uint64_t length : tensor.shape()) json.Unsigned(length);
    json.EndArray().Key("pieces").Unsigned(static_cast<uint64_t>(tensor.pieces_size()));
    json.Key("size_bytes").Unsigned(TotalBytes(tensor.pieces()));
    json.Key("alias_of").Text(tensor.alias_of()).EndObject();
  }
  json.EndArray();
}

void WritePerRank(const v1::Manifest& manifest, JsonWriter& json) {
  json.Key("per_rank").BeginArray();
  for (const v1::PerRankEntry& tensor : manifest.per_rank()) {
    json.BeginObject().Key("name").Text(tensor.name()).Key("ranks").BeginArray();
    for (const v1::PerRankCopy& copy : tensor.copies()) {
      json.BeginArray();
      for (const uint32_t rank : copy.ranks()) json.Unsigned(rank);
      json.EndArray();
    }
    json.EndArray().EndObject();
  }
  json.EndArray().Key("values").BeginArray();
  for (const v1::ValueEntry& value : manifest.values()) {
    json.BeginObject().Key("name").Text(value.name());
    json.Key("copies").Unsigned(static_cast<uint64_t>(value.copies_size()));
    json.Key("size_bytes").Unsigned(CopyBytes(value.copies())).EndObject();
  }
  json.EndArray();
}

std::string Verdict(const VerifyReport& report) {
  if (report.ok()) return "ok";
  const size_t count = report.problems.size();
  return absl::StrCat(count, count == 1 ? " problem" : " problems");
}

}  // namespace

std::string ListText(const v1::ListCheckpointsResponse& answer, absl::Time now) {
  if (answer.checkpoints().empty()) return "no checkpoints\n";
  return CheckpointTable(answer.checkpoints(), now);
}

std::string ListJson(const v1::ListCheckpointsResponse& answer) {
  JsonWriter json;
  json.BeginObject().Key("checkpoints");
  WriteCheckpoints(answer.checkpoints(), json);
  return Line(json.EndObject());
}

std::string ShowText(const v1::ShowCheckpointResponse& answer, const v1::Manifest& manifest,
                     absl::Time now) {
  const v1::CheckpointSummary& summary = answer.summary();
  std::string text = absl::StrCat(
      "job ", summary.job(), ", step ", summary.step(), summary.latest() ? " (latest)" : "",
      "\n  committed  ", Timestamp(Committed(summary)), ", ", Ago(Committed(summary), now),
      "\n  folder     ", answer.job_folder(), "/", StepFolder(summary.step()), "\n  saved by   ",
      summary.world_size(), " ranks of uid ", summary.owner().user_id(), ", attempt ",
      AttemptOf(summary.attempt()), ", ckptd ", manifest.software_version(), "\n");
  if (summary.has_parent_step()) {
    absl::StrAppend(&text, "  parent     step ", summary.parent_step(), "\n");
  }
  for (const auto& [key, value] :
       std::map<std::string, std::string>(manifest.tags().begin(), manifest.tags().end())) {
    absl::StrAppend(&text, "  tag        ", TerminalName(key), " = ", TerminalName(value), "\n");
  }
  absl::StrAppend(&text, "\n", TensorTable(manifest));
  if (!manifest.values().empty()) absl::StrAppend(&text, "\n", ValueTable(manifest));
  absl::StrAppend(&text, "\n", FileTable(manifest));
  return text;
}

std::string ShowJson(const v1::ShowCheckpointResponse& answer, const v1::Manifest& manifest) {
  JsonWriter json;
  json.BeginObject().Key("checkpoint");
  WriteCheckpoint(answer.summary(), json);
  json.Key("folder").Text(
      absl::StrCat(answer.job_folder(), "/", StepFolder(answer.summary().step())));
  json.Key("tags").BeginObject();
  for (const auto& [key, value] :
       std::map<std::string, std::string>(manifest.tags().begin(), manifest.tags().end())) {
    json.Key(key).Text(value);
  }
  json.EndObject();
  WriteTensors(manifest, json);
  WritePerRank(manifest, json);
  json.Key("files").BeginArray();
  for (const v1::DataFile& file : manifest.files()) {
    json.BeginObject().Key("path").Text(file.path());
    json.Key("size_bytes").Unsigned(file.size_bytes()).EndObject();
  }
  return Line(json.EndArray().EndObject());
}

std::string StatusText(const v1::GetNodeStatusResponse& status) {
  std::string text = absl::StrCat(
      "node ", status.node(), ", ckptd ", status.version(), "\n  arena    ",
      HumanByteSize(status.arena_used_bytes()), " of ", HumanByteSize(status.arena_bytes()),
      " in use, ", HumanByteSize(status.arena_kept_bytes()), " kept for loads\n  persist  ",
      status.persist_paused() ? "paused" : "running", "\n");
  if (!status.sessions().empty()) {
    Table table({">PID", ">UID", "JOB", ">RANK", ">EPOCH", "COPY PATH"});
    for (const v1::SessionStatus& session : status.sessions()) {
      const bool joined = !session.job().empty();
      table.AddRow({absl::StrCat(session.process_id()), absl::StrCat(session.user_id()),
                    joined ? session.job() : "-", joined ? absl::StrCat(session.rank()) : "-",
                    joined ? absl::StrCat(session.epoch()) : "-",
                    joined ? session.copy_path() : "-"});
    }
    absl::StrAppend(&text, "\n", table.ToString());
  }
  if (!status.saves().empty()) {
    Table table({"SAVE OF", ">STEP", "ATTEMPT", "PHASE", ">SIZE", ">PERSISTED"});
    for (const v1::SaveInFlight& save : status.saves()) {
      table.AddRow({save.job(), absl::StrCat(save.step()), AttemptOf(save.attempt()),
                    SavePhaseName(save.phase()), HumanByteSize(save.bytes()),
                    HumanByteSize(save.persisted_bytes())});
    }
    absl::StrAppend(&text, "\n", table.ToString());
  }
  return text;
}

std::string StatusJson(const v1::GetNodeStatusResponse& status) {
  JsonWriter json;
  json.BeginObject().Key("node").Text(status.node()).Key("version").Text(status.version());
  json.Key("arena_bytes").Unsigned(status.arena_bytes());
  json.Key("arena_used_bytes").Unsigned(status.arena_used_bytes());
  json.Key("arena_kept_bytes").Unsigned(status.arena_kept_bytes());
  json.Key("persist_paused").Bool(status.persist_paused()).Key("sessions").BeginArray();
  for (const v1::SessionStatus& session : status.sessions()) {
    json.BeginObject().Key("pid").Unsigned(session.process_id());
    json.Key("user_id").Unsigned(session.user_id()).Key("job").Text(session.job());
    json.Key("rank").Unsigned(session.rank()).Key("epoch").Unsigned(session.epoch());
    json.Key("copy_path").Text(session.copy_path()).EndObject();
  }
  json.EndArray().Key("saves").BeginArray();
  for (const v1::SaveInFlight& save : status.saves()) {
    json.BeginObject().Key("job").Text(save.job()).Key("step").Unsigned(save.step());
    json.Key("attempt").Text(AttemptOf(save.attempt()));
    json.Key("phase").Text(SavePhaseName(save.phase())).Key("size_bytes").Unsigned(save.bytes());
    json.Key("persisted_bytes").Unsigned(save.persisted_bytes()).EndObject();
  }
  return Line(json.EndArray().EndObject());
}

std::string RemovedText(const v1::RemoveCheckpointsResponse& answer, bool removed) {
  std::string text;
  for (const v1::CheckpointSummary& checkpoint : answer.removed()) {
    absl::StrAppend(&text, removed ? "removed " : "would remove ", checkpoint.job(), " step ",
                    checkpoint.step(), " (", HumanByteSize(checkpoint.size_bytes()), ")\n");
  }
  return text.empty() ? "nothing to remove\n" : text;
}

std::string RemovedJson(const v1::RemoveCheckpointsResponse& answer) {
  JsonWriter json;
  json.BeginObject().Key("removed");
  WriteCheckpoints(answer.removed(), json);
  return Line(json.EndObject());
}

std::string VerifyText(const VerifyReport& report) {
  std::string text;
  for (const Problem& problem : report.problems) absl::StrAppend(&text, problem.message, "\n");
  absl::StrAppend(&text, report.folder, ": ", Verdict(report), "; ", report.files, " files, ",
                  report.tensors, " tensors and values, ", report.chunks, " chunks, ",
                  HumanByteSize(report.bytes), " checked\n");
  return text;
}

std::string VerifyJson(const VerifyReport& report) {
  JsonWriter json;
  json.BeginObject().Key("folder").Text(report.folder).Key("ok").Bool(report.ok());
  json.Key("files").Unsigned(report.files).Key("tensors").Unsigned(report.tensors);
  json.Key("chunks").Unsigned(report.chunks).Key("bytes").Unsigned(report.bytes);
  json.Key("problems").BeginArray();
  for (const Problem& problem : report.problems) {
    json.BeginObject().Key("kind").Text(ProblemKindName(problem.kind));
    json.Key("file").Text(problem.file).Key("tensor").Text(problem.tensor).Key("chunk");
    if (problem.chunk.has_value()) {
      json.Unsigned(*problem.chunk);
    } else {
      json.Null();
    }
    json.Key("message").Text(problem.message).EndObject();
  }
  return Line(json.EndArray().EndObject());
}

}  // namespace ckptd
