// The commit protocol, by which a manifest comes into being:
//   1. A temporary file beside the target, under a random name: ".tmp-...".
//   2. All content written, fsync, close. Any failure: unlink, and nothing happened.
//   3. kFailIfExists: renameat2(RENAME_NOREPLACE), where that is not supported
//      link() and unlink(). kReplace: rename. The kernel decides between writers.
//   4. fsync of the directory: the name is durable.
// A crash before 3 leaves at most the temporary file, which collection removes by age.
#include "storage/file_system/posix_file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "storage/file_system/posix_error.h"
#include "storage/file_system/posix_file.h"
#include "storage/file_system/posix_path.h"

namespace ckptd {
namespace {

std::span<const std::byte> AsBytes(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

std::string TemporaryName() {
  uint64_t random = 0;
  // Never fails for so few bytes once the machine has booted; if it did, O_EXCL still
  // keeps two writers apart.
  static_cast<void>(::getrandom(&random, sizeof(random), 0));
  return absl::StrCat(".tmp-", absl::Hex(random, absl::kZeroPad16));
}

// Step 2: a durable file of this content under `place`.
absl::Status WriteDurably(const FileIo& io, const PlaceInDirectory& place, const std::string& path,
                          std::string_view content, const FileOwner& owner) {
  CreateOptions options;
  options.owner = owner;
  options.reserve_bytes = content.size();
  absl::StatusOr<std::unique_ptr<WritableFile>> file = CreatePosixFile(io, place, path, options);
  if (!file.ok()) return file.status();
  absl::Status status = (*file)->WriteAt(0, AsBytes(content));
  if (status.ok()) status = (*file)->Sync();
  if (status.ok()) status = (*file)->Close();
  return status;
}

// Step 3, for kFailIfExists: 0 or errno.
int RenameIfFree(int directory, const std::string& from, const std::string& to) {
  if (::renameat2(directory, from.c_str(), directory, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP) return errno;
  if (::linkat(directory, from.c_str(), directory, to.c_str(), 0) != 0) {
    const int error = errno;
    // On NFS a repeated request may find its own link: then ours has two names.
    struct stat info {};
    const bool linked = error == EEXIST &&
                        ::fstatat(directory, from.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
                        info.st_nlink == 2;
    if (!linked) return error;
  }
  return ::unlinkat(directory, from.c_str(), 0) == 0 ? 0 : errno;
}

// One level of CreateDirectories: makes `name` if it is not there, its name durable.
absl::StatusOr<ScopedFd> EnterOrCreate(const ScopedFd& parent, const std::string& name,
                                       const std::string& path, const FileOwner& owner) {
  const bool created = ::mkdirat(parent.get(), name.c_str(), 0700) == 0;
  if (!created && errno != EEXIST) return PosixError(errno, "creating directory", path);
  ScopedFd directory(OpenAt(parent.get(), name.c_str(), O_RDONLY | O_DIRECTORY));
  if (!directory.is_open()) return PosixError(errno, "opening directory", path);
  if (created) {
    if (absl::Status status = GiveTo(directory.get(), owner, 0750, path); !status.ok()) {
      ::unlinkat(parent.get(), name.c_str(), AT_REMOVEDIR);
      return status;
    }
    // Its mode and owner too.
    if (absl::Status status = SyncFd(directory.get(), path); !status.ok()) return status;
  }
  // Also when it existed: whoever made it may not have come to this line.
  if (absl::Status status = SyncFd(parent.get(), path); !status.ok()) return status;
  return directory;
}

absl::StatusOr<DirectoryEntry> Describe(int directory, const char* name, const std::string& path) {
  struct stat info {};
  if (::fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
    return PosixError(errno, "looking at", absl::StrCat(path, "/", name));
  }
  DirectoryEntry entry;
  entry.name = name;
  entry.is_directory = S_ISDIR(info.st_mode);
  entry.size_bytes = static_cast<uint64_t>(info.st_size);
  entry.modified = absl::TimeFromTimespec(info.st_mtim);
  return entry;
}

class PosixFileSystem : public FileSystem {
 public:
  PosixFileSystem(std::unique_ptr<BlockIo> ring, std::vector<Fallback> fallbacks)
      : system_calls_(MakeSystemCallIo()),
        ring_(std::move(ring)),
        fallbacks_(std::move(fallbacks)),
        io_{ring_ != nullptr ? *ring_ : *system_calls_, *system_calls_} {}

  std::vector<Fallback> fallbacks() const override { return fallbacks_; }
  bool AddMemory(std::span<std::byte> memory) override { return io_.direct.AddMemory(memory); }
  void RemoveMemory(std::span<std::byte> memory) override { io_.direct.RemoveMemory(memory); }

  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path,
                                                       const CreateOptions& options) override {
    absl::StatusOr<PlaceInDirectory> place = OpenParent(path, "creating");
    if (!place.ok()) return place.status();
    return CreatePosixFile(io_, *place, path, options);
  }

  absl::StatusOr<std::unique_ptr<ReadableFile>> Open(const std::string& path,
                                                     bool direct) override {
    absl::StatusOr<PlaceInDirectory> place = OpenParent(path, "opening");
    if (!place.ok()) return place.status();
    return OpenPosixFile(io_, *place, path, direct);
  }

  absl::StatusOr<std::string> ReadWhole(const std::string& path, uint64_t limit_bytes) override {
    absl::StatusOr<std::unique_ptr<ReadableFile>> file = Open(path, /*direct=*/false);
    if (!file.ok()) return file.status();
    const uint64_t size = (*file)->size_bytes();
    if (size > limit_bytes) {
      return absl::ResourceExhaustedError(absl::StrCat("reading ", path, ": it has ",
                                                       BytesToString(size), ", at most ",
                                                       BytesToString(limit_bytes), " are taken"));
    }
    std::string content(size, '\0');
    absl::Status status =
        (*file)->ReadAt(0, std::as_writable_bytes(std::span<char>(content.data(), size)));
    if (!status.ok()) return status;
    return content;
  }

  absl::Status Commit(const std::string& path, std::string_view content, CommitMode mode,
                      const FileOwner& owner) override {
    absl::StatusOr<PlaceInDirectory> place = OpenParent(path, "committing");
    if (!place.ok()) return place.status();
    const int directory = place->directory.get();
    const std::string target = std::exchange(place->name, TemporaryName());  // 1
    absl::Cleanup unlink_temporary = [&] { ::unlinkat(directory, place->name.c_str(), 0); };

    absl::Status status = WriteDurably(io_, *place, path, content, owner);  // 2
    if (!status.ok()) return status;
    int error = 0;  // 3
    if (mode == CommitMode::kFailIfExists) {
      error = RenameIfFree(directory, place->name, target);
    } else if (::renameat(directory, place->name.c_str(), directory, target.c_str()) != 0) {
      error = errno;
    }
    if (error != 0) return PosixError(error, "committing", path);
    std::move(unlink_temporary).Cancel();
    return SyncFd(directory, path);  // 4
  }

  absl::Status CreateDirectories(const std::string& root, const std::string& relative,
                                 const FileOwner& owner) override {
    absl::StatusOr<ScopedFd> directory = OpenDirectory(root, "creating directories in");
    if (!directory.ok()) return directory.status();
    std::string path = root;
    for (const absl::string_view part : absl::StrSplit(relative, '/', absl::SkipEmpty())) {
      const std::string name(part);
      if (name == "." || name == ".." || name.find('\0') != std::string::npos) {
        return absl::InvalidArgumentError(
            absl::StrCat("creating directory ", relative, " in ", root, ": not a plain path"));
      }
      absl::StrAppend(&path, "/", name);
      directory = EnterOrCreate(*directory, name, path, owner);
      if (!directory.ok()) return directory.status();
    }
    return absl::OkStatus();
  }

  absl::Status SyncDirectory(const std::string& path) override {
    absl::StatusOr<ScopedFd> directory = OpenDirectory(path, "syncing to storage");
    if (!directory.ok()) return directory.status();
    return SyncFd(directory->get(), path);
  }

  absl::Status Remove(const std::string& path) override { return Unlink(path, 0); }

  absl::Status RemoveDirectory(const std::string& path) override {
    return Unlink(path, AT_REMOVEDIR);
  }

  absl::StatusOr<std::vector<DirectoryEntry>> List(const std::string& path) override {
    absl::StatusOr<ScopedFd> directory = OpenDirectory(path, "listing");
    if (!directory.ok()) return directory.status();
    // A second descriptor, which the stream owns.
    const int fd = OpenAt(directory->get(), ".", O_RDONLY | O_DIRECTORY);
    if (fd < 0) return PosixError(errno, "listing", path);
    DIR* const stream = ::fdopendir(fd);
    if (stream == nullptr) {
      const int error = errno;
      ::close(fd);
      return PosixError(error, "listing", path);
    }
    absl::Cleanup close_stream = [stream] { ::closedir(stream); };

    std::vector<DirectoryEntry> entries;
    while (true) {
      errno = 0;
      const struct dirent* const item = ::readdir(stream);
      if (item == nullptr) break;
      const std::string_view name = item->d_name;
      if (name == "." || name == "..") continue;
      absl::StatusOr<DirectoryEntry> entry = Describe(fd, item->d_name, path);
      if (absl::IsNotFound(entry.status())) continue;  // removed meanwhile
      if (!entry.ok()) return entry.status();
      entries.push_back(*std::move(entry));
    }
    if (errno != 0) return PosixError(errno, "listing", path);
    std::sort(entries.begin(), entries.end(),
              [](const DirectoryEntry& a, const DirectoryEntry& b) { return a.name < b.name; });
    return entries;
  }

  absl::StatusOr<uint64_t> FreeBytes(const std::string& path) override {
    absl::StatusOr<ScopedFd> directory = OpenDirectory(path, "asking for the free space of");
    if (!directory.ok()) return directory.status();
    return FreeBytesOf(directory->get(), path);
  }

 private:
  absl::Status Unlink(const std::string& path, int flags) {
    absl::StatusOr<PlaceInDirectory> place = OpenParent(path, "removing");
    if (!place.ok()) return place.status();
    if (::unlinkat(place->directory.get(), place->name.c_str(), flags) == 0) {
      return absl::OkStatus();
    }
    // Some file systems say EEXIST for a directory that is not empty.
    const int error = flags != 0 && errno == EEXIST ? ENOTEMPTY : errno;
    return PosixError(error, "removing", path);
  }

  const std::unique_ptr<BlockIo> system_calls_;
  const std::unique_ptr<BlockIo> ring_;  // null: not to be had, or not wanted
  const std::vector<Fallback> fallbacks_;
  const FileIo io_;
};

}  // namespace

std::unique_ptr<FileSystem> MakePosixFileSystem(const PosixOptions& options) {
  if (!options.use_io_uring) {
    return std::make_unique<PosixFileSystem>(nullptr, std::vector<Fallback>());
  }
  absl::StatusOr<std::unique_ptr<BlockIo>> ring = MakeRingIo();
  if (ring.ok()) {
    return std::make_unique<PosixFileSystem>(*std::move(ring), std::vector<Fallback>());
  }
  const Fallback system_calls = {"io_uring", std::string(ring.status().message())};
  return std::make_unique<PosixFileSystem>(nullptr, std::vector<Fallback>{system_calls});
}

absl::StatusOr<std::string> CanonicalDirectory(const std::string& path) {
  char* const resolved = ::realpath(path.c_str(), nullptr);
  if (resolved == nullptr) return PosixError(errno, "resolving", path);
  const std::string canonical = resolved;
  ::free(resolved);
  absl::StatusOr<ScopedFd> directory = OpenDirectory(canonical, "opening directory");
  if (!directory.ok()) return directory.status();
  return canonical;
}

}  // namespace ckptd
