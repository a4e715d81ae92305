#include "tests/storage/file_system/fault_injecting_file_system.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace ckptd {
namespace {

constexpr uint64_t kRestoreLimitBytes = uint64_t{1} << 30;

std::string Parent(const std::string& path) { return path.substr(0, path.rfind('/')); }

absl::Status StatusOf(const absl::Status& status) { return status; }
template <typename T>
absl::Status StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

FileOwner Self() { return FileOwner{::geteuid(), ::getegid()}; }

absl::Status PowerIsOff() { return absl::UnavailableError("the power is off (injected)"); }

absl::Status DiskIsFull(const std::string& path, uint64_t needed, uint64_t left) {
  return absl::ResourceExhaustedError(absl::StrCat("writing ", path, ": no space left (injected), ",
                                                   "needs ", needed, " bytes, ", left, " free"));
}

}  // namespace

std::string_view FileOperationName(FileOperation operation) {
  constexpr std::string_view kNames[] = {"Create",
                                         "Open",
                                         "ReadWhole",
                                         "Commit",
                                         "CreateDirectories",
                                         "SyncDirectory",
                                         "Remove",
                                         "RemoveDirectory",
                                         "List",
                                         "FreeBytes",
                                         "WriteAt",
                                         "Truncate",
                                         "Sync",
                                         "Close",
                                         "ReadAt"};
  return kNames[static_cast<int>(operation)];
}

template <typename Effect>
auto FaultInjectingFileSystem::Run(FileOperation operation, const std::string& path, uint64_t bytes,
                                   const Effect& effect) -> decltype(effect()) {
  absl::Status before = PassGate(operation);
  bool after_effect = false;
  absl::Status fault;
  if (before.ok()) std::tie(fault, after_effect) = MeetFault(operation, path);
  if (before.ok() && !after_effect) before = fault;
  if (!before.ok()) {
    Record(operation, path, bytes, before);
    return before;
  }
  auto result = effect();
  if (!fault.ok()) result = fault;
  Record(operation, path, bytes, StatusOf(result));
  return result;
}

// A file being written: notes what a power failure would take.
class FaultInjectingFileSystem::File : public WritableFile {
 public:
  File(FaultInjectingFileSystem& owner, std::string path, std::unique_ptr<WritableFile> base)
      : owner_(owner), path_(std::move(path)), base_(std::move(base)) {}

  absl::Status WriteAt(uint64_t offset, std::span<const std::byte> data) override {
    return owner_.Run(FileOperation::kWriteAt, path_, data.size(), [&]() -> absl::Status {
      uint64_t fits = owner_.TakeSpace(path_, data.size());
      const bool all_fits = fits == data.size();
      if (!all_fits) fits -= fits % kIoAlignmentBytes;
      {
        absl::MutexLock lock(&owner_.mutex_);
        owner_.volatile_files_[path_].unsynced.emplace_back(offset, fits);
      }
      absl::Status status = base_->WriteAt(offset, data.first(fits));
      if (status.ok() && !all_fits) return DiskIsFull(path_, data.size(), fits);
      return status;
    });
  }

  absl::Status Truncate(uint64_t size_bytes) override {
    return owner_.Run(FileOperation::kTruncate, path_, 0,
                      [&] { return base_->Truncate(size_bytes); });
  }

  absl::Status Sync() override {
    return owner_.Run(FileOperation::kSync, path_, 0, [&] {
      absl::Status status = base_->Sync();
      absl::MutexLock lock(&owner_.mutex_);
      if (status.ok()) owner_.volatile_files_[path_].unsynced.clear();
      return status;
    });
  }

  absl::Status Close() override {
    return owner_.Run(FileOperation::kClose, path_, 0, [&] { return base_->Close(); });
  }

  bool is_direct() const override { return base_->is_direct(); }

 private:
  FaultInjectingFileSystem& owner_;
  const std::string path_;
  const std::unique_ptr<WritableFile> base_;
};

class FaultInjectingFileSystem::Reader : public ReadableFile {
 public:
  Reader(FaultInjectingFileSystem& owner, std::string path, std::unique_ptr<ReadableFile> base)
      : owner_(owner), path_(std::move(path)), base_(std::move(base)) {}

  absl::Status ReadAt(uint64_t offset, std::span<std::byte> out) const override {
    return owner_.Run(FileOperation::kReadAt, path_, out.size(),
                      [&] { return base_->ReadAt(offset, out); });
  }
  uint64_t size_bytes() const override { return base_->size_bytes(); }
  bool is_direct() const override { return base_->is_direct(); }

 private:
  FaultInjectingFileSystem& owner_;
  const std::string path_;
  const std::unique_ptr<ReadableFile> base_;
};

FaultInjectingFileSystem::FaultInjectingFileSystem(FileSystem& base) : base_(base) {}

FaultInjectingFileSystem::~FaultInjectingFileSystem() { OpenGate(); }

void FaultInjectingFileSystem::Inject(Fault fault) {
  absl::MutexLock lock(&mutex_);
  faults_.push_back(ArmedFault{std::move(fault)});
}

void FaultInjectingFileSystem::ClearFaults() {
  absl::MutexLock lock(&mutex_);
  faults_.clear();
}

void FaultInjectingFileSystem::LimitSpace(uint64_t bytes) {
  absl::MutexLock lock(&mutex_);
  space_is_limited_ = true;
  space_left_bytes_ = bytes;
}

void FaultInjectingFileSystem::LiftSpaceLimit() {
  absl::MutexLock lock(&mutex_);
  space_is_limited_ = false;
}

uint64_t FaultInjectingFileSystem::TakeSpace(const std::string& path, uint64_t bytes) {
  absl::MutexLock lock(&mutex_);
  if (!space_is_limited_) return bytes;
  Volatile unknown;
  const auto found = volatile_files_.find(path);
  Volatile& file = found == volatile_files_.end() ? unknown : found->second;
  const uint64_t reserved = std::min(bytes, file.reserved_bytes);
  const uint64_t taken = std::min(bytes - reserved, space_left_bytes_);
  file.reserved_bytes -= reserved;
  file.taken_bytes += taken;
  space_left_bytes_ -= taken;
  return reserved + taken;
}

void FaultInjectingFileSystem::CloseGate(FileOperation operation) {
  absl::MutexLock lock(&mutex_);
  gate_is_closed_ = true;
  gated_operation_ = operation;
}

void FaultInjectingFileSystem::OpenGate() {
  absl::MutexLock lock(&mutex_);
  gate_is_closed_ = false;
}

bool FaultInjectingFileSystem::AwaitBlocked(int calls) const {
  absl::MutexLock lock(&mutex_);
  const auto enough = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return blocked_ >= calls; };
  return mutex_.AwaitWithTimeout(absl::Condition(&enough), absl::Minutes(1));
}

absl::Status FaultInjectingFileSystem::PassGate(FileOperation operation) {
  absl::MutexLock lock(&mutex_);
  const auto may_pass = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return !gate_is_closed_ || gated_operation_ != operation || power_is_off_;
  };
  ++blocked_;
  mutex_.Await(absl::Condition(&may_pass));
  --blocked_;
  return power_is_off_ ? PowerIsOff() : absl::OkStatus();
}

std::pair<absl::Status, bool> FaultInjectingFileSystem::MeetFault(FileOperation operation,
                                                                  const std::string& path) {
  absl::MutexLock lock(&mutex_);
  std::pair<absl::Status, bool> met;
  for (ArmedFault& armed : faults_) {
    const Fault& fault = armed.fault;
    if (fault.operation != operation || !absl::StrContains(path, fault.path_part)) continue;
    ++armed.met;
    const bool fails = armed.met >= fault.from_call && armed.met - fault.from_call < fault.calls;
    if (fails && met.first.ok()) met = {fault.status, fault.after_effect};
  }
  return met;
}

void FaultInjectingFileSystem::Record(FileOperation operation, const std::string& path,
                                      uint64_t bytes, const absl::Status& result) {
  absl::MutexLock lock(&mutex_);
  records_.push_back(FileOperationRecord{operation, path, bytes, result});
}

std::vector<FileOperationRecord> FaultInjectingFileSystem::records() const {
  absl::MutexLock lock(&mutex_);
  return records_;
}

int FaultInjectingFileSystem::CountCalls(FileOperation operation) const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int>(std::count_if(
      records_.begin(), records_.end(),
      [&](const FileOperationRecord& record) { return record.operation == operation; }));
}

absl::StatusOr<std::unique_ptr<WritableFile>> FaultInjectingFileSystem::Create(
    const std::string& path, const CreateOptions& options) {
  using Result = absl::StatusOr<std::unique_ptr<WritableFile>>;
  return Run(FileOperation::kCreate, path, 0, [&]() -> Result {
    uint64_t taken_bytes = 0;
    {
      absl::MutexLock lock(&mutex_);
      if (space_is_limited_) {
        if (options.reserve_bytes > space_left_bytes_) {
          return DiskIsFull(path, options.reserve_bytes, space_left_bytes_);
        }
        taken_bytes = options.reserve_bytes;
        space_left_bytes_ -= taken_bytes;
      }
    }
    Result file = base_.Create(path, options);
    absl::MutexLock lock(&mutex_);
    if (!file.ok()) {
      space_left_bytes_ += taken_bytes;
      return file.status();
    }
    volatile_files_[path] = {.reserved_bytes = taken_bytes, .taken_bytes = taken_bytes};
    return std::make_unique<File>(*this, path, *std::move(file));
  });
}

absl::StatusOr<std::unique_ptr<ReadableFile>> FaultInjectingFileSystem::Open(
    const std::string& path, bool direct) {
  using Result = absl::StatusOr<std::unique_ptr<ReadableFile>>;
  return Run(FileOperation::kOpen, path, 0, [&]() -> Result {
    Result file = base_.Open(path, direct);
    if (!file.ok()) return file.status();
    return std::make_unique<Reader>(*this, path, *std::move(file));
  });
}

absl::StatusOr<std::string> FaultInjectingFileSystem::ReadWhole(const std::string& path,
                                                                uint64_t limit_bytes) {
  return Run(FileOperation::kReadWhole, path, 0,
             [&] { return base_.ReadWhole(path, limit_bytes); });
}

absl::Status FaultInjectingFileSystem::Commit(const std::string& path, std::string_view content,
                                              CommitMode mode, const FileOwner& owner) {
  return Run(FileOperation::kCommit, path, content.size(), [&]() -> absl::Status {
    const uint64_t fits = TakeSpace(path, content.size());
    if (fits < content.size()) return DiskIsFull(path, content.size(), fits);
    absl::Status status = base_.Commit(path, content, mode, owner);
    absl::MutexLock lock(&mutex_);
    if (status.ok()) {
      volatile_files_.erase(path);
      undurable_removals_.erase(path);
    }
    return status;
  });
}

absl::Status FaultInjectingFileSystem::CreateDirectories(const std::string& root,
                                                         const std::string& relative,
                                                         const FileOwner& owner) {
  return Run(FileOperation::kCreateDirectories, absl::StrCat(root, "/", relative), 0,
             [&] { return base_.CreateDirectories(root, relative, owner); });
}

absl::Status FaultInjectingFileSystem::SyncDirectory(const std::string& path) {
  return Run(FileOperation::kSyncDirectory, path, 0, [&] {
    absl::Status status = base_.SyncDirectory(path);
    absl::MutexLock lock(&mutex_);
    if (!status.ok()) return status;
    for (auto& [file, state] : volatile_files_) {
      if (Parent(file) == path) state.name_is_durable = true;
    }
    std::erase_if(undurable_removals_,
                  [&](const auto& removal) { return Parent(removal.first) == path; });
    return status;
  });
}

absl::Status FaultInjectingFileSystem::Remove(const std::string& path) {
  return Run(FileOperation::kRemove, path, 0, [&]() -> absl::Status {
    absl::StatusOr<std::string> content = base_.ReadWhole(path, kRestoreLimitBytes);
    absl::Status status = base_.Remove(path);
    if (!status.ok()) return status;
    absl::MutexLock lock(&mutex_);
    const auto created = volatile_files_.find(path);
    const bool was_durable = created == volatile_files_.end() || created->second.name_is_durable;
    if (was_durable && content.ok()) undurable_removals_[path] = *std::move(content);
    if (created != volatile_files_.end()) {
      space_left_bytes_ += created->second.taken_bytes;
      volatile_files_.erase(created);
    }
    return status;
  });
}

absl::Status FaultInjectingFileSystem::RemoveDirectory(const std::string& path) {
  return Run(FileOperation::kRemoveDirectory, path, 0, [&] {
    absl::Status status = base_.RemoveDirectory(path);
    absl::MutexLock lock(&mutex_);
    // With the directory gone, names in it do not come back.
    if (status.ok()) {
      std::erase_if(undurable_removals_,
                    [&](const auto& removal) { return Parent(removal.first) == path; });
    }
    return status;
  });
}

absl::StatusOr<std::vector<DirectoryEntry>> FaultInjectingFileSystem::List(
    const std::string& path) {
  return Run(FileOperation::kList, path, 0, [&] { return base_.List(path); });
}

absl::StatusOr<uint64_t> FaultInjectingFileSystem::FreeBytes(const std::string& path) {
  return Run(FileOperation::kFreeBytes, path, 0, [&]() -> absl::StatusOr<uint64_t> {
    {
      absl::MutexLock lock(&mutex_);
      if (space_is_limited_) return space_left_bytes_;
    }
    return base_.FreeBytes(path);
  });
}

// Zeros where the ranges were: the interface has no writing to a file that exists, so
// the content is replaced.
absl::Status FaultInjectingFileSystem::LoseRanges(
    const std::string& path, const std::vector<std::pair<uint64_t, uint64_t>>& ranges) {
  absl::StatusOr<std::string> content = base_.ReadWhole(path, kRestoreLimitBytes);
  if (!content.ok()) return content.status();
  for (const auto& [offset, bytes] : ranges) {
    const uint64_t begin = std::min<uint64_t>(offset, content->size());
    const uint64_t end = std::min<uint64_t>(offset + bytes, content->size());
    std::fill(content->begin() + begin, content->begin() + end, '\0');
  }
  return base_.Commit(path, *content, CommitMode::kReplace, Self());
}

absl::Status FaultInjectingFileSystem::PowerOff(uint64_t seed) {
  std::map<std::string, Volatile> files;
  std::map<std::string, std::string> removals;
  {
    absl::MutexLock lock(&mutex_);
    power_is_off_ = true;  // lets go who stands at the gate, with an error
    files = volatile_files_;
    removals = undurable_removals_;
  }
  std::mt19937_64 random(seed);
  const auto is_lost = [&random] { return (random() & 1) != 0; };
  for (const auto& [path, state] : files) {
    if (!state.name_is_durable && is_lost()) {
      if (absl::Status status = base_.Remove(path); !status.ok()) return status;
      continue;
    }
    std::vector<std::pair<uint64_t, uint64_t>> lost;
    std::copy_if(state.unsynced.begin(), state.unsynced.end(), std::back_inserter(lost),
                 [&](const auto&) { return is_lost(); });
    if (lost.empty()) continue;
    if (absl::Status status = LoseRanges(path, lost); !status.ok()) return status;
  }
  for (const auto& [path, content] : removals) {
    if (!is_lost()) continue;
    absl::Status status = base_.Commit(path, content, CommitMode::kReplace, Self());
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace ckptd
