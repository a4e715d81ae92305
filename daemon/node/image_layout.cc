#include "daemon/node/image_layout.h"

#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ckptd {
namespace {

const std::map<std::string, std::string>& FileMetadata() {
  // What Hugging Face's loaders ask for.
  static const auto* metadata = new std::map<std::string, std::string>{{"format", "pt"}};
  return *metadata;
}

absl::StatusOr<DataFileLayoutPtr> LayOut(std::vector<DataFilePiece> pieces) {
  absl::StatusOr<DataFileLayout> file = DataFileLayout::Create(std::move(pieces), FileMetadata());
  if (absl::IsResourceExhausted(file.status())) {
    // A rank has one image; more files would need one lease each. Such a state is far from
    // any real one, so it is refused, in words that help.
    return absl::ResourceExhaustedError(absl::StrCat(
        "the names of the tensors that one rank writes are too many or too long for one data file "
        "(",
        file.status().message(), "): save with more ranks, or shorten or stack the tensors"));
  }
  if (!file.ok()) return file.status();
  return std::make_shared<const DataFileLayout>(*std::move(file));
}

}  // namespace

absl::StatusOr<TensorImagePtr> LayOutTensors(const CheckedLayout& layout,
                                             const v1::RankPlan& plan) {
  auto image = std::make_shared<TensorImage>();
  std::vector<DataFilePiece> pieces;
  for (const v1::PlannedPiece& planned : plan.pieces()) {
    if (planned.shard() >= layout.shards.size()) {
      return absl::InternalError(absl::StrCat("the coordinator's plan names shard ",
                                              planned.shard(), " of rank ", plan.rank(),
                                              ", which has ", layout.shards.size()));
    }
    const CheckedShard& shard = layout.shards[planned.shard()];
    const Box box{ToExtents(planned.offsets()), ToExtents(planned.lengths())};
    if (!ValidateBox(box, shard.shape, ElementBytes(shard.data_type)).ok() ||
        !Contains(shard.box, box)) {
      return absl::InternalError(absl::StrCat("the coordinator's plan wants ", ToString(box),
                                              " of tensor ", shard.name, " from rank ", plan.rank(),
                                              ", which has ", ToString(shard.box)));
    }
    pieces.push_back({.key = PieceKey(shard.name, shard.shape, box),
                      .data_type = shard.data_type,
                      .lengths = box.lengths});
    image->pieces.push_back({planned.shard(), box});
  }
  if (!pieces.empty()) {
    absl::StatusOr<DataFileLayoutPtr> file = LayOut(std::move(pieces));
    if (!file.ok()) return file.status();
    image->file = *std::move(file);
  }
  return TensorImagePtr(std::move(image));
}

void AddPlacements(const TensorImage& image, v1::BeginSaveResponse& response) {
  for (size_t i = 0; i < image.pieces.size(); ++i) {
    v1::Placement* placement = response.add_placements();
    placement->set_shard(image.pieces[i].shard);
    for (int64_t offset : image.pieces[i].box.offsets) placement->add_offsets(offset);
    for (int64_t length : image.pieces[i].box.lengths) placement->add_lengths(length);
    placement->set_image_offset(image.file->piece_offset(i));
  }
}

absl::StatusOr<SmallImage> LayOutSmall(const CheckedLayout& layout, uint32_t rank,
                                       const std::vector<uint64_t>& sizes,
                                       const std::vector<uint32_t>& held) {
  SmallImage image{.contents = held};
  if (held.empty()) return image;
  std::vector<DataFilePiece> pieces;
  for (uint32_t index : held) {
    const CheckedSmall& small = layout.small[index];
    DataFilePiece piece{.key = rank == 0 ? EscapeName(small.name) : RankKey(small.name, rank),
                        .data_type = small.data_type,
                        .lengths = small.shape};
    if (small.is_value) piece.lengths = {static_cast<int64_t>(sizes[index])};
    pieces.push_back(std::move(piece));
  }
  absl::StatusOr<DataFileLayoutPtr> file = LayOut(std::move(pieces));
  if (!file.ok()) return file.status();
  image.file = *std::move(file);
  return image;
}

}  // namespace ckptd
