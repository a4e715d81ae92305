// Reading and delivering; see loads.h.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/node/extent_allocator.h"
#include "daemon/node/loads.h"
#include "storage/format/text.h"

namespace ckptd {

void Loads::QueueReads(Load& load) {
  load.is_kept.resize(static_cast<size_t>(load.plan->files_size()));
  for (uint32_t file = 0; file < load.is_kept.size(); ++file) {
    load.is_kept[file] = kept_.Find(load.kept_name(file)) != nullptr;
    if (!load.is_kept[file]) load.headers.push_back(file);
  }
  for (size_t read = 0; read < load.reads.size(); ++read) {
    const bool is_kept = load.is_kept[load.reads[read].file];
    (is_kept ? load.arena_reads : load.storage_reads).push_back(read);
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
  const auto needs_storage = [&] { return !load->headers.empty() || !load->storage_reads.empty(); };
  while (started.ok() && !load->free_slots.empty() && needs_storage()) {
    started = StartStorageRead(load);
  }
  if (!started.ok()) return Fail(load, started, later);
  if (needs_storage() && load->slots.empty() && load->ticket == nullptr) RequestSlots(load, later);
}

absl::Status Loads::StartArenaRead(const LoadPtr& load) {
  const size_t read = load->arena_reads.front();
  const uint32_t file = load->reads[read].file;
  const ArenaLeasePtr image = kept_.Find(load->kept_name(file));
  if (image == nullptr) {
    GoToStorage(*load, file);
    return absl::OkStatus();
  }
  load->arena_reads.pop_front();
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
      const uint32_t file = load->reads[read].file;
      if (load->is_kept[file]) ImageChanged(*load, file);  // else another read has found that out
      GoToStorage(*load, file);
      load->storage_reads.push_back(read);
    }
  }
  ReadIsBack(load, later);
}

void Loads::ImageChanged(Load& load, uint32_t file) {
  const KeptName name = load.kept_name(file);
  environment_.probe.KeptImageChanged();
  environment_.probe.Warning(
      absl::StrCat(Describe(load), ": the copy of ", Printable(name.path),
                   " in the arena was changed after it was saved; it is read from storage"));
  kept_.Drop(name);
}

void Loads::GoToStorage(Load& load, uint32_t file) {
  if (!load.is_kept[file]) return;  // it has gone there
  load.is_kept[file] = false;
  load.headers.push_back(file);
  const auto others =
      std::stable_partition(load.arena_reads.begin(), load.arena_reads.end(),
                            [&](size_t read) { return load.reads[read].file != file; });
  load.storage_reads.insert(load.storage_reads.end(), others, load.arena_reads.end());
  load.arena_reads.erase(others, load.arena_reads.end());
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
      HandOver(load, active, part, window);
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
}

}  // namespace ckptd
