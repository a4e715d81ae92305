#include "client/ctl/verify.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "client/ctl/aligned_reader.h"
#include "client/ctl/header_check.h"
#include "storage/format/checkpoint_path.h"
#include "storage/format/checksum.h"
#include "storage/format/manifest.h"
#include "storage/format/text.h"

namespace ckptd {
namespace {

constexpr uint64_t kMaxManifestBytes = uint64_t{2} << 30;
// One piece of work: enough to keep a disk busy, little enough to share evenly.
constexpr uint64_t kChunksPerTask = 8;

// One data file with all that lies in it.
struct FileToCheck {
  std::string path;  // relative to the job's folder
  const v1::DataFile* entry = nullptr;
  std::vector<ExpectedPiece> pieces;
  std::unique_ptr<AlignedReader> reader;  // null: it can't be read; said already
};

struct ChunkTask {
  size_t file = 0;
  const ExpectedPiece* piece = nullptr;
  uint64_t first_chunk = 0;
  uint64_t chunks = 0;
};

uint64_t ChunkCount(const ExpectedPiece& piece) {
  return static_cast<uint64_t>(piece.piece->chunk_crc32c_size());
}

class Verifier {
 public:
  Verifier(FileSystem& file_system, const VerifyOptions& options, const std::string& folder)
      : file_system_(file_system),
        options_(options),
        job_folder_(folder.substr(0, folder.rfind('/'))) {
    report_.folder = folder;
  }

  VerifyReport Run(const v1::Manifest& manifest) {
    chunk_bytes_ = manifest.chunk_bytes();
    CollectPieces(manifest);
    for (FileToCheck& file : files_) CheckFile(file);
    PlanChunks();
    CheckChunks();
    SortProblems();
    return std::move(report_);
  }

 private:
  void CollectPieces(const v1::Manifest& manifest);
  void AddPiece(const v1::Piece& piece, const std::string& name, DataType data_type,
                std::vector<int64_t> shape);
  void CheckFile(FileToCheck& file);
  void PlanChunks();
  void CheckChunks() ABSL_LOCKS_EXCLUDED(mutex_);
  void CheckTask(const ChunkTask& task) ABSL_LOCKS_EXCLUDED(mutex_);
  void Report(Problem problem) ABSL_LOCKS_EXCLUDED(mutex_);
  void Report(ProblemKind kind, const std::string& file, const std::string& message) {
    Report({.kind = kind, .file = file, .message = absl::StrCat(file, ": ", message)});
  }
  void SortProblems() ABSL_LOCKS_EXCLUDED(mutex_);

  FileSystem& file_system_;
  const VerifyOptions& options_;
  const std::string job_folder_;
  uint64_t chunk_bytes_ = kChunkBytes;
  std::vector<FileToCheck> files_;
  std::vector<ChunkTask> tasks_;
  std::atomic<size_t> next_task_ = 0;
  uint64_t bytes_total_ = 0;

  absl::Mutex mutex_;
  VerifyReport report_;  // guarded by mutex_ while threads run
};

void Verifier::AddPiece(const v1::Piece& piece, const std::string& name, DataType data_type,
                        std::vector<int64_t> shape) {
  files_[piece.file()].pieces.push_back(
      {.piece = &piece, .name = name, .data_type = data_type, .shape = std::move(shape)});
}

void Verifier::CollectPieces(const v1::Manifest& manifest) {
  for (const v1::DataFile& entry : manifest.files()) {
    files_.push_back({.path = entry.path(), .entry = &entry});
  }
  for (const v1::TensorEntry& tensor : manifest.tensors()) {
    for (const v1::Piece& piece : tensor.pieces()) {
      AddPiece(piece, tensor.name(), static_cast<DataType>(tensor.data_type()),
               {tensor.shape().begin(), tensor.shape().end()});
    }
  }
  for (const v1::PerRankEntry& tensor : manifest.per_rank()) {
    for (const v1::PerRankCopy& copy : tensor.copies()) {
      AddPiece(copy.piece(), tensor.name(), static_cast<DataType>(tensor.data_type()),
               {tensor.shape().begin(), tensor.shape().end()});
    }
  }
  for (const v1::ValueEntry& value : manifest.values()) {
    for (const v1::PerRankCopy& copy : value.copies()) {
      AddPiece(copy.piece(), value.name(), DataType::kU8,
               {static_cast<int64_t>(copy.piece().size_bytes())});
    }
  }
  report_.files = files_.size();
  report_.tensors = static_cast<uint64_t>(manifest.tensors_size()) +
                    static_cast<uint64_t>(manifest.per_rank_size()) +
                    static_cast<uint64_t>(manifest.values_size());
}

void Verifier::CheckFile(FileToCheck& file) {
  absl::StatusOr<std::unique_ptr<ReadableFile>> opened =
      file_system_.Open(absl::StrCat(job_folder_, "/", file.path), /*direct=*/true);
  if (!opened.ok()) {
    const bool missing = absl::IsNotFound(opened.status());
    Report(missing ? ProblemKind::kMissingFile : ProblemKind::kUnreadable, file.path,
           missing ? "the file is missing" : std::string(opened.status().message()));
    return;
  }
  const uint64_t size = (*opened)->size_bytes();
  if (size != file.entry->size_bytes()) {
    Report(ProblemKind::kWrongSize, file.path,
           absl::StrCat("the file has ", size, " bytes, not ", file.entry->size_bytes()));
  }
  file.reader = std::make_unique<AlignedReader>(*std::move(opened));

  AlignedBuffer buffer;
  absl::StatusOr<std::span<const std::byte>> header =
      file.reader->Read(0, file.entry->header_bytes(), buffer);
  if (!header.ok()) {
    Report(ProblemKind::kUnreadable, file.path,
           absl::StrCat("reading the header: ", header.status().message()));
    return;
  }
  if (Crc32c(*header) != file.entry->header_crc32c()) {
    Report(ProblemKind::kHeaderChecksum, file.path, "the header's checksum is wrong");
  }
  const std::string_view text(reinterpret_cast<const char*>(header->data()), header->size());
  for (const std::string& problem : CheckHeader(text, file.pieces)) {
    Report(ProblemKind::kHeaderContent, file.path, problem);
  }
}

void Verifier::PlanChunks() {
  for (size_t i = 0; i < files_.size(); ++i) {
    FileToCheck& file = files_[i];
    if (file.reader == nullptr) continue;
    std::sort(file.pieces.begin(), file.pieces.end(),
              [](const ExpectedPiece& a, const ExpectedPiece& b) {
                return a.piece->file_offset() < b.piece->file_offset();
              });
    for (const ExpectedPiece& piece : file.pieces) {
      for (uint64_t first = 0; first < ChunkCount(piece); first += kChunksPerTask) {
        tasks_.push_back({.file = i,
                          .piece = &piece,
                          .first_chunk = first,
                          .chunks = std::min(kChunksPerTask, ChunkCount(piece) - first)});
      }
      bytes_total_ += piece.piece->size_bytes();
    }
  }
}

void Verifier::CheckChunks() {
  const auto work = [this] {
    for (size_t i = next_task_++; i < tasks_.size(); i = next_task_++) CheckTask(tasks_[i]);
  };
  std::vector<std::thread> helpers;
  for (int i = 1; i < options_.threads; ++i) helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();
}

void Verifier::CheckTask(const ChunkTask& task) {
  const FileToCheck& file = files_[task.file];
  const v1::Piece& piece = *task.piece->piece;
  AlignedBuffer buffer;
  uint64_t bytes = 0;
  for (uint64_t chunk = task.first_chunk; chunk < task.first_chunk + task.chunks; ++chunk) {
    const uint64_t begin = chunk * chunk_bytes_;
    const uint64_t length = std::min(chunk_bytes_, piece.size_bytes() - begin);
    absl::StatusOr<std::span<const std::byte>> data =
        file.reader->Read(piece.file_offset() + begin, length, buffer);
    bytes += length;
    if (data.ok() && Crc32c(*data) == piece.chunk_crc32c(static_cast<int>(chunk))) continue;
    const std::string what = data.ok() ? "its checksum is wrong"
                                       : absl::StrCat("can't be read: ", data.status().message());
    Report({.kind = data.ok() ? ProblemKind::kChunkChecksum : ProblemKind::kUnreadable,
            .file = file.path,
            .tensor = std::string(task.piece->name),
            .chunk = chunk,
            .message = absl::StrCat(
                file.path, ": chunk ", chunk, " of ", Printable(task.piece->name), " (", length,
                " bytes at file offset ", piece.file_offset() + begin, "): ", what)});
  }
  absl::MutexLock lock(&mutex_);
  report_.chunks += task.chunks;
  report_.bytes += bytes;
  if (options_.progress) options_.progress(report_.bytes, bytes_total_);
}

void Verifier::Report(Problem problem) {
  absl::MutexLock lock(&mutex_);
  report_.problems.push_back(std::move(problem));
}

void Verifier::SortProblems() {
  const auto key = [](const Problem& problem) {
    return std::tie(problem.file, problem.kind, problem.tensor, problem.chunk, problem.message);
  };
  absl::MutexLock lock(&mutex_);
  std::sort(report_.problems.begin(), report_.problems.end(),
            [&](const Problem& a, const Problem& b) { return key(a) < key(b); });
}

VerifyReport ManifestReport(const std::string& folder, const std::string& path,
                            std::string message) {
  const size_t job_folder_bytes = folder.rfind('/') + 1;
  VerifyReport report{.folder = folder};
  report.problems.push_back({.kind = ProblemKind::kManifest,
                             .file = path.substr(job_folder_bytes),
                             .message = std::move(message)});
  return report;
}

}  // namespace

std::string ProblemKindName(ProblemKind kind) {
  switch (kind) {
    case ProblemKind::kManifest:
      return "manifest";
    case ProblemKind::kMissingFile:
      return "missing_file";
    case ProblemKind::kWrongSize:
      return "wrong_size";
    case ProblemKind::kUnreadable:
      return "unreadable";
    case ProblemKind::kHeaderChecksum:
      return "header_checksum";
    case ProblemKind::kHeaderContent:
      return "header_content";
    case ProblemKind::kChunkChecksum:
      return "chunk_checksum";
  }
  return "?";
}

absl::StatusOr<VerifyReport> VerifyCheckpoint(FileSystem& file_system, const std::string& folder,
                                              const VerifyOptions& options) {
  const std::string path =
      absl::StrCat(folder, "/", absl::string_view(kManifestName.data(), kManifestName.size()));
  absl::StatusOr<std::string> bytes = file_system.ReadWhole(path, kMaxManifestBytes);
  if (absl::IsNotFound(bytes.status()) && options.is_committed) {
    return ManifestReport(folder, path, absl::StrCat(path, ": the manifest is gone"));
  }
  if (!bytes.ok()) return bytes.status();
  absl::StatusOr<v1::Manifest> manifest = DecodeManifest(*bytes, path);
  if (!manifest.ok()) return ManifestReport(folder, path, std::string(manifest.status().message()));
  return Verifier(file_system, options, folder).Run(*manifest);
}

}  // namespace ckptd
