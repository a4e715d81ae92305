#include "daemon/node/file_writer.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/node/admission.h"
#include "daemon/node/sha256.h"
#include "proto/rpc/status.h"
#include "storage/format/checkpoint_path.h"
#include "storage/format/checksum.h"

namespace ckptd {
namespace {

// Two transfers of the io_uring. The threads' blocks together keep the device busy while
// some of the threads compute checksums.
constexpr uint64_t kBlockBytes = uint64_t{8} << 20;

std::span<const std::byte> AsBytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace

FileWriter::FileWriter(const Tools& tools, FileToPersist file, Done<PersistedFile> done)
    : tools_(tools),
      file_(std::move(file)),
      folder_(absl::StrCat(file_.store_path, "/", file_.job, "/", StepFolder(file_.step))),
      path_(absl::StrCat(folder_, "/", file_.file_name)),
      done_(std::move(done)) {}

void FileWriter::Add(ArenaLeasePtr window) {
  {
    absl::MutexLock lock(&mutex_);
    if (ended_) return;
    windows_.push_back({.offset = added_bytes_, .memory = std::move(window)});
    added_bytes_ = windows_.back().end();
    if (waits_ != Waits::kForWindow) return;
    waits_ = Waits::kNo;
  }
  SubmitNext();
}

void FileWriter::Resume() {
  {
    absl::MutexLock lock(&mutex_);
    if (waits_ != Waits::kForResume) return;
    waits_ = Waits::kNo;
  }
  SubmitNext();
}

void FileWriter::StopWaiting(const absl::Status& why) {
  std::deque<Window> given_up;  // at once: storage may be what holds this up
  {
    absl::MutexLock lock(&mutex_);
    if (std::exchange(waits_, Waits::kNo) == Waits::kNo) return;
    given_up.swap(windows_);
  }
  given_up.clear();
  if (!created_) return Finish(why);
  const absl::Status submitted =
      tools_.executor.Submit([self = shared_from_this(), why] { self->Finish(why); });
  if (!submitted.ok()) Finish(why);
}

void FileWriter::End(const absl::Status& status) {
  absl::Status result = Annotate(status, absl::StrCat("writing ", path_));
  if (!status.ok()) result = WithSpace(CleanUp(result));
  window_ = {};
  {
    absl::MutexLock lock(&mutex_);
    windows_.clear();
    ended_ = true;
  }
  // It goes with this call: what it holds may hold this writer.
  Done<PersistedFile> done = std::exchange(done_, nullptr);
  if (result.ok()) return done(std::move(result_));
  result_.image.reset();
  done(result);
}

absl::Status FileWriter::Abandoned() const {
  if (!file_.progress->abandoned.load()) return absl::OkStatus();
  return absl::AbortedError("the attempt was given up");
}

absl::Status FileWriter::CreateFile() {
  const std::string relative = absl::StrCat(file_.job, "/", StepFolder(file_.step));
  absl::Status status =
      tools_.file_system.CreateDirectories(file_.store_path, relative, file_.owner);
  if (!status.ok()) return status;
  absl::StatusOr<std::unique_ptr<WritableFile>> created = tools_.file_system.Create(
      path_, {.owner = file_.owner,
              .reserve_bytes = RoundUp(file_.layout->file_bytes(), kIoAlignmentBytes),
              .direct = tools_.direct_io});
  if (!created.ok()) return created.status();
  created_ = true;
  writable_ = *std::move(created);
  if (tools_.direct_io && !writable_->is_direct()) tools_.probe.FallbackInUse("direct_io");
  chunks_ = ImageChunks(*file_.layout);
  chunk_sums_.resize(chunks_.count());
  return absl::OkStatus();
}

absl::Status FileWriter::WithSpace(const absl::Status& status) const {
  if (!absl::IsResourceExhausted(status)) return status;
  const uint64_t needed = file_.layout->file_bytes();
  const absl::StatusOr<uint64_t> free = tools_.file_system.FreeBytes(file_.store_path);
  return absl::ResourceExhaustedError(
      absl::StrCat(status.message(), "; the file needs ", BytesForPeople(needed), ", ",
                   free.ok() ? BytesForPeople(*free) : "an unknown amount", " is free",
                   free.ok() && *free < needed
                       ? absl::StrCat(", ", BytesForPeople(needed - *free), " is missing")
                       : "",
                   ": free space or remove checkpoints"));
}

void FileWriter::SubmitNext() {
  const absl::Status submitted =
      tools_.executor.Submit([self = shared_from_this()] { self->Next(); });
  if (!submitted.ok()) Finish(submitted);
}

FileWriter::Waits FileWriter::WaitsFor() const {
  if (created_ && windows_.empty()) return Waits::kForWindow;
  const bool has_begun = created_ && windows_.front().offset > 0;
  return tools_.paused.load() && !has_begun ? Waits::kForResume : Waits::kNo;
}

void FileWriter::Next() {
  absl::Status status;
  {
    absl::MutexLock lock(&mutex_);
    // Under the lock: who gives the attempt up, or ends the pause, looks afterwards whether
    // this waits.
    status = Abandoned();
    if (status.ok()) {
      waits_ = WaitsFor();
      if (waits_ != Waits::kNo) return;
    }
    if (status.ok() && created_) {
      window_ = std::move(windows_.front());
      windows_.pop_front();
    }
  }
  if (!status.ok()) return Finish(status);
  if (created_) return WriteWindow();
  status = CreateFile();
  if (!status.ok()) return Finish(status);
  Next();
}

void FileWriter::WriteWindow() {
  if (absl::Status status = CheckContents(); !status.ok()) return Finish(status);
  WriteHeader();
  window_chunks_ = chunks_.Within(window_.offset, window_.end());
  blocks_ = ListBlocks(window_.memory->parts(), window_.offset, file_.layout->file_bytes(),
                       kBlockBytes, window_chunks_);
  next_block_ = 0;
  const size_t workers = std::max<size_t>(1, std::min<size_t>(tools_.threads, blocks_.size()));
  running_ = static_cast<int>(workers);
  for (size_t i = 1; i < workers; ++i) {
    const absl::Status submitted =
        tools_.executor.Submit([self = shared_from_this()] { self->WriteBlocks(); });
    if (!submitted.ok()) --running_;  // fewer hands; this one is enough
  }
  WriteBlocks();
}

absl::Status FileWriter::CheckContents() const {
  for (const ExpectedContent& expected : file_.expected) {
    Sha256 sum;
    window_.memory->ForEachRun(file_.layout->piece_offset(expected.piece),
                               file_.layout->piece_bytes(expected.piece),
                               [&](std::span<const std::byte> run) { sum.Add(run); });
    if (sum.Finish() != expected.sha256) {
      return absl::DataLossError(absl::StrCat("the bytes of ", expected.name,
                                              " are not those whose SHA-256 was given at save()",
                                              ": it was changed before its copy was made"));
    }
  }
  return absl::OkStatus();
}

// What of it lies in this window: a very long one lies in several.
void FileWriter::WriteHeader() const {
  const absl::string_view header = file_.layout->header();
  if (window_.offset < header.size()) {
    window_.memory->Write(0, header.substr(window_.offset, window_.memory->size_bytes()));
  }
}

void FileWriter::WriteBlocks() {
  for (size_t i; !failed_.load() && (i = next_block_++) < blocks_.size();) {
    absl::Status status = Abandoned();
    if (status.ok()) {
      ComputeChecksums(blocks_[i]);
      status = writable_->WriteAt(blocks_[i].offset, blocks_[i].bytes);
    }
    if (status.ok()) {
      file_.progress->written_bytes += blocks_[i].bytes.size();
    } else {
      absl::MutexLock lock(&mutex_);
      first_error_.Update(status);
      failed_ = true;
    }
  }
  if (--running_ == 0) WindowWritten();
}

void FileWriter::ComputeChecksums(const ImageBlock& block) {
  for (size_t i = block.first_chunk; i < block.end_chunk; ++i) {
    const ImageChunk& chunk = window_chunks_[i];
    // Not 0 where a part of the chunk lay in the window before.
    uint32_t sum = chunk_sums_[chunk.sum];
    window_.memory->ForEachRun(chunk.offset - window_.offset, chunk.bytes,
                               [&](std::span<const std::byte> run) { sum = Crc32c(run, sum); });
    chunk_sums_[chunk.sum] = sum;
  }
}

void FileWriter::WindowWritten() {
  Window window = std::exchange(window_, {});
  const uint64_t end = window.end();
  if (window.offset == 0 && end >= file_.layout->file_bytes()) {
    result_.image = std::move(window.memory);
  }
  window.memory.reset();
  absl::Status status;
  {
    absl::MutexLock lock(&mutex_);
    status = first_error_;
  }
  if (status.ok() && end < file_.layout->file_bytes()) return SubmitNext();
  Finish(status);
}

void FileWriter::Finish(absl::Status status) {
  if (status.ok()) status = writable_->Truncate(file_.layout->file_bytes());
  if (status.ok()) status = writable_->Sync();
  if (status.ok()) status = writable_->Close();
  writable_.reset();
  if (status.ok()) status = tools_.file_system.SyncDirectory(folder_);
  if (status.ok()) Describe();
  End(status);
}

void FileWriter::Describe() {
  v1::DataFile& file = result_.file;
  file.set_path(absl::StrCat(StepFolder(file_.step), "/", file_.file_name));
  file.set_size_bytes(file_.layout->file_bytes());
  file.set_header_bytes(file_.layout->header_bytes());
  file.set_header_crc32c(Crc32c(AsBytes(file_.layout->header())));
  auto sum = chunk_sums_.begin();
  for (size_t i = 0; i < file_.layout->pieces(); ++i) {
    v1::Piece& piece = result_.pieces.emplace_back();
    piece.set_file_offset(file_.layout->piece_offset(i));
    piece.set_size_bytes(file_.layout->piece_bytes(i));
    piece.set_encoding(v1::ENCODING_RAW);
    const auto end = sum + static_cast<ptrdiff_t>(ChunkCount(piece.size_bytes()));
    piece.mutable_chunk_crc32c()->Add(sum, end);
    sum = end;
  }
}

absl::Status FileWriter::CleanUp(const absl::Status& why) {
  if (!created_) return why;
  const absl::Status removed = tools_.file_system.Remove(path_);
  if (removed.ok() || absl::IsNotFound(removed)) return why;
  return absl::Status(
      why.code(),
      absl::StrCat(why.message(), "; and removing what was written failed: ", removed.message()));
}

}  // namespace ckptd
