/* The C ABI of the ckptd client: what the Python package, and any other language,
 * builds on. Everything is passed in bulk: one call per save or load, not per tensor.
 *
 * Rules
 * - A function that can fail returns NULL, or an error that the caller frees.
 * - Codes are those of gRPC and absl::Status (5 NOT_FOUND, 6 ALREADY_EXISTS, ...).
 * - Strings are UTF-8 with a length, and may hold NUL. Names come concatenated in
 *   one buffer, with the end of each; arrays "of all dimensions" hold the
 *   dimensions of one tensor after another.
 * - Inputs are read before the function returns, except where said otherwise.
 * - Functions are safe to call from any thread, but an object must not be freed
 *   while it is in use. Timeouts are seconds. Calls block as long as their timeout:
 *   a binding releases its interpreter's lock.
 * - In a forked child every call fails with FAILED_PRECONDITION and every free
 *   does nothing.
 */
#ifndef CKPTD_CLIENT_CPP_CKPTD_CLIENT_H_
#define CKPTD_CLIENT_CPP_CKPTD_CLIENT_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised when a struct or function below changes. */
#define CKPTD_ABI_VERSION 2
int ckptd_abi_version(void);

typedef struct ckptd_error ckptd_error;
typedef struct ckptd_client ckptd_client;
typedef struct ckptd_layout ckptd_layout;
typedef struct ckptd_save ckptd_save;
typedef struct ckptd_load ckptd_load;
typedef struct ckptd_text ckptd_text;

typedef struct ckptd_string {
  const char* data;
  uint64_t size;
} ckptd_string;

/* name i is bytes[ends[i - 1], ends[i]), name 0 from 0. */
typedef struct ckptd_names {
  uint64_t count;
  const char* bytes;
  const uint64_t* ends;
} ckptd_names;

int ckptd_error_code(const ckptd_error* error);
ckptd_string ckptd_error_message(const ckptd_error* error); /* lives as long as the error */
void ckptd_error_free(ckptd_error* error);

ckptd_string ckptd_text_view(const ckptd_text* text); /* lives as long as the text */
void ckptd_text_free(ckptd_text* text);

/* ---- client ---- */

typedef struct ckptd_client_options {
  ckptd_string socket_dir; /* absolute */
  ckptd_string store;
  ckptd_string run_token;
  uint32_t rank;
  uint32_t world_size;
  uint32_t local_world_size; /* 0: not known */
  uint32_t reader;           /* 1: only loads, supersedes nobody */
  double join_timeout_seconds;
} ckptd_client_options;

ckptd_error* ckptd_client_open(const ckptd_client_options* options, ckptd_client** client);
/* Waits for the snapshots that were started, then ends the session. That is soon, except for a
 * state larger than the arena: then storage has taken so much of it by then that the rest lies in
 * the arena, or the save's timeout has passed. ckptd_client_interrupt does not end this wait. */
ckptd_error* ckptd_client_close(ckptd_client* client);
void ckptd_client_free(ckptd_client* client); /* closes first */
/* While on (1), calls of other threads that wait for ranks, a plan or bytes return CANCELLED
 * soon, and what they had begun is given up. Never blocks: for a thread that hears signals. */
ckptd_error* ckptd_client_interrupt(ckptd_client* client, uint32_t on);

/* ---- layout ---- */

typedef struct ckptd_layout_spec {
  /* Tensors that are planned. The box is this rank's, in the whole tensor. */
  ckptd_names shard_names;
  const uint8_t* shard_data_types; /* numbers of ckptd.v1.DataType */
  const uint32_t* shard_dimensions;
  const int64_t* shard_shapes;   /* of all dimensions */
  const int64_t* shard_offsets;  /* of all dimensions */
  const int64_t* shard_lengths;  /* of all dimensions */
  const int64_t* shard_alias_of; /* index of the shard whose memory it shares, or -1 */
  /* Small plain tensors, compared by hash; always whole. */
  ckptd_names small_names;
  const uint8_t* small_data_types;
  const uint32_t* small_dimensions;
  const int64_t* small_shapes;
  const int64_t* small_alias_of; /* index of an earlier one whose memory it shares, or -1 */
  ckptd_names value_names;
} ckptd_layout_spec;

/* Immutable, may be shared by any number of saves and loads. */
ckptd_error* ckptd_layout_create(const ckptd_layout_spec* spec, ckptd_layout** layout);
void ckptd_layout_free(ckptd_layout* layout);

/* ---- save ---- */

/* On the copy thread, before it copies each deferred shard. May block. Not for a shard that
 * ckptd_save_start had to copy, of a state larger than the arena. */
typedef void (*ckptd_before_copy)(uint64_t context, uint64_t shard);
/* On the copy thread, once per save that was started: its deferred memory will not
 * be read any more. Returns 0, or, to fail the save, the size of the message that
 * it wrote (at most `capacity` bytes). */
typedef uint64_t (*ckptd_after_copy)(uint64_t context, char* message, uint64_t capacity);

typedef struct ckptd_save_request {
  ckptd_string job;
  uint64_t step;
  const ckptd_layout* layout;
  /* Addresses of first elements; strides in elements, of all dimensions. */
  const uint64_t* shard_data;
  const int64_t* shard_strides;
  const uint8_t* shard_deferred; /* 1: unchanged until after_copy, copied in the background */
  const uint64_t* small_data;
  const int64_t* small_strides;
  const char* value_bytes;
  const uint64_t* value_ends;
  ckptd_names tag_keys;
  ckptd_names tag_values;
  uint32_t overwrite;
  double timeout_seconds;         /* for the whole save, until durable */
  double already_blocked_seconds; /* what the caller did before this call */
  ckptd_before_copy before_copy;  /* may be NULL */
  ckptd_after_copy after_copy;    /* may be NULL */
  uint64_t context;               /* for both */
} ckptd_save_request;

ckptd_error* ckptd_save_start(ckptd_client* client, const ckptd_save_request* request,
                              ckptd_save** save);
/* Counts a save that this rank could not even start, so that the ranks' counts stay
 * alike. ckptd_save_start counts by itself. */
ckptd_error* ckptd_save_skip(ckptd_client* client, ckptd_string job);
ckptd_error* ckptd_save_wait_snapshot(ckptd_save* save, double timeout_seconds);
ckptd_error* ckptd_save_wait_durable(ckptd_save* save, double timeout_seconds);

typedef struct ckptd_save_status {
  uint32_t phase; /* number of ckptd.v1.SavePhase */
  int32_t error_code;
  uint64_t bytes;
  double snapshot_seconds;
  double persist_seconds;
  double durable_seconds;
} ckptd_save_status;

/* `message` is of a failed save, else NULL. */
ckptd_error* ckptd_save_get_status(ckptd_save* save, ckptd_save_status* status,
                                   ckptd_text** message);
void ckptd_save_free(ckptd_save* save); /* cancels nothing; before or after the client's */

/* ---- load ---- */

typedef struct ckptd_load_request {
  ckptd_string job;
  uint64_t step;
  uint32_t latest; /* 1: the latest; `step` is ignored */
  uint32_t allow_missing;
  uint32_t allow_extra;
  uint32_t allow_cast;
  uint32_t per_rank_rule; /* number of ckptd.v1.PerRankRule */
  const ckptd_layout* layout;
  double timeout_seconds;
} ckptd_load_request;

typedef struct ckptd_load_plan {
  uint64_t step;
  uint64_t bytes;
  uint32_t saved_world_size;
  uint32_t reserved;
  uint64_t cast_count;
  const uint32_t* cast_shards;
  const uint8_t* cast_data_types; /* saved data types */
  ckptd_names missing;
  /* Contents that come whole: values, and tensors that were saved per rank. */
  uint64_t small_count;
  const uint8_t* small_is_value;
  const uint32_t* small_index; /* of the value or shard in the layout */
  const uint8_t* small_data_types;
  const uint64_t* small_bytes;
  const uint64_t* small_rank_ends; /* into small_ranks; an empty range: all agreed */
  const uint32_t* small_ranks;
} ckptd_load_plan;

ckptd_error* ckptd_load_begin(ckptd_client* client, const ckptd_load_request* request,
                              ckptd_load** load);
/* Lives as long as the load. */
const ckptd_load_plan* ckptd_load_get_plan(const ckptd_load* load);
/* Fills the memory, which stays in use until this returns. Data address 0: drop
 * that shard's bytes. Data types are those of the memory: the saved ones. */
ckptd_error* ckptd_load_run(ckptd_load* load, const uint64_t* shard_data,
                            const int64_t* shard_strides, const uint8_t* shard_data_types);
/* Of a load that has run. Lives as long as the load. */
ckptd_string ckptd_load_small(const ckptd_load* load, uint64_t index);
void ckptd_load_free(ckptd_load* load); /* ends it, finished or not */

/* ---- checkpoints ---- */

/* A ListCheckpointsResponse in Protobuf's JSON, with the field names as declared. */
ckptd_error* ckptd_list_checkpoints(ckptd_client* client, ckptd_string job, ckptd_text** json);
ckptd_error* ckptd_remove_checkpoint(ckptd_client* client, ckptd_string job, uint64_t step);

#ifdef __cplusplus
}
#endif

#endif /* CKPTD_CLIENT_CPP_CKPTD_CLIENT_H_ */
