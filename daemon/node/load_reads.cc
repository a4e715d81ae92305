// Reading and delivering; see loads.h.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/node/extent_allocator.h"
#include "daemon/node/loads.h"
#include "storage/format/text.h"

namespace ckptd {

void Loads::QueueReads(Load& load) {
  const v1::PlanLoadResponse& plan = *load.plan;
  load.files.resize(static_cast<size_t>(plan.files_size()));
  for (uint32_t file = 0; file < load.files.size(); ++file) {
    load.files[file].kept =
        kept_.Find({plan.store(), load.world.job, plan.files(static_cast<int>(file)).path()});
    if (load.files[file].kept == nullptr) load.headers.push_back(file);
  }
  for (size_t read = 0; read < load.reads.size(); ++read) {
    FileState& file = load.files[load.reads[read].file];
    ++file.reads_left;
    (file.kept == nullptr ? load.storage_reads : load.arena_reads).push_back(read);
  }
}

void Loads::Pump(const LoadPtr& load, Later& later) {
  const bool anyone = std::any_of(load->ranks.begin(), load->ranks.end(),
                                  [](const auto& entry) { return !entry.second.ended; });
  if (!anyone || load->plan == nullptr || !load->error.ok()) return;
  absl::Status started;
  while (started.ok() && !load->arena_reads.empty() &&
         load->arena_reads_active < options_.load_windows) {
    started = StartArenaRead(load);
  }
  while (started.ok() && !load->free_slots.empty() &&
         !(load->headers.empty() && load->storage_reads.empty())) {
    started = StartStorageRead(load);
  }
  if (!started.ok()) Fail(load, started, later);
}

absl::Status Loads::StartArenaRead(const LoadPtr& load) {
  const size_t read = load->arena_reads.front();
  load->arena_reads.pop_front();
  const ArenaLeasePtr image = load->files[load->reads[read].file].kept;
  absl::Status submitted = executor_.Submit([this, load, read, image] {
    ArenaReadFinished(load, read, image, load->reader->IsIntact(load->reads[read], *image));
  });
  if (!submitted.ok()) return submitted;
  ++load->arena_reads_active;
  ++load->in_flight;
  return absl::OkStatus();
}

absl::Status Loads::StartStorageRead(const LoadPtr& load) {
  const size_t slot = *load->free_slots.begin();
  const std::span<std::byte> buffer = load->slots[slot]->parts().front().bytes;
  absl::Status submitted;
  if (!load->headers.empty()) {
    const uint32_t file = load->headers.front();
    load->headers.pop_front();
    submitted = executor_.Submit([this, load, slot, file, buffer] {
      HeaderVerified(load, slot, load->reader->VerifyHeader(file, buffer));
    });
  } else {
    const size_t read = load->storage_reads.front();
    load->storage_reads.pop_front();
    submitted = executor_.Submit([this, load, slot, read, buffer] {
      ReadFinished(load, slot, read, load->reader->Read(load->reads[read], buffer));
    });
  }
  if (!submitted.ok()) return submitted;
  load->free_slots.erase(slot);
  ++load->in_flight;
  return absl::OkStatus();
}

void Loads::ReadIsBack(const LoadPtr& load, Later& later) {
  Pump(load, later);
  AnswerAllNext(*load, later);
  ForgetIfOver(load, later);
}

void Loads::HeaderVerified(const LoadPtr& load, size_t slot, const absl::Status& status) {
  Later later;
  absl::MutexLock lock(&mutex_);
  --load->in_flight;
  load->free_slots.insert(slot);
  if (!status.ok()) Fail(load, status, later);
  ReadIsBack(load, later);
}

void Loads::ReadFinished(const LoadPtr& load, size_t slot, size_t read,
                         const absl::Status& status) {
  Later later;
  absl::MutexLock lock(&mutex_);
  --load->in_flight;
  const PlannedRead& planned = load->reads[read];
  load->bytes_read += planned.length - (planned.shares_first_block ? kIoAlignmentBytes : 0);
  if (status.ok() && load->error.ok()) {
    Deliver(*load, std::make_shared<ActiveRead>(ActiveRead{.read = read, .slot = slot}));
  } else {
    load->free_slots.insert(slot);
    if (!status.ok()) Fail(load, status, later);
  }
  ReadIsBack(load, later);
}

void Loads::ArenaReadFinished(const LoadPtr& load, size_t read, const ArenaLeasePtr& image,
                              bool intact) {
  Later later;
  absl::MutexLock lock(&mutex_);
  --load->in_flight;
  if (load->error.ok() && intact) {
    for (const ReadPart& part : load->reads[read].parts) load->bytes_from_arena += part.length;
    Deliver(*load, std::make_shared<ActiveRead>(ActiveRead{.read = read, .image = image}));
  } else {
    --load->arena_reads_active;
    if (load->error.ok()) {
      load->storage_reads.push_back(read);
      GoToStorage(load, load->reads[read].file, later);
    }
  }
  ReadIsBack(load, later);
}

void Loads::GoToStorage(const LoadPtr& load, uint32_t file, Later& later) {
  if (load->files[file].kept == nullptr) return;  // another read has found that out
  const std::string& path = load->plan->files(static_cast<int>(file)).path();
  environment_.probe.Warning(
      absl::StrCat(Describe(*load), ": the copy of ", Printable(path),
                   " in the arena was changed after it was saved; it is read from storage"));
  kept_.Drop({load->plan->store(), load->world.job, path});
  load->files[file].kept.reset();
  load->headers.push_back(file);
  const auto others =
      std::stable_partition(load->arena_reads.begin(), load->arena_reads.end(),
                            [&](size_t read) { return load->reads[read].file != file; });
  load->storage_reads.insert(load->storage_reads.end(), others, load->arena_reads.end());
  load->arena_reads.erase(others, load->arena_reads.end());
  if (load->slots.empty() && load->ticket == nullptr) RequestSlots(load, later);
}

std::vector<ArenaPart> Loads::MemoryOf(const Load& load, const ActiveRead& active,
                                       const ReadPart& part) {
  const PlannedRead& read = load.reads[active.read];
  if (active.slot.has_value())
    return load.slots[*active.slot]->Cut(part.buffer_offset, part.length);
  return active.image->Cut(read.file_offset + part.buffer_offset, part.length);
}

void Loads::Deliver(Load& load, const ActiveReadPtr& active) {
  active->holders = 1;  // this function's own
  for (const ReadPart& part : load.reads[active->read].parts) {
    const v1::WantedPiece& wanted = load.plan->pieces(static_cast<int>(part.piece));
    const uint64_t element_bytes = ElementBytes(*DataTypeFromNumber(wanted.data_type()));
    uint64_t piece_offset = part.piece_offset;
    for (const ArenaPart& memory : MemoryOf(load, *active, part)) {
      v1::Window window;
      window.set_slab_id(memory.slab_id);
      window.set_slab_offset(memory.slab_offset);
      window.set_length_bytes(memory.bytes.size());
      window.set_data_type(wanted.data_type());
      *window.mutable_piece_offsets() = wanted.piece().offsets();
      *window.mutable_piece_lengths() = wanted.piece().lengths();
      window.set_first_element(piece_offset / element_bytes);
      piece_offset += memory.bytes.size();
      HandOver(load, active, part, std::move(window));
    }
  }
  GiveBack(load, active);
}

void Loads::HandOver(Load& load, const ActiveReadPtr& active, const ReadPart& part,
                     const v1::Window& window) {
  for (auto target = part.targets.begin(); target != part.targets.end();) {
    const uint32_t rank = target->rank;
    v1::Window given = window;
    given.set_window_id(next_window_id_++);
    for (; target != part.targets.end() && target->rank == rank; ++target) {
      if (target->is_small) {
        given.add_small(target->index);
      } else {
        given.add_shards(target->index);
      }
    }
    RankLoad& receiver = load.ranks.at(rank);
    if (receiver.ended) continue;
    ++active->holders;
    receiver.ready.emplace_back(std::move(given), active);
  }
}

void Loads::GiveBack(Load& load, const ActiveReadPtr& active) {
  if (--active->holders > 0) return;
  if (active->slot.has_value()) {
    load.free_slots.insert(*active->slot);
  } else {
    --load.arena_reads_active;
  }
  // The arena may have the memory back before the load ends: other reads may wait for it.
  FileState& file = load.files[load.reads[active->read].file];
  if (--file.reads_left == 0) file.kept.reset();
}

}  // namespace ckptd
