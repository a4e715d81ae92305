#include "daemon/coordinator/load_planner.h"

#include "tests/catch.h"
#include "tests/coordinator/layouts.h"

namespace ckptd {
namespace {

using Catch::Matchers::Contains;

// w: [4] F32 in two pieces; tied: an alias of it.
SavedState Saved() {
  SavedState saved;
  saved.record.mutable_summary()->set_world_size(2);
  saved.record.add_files()->set_path("step-1/data-e1s1-a-0.safetensors");
  v1::TensorEntry& w = *saved.entries["w"].mutable_tensor();
  w.set_name("w");
  w.set_data_type(v1::DATA_TYPE_F32);
  w.add_shape(4);
  for (uint64_t half : {0, 2}) {
    v1::Piece* piece = w.add_pieces();
    piece->add_offsets(half);
    piece->add_lengths(2);
    piece->set_size_bytes(8);
  }
  v1::TensorEntry& tied = *saved.entries["tied"].mutable_tensor();
  tied = w;
  tied.set_name("tied");
  tied.clear_pieces();
  tied.set_alias_of("w");
  for (const char* name : {"tied", "w"}) saved.names.add_names(name);
  return saved;
}

v1::PlanLoadRequest Want(const std::vector<v1::Layout>& layouts) {
  v1::PlanLoadRequest request;
  for (uint32_t rank = 0; rank < layouts.size(); ++rank) {
    v1::RankWant* want = request.add_ranks();
    want->set_rank(rank);
    *want->mutable_layout() = layouts[rank];
  }
  return request;
}

TEST_CASE("a piece is listed once per node, with every rank and tied tensor that wants it") {
  const v1::PlanLoadRequest request =
      Want({MakeLayout({WholeShard("w", {4}), WholeShard("tied", {4})}),
            MakeLayout({MakeShard("w", {4}, {3}, {1})})});
  const v1::PlanLoadRequest* requests[] = {&request};
  const auto plan = PlanLoad(Saved(), requests, 2);
  REQUIRE(plan.ok());
  REQUIRE((*plan)[0].pieces_size() == 2);
  CHECK((*plan)[0].pieces(0).targets_size() == 2);
  CHECK((*plan)[0].pieces(1).targets_size() == 3);
}

TEST_CASE("all that is wrong with a load is one error that lists it") {
  const v1::PlanLoadRequest request = Want({MakeLayout(
      {WholeShard("w", {5}), WholeShard("absent", {1}), WholeShard("gone", {1})}, {"lr"})});
  const v1::PlanLoadRequest* requests[] = {&request};
  const std::string message(PlanLoad(Saved(), requests, 1).status().message());
  CHECK_THAT(message, Contains("3 missing") && Contains("absent") && Contains("gone") &&
                          Contains("lr") && Contains("w is saved as [4], wanted as [5]") &&
                          Contains("1 extra") && Contains("tied"));
}

TEST_CASE("another dtype is an error, or a cast where the caller allows it") {
  v1::PlanLoadRequest request =
      Want({MakeLayout({WholeShard("w", {4}, v1::DATA_TYPE_BF16), WholeShard("tied", {4})})});
  const v1::PlanLoadRequest* requests[] = {&request};
  CHECK_THAT(std::string(PlanLoad(Saved(), requests, 1).status().message()),
             Contains("w is saved as F32, wanted as BF16"));
  request.mutable_options()->set_allow_cast(true);
  const auto plan = PlanLoad(Saved(), requests, 1);
  REQUIRE(plan.ok());
  CHECK((*plan)[0].ranks(0).casts(0).saved_data_type() == v1::DATA_TYPE_F32);
}

}  // namespace
}  // namespace ckptd
