#include "daemon/node/persist.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/node/admission.h"
#include "daemon/node/persist_blocks.h"
#include "daemon/node/sha256.h"
#include "proto/rpc/status.h"
#include "storage/format/checkpoint_path.h"
#include "storage/format/checksum.h"

namespace ckptd {
namespace {

// Two transfers of the io_uring. The threads' blocks together keep the device busy while
// some of the threads compute checksums.
constexpr uint64_t kBlockBytes = uint64_t{8} << 20;
constexpr size_t kFileQueueLimit = 1 << 16;

std::span<const std::byte> AsBytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace

// One file on its way. Its steps run on the executor, the blocks side by side.
class Persister::FileWriter : public std::enable_shared_from_this<FileWriter> {
 public:
  FileWriter(Persister& persister, FileToPersist file, Done<PersistedFile> done)
      : persister_(persister),
        file_(std::move(file)),
        folder_(absl::StrCat(file_.store_path, "/", file_.job, "/", StepFolder(file_.step))),
        path_(absl::StrCat(folder_, "/", file_.file_name)),
        done_(std::move(done)) {}

  void Begin() {
    absl::Status status = Abandoned();
    if (status.ok()) status = CheckContents();
    if (status.ok()) status = CreateFile();
    if (!status.ok()) return End(status);
    file_.image->Write(0, file_.layout->header());
    chunks_ = ListChunks(*file_.layout);
    chunk_sums_.resize(chunks_.size());
    blocks_ = ListBlocks(file_.image->parts(), file_.layout->file_bytes(), kBlockBytes, chunks_);
    const size_t workers =
        std::max<size_t>(1, std::min<size_t>(persister_.threads_, blocks_.size()));
    running_ = static_cast<int>(workers);
    for (size_t i = 1; i < workers; ++i) {
      const absl::Status submitted =
          persister_.executor_.Submit([self = shared_from_this()] { self->WriteBlocks(); });
      if (!submitted.ok()) --running_;  // fewer hands; this one is enough
    }
    WriteBlocks();
  }

  const std::shared_ptr<PersistProgress>& progress() const { return file_.progress; }

  void End(const absl::Status& status) {
    absl::Status result = Annotate(status, absl::StrCat("writing ", path_));
    if (!status.ok()) result = CleanUp(result);
    file_.image.reset();
    if (!result.ok()) return std::move(done_)(result);
    std::move(done_)(std::move(result_));
  }

 private:
  absl::Status Abandoned() const {
    if (!file_.progress->abandoned.load()) return absl::OkStatus();
    return absl::AbortedError("the attempt was given up");
  }

  absl::Status CheckContents() const {
    for (const ExpectedContent& expected : file_.expected) {
      Sha256 sum;
      file_.image->ForEachRun(file_.layout->piece_offset(expected.piece),
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

  absl::Status CreateFile() {
    const std::string relative = absl::StrCat(file_.job, "/", StepFolder(file_.step));
    absl::Status status =
        persister_.file_system_.CreateDirectories(file_.store_path, relative, file_.owner);
    if (!status.ok()) return status;
    absl::StatusOr<std::unique_ptr<WritableFile>> created = persister_.file_system_.Create(
        path_, {.owner = file_.owner,
                .reserve_bytes = RoundUp(file_.layout->file_bytes(), kIoAlignmentBytes),
                .direct = persister_.direct_io_});
    if (!created.ok()) return WithSpace(created.status());
    writable_ = *std::move(created);
    if (persister_.direct_io_ && !writable_->is_direct()) {
      persister_.probe_.FallbackInUse("direct_io");
    }
    return absl::OkStatus();
  }

  // A full disk says how much was missing.
  absl::Status WithSpace(const absl::Status& status) const {
    if (!absl::IsResourceExhausted(status)) return status;
    absl::StatusOr<uint64_t> free = persister_.file_system_.FreeBytes(file_.store_path);
    return absl::ResourceExhaustedError(absl::StrCat(
        status.message(), "; the file needs ", BytesForPeople(file_.layout->file_bytes()), ", ",
        free.ok() ? BytesForPeople(*free) : "an unknown amount",
        " is free: free space or remove checkpoints"));
  }

  void ComputeChecksums(const ImageBlock& block) {
    for (size_t i = block.first_chunk; i < block.end_chunk; ++i) {
      uint32_t sum = 0;
      file_.image->ForEachRun(chunks_[i].offset, chunks_[i].bytes,
                              [&](std::span<const std::byte> run) { sum = Crc32c(run, sum); });
      chunk_sums_[i] = sum;
    }
  }

  void WriteBlocks() {
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
    if (--running_ == 0) Finish();
  }

  void Finish() {
    absl::Status status;
    {
      absl::MutexLock lock(&mutex_);
      status = first_error_;
    }
    if (status.ok()) status = writable_->Truncate(file_.layout->file_bytes());
    if (status.ok()) status = writable_->Sync();
    if (status.ok()) status = writable_->Close();
    writable_.reset();
    if (status.ok()) status = persister_.file_system_.SyncDirectory(folder_);
    created_ = true;
    if (status.ok()) Describe();
    End(WithSpace(status));
  }

  void Describe() {
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

  absl::Status CleanUp(const absl::Status& why) {
    const bool exists = created_ || writable_ != nullptr;
    writable_.reset();
    if (!exists) return why;
    const absl::Status removed = persister_.file_system_.Remove(path_);
    if (removed.ok() || absl::IsNotFound(removed)) return why;
    return absl::Status(why.code(), absl::StrCat(why.message(),
                                                 "; and removing what was written "
                                                 "failed: ",
                                                 removed.message()));
  }

  Persister& persister_;
  FileToPersist file_;
  const std::string folder_;
  const std::string path_;
  Done<PersistedFile> done_;
  PersistedFile result_;
  std::unique_ptr<WritableFile> writable_;
  bool created_ = false;
  std::vector<ImageChunk> chunks_;
  std::vector<uint32_t> chunk_sums_;  // of chunks_; each written by one thread
  std::vector<ImageBlock> blocks_;
  std::atomic<size_t> next_block_{0};
  std::atomic<int> running_{0};
  std::atomic<bool> failed_{false};
  absl::Mutex mutex_;
  absl::Status first_error_ ABSL_GUARDED_BY(mutex_);
};

Persister::Persister(FileSystem& file_system, NodeProbe& probe, int threads, bool direct_io)
    : file_system_(file_system),
      probe_(probe),
      threads_(threads),
      direct_io_(direct_io),
      executor_("ckptd-persist", threads, kFileQueueLimit) {}

Persister::~Persister() { Stop(); }

void Persister::Write(FileToPersist file, Done<PersistedFile> done) {
  auto writer = std::make_shared<FileWriter>(*this, std::move(file), std::move(done));
  {
    absl::MutexLock lock(&mutex_);
    if (paused_ && !stopping_) {
      waiting_.push_back(std::move(writer));
      return;
    }
  }
  Start(std::move(writer));
}

void Persister::Start(std::shared_ptr<FileWriter> writer) {
  const absl::Status submitted = executor_.Submit([writer] { writer->Begin(); });
  if (!submitted.ok()) writer->End(submitted);
}

void Persister::Remove(const std::string& store_path, const std::string& job,
                       const std::vector<std::string>& relative_paths) {
  if (relative_paths.empty()) return;
  const absl::Status submitted = executor_.Submit([this, store_path, job, relative_paths] {
    for (const std::string& relative : relative_paths) {
      // What can't be removed now is collected later by age.
      file_system_.Remove(absl::StrCat(store_path, "/", job, "/", relative)).IgnoreError();
    }
  });
  submitted.IgnoreError();  // shutting down: collected later by age
}

void Persister::Abandon(const std::shared_ptr<PersistProgress>& progress) {
  progress->abandoned = true;
  std::vector<std::shared_ptr<FileWriter>> dropped;
  {
    absl::MutexLock lock(&mutex_);
    auto kept = std::stable_partition(waiting_.begin(), waiting_.end(), [&](const auto& writer) {
      return writer->progress() != progress;
    });
    dropped.assign(kept, waiting_.end());
    waiting_.erase(kept, waiting_.end());
  }
  for (auto& writer : dropped) writer->End(absl::AbortedError("the attempt was given up"));
}

void Persister::SetPaused(bool paused) {
  std::vector<std::shared_ptr<FileWriter>> released;
  {
    absl::MutexLock lock(&mutex_);
    paused_ = paused;
    if (!paused) released = std::exchange(waiting_, {});
  }
  for (auto& writer : released) Start(std::move(writer));
}

bool Persister::paused() const {
  absl::MutexLock lock(&mutex_);
  return paused_;
}

void Persister::Stop() {
  std::vector<std::shared_ptr<FileWriter>> waiting;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    waiting = std::exchange(waiting_, {});
  }
  for (auto& writer : waiting) {
    writer->End(absl::UnavailableError("the node daemon is shutting down"));
  }
  executor_.Stop();
}

}  // namespace ckptd
