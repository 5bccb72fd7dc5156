/*
 * Encrypts and decrypts with Intel's multi-buffer library (ipsec-mb) what ring would encrypt and decrypt with its own
 * assembly for AVX2.
 *
 * `build.rs` passes `--wrap=SYMBOL` to the linker for both functions of ring. So ring calls `__wrap_SYMBOL` of this file,
 * and `__real_SYMBOL` is the function of ring. RING is the prefix of ring's symbols, which contains its version.
 */

#include <intel-ipsec-mb.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The versions of the library in which the function below has this declaration and reads nothing of its first argument
 * but `features`. */
#if IMB_VERSION_NUM < IMB_VERSION(1, 3, 0) || IMB_VERSION_NUM >= IMB_VERSION(2, 1, 0)
#error "ipsec-mb is supported from 1.3 to 2.0"
#endif

/*
 * The function that the library's job interface calls for this cipher. It is called directly, because a manager of the job
 * interface refers to every cipher of the library: it adds 12 MB to the binary and 200 kB of memory per thread.
 */
IMB_JOB *aead_chacha20_poly1305_avx512(IMB_MGR *manager, IMB_JOB *job);

/* The argument and the result of ring's functions. They are BoringSSL's `chacha20_poly1305_open_data` and
 * `chacha20_poly1305_seal_data`, without the additional ciphertext, which ring does not use. */
union data {
	struct {
		uint32_t key[8];
		uint32_t counter;
		uint8_t nonce[12];
	} in;
	uint8_t tag[16];
};

typedef void function(uint8_t *out, const uint8_t *in, size_t length, const uint8_t *aad, size_t aad_length,
		      union data *data);

#define JOIN_EXPANDED(a, b, c) a##b##c
#define JOIN(a, b, c) JOIN_EXPANDED(a, b, c)
#define RING_SEAL JOIN(__real_, RING, chacha20_poly1305_seal_avx2)
#define RING_OPEN JOIN(__real_, RING, chacha20_poly1305_open_avx2)
#define WRAP_SEAL JOIN(__wrap_, RING, chacha20_poly1305_seal_avx2)
#define WRAP_OPEN JOIN(__wrap_, RING, chacha20_poly1305_open_avx2)

function RING_SEAL, RING_OPEN, WRAP_SEAL, WRAP_OPEN;

/* Which messages the library processes: the values of `Messages` in ipsec_mb.rs. */
enum { NONE, LONG, ALL };

static atomic_int messages = NONE;

/* Length in bytes from which on a message is long. */
static atomic_size_t long_min = SIZE_MAX;

/* Number of messages that the library has processed in this thread. */
static _Thread_local uint64_t count;

/* Only `features` is set and read, so all threads share it. */
static IMB_MGR manager;

void liqo_cipher_set(int value, size_t min)
{
	manager.features = IMB_FEATURE_AVX512_IFMA;
	atomic_store(&long_min, min);
	atomic_store(&messages, value);
}

uint64_t liqo_cipher_count(void)
{
	return count;
}

static int is_for_library(const uint8_t *out, const uint8_t *in, size_t length, size_t aad_length)
{
	/* The library supports no overlap except equality. boringtun always decrypts and encrypts in place. */
	if (out != in)
		return 0;

	switch (atomic_load_explicit(&messages, memory_order_relaxed)) {
	case LONG:
		return aad_length == 0 && length >= atomic_load_explicit(&long_min, memory_order_relaxed);
	case ALL:
		return 1;
	default:
		return 0;
	}
}

static void process(IMB_CIPHER_DIRECTION direction, uint8_t *in_out, size_t length, const uint8_t *aad,
		    size_t aad_length, union data *data)
{
	/* The tag has a buffer of its own, because `data->tag` overlaps with key and nonce. */
	uint8_t tag[sizeof(data->tag)];
	IMB_JOB job;

	/* The other fields are for other ciphers. They stay uninitialised, which saves 200 bytes of writes per message. */
	job.cipher_mode = IMB_CIPHER_CHACHA20_POLY1305;
	job.hash_alg = IMB_AUTH_CHACHA20_POLY1305;
	job.cipher_direction = direction;
	job.chain_order = direction == IMB_DIR_ENCRYPT ? IMB_ORDER_CIPHER_HASH : IMB_ORDER_HASH_CIPHER;
	job.enc_keys = data->in.key;
	job.dec_keys = data->in.key;
	job.key_len_in_bytes = sizeof(data->in.key);
	job.iv = data->in.nonce;
	job.iv_len_in_bytes = sizeof(data->in.nonce);
	job.u.CHACHA20_POLY1305.aad = aad;
	job.u.CHACHA20_POLY1305.aad_len_in_bytes = aad_length;
	job.src = in_out;
	job.dst = in_out;
	job.cipher_start_src_offset_in_bytes = 0;
	job.msg_len_to_cipher_in_bytes = length;
	job.hash_start_src_offset_in_bytes = 0;
	job.msg_len_to_hash_in_bytes = length;
	job.auth_tag_output = tag;
	job.auth_tag_output_len_in_bytes = sizeof(tag);
	aead_chacha20_poly1305_avx512(&manager, &job);

	memcpy(data->tag, tag, sizeof(tag));
	count++;
}

void WRAP_SEAL(uint8_t *out, const uint8_t *in, size_t length, const uint8_t *aad, size_t aad_length, union data *data)
{
	if (is_for_library(out, in, length, aad_length))
		process(IMB_DIR_ENCRYPT, out, length, aad, aad_length, data);
	else
		RING_SEAL(out, in, length, aad, aad_length, data);
}

/* ring compares the computed tag with the received one. */
void WRAP_OPEN(uint8_t *out, const uint8_t *in, size_t length, const uint8_t *aad, size_t aad_length, union data *data)
{
	if (is_for_library(out, in, length, aad_length))
		process(IMB_DIR_DECRYPT, out, length, aad, aad_length, data);
	else
		RING_OPEN(out, in, length, aad, aad_length, data);
}
